#include "base/copy.h"
#include "collective/algorithms.h"
#include "collective/exchange.h"

namespace giant {
namespace {

/// Where the elements of this host's ranks lie, from `first` on.
Sources inputs_of_host(const Team& team, const Math& math, uint64_t chunk, const uint8_t* own,
                       size_t first) {
  Sources sources(team.local_size);
  for (int peer = 0; peer < team.local_size; ++peer) {
    const uint8_t* const base = peer == team.local ? own : team.arena.in(peer, chunk);
    sources[peer] = base + first * math.width;
  }
  return sources;
}

/// One step, for little data on one host: everyone sums everything.
Task flat(Team& team, Math math, uint64_t chunk, const uint8_t* in, uint8_t* out, size_t n) {
  co_await until([&] { return team.is_free(chunk); });
  copy_bytes(team.arena.in(team.local, chunk), in, n * math.width);
  team.arena.publish(Flag::in, chunk);
  co_await until([&] { return team.all(Flag::in, chunk); });
  if (out != nullptr) math.finish(out, inputs_of_host(team, math, chunk, in, 0), n);
  team.arena.publish(Flag::done, chunk);
}

Task exchange(Team& team, Choice choice, Math math, uint64_t chunk, uint8_t* work, Range own, int to,
              size_t first) {
  if (choice.compressing.lost != nullptr)
    return exchange_compressed(team, math, chunk, reinterpret_cast<float*>(work), own.size(), to,
                               choice.compressing, first + own.begin);
  const auto plain = choice.exchange == Exchange::split ? exchange_split : exchange_whole;
  return plain(team, math, chunk, work, own.size(), to);
}

/// Each rank on a rail sums a slice, over its host and then with the same rail of other hosts.
Task sliced(Team& team, Choice choice, Math math, uint64_t chunk, const uint8_t* in, uint8_t* out,
            size_t first, size_t n, int to) {
  const auto slice = [&](int rail) { return split(n, choice.rails, rail); };
  const bool has_slice = team.local < choice.rails;
  const Range own = has_slice ? slice(team.local) : Range{};
  co_await until([&] { return team.is_free(chunk); });
  if (team.local_size > 1) {
    uint8_t* const area = team.arena.in(team.local, chunk);
    copy_bytes(area, in, own.begin * math.width);
    copy_bytes(area + own.end * math.width, in + own.end * math.width, (n - own.end) * math.width);
  }
  team.arena.publish(Flag::in, chunk);
  if (has_slice) {
    co_await until([&] { return team.all(Flag::in, chunk); });
    // Alone on its host, a rank works in the caller's memory.
    const bool is_alone = team.local_size == 1 && out != nullptr;
    uint8_t* const work = is_alone ? out : team.arena.out(team.local, chunk);
    const Sources sources = inputs_of_host(team, math, chunk, in, own.begin);
    if (team.num_hosts == 1) {
      math.finish(work, sources, own.size());
    } else {
      math.combine(work, sources, own.size());
      Task between = exchange(team, choice, math, chunk, work, own, to, first);
      co_await until([&] { return between.advance(); });
    }
    team.arena.publish(Flag::out, chunk);
    if (out != nullptr) copy_bytes(out + own.begin * math.width, work, own.size() * math.width);
  }
  for (int rail = 0; rail < choice.rails && out != nullptr; ++rail) {
    if (rail == team.local) continue;
    co_await until([&] { return team.has(rail, Flag::out, chunk); });
    const Range part = slice(rail);
    copy_bytes(out + part.begin * math.width, team.arena.out(rail, chunk), part.size() * math.width);
  }
  co_await until([&] { return team.wire.sent(chunk); });
  team.arena.publish(Flag::done, chunk);
}

}  // namespace

Task all_reduce_chunk(Team& team, Choice choice, Math math, uint64_t chunk, const uint8_t* in,
                      uint8_t* out, size_t first, size_t n, int to) {
  if (choice.flat) return flat(team, math, chunk, in, out, n);
  return sliced(team, choice, math, chunk, in, out, first, n, to);
}

}  // namespace giant
