#include "net/handshake.h"

#include <cstring>
#include <vector>

#include "base/error.h"
#include "net/random.h"

namespace giant {
namespace {

constexpr uint8_t kWelcome = 0x57;

// The name of the side keeps one side's proof from serving as the other's.
constexpr std::string_view kConnects = "connects";
constexpr std::string_view kAccepts = "accepts ";

Digest proof_of(const Secret& secret, std::string_view side, const Hello& hello,
                const Nonce& answered) {
  std::vector<uint8_t> text(side.begin(), side.end());
  const auto* const bytes = reinterpret_cast<const uint8_t*>(&hello);
  text.insert(text.end(), bytes, bytes + sizeof hello);
  text.insert(text.end(), answered.begin(), answered.end());
  return hmac_sha256(secret, text);
}

bool is_sensible(const Hello& hello, int own, int size) {
  const bool is_ours = hello.magic == Hello::kMagic && hello.version == Hello::kVersion;
  const bool has_peer =
      hello.to == own && hello.from >= 0 && hello.from < size && hello.from != own;
  const bool has_purpose = hello.purpose >= static_cast<uint32_t>(Purpose::handover) &&
                           hello.purpose <= static_cast<uint32_t>(Purpose::mail);
  return is_ours && has_peer && has_purpose && hello.reserved == 0;
}

}  // namespace

Handshake::Handshake(const Secret& secret, bool connects, int own, int size)
    : secret_(secret),
      connects_(connects),
      own_(own),
      size_(size),
      expected_(connects ? Expected::answer : Expected::hello) {}

Handshake Handshake::connecting(const Secret& secret, int own, int peer, Purpose purpose) {
  Handshake made(secret, true, own, 0);
  made.hello_.from = own;
  made.hello_.to = peer;
  made.hello_.purpose = static_cast<uint32_t>(purpose);
  fill_random(made.hello_.nonce.data(), made.hello_.nonce.size());
  made.put(&made.hello_, sizeof made.hello_);
  return made;
}

Handshake Handshake::accepting(const Secret& secret, int own, int size) {
  return Handshake(secret, false, own, size);
}

size_t Handshake::expected_size() const {
  switch (expected_) {
    case Expected::hello: return sizeof(Hello);
    case Expected::answer: return sizeof(Answer);
    case Expected::proof: return sizeof(Digest);
    case Expected::welcome: break;
  }
  return sizeof kWelcome;
}

size_t Handshake::wanted() const { return state_ == State::open ? expected_size() - got_ : 0; }

void Handshake::take(std::span<const uint8_t> bytes) {
  if (bytes.size() > wanted()) throw UsageError("a handshake was given more than it wanted");
  if (bytes.empty()) return;
  std::memcpy(in_.data() + got_, bytes.data(), bytes.size());
  got_ += bytes.size();
  if (wanted() > 0) return;
  got_ = 0;
  handle_message();
}

void Handshake::handle_message() {
  switch (expected_) {
    case Expected::hello: return handle_hello();
    case Expected::answer: return handle_answer();
    case Expected::proof: return handle_proof();
    case Expected::welcome: return handle_welcome();
  }
}

void Handshake::handle_hello() {
  std::memcpy(&hello_, in_.data(), sizeof hello_);
  if (!is_sensible(hello_, own_, size_)) return fail("it said no hello of this group");
  Answer answer;
  fill_random(answer.nonce.data(), answer.nonce.size());
  answered_ = answer.nonce;
  answer.proof = proof_of(secret_, kAccepts, hello_, answered_);
  put(&answer, sizeof answer);
  expected_ = Expected::proof;
}

void Handshake::handle_answer() {
  Answer answer;
  std::memcpy(&answer, in_.data(), sizeof answer);
  const Digest right = proof_of(secret_, kAccepts, hello_, answer.nonce);
  if (!equal_in_constant_time(answer.proof, right))
    return fail("it does not know the group's secret");
  const Digest proof = proof_of(secret_, kConnects, hello_, answer.nonce);
  put(proof.data(), proof.size());
  expected_ = Expected::welcome;
}

void Handshake::handle_proof() {
  Digest proof;
  std::memcpy(proof.data(), in_.data(), proof.size());
  if (!equal_in_constant_time(proof, proof_of(secret_, kConnects, hello_, answered_)))
    return fail("it does not know the group's secret");
  state_ = State::proven;
  put(&kWelcome, sizeof kWelcome);
}

void Handshake::handle_welcome() {
  if (in_[0] != kWelcome) return fail("it gave no welcome");
  state_ = State::proven;
}

std::span<const uint8_t> Handshake::unsent() const {
  return std::span(out_).subspan(sent_, to_send_ - sent_);
}

void Handshake::mark_sent(size_t bytes) {
  if (bytes > to_send_ - sent_) throw UsageError("a handshake had less to send");
  sent_ += bytes;
}

void Handshake::put(const void* data, size_t bytes) {
  // A side that speaks out of turn has not read the message before.
  if (sent_ != to_send_) return fail("it spoke out of turn");
  std::memcpy(out_.data(), data, bytes);
  to_send_ = bytes;
  sent_ = 0;
}

void Handshake::fail(std::string_view why) {
  state_ = State::failed;
  failure_ = why;
  to_send_ = sent_ = 0;
}

}  // namespace giant
