#pragma once

#include <array>
#include <cstdint>

#include "net/endpoint.h"
#include "net/sha256.h"

namespace giant {

// Who connects says hello with a random number; who accepts answers with another and with a proof over
// both that only one who knows the secret can make; who connects then sends its own proof. Every message has
// a fixed size: a stranger cannot make anybody wait for, or keep, more than that.

using Secret = Digest;

struct Hello {
  static constexpr uint32_t kMagic = 0x676e7431;
  static constexpr uint32_t kVersion = 1;

  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  int32_t from = -1;
  int32_t to = -1;
  uint32_t purpose = 0;
  uint32_t reserved = 0;
  std::array<uint8_t, 32> nonce{};
};
static_assert(sizeof(Hello) == 56);

struct Answer {
  std::array<uint8_t, 32> nonce{};
  Digest proof{};
};
static_assert(sizeof(Answer) == 64);

/// Hello of a connection, with a fresh number.
Hello make_hello(int from, int to, Purpose purpose);

/// Is it one of this protocol, to this rank, from another rank of the group?
bool is_sensible(const Hello& hello, int own, int size);

Answer make_answer(const Secret& secret, const Hello& hello);
bool is_right(const Secret& secret, const Hello& hello, const Answer& answer);

Digest make_proof(const Secret& secret, const Hello& hello, const Answer& answer);

}  // namespace giant
