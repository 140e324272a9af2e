#include "collective/team.h"

#include <string>

#include "base/error.h"

namespace giant {

Team::Team(const Topology& topology_, int rank_, Arena& arena_, Wire& wire_)
    : topology(topology_),
      arena(arena_),
      wire(wire_),
      rank(rank_),
      size(topology_.size()),
      host(topology_.host_of(rank_)),
      num_hosts(topology_.num_hosts()),
      local(topology_.local_index(rank_)),
      local_size(topology_.local_size(host)) {}

void Team::begin(uint64_t call, const CallHead& head) {
  call_ = call;
  head_ = head;
  has_matched_.assign(local_size, false);
  arena.arrive(call, head);
  wire.begin(call, head);
}

bool Team::is_free(uint64_t chunk) const {
  if (chunk < Arena::kWindow) return true;
  for (int peer = 0; peer < local_size; ++peer) {
    if (!arena.has(peer, Flag::done, chunk - Arena::kWindow)) return false;
  }
  return true;
}

bool Team::has(int peer, Flag flag, uint64_t chunk) {
  if (!has_matched_[peer]) {
    if (!arena.has_arrived(peer, call_)) return false;
    const CallHead theirs = arena.head(peer, call_);
    if (theirs != head_)
      throw UsageError("the ranks' calls do not match: rank " +
                       std::to_string(topology.ranks_of(host)[peer]) + " called " +
                       describe(theirs) + ", rank " + std::to_string(rank) + " " +
                       describe(head_));
    has_matched_[peer] = true;
  }
  return arena.has(peer, flag, chunk);
}

bool Team::all(Flag flag, uint64_t chunk, int count) {
  for (int peer = 0; peer < count; ++peer) {
    if (!has(peer, flag, chunk)) return false;
  }
  return true;
}

uint8_t* Team::scratch(uint64_t chunk, size_t bytes) {
  auto& memory = scratch_[chunk % Arena::kWindow];
  if (memory.size() < bytes + 64) memory.resize(bytes + 64);
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  return memory.data() + (64 - address % 64) % 64;
}

}  // namespace giant
