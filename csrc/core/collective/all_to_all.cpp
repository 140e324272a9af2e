#include <algorithm>

#include "base/copy.h"
#include "collective/algorithms.h"

namespace giant {
namespace {

constexpr uint32_t kMostLocal = 4096;  // ranks of a host

/// Where blocks lie in the areas. `in` of a rank has a place for each rank's block; `out` of a rail
/// has one for each pair of a rank of another host that it serves and a rank of this host.
struct Places {
  const Team& team;
  int rails;
  size_t area;  // bytes of a place

  size_t in(int to) const { return to * area; }

  size_t out(int from, int to) const {
    const Topology& topology = team.topology;
    const int rail = topology.local_index(from) % rails;
    size_t before = 0;
    for (int host = 0; host < topology.host_of(from); ++host) {
      const int count = topology.local_size(host);
      if (host != team.host) before += (count - rail + rails - 1) / rails;
    }
    before += topology.local_index(from) / rails;
    return (before * team.local_size + topology.local_index(to)) * area;
  }
};

Piece piece(const Topology& topology, uint64_t chunk, int from, int to) {
  return {chunk, topology.local_index(from) * kMostLocal + topology.local_index(to)};
}

}  // namespace

Task all_to_all_chunk(Team& team, Choice choice, uint64_t chunk, const Call& call,
                      const Sizes& sizes, Range range) {
  const Topology& topology = team.topology;
  const auto& here = topology.ranks_of(team.host);
  const Places places{team, choice.rails, range.size()};
  /// As much of a block as lies in this chunk.
  const auto bytes = [&](int from, int to) {
    const size_t block = sizes(from, to);
    return std::min(block, range.end) - std::min(block, range.begin);
  };
  const auto input = [&](int to) {
    return static_cast<const uint8_t*>(call.inputs[to]) + range.begin;
  };
  const auto output = [&](int from) {
    return static_cast<uint8_t*>(call.outputs[from]) + range.begin;
  };
  const auto landing = [&](int from, int to) {
    const int rail = topology.local_index(from) % choice.rails;
    if (to == team.rank && rail == team.local) return output(from);
    return team.arena.out(rail, chunk) + places.out(from, to);
  };
  const bool on_rail = team.num_hosts > 1 && team.local < choice.rails;

  co_await until([&] { return team.is_free(chunk); });
  for (int to = 0; to < team.size && team.local_size > 1; ++to) {
    // What this rank itself sends or keeps is taken from the caller's memory.
    const bool is_taken = topology.host_of(to) == team.host || !on_rail;
    const size_t size = bytes(team.rank, to);
    if (to == team.rank || !is_taken || size == 0) continue;
    copy_bytes(team.arena.in(team.local, chunk) + places.in(to), input(to), size);
  }
  team.arena.publish(Flag::in, chunk);
  if (on_rail) {
    for (int from = 0; from < team.size; ++from) {
      if (topology.host_of(from) == team.host) continue;
      if (topology.local_index(from) % choice.rails != team.local) continue;
      for (const int to : here) {
        const size_t size = bytes(from, to);
        if (size > 0)
          team.wire.want(topology.host_of(from), piece(topology, chunk, from, to),
                         landing(from, to), size);
      }
    }
    for (int index = team.local; index < team.local_size; index += choice.rails) {
      co_await until([&] { return team.has(index, Flag::in, chunk); });
      for (int step = 1; step < team.num_hosts; ++step) {
        const int host = (team.host + step) % team.num_hosts;
        for (const int to : topology.ranks_of(host)) {
          const size_t size = bytes(here[index], to);
          if (size == 0) continue;
          const uint8_t* const data =
              index == team.local ? input(to) : team.arena.in(index, chunk) + places.in(to);
          team.wire.send(host, piece(topology, chunk, here[index], to), data, size);
        }
      }
    }
  }
  if (bytes(team.rank, team.rank) > 0)
    copy_bytes(output(team.rank), input(team.rank), bytes(team.rank, team.rank));
  for (int peer = 0; peer < team.local_size; ++peer) {
    const size_t size = bytes(here[peer], team.rank);
    if (peer == team.local) continue;
    co_await until([&] { return team.has(peer, Flag::in, chunk); });
    if (size > 0)
      copy_bytes(output(here[peer]), team.arena.in(peer, chunk) + places.in(team.rank), size);
  }
  if (on_rail) {
    co_await until([&] { return team.wire.received(chunk); });
    team.wire.forget(chunk);
    team.arena.publish(Flag::out, chunk);
  }
  for (int from = 0; from < team.size && team.local_size > 1; ++from) {
    const size_t size = bytes(from, team.rank);
    const int rail = topology.local_index(from) % choice.rails;
    if (topology.host_of(from) == team.host || rail == team.local || size == 0) continue;
    co_await until([&] { return team.has(rail, Flag::out, chunk); });
    copy_bytes(output(from), landing(from, team.rank), size);
  }
  co_await until([&] { return team.wire.sent(chunk); });
  team.arena.publish(Flag::done, chunk);
}

}  // namespace giant
