#include "shm/arena.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/error.h"
#include "base/futex.h"

namespace giant {

struct Arena::Shared {
  static constexpr size_t kText = 4000;

  std::atomic<uint32_t> stage;  // 0 well, 1 somebody writes the text, 2 it is there
  uint32_t fault;
  char text[kText];
};

struct alignas(128) Arena::State {
  std::atomic<uint64_t> arrived;
  std::array<std::array<std::atomic<uint64_t>, kWindow>, 3> flags;
  CallHead heads[kHeads];
  std::atomic<uint32_t> left;
  std::atomic<uint32_t> awaited;  // one more than the rank, since the memory starts as zeros
  std::atomic<int64_t> beat;      // 0 outside of a call
  // Others write here: a line of its own.
  alignas(128) std::atomic<uint32_t> sleeping;
  std::atomic<uint32_t> bell;
};

namespace {

constexpr size_t kPage = 4096;

size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

size_t Arena::bytes_needed(int local_size) {
  const size_t states = sizeof(State) * local_size;
  return whole_pages(sizeof(Shared)) + whole_pages(states) +
         2 * kWindow * kChunkBytes * static_cast<size_t>(local_size);
}

Arena::Arena(Region region, int local, int local_size, std::vector<Fd> bells)
    : region_(std::move(region)), local_(local), local_size_(local_size), bells_(std::move(bells)) {}

Arena::Shared& Arena::shared() const { return *reinterpret_cast<Shared*>(region_.data()); }

Arena::State& Arena::state(int peer) const {
  return reinterpret_cast<State*>(region_.data() + whole_pages(sizeof(Shared)))[peer];
}

void Arena::beat() { state(local_).beat.store(Clock::now().time_since_epoch().count()); }

void Arena::rest() {
  state(local_).beat.store(0);
  state(local_).awaited.store(0);
}

bool Arena::stands_still(int peer, milliseconds most) const {
  const int64_t last = state(peer).beat.load();
  return last != 0 && Clock::now() - Clock::time_point(Clock::duration(last)) > most;
}

void Arena::set_awaited(int rank) { state(local_).awaited.store(static_cast<uint32_t>(rank + 1)); }

int Arena::awaited(int peer) const { return static_cast<int>(state(peer).awaited.load()) - 1; }

uint8_t* Arena::in(int peer, uint64_t chunk) const {
  const size_t states = whole_pages(sizeof(State) * local_size_);
  uint8_t* const areas = region_.data() + whole_pages(sizeof(Shared)) + states;
  return areas + (2 * (kWindow * peer + chunk % kWindow)) * kChunkBytes;
}

uint8_t* Arena::out(int peer, uint64_t chunk) const { return in(peer, chunk) + kChunkBytes; }

void Arena::arrive(uint64_t call, const CallHead& head) {
  State& own = state(local_);
  own.heads[call % kHeads] = head;
  own.arrived.store(call);
}

bool Arena::has_arrived(int peer, uint64_t call) const { return state(peer).arrived.load() >= call; }

CallHead Arena::head(int peer, uint64_t call) const { return state(peer).heads[call % kHeads]; }

void Arena::publish(Flag flag, uint64_t chunk) {
  state(local_).flags[static_cast<size_t>(flag)][chunk % kWindow].store(chunk + 1);
  wake_all();
}

bool Arena::has(int peer, Flag flag, uint64_t chunk) const {
  const auto& word = state(peer).flags[static_cast<size_t>(flag)][chunk % kWindow];
  return word.load() >= chunk + 1;
}

void Arena::leave() {
  state(local_).left.store(1);
  wake_all();
}

bool Arena::has_left(int peer) const { return state(peer).left.load() != 0; }

void Arena::fail(Fault fault, const std::string& text) {
  uint32_t well = 0;
  Shared& all = shared();
  if (all.stage.compare_exchange_strong(well, 1)) {
    all.fault = static_cast<uint32_t>(fault);
    const size_t length = std::min(text.size(), Shared::kText - 1);
    std::memcpy(all.text, text.data(), length);
    all.text[length] = 0;
    all.stage.store(2);
  }
  for (int peer = 0; peer < local_size_; ++peer) wake(peer);
}

bool Arena::has_failed() const { return shared().stage.load() == 2; }

void Arena::throw_fault() const {
  const Shared& all = shared();
  switch (static_cast<Fault>(all.fault)) {
    case Fault::usage: throw UsageError(all.text);
    case Fault::timeout: throw TimeoutError(all.text);
    case Fault::peer: break;
  }
  throw PeerError(all.text);
}

void Arena::wake_all() {
  for (int peer = 0; peer < local_size_; ++peer) {
    if (peer != local_) wake(peer);
  }
}

void Arena::wake(int peer) {
  State& other = state(peer);
  // The flag was stored before, and a sleeper looks at flags after it said that it sleeps: with
  // sequentially consistent accesses one of the two sees the other.
  const auto how = static_cast<Sleep>(other.sleeping.load());
  if (how == Sleep::awake) return;
  other.bell.fetch_add(1);
  if (how == Sleep::futex) futex_wake(other.bell);
  const uint64_t one = 1;
  // It can only fail where the bell rings already.
  if (how == Sleep::poll && write(bells_[peer].get(), &one, sizeof one) < 0) return;
}

uint32_t Arena::begin_sleep(Sleep how) {
  State& own = state(local_);
  const uint32_t before = own.bell.load();
  own.sleeping.store(static_cast<uint32_t>(how));
  return before;
}

void Arena::sleep_on_word(uint32_t before, milliseconds most) {
  futex_wait(state(local_).bell, before, most);
}

void Arena::end_sleep() { state(local_).sleeping.store(static_cast<uint32_t>(Sleep::awake)); }

void Arena::clear_bell() {
  uint64_t count = 0;
  // Nothing to read is as good.
  if (read(bells_[local_].get(), &count, sizeof count) < 0) return;
}

}  // namespace giant
