#include "base/copy.h"
#include "collective/algorithms.h"
#include "compress/compress.h"

namespace giant {
namespace {

/// Of the ranks of a host, those that a rail serves, by local index.
std::vector<int> served(const Topology& topology, int host, int rail, int rails) {
  std::vector<int> found;
  for (int index = rail; index < topology.local_size(host); index += rails) found.push_back(index);
  return found;
}

}  // namespace

Task reduce_scatter_chunk(Team& team, Choice choice, Math math, uint64_t chunk, const Call& call,
                          size_t first, size_t n) {
  const size_t bytes = n * math.width;
  const Compressing compressing = choice.compressing;
  const bool is_packed = compressing.lost != nullptr;
  const size_t sent_bytes = is_packed ? compressed_bytes(compressing.how, n) : bytes;
  const size_t sent_stride = (sent_bytes + 63) / 64 * 64;
  const auto input = [&](int block) {
    return static_cast<const uint8_t*>(call.inputs[block]) + first * math.width;
  };
  /// The block of `rank` in the inputs of all of this host.
  const auto of_host = [&](int block) {
    Sources sources(team.local_size);
    for (int peer = 0; peer < team.local_size; ++peer)
      sources[peer] =
          peer == team.local ? input(block) : team.arena.in(peer, chunk) + block * bytes;
    return sources;
  };
  auto* const out = static_cast<uint8_t*>(call.outputs[0]) + first * math.width;
  const bool on_rail = team.num_hosts > 1 && team.local < choice.rails;

  co_await until([&] { return team.is_free(chunk); });
  if (team.local_size > 1) {
    for (int block = 0; block < team.size; ++block) {
      if (block != team.rank)
        copy_bytes(team.arena.in(team.local, chunk) + block * bytes, input(block), bytes);
    }
  }
  team.arena.publish(Flag::in, chunk);
  // What others send for the ranks that this rail serves; its own sums lie in the scratch memory.
  const auto here = served(team.topology, team.host, team.local, choice.rails);
  const auto landing = [&](int rail_index, int host, size_t number, size_t count) {
    return team.arena.out(rail_index, chunk) + (team.place_of(host) * count + number) * sent_bytes;
  };
  // The own sum, one on its way out, those that leave, those that came in unpacked.
  uint8_t* const own_sum = team.scratch(
      chunk, 2 * bytes + team.size * sent_stride + team.num_hosts * bytes);
  uint8_t* const leaving_sum = own_sum + bytes;
  uint8_t* const unpacked = leaving_sum + bytes + team.size * sent_stride;
  if (on_rail) {
    for (int host = 0; host < team.num_hosts; ++host) {
      for (size_t i = 0; i < here.size() && host != team.host; ++i)
        team.wire.want(host, {chunk, static_cast<uint32_t>(here[i])},
                       landing(team.local, host, i, here.size()), sent_bytes);
    }
  }
  co_await until([&] { return team.all(Flag::in, chunk); });
  if (on_rail) {
    uint8_t* leaving = leaving_sum + bytes;
    for (int step = 1; step < team.num_hosts; ++step) {
      // Each host begins with another one: no link has to take everything at once.
      const int host = (team.host + step) % team.num_hosts;
      for (const int index : served(team.topology, host, team.local, choice.rails)) {
        const int block = team.topology.ranks_of(host)[index];
        math.combine(is_packed ? leaving_sum : leaving, of_host(block), n);
        if (is_packed)
          compress(compressing.how, leaving, reinterpret_cast<const float*>(leaving_sum),
                   &compressing.lost->sent[block * (call.bytes / math.width) + first], n);
        team.wire.send(host, {chunk, static_cast<uint32_t>(index)}, leaving, sent_bytes);
        leaving += sent_stride;
      }
    }
    co_await until([&] { return team.wire.received(chunk); });
    team.wire.forget(chunk);
    team.arena.publish(Flag::out, chunk);
  }
  if (team.num_hosts == 1) {
    math.finish(out, of_host(team.rank), n);
  } else {
    const int rail = team.local % choice.rails;
    co_await until([&] { return team.has(rail, Flag::out, chunk); });
    math.combine(own_sum, of_host(team.rank), n);
    const size_t count = served(team.topology, team.host, rail, choice.rails).size();
    Sources sources(team.num_hosts, own_sum);
    for (int host = 0; host < team.num_hosts; ++host) {
      if (host == team.host) continue;
      const uint8_t* const came = landing(rail, host, team.local / choice.rails, count);
      uint8_t* const place = unpacked + team.place_of(host) * bytes;
      if (is_packed) decompress(compressing.how, reinterpret_cast<float*>(place), came, n);
      sources[host] = is_packed ? place : came;
    }
    math.finish(out, sources, n);
  }
  co_await until([&] { return team.wire.sent(chunk); });
  team.arena.publish(Flag::done, chunk);
}

}  // namespace giant
