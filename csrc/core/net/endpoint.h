#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "net/store.h"

namespace giant {

/// What a connection is for.
enum class Purpose : uint8_t { handover = 1, rail = 2, mail = 3 };

struct Accepted {
  int peer = -1;
  Purpose purpose = Purpose::mail;
  Fd stream;
};

/// One rank's way to reach the others of its group and to be reached: non-blocking streams, a Unix
/// socket inside a host, TCP between hosts.
///
/// Both ends prove that they know the group's random secret (from the store) before anything else is
/// read; strangers are dropped and do no harm.
class Endpoint {
 public:
  virtual ~Endpoint() = default;

  /// The host identity of every rank, in rank order.
  virtual const std::vector<std::string>& identities() const = 0;

  /// A stream to `peer`, proven, non-blocking. Waits. Throws PeerError, TimeoutError.
  virtual Fd connect(int peer, Purpose purpose, Deadline deadline) = 0;

  /// What to poll for POLLIN until `accept` has something to do.
  virtual std::vector<int> pollable() const = 0;

  /// Peers that have proven themselves since the last call. Never blocks; not thread-safe with itself.
  virtual std::vector<Accepted> accept() = 0;
};

struct EndpointOptions {
  int rank = 0;
  int size = 1;
  milliseconds timeout{30000};
};

/// Listens, and exchanges addresses through the store. Throws TimeoutError naming the ranks that did
/// not come.
std::unique_ptr<Endpoint> open_endpoint(Store& store, const EndpointOptions& options);

}  // namespace giant
