#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "collective/head.h"
#include "shm/region.h"

namespace giant {

/// What a rank says of a chunk to the others of its host.
enum class Flag : uint8_t { in, out, done };

enum class Fault : uint32_t { usage = 1, peer = 2, timeout = 3 };

/// The memory that the ranks of a host share: for each rank its flags, and for each chunk under way
/// an area `in` (what it gives) and an area `out` (what it worked out, or what came over the wire).
///
/// Chunks are numbered through the whole life of a group; number n uses place n % kWindow.
class Arena {
 public:
  static constexpr size_t kWindow = 4;
  static constexpr size_t kChunkBytes = 512 * 1024;
  /// A rank is never further ahead of another than kWindow calls, since each has a chunk.
  static constexpr size_t kHeads = 2 * kWindow;

  static size_t bytes_needed(int local_size);

  /// `bells` are eventfds by local index; `local` is the own one.
  Arena(Region region, int local, int local_size, std::vector<Fd> bells);

  int local() const { return local_; }
  int local_size() const { return local_size_; }

  // What is written by one rank and read by the others.
  void arrive(uint64_t call, const CallHead& head);
  bool has_arrived(int peer, uint64_t call) const;
  CallHead head(int peer, uint64_t call) const;
  void publish(Flag flag, uint64_t chunk);
  bool has(int peer, Flag flag, uint64_t chunk) const;
  /// This rank is at work on a call; to be said every few milliseconds until `rest`.
  void beat();
  void rest();
  /// In the midst of a call, a rank has not beaten for `most`: its process does not run.
  bool stands_still(int peer, milliseconds most) const;
  /// The rank of another host that this rank waits for, -1 for none: who waits for this rank
  /// waits for that one.
  void set_awaited(int rank);
  int awaited(int peer) const;
  uint8_t* in(int peer, uint64_t chunk) const;
  uint8_t* out(int peer, uint64_t chunk) const;

  /// This rank takes part in no further call: that its process ends now is no fault.
  void leave();
  bool has_left(int peer) const;

  /// The first fault of any rank counts. Wakes everybody.
  void fail(Fault fault, const std::string& text);
  bool has_failed() const;
  /// Throws what `fail` was given.
  void throw_fault() const;

  /// Until somebody publishes, or `most` is over. `ready` is asked once more before the sleep.
  template <class Ready>
  void sleep(milliseconds most, Ready&& ready) {
    const uint32_t before = begin_sleep(Sleep::futex);
    if (!ready() && !has_failed()) sleep_on_word(before, most);
    end_sleep();
  }

  /// The same for one who waits for descriptors too: `wait` polls `bell()` beside them.
  template <class Ready, class Wait>
  void sleep_with(Ready&& ready, Wait&& wait) {
    begin_sleep(Sleep::poll);
    if (!ready() && !has_failed()) wait();
    end_sleep();
    clear_bell();
  }
  int bell() const { return bells_[local_].get(); }

  /// Wakes a rank of this host, also from another thread of this process.
  void wake(int peer);

 private:
  enum class Sleep : uint32_t { awake, futex, poll };
  struct State;
  struct Shared;

  State& state(int peer) const;
  Shared& shared() const;
  void wake_all();
  uint32_t begin_sleep(Sleep how);
  void sleep_on_word(uint32_t before, milliseconds most);
  void end_sleep();
  void clear_bell();

  Region region_;
  int local_;
  int local_size_;
  std::vector<Fd> bells_;
};

}  // namespace giant
