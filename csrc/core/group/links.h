#pragma once

#include <memory>
#include <vector>

#include "base/fd.h"
#include "net/endpoint.h"
#include "shm/region.h"
#include "topology.h"

namespace giant {

/// What a rank holds of its group once all have met.
struct Links {
  int rank = 0;
  Topology topology;
  Region region;               // shared by the ranks of this host, Arena::bytes_needed of it
  std::vector<Fd> bells;       // eventfds of the ranks of this host, by local index
  std::vector<Fd> lives;       // pidfds of the ranks of this host, by local index; may be empty
  std::vector<Fd> rails;       // streams to this rank's rail, by host; none to its own
  std::unique_ptr<Endpoint> endpoint;  // for the mailbox
};

}  // namespace giant
