#pragma once

#include <string>

#include "net/address.h"
#include "net/handshake.h"

namespace giant {

/// A peer, where it listens, and how messages call it: "rank 3 at 10.0.0.2:4711".
struct Target {
  int rank = -1;
  Address address;
  std::string name;
};

/// A stream to `target` that has proven itself, non-blocking. Until the deadline it tries again
/// where nobody listens, where the way is closed, and where the peer hangs up on it as one of too
/// many.
///
/// Throws PeerError where nobody listens at the end, or another than the peer, or one of another
/// user; TimeoutError where the peer does not answer.
Fd connect_to(const Target& target, const Secret& secret, int own, Purpose purpose,
              Deadline deadline);

}  // namespace giant
