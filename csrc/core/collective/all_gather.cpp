#include "base/copy.h"
#include "collective/algorithms.h"

namespace giant {

Task all_gather_chunk(Team& team, Choice choice, uint64_t chunk, const Call& call, Range range) {
  const size_t bytes = range.size();
  const auto* const in = static_cast<const uint8_t*>(call.inputs[0]) + range.begin;
  const auto output = [&](int rank) {
    return static_cast<uint8_t*>(call.outputs[rank]) + range.begin;
  };
  const bool on_rail = team.num_hosts > 1 && team.local < choice.rails;
  const bool is_alone = team.local_size == 1;
  /// Where the block of a rank of another host comes in.
  const auto landing = [&](int host, int index) {
    if (is_alone) return output(team.topology.ranks_of(host)[index]);
    size_t before = 0;
    const int rail = index % choice.rails;
    for (int other = 0; other < host; ++other) {
      const int count = team.topology.local_size(other);
      if (other != team.host) before += (count - rail + choice.rails - 1) / choice.rails;
    }
    return team.arena.out(rail, chunk) + (before + index / choice.rails) * bytes;
  };

  co_await until([&] { return team.is_free(chunk); });
  if (!is_alone) copy_bytes(team.arena.in(team.local, chunk), in, bytes);
  team.arena.publish(Flag::in, chunk);
  if (on_rail) {
    for (int host = 0; host < team.num_hosts; ++host) {
      if (host == team.host) continue;
      for (int index = team.local; index < team.topology.local_size(host); index += choice.rails)
        team.wire.want(host, {chunk, static_cast<uint32_t>(index)}, landing(host, index), bytes);
    }
    for (int index = team.local; index < team.local_size; index += choice.rails) {
      co_await until([&] { return team.has(index, Flag::in, chunk); });
      const uint8_t* const block = index == team.local ? in : team.arena.in(index, chunk);
      for (int step = 1; step < team.num_hosts; ++step)
        team.wire.send((team.host + step) % team.num_hosts,
                       {chunk, static_cast<uint32_t>(index)}, block, bytes);
    }
  }
  copy_bytes(output(team.rank), in, bytes);
  for (int peer = 0; peer < team.local_size; ++peer) {
    if (peer == team.local) continue;
    co_await until([&] { return team.has(peer, Flag::in, chunk); });
    copy_bytes(output(team.topology.ranks_of(team.host)[peer]), team.arena.in(peer, chunk), bytes);
  }
  if (on_rail) {
    co_await until([&] { return team.wire.received(chunk); });
    team.wire.forget(chunk);
    team.arena.publish(Flag::out, chunk);
  }
  for (int host = 0; host < team.num_hosts && !is_alone; ++host) {
    if (host == team.host) continue;
    for (int index = 0; index < team.topology.local_size(host); ++index) {
      co_await until([&] { return team.has(index % choice.rails, Flag::out, chunk); });
      copy_bytes(output(team.topology.ranks_of(host)[index]), landing(host, index), bytes);
    }
  }
  co_await until([&] { return team.wire.sent(chunk); });
  team.arena.publish(Flag::done, chunk);
}

}  // namespace giant
