#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "net/endpoint.h"
#include "net/sha256.h"

namespace giant {

// Who connects says hello with a random number. Who accepts answers with another and with a proof
// over both that only one who knows the secret can make. Who connects then sends its own proof, and
// is welcomed. Every message has a fixed size: a stranger cannot make anybody wait for, or keep,
// more.
//
// It shows who is at the other end when a stream begins. What follows is neither signed nor hidden.

using Secret = Digest;
using Nonce = std::array<uint8_t, 32>;

struct Hello {
  static constexpr uint32_t kMagic = 0x676e7431;
  static constexpr uint32_t kVersion = 1;

  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  int32_t from = -1;
  int32_t to = -1;
  uint32_t purpose = 0;
  uint32_t reserved = 0;
  Nonce nonce{};
};
static_assert(sizeof(Hello) == 56);

struct Answer {
  Nonce nonce{};
  Digest proof{};
};
static_assert(sizeof(Answer) == 64);

/// One side of a handshake, without the stream: give it what comes, send what it has.
class Handshake {
 public:
  enum class State : uint8_t { open, proven, failed };
  static constexpr size_t kLongestMessage = sizeof(Answer);

  /// The side of rank `own` that connects to `peer`.
  static Handshake connecting(const Secret& secret, int own, int peer, Purpose purpose);
  /// The side of rank `own`, of a group of `size`, that accepts whoever proves to be of it.
  static Handshake accepting(const Secret& secret, int own, int size);

  State state() const { return state_; }
  /// How many bytes to take from the stream next, at most; what follows them is not its own.
  size_t wanted() const;
  /// Up to wanted() bytes, as they came. Throws UsageError where they are more.
  void take(std::span<const uint8_t> bytes);
  /// What is to be sent. A side that is proven may still have something.
  std::span<const uint8_t> unsent() const;
  void mark_sent(size_t bytes);

  /// Who the other side says it is; true once proven.
  int peer() const { return connects_ ? hello_.to : hello_.from; }
  Purpose purpose() const { return static_cast<Purpose>(hello_.purpose); }
  /// Why it failed.
  std::string_view failure() const { return failure_; }

 private:
  enum class Expected : uint8_t { hello, answer, proof, welcome };

  Handshake(const Secret& secret, bool connects, int own, int size);
  size_t expected_size() const;
  void handle_message();
  void handle_hello();
  void handle_answer();
  void handle_proof();
  void handle_welcome();
  void put(const void* data, size_t bytes);
  void fail(std::string_view why);

  Secret secret_;
  bool connects_;
  int own_, size_;
  State state_ = State::open;
  Expected expected_;
  Hello hello_;
  Nonce answered_{};
  std::array<uint8_t, kLongestMessage> in_{}, out_{};
  size_t got_ = 0, to_send_ = 0, sent_ = 0;
  std::string_view failure_;
};

}  // namespace giant
