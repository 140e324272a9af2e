#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "p2p/mailbox.h"

namespace giant::p2p {

class Core;

/// Why a transfer failed. Kept as words: each thread that asks gets an exception of its own.
struct Failure {
  enum class Kind { none, usage, peer, timeout };

  Kind kind = Kind::none;
  std::string text;

  explicit operator bool() const { return kind != Kind::none; }
  /// Throws what it is; nothing if it is none.
  void raise() const;
  std::exception_ptr exception() const;
};

/// A message. All but what is atomic is guarded by the lock of its core until it is done, and
/// constant from then on.
class Transfer final : public Message {
 public:
  enum class Way { send, receive };

  struct Request {
    Way way = Way::send;
    char* data = nullptr;  // only read where it is sent
    size_t bytes = 0;
    int peer = 0;
    uint64_t tag = 0;
    milliseconds timeout{0};
  };

  Transfer(std::shared_ptr<Core> core, const Request& request);

  bool done() const override { return done_.load(std::memory_order_acquire); }
  void wait(Deadline deadline) override;
  int source() const override { return source_.load(std::memory_order_relaxed); }
  void on_done(std::function<void(std::exception_ptr)> function) override;

  bool is_send() const { return request.way == Way::send; }
  /// "send of 4096 bytes to rank 3 (tag 7)"
  std::string describe() const;
  void set_source(int rank) { source_.store(rank, std::memory_order_relaxed); }
  void set_done(Failure why);

  const Request request;
  const Clock::time_point expires;
  uint64_t sequence = 0;  // of a send, or of the announced message that a receive waits for
  uint64_t order = 0;     // among posted receives
  size_t moved = 0;       // bytes, where they move in chunks
  std::vector<std::function<void(std::exception_ptr)>> callbacks;
  Failure failure;

 private:
  std::shared_ptr<Core> core_;
  std::atomic<bool> done_{false};
  std::atomic<int> source_;
};

}  // namespace giant::p2p
