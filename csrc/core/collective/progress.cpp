#include "collective/progress.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "base/error.h"

namespace giant {
namespace {

constexpr int kPauses = 32;
constexpr auto kYielding = std::chrono::microseconds(60);
constexpr auto kMostSleep = milliseconds(50);
constexpr auto kStill = milliseconds(500);
constexpr auto kGrace = milliseconds(1000);

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

bool any_ready(const std::vector<Task>& active) {
  return std::any_of(active.begin(), active.end(), [](const Task& task) { return task.ready(); });
}

std::string listed(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i ? ", " : "") + std::to_string(ranks[i]);
  return text;
}

}  // namespace

Progress::Progress(Arena& arena, Wire& wire, std::vector<pollfd> lives, std::vector<int> ranks)
    : arena_(arena), wire_(wire), lives_(std::move(lives)), ranks_(std::move(ranks)) {}

void Progress::run(uint64_t call, size_t count, const std::function<Task(size_t)>& make,
                   Deadline deadline) {
  std::vector<Task> active;
  active.reserve(Arena::kWindow);
  size_t next = 0;
  Wait wait;
  bool is_waiting = false, has_grace = false;
  const milliseconds timeout = deadline.given();
  while (next < count || !active.empty()) {
    bool moved = false;
    for (; next < count && active.size() < Arena::kWindow; ++next, moved = true)
      active.push_back(make(next));
    moved |= advance(active);
    if (wire_.any()) moved |= wire_.pump();
    if (moved) {
      arena_.beat();
      is_waiting = false;
      continue;
    }
    if (!is_waiting) wait = {.since = Clock::now(), .spins = 0, .looked = Clock::now()};
    is_waiting = true;
    if (arena_.has_failed()) arena_.throw_fault();
    if (wait.spins > kPauses && deadline.expired()) {
      // Who shares a host with the late rank knows its name: others let them speak first.
      const bool knows = !missing_here(call).empty() || !still_here().empty();
      if (has_grace || knows) throw TimeoutError(late(call, timeout));
      has_grace = true;
      deadline = Deadline::after(kGrace);
    }
    idle(call, wait, active);
  }
  arena_.rest();
}

bool Progress::advance(std::vector<Task>& active) {
  bool moved = false;
  for (Task& task : active) {
    while (!task.done() && task.ready()) {
      task.resume();
      moved = true;
    }
  }
  std::erase_if(active, [](const Task& task) { return task.done(); });
  return moved;
}

void Progress::idle(uint64_t call, Wait& wait, std::vector<Task>& active) {
  if (++wait.spins <= kPauses) return pause();
  const auto before = Clock::now();
  if (before - wait.since < kYielding) {
    sched_yield();
  } else {
    arena_.beat();
    sleep(active);
    look_for_dead(call, wait);
  }
  nanoseconds_waiting_ += std::chrono::nanoseconds(Clock::now() - before).count();
}

void Progress::sleep(std::vector<Task>& active) {
  if (wire_.any()) {
    const std::vector<int> awaited = wire_.awaited();
    arena_.set_awaited(awaited.empty() ? -1 : awaited.front());
  }
  std::vector<pollfd> list;
  wire_.add_pollable(list);
  const auto ready = [&] { return any_ready(active); };
  if (list.empty()) return arena_.sleep(kMostSleep, ready);
  arena_.sleep_with(ready, [&] {
    list.push_back({arena_.bell(), POLLIN, 0});
    poll(list.data(), list.size(), static_cast<int>(kMostSleep.count()));
  });
}

void Progress::look_for_dead(uint64_t call, Wait& wait) {
  const auto now = Clock::now();
  if (now - wait.looked < kMostSleep / 2) return;
  wait.looked = now;
  if (!lives_.empty()) poll(lives_.data(), lives_.size(), 0);
  for (int peer = 0; peer < arena_.local_size(); ++peer) {
    // One that has come to this call and left the group since has done all that is wanted of it.
    const bool has_come = arena_.has_arrived(peer, call);
    const std::string name = "rank " + std::to_string(ranks_[peer]);
    if (arena_.has_left(peer) && !has_come) throw PeerError(name + " has left the group");
    const bool is_dead = !lives_.empty() && lives_[peer].revents != 0;
    if (is_dead && !arena_.has_left(peer)) throw PeerError(name + " has died");
  }
}

std::vector<int> Progress::missing_here(uint64_t call) const {
  std::vector<int> missing;
  for (int peer = 0; peer < arena_.local_size(); ++peer) {
    if (!arena_.has_arrived(peer, call)) missing.push_back(ranks_[peer]);
  }
  return missing;
}

std::vector<int> Progress::still_here() const {
  std::vector<int> still;
  for (int peer = 0; peer < arena_.local_size(); ++peer) {
    if (peer != arena_.local() && arena_.stands_still(peer, kStill)) still.push_back(ranks_[peer]);
  }
  return still;
}

std::vector<int> Progress::awaited_from_here() const {
  std::vector<int> awaited = wire_.awaited();
  for (int peer = 0; peer < arena_.local_size(); ++peer) {
    const int rank = arena_.awaited(peer);
    if (peer != arena_.local() && rank >= 0) awaited.push_back(rank);
  }
  std::sort(awaited.begin(), awaited.end());
  awaited.erase(std::unique(awaited.begin(), awaited.end()), awaited.end());
  return awaited;
}

std::string Progress::late(uint64_t call, milliseconds timeout) const {
  return "no result after the timeout of " + in_words(timeout) + ": " + whose_fault(call);
}

std::string Progress::whose_fault(uint64_t call) const {
  const std::vector<int> missing = missing_here(call);
  if (!missing.empty()) return listed(missing) + " did not arrive in time";
  const std::vector<int> still = still_here();
  if (!still.empty()) return listed(still) + " arrived, but stood still and was not done in time";
  const std::vector<int> silent = awaited_from_here();
  if (!silent.empty()) return listed(silent) + " sent nothing in time";
  return "all ranks arrived, but it was not done in time";
}

}  // namespace giant
