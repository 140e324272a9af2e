#include "net/handshake.h"

#include <cstring>
#include <string_view>
#include <vector>

#include "net/random.h"

namespace giant {
namespace {

/// `who` keeps one side's proof from serving as the other's.
Digest proof_of(const Secret& secret, std::string_view who, const Hello& hello,
                const std::array<uint8_t, 32>& nonce) {
  std::vector<uint8_t> text(who.begin(), who.end());
  const auto* const bytes = reinterpret_cast<const uint8_t*>(&hello);
  text.insert(text.end(), bytes, bytes + sizeof hello);
  text.insert(text.end(), nonce.begin(), nonce.end());
  return hmac_sha256(secret, text);
}

}  // namespace

Hello make_hello(int from, int to, Purpose purpose) {
  Hello hello;
  hello.from = from;
  hello.to = to;
  hello.purpose = static_cast<uint32_t>(purpose);
  fill_random(hello.nonce.data(), hello.nonce.size());
  return hello;
}

bool is_sensible(const Hello& hello, int own, int size) {
  const bool is_ours = hello.magic == Hello::kMagic && hello.version == Hello::kVersion;
  const bool has_peer = hello.to == own && hello.from >= 0 && hello.from < size && hello.from != own;
  const bool has_purpose = hello.purpose >= static_cast<uint32_t>(Purpose::handover) &&
                           hello.purpose <= static_cast<uint32_t>(Purpose::mail);
  return is_ours && has_peer && has_purpose;
}

Answer make_answer(const Secret& secret, const Hello& hello) {
  Answer answer;
  fill_random(answer.nonce.data(), answer.nonce.size());
  answer.proof = proof_of(secret, "accepts", hello, answer.nonce);
  return answer;
}

bool is_right(const Secret& secret, const Hello& hello, const Answer& answer) {
  return equal_in_constant_time(answer.proof, proof_of(secret, "accepts", hello, answer.nonce));
}

Digest make_proof(const Secret& secret, const Hello& hello, const Answer& answer) {
  return proof_of(secret, "connects", hello, answer.nonce);
}

}  // namespace giant
