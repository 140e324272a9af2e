#pragma once

#include <string>
#include <vector>

#include "net/address.h"
#include "net/endpoint.h"
#include "net/handshake.h"

namespace giant {

/// What a rank says of itself to all others.
struct Member {
  std::string identity;     // of its host
  std::string socket_name;  // where it listens for ranks of its host
};

// What ranks tell one another through the store. Each waits for all. Throw TimeoutError naming the
// ranks that did not come, PeerError where the store holds something else.

/// Of all ranks, in rank order. Rank 0 also leaves the group's secret, made of random bytes.
std::vector<Member> exchange_members(Store& store, const EndpointOptions& options,
                                     const Member& own, Deadline deadline);

/// After exchange_members.
Secret read_secret(Store& store, Deadline deadline);

/// Where all ranks listen for those of other hosts, in rank order.
std::vector<Address> exchange_addresses(Store& store, const EndpointOptions& options,
                                        const Address& own, Deadline deadline);

}  // namespace giant
