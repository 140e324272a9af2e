#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/deadline.h"

namespace giant {

class Endpoint;

/// A send or receive on its way.
class Message {
 public:
  virtual ~Message() = default;
  virtual bool done() const = 0;
  /// Waits and drives the transfer on this thread. Throws TimeoutError, PeerError, UsageError.
  virtual void wait(Deadline deadline) = 0;
  /// Of a receive that is done: who sent it.
  virtual int source() const = 0;
  /// Calls `function` once, with the error or null, on whichever thread ends the transfer; at once
  /// where it is over already.
  virtual void on_done(std::function<void(std::exception_ptr)> function) = 0;
};

/// Messages between two ranks, matched by (peer, tag) in the order in which they were sent.
///
/// Does not wait for collectives, nor they for it. Connections are made at first use, one for each
/// direction, by the sender. Messages of up to kEagerBytes are copied and done at once; longer ones
/// leave when their receive is posted, straight from and into the caller's memory, which must live
/// until the message is done. A receive of another length than the message's is a UsageError on
/// both sides. All functions may be called from any thread.
class Mailbox {
 public:
  static constexpr int kAnySource = -1;
  static constexpr size_t kEagerBytes = 64 * 1024;

  virtual ~Mailbox() = default;
  /// `timeout` from now: a message that is not done by then fails, and no other does.
  virtual std::shared_ptr<Message> send(const void* data, size_t bytes, int peer, uint64_t tag,
                                        milliseconds timeout) = 0;
  virtual std::shared_ptr<Message> receive(void* data, size_t bytes, int peer, uint64_t tag,
                                           milliseconds timeout) = 0;
  /// Every message under way fails with `why`, and so does every later one.
  virtual void abort(const std::string& why) = 0;
  /// Waits up to `grace` for what was sent to leave, then ends the thread and the connections.
  virtual void close(milliseconds grace) = 0;
};

/// `endpoint` may be used by this mailbox alone from now on.
std::unique_ptr<Mailbox> open_mailbox(std::unique_ptr<Endpoint> endpoint, int rank, int size,
                                      std::string group_name);

}  // namespace giant
