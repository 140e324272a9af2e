#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/deadline.h"
#include "group/call.h"
#include "group/options.h"
#include "net/store.h"
#include "p2p/mailbox.h"
#include "topology.h"

namespace giant {

/// What a group has done so far; read by any thread.
struct Counters {
  uint64_t calls = 0;
  uint64_t bytes_sent_between_hosts = 0;
  uint64_t bytes_received_between_hosts = 0;
  uint64_t nanoseconds_waiting = 0;
};

/// The collectives of one group of ranks.
class Group {
 public:
  /// Meets the other ranks over the store. Throws TimeoutError, PeerError.
  static std::unique_ptr<Group> open(Store& store, int rank, int size, const GroupOptions& options);

  virtual ~Group() = default;

  /// Takes part in a collective on the calling thread; when it returns the outputs are there and the
  /// inputs are free. Calls of a group come one at a time, in the same order on all ranks.
  ///
  /// Throws UsageError (calls that do not match: on all ranks), PeerError (a rank died or gave up),
  /// TimeoutError (naming the ranks that did not arrive). After an error the group is of no more
  /// use, and every later call throws the same.
  virtual void run(const Call& call, Deadline deadline) = 0;

  virtual Mailbox& mailbox() = 0;

  /// From any thread: a running `run` and all messages fail with `why` on all ranks.
  virtual void abort(const std::string& why) = 0;

  virtual const Topology& topology() const = 0;
  virtual Counters counters() const = 0;
};

}  // namespace giant
