#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "collective/task.h"
#include "shm/arena.h"
#include "wire/wire.h"

namespace giant {

/// Runs the chunks of a call side by side, at most Arena::kWindow of them, until all are done.
///
/// Waits politely: there may be more ranks than cores. A short spin, then the core is offered to
/// others for some microseconds, then it sleeps until a peer writes a flag or a stream has data.
class Progress {
 public:
  /// `lives` are pidfds of the ranks of this host by local index; `ranks` their names.
  Progress(Arena& arena, Wire& wire, std::vector<pollfd> lives, std::vector<int> ranks);

  /// `make(i)` makes the task of the i-th of `count` chunks. Throws what a task throws, PeerError
  /// where a rank dies, TimeoutError naming the ranks that are late for `call`.
  void run(uint64_t call, size_t count, const std::function<Task(size_t)>& make, Deadline deadline);

  uint64_t nanoseconds_waiting() const { return nanoseconds_waiting_; }

 private:
  struct Wait {
    Clock::time_point since;
    int spins = 0;
    Clock::time_point looked;  // for dead peers
  };

  bool advance(std::vector<Task>& active);
  void idle(uint64_t call, Wait& wait, std::vector<Task>& active);
  void sleep(std::vector<Task>& active);
  void look_for_dead(uint64_t call, Wait& wait);
  std::vector<int> missing_here(uint64_t call) const;
  std::vector<int> still_here() const;
  std::vector<int> awaited_from_here() const;
  std::string late(uint64_t call, milliseconds timeout) const;
  std::string whose_fault(uint64_t call) const;

  Arena& arena_;
  Wire& wire_;
  std::vector<pollfd> lives_;
  std::vector<int> ranks_;
  std::atomic<uint64_t> nanoseconds_waiting_ = 0;
};

}  // namespace giant
