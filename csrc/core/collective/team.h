#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "collective/head.h"
#include "collective/task.h"
#include "shm/arena.h"
#include "topology.h"
#include "wire/wire.h"

namespace giant {

/// What the algorithms work with: who this rank is, the memory of its host, its rail to other hosts.
class Team {
 public:
  Team(const Topology& topology, int rank, Arena& arena, Wire& wire);

  const Topology& topology;
  Arena& arena;
  Wire& wire;
  const int rank;
  const int size;
  const int host;
  const int num_hosts;
  const int local;
  const int local_size;

  /// From now on flags of peers count for this call only.
  void begin(uint64_t call, const CallHead& head);

  /// May the areas of a chunk be written? All of this host are done with what lay there before.
  bool is_free(uint64_t chunk) const;

  /// Has a peer of this host set the flag in this call? Throws UsageError where its call is another.
  bool has(int peer, Flag flag, uint64_t chunk);
  /// Have all of them, of the local indices below `count`?
  bool all(Flag flag, uint64_t chunk, int count);
  bool all(Flag flag, uint64_t chunk) { return all(flag, chunk, local_size); }

  /// Memory of this rank alone, for a chunk under way. One piece a chunk.
  uint8_t* scratch(uint64_t chunk, size_t bytes);

  /// The number of a host among those that are not this rank's.
  int place_of(int other_host) const { return other_host - (other_host > host ? 1 : 0); }

 private:
  uint64_t call_ = 0;
  CallHead head_;
  std::vector<bool> has_matched_;
  std::array<std::vector<uint8_t>, Arena::kWindow> scratch_;
};

}  // namespace giant
