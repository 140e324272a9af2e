#include "base/copy.h"
#include "collective/algorithms.h"

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

/// The sums of all hosts in their order: the own one at `own`, others one after another.
Sources inputs_of_hosts(const Team& team, const uint8_t* own, const uint8_t* others, size_t stride) {
  Sources sources(team.num_hosts);
  for (int host = 0; host < team.num_hosts; ++host)
    sources[host] = host == team.host ? own : others + team.place_of(host) * stride;
  return sources;
}

bool is_wanted(int host, int to) { return to < 0 || host == to; }

/// Each host sums a part of `work` and gives the result to the hosts that want it.
Task exchange_split(Team& team, Math math, uint64_t chunk, uint8_t* work, size_t n, int to) {
  const auto part = [&](int host) { return split(n, team.num_hosts, host); };
  const auto bytes = [&](int host) { return part(host).size() * math.width; };
  const auto at = [&](int host) { return work + part(host).begin * math.width; };
  const size_t own_bytes = bytes(team.host);
  uint8_t* const theirs = team.scratch(chunk, own_bytes * (team.num_hosts - 1));
  for (int host = 0; host < team.num_hosts; ++host) {
    if (host == team.host) continue;
    team.wire.want(host, {chunk, 0}, theirs + team.place_of(host) * own_bytes, own_bytes);
    team.wire.send(host, {chunk, 0}, at(host), bytes(host));
  }
  co_await until([&] { return team.wire.received(chunk); });
  team.wire.forget(chunk);
  math.finish(at(team.host), inputs_of_hosts(team, at(team.host), theirs, own_bytes),
              part(team.host).size());
  // What comes now takes the place of parts that have been sent: a host gives its sum only when it
  // has them.
  for (int host = 0; host < team.num_hosts; ++host) {
    if (host == team.host) continue;
    if (is_wanted(team.host, to)) team.wire.want(host, {chunk, 1}, at(host), bytes(host));
    if (is_wanted(host, to)) team.wire.send(host, {chunk, 1}, at(team.host), own_bytes);
  }
  co_await until([&] { return team.wire.received(chunk); });
  team.wire.forget(chunk);
}

/// Each host that wants the result gets everything and sums it.
Task exchange_whole(Team& team, Math math, uint64_t chunk, uint8_t* work, size_t n, int to) {
  const size_t bytes = n * math.width;
  uint8_t* const theirs = team.scratch(chunk, bytes * (team.num_hosts - 1));
  for (int host = 0; host < team.num_hosts; ++host) {
    if (host == team.host) continue;
    uint8_t* const place = theirs + team.place_of(host) * bytes;
    if (is_wanted(team.host, to)) team.wire.want(host, {chunk, 0}, place, bytes);
    if (is_wanted(host, to)) team.wire.send(host, {chunk, 0}, work, bytes);
  }
  co_await until([&] { return team.wire.received(chunk) && team.wire.sent(chunk); });
  team.wire.forget(chunk);
  if (is_wanted(team.host, to))
    math.finish(work, inputs_of_hosts(team, work, theirs, bytes), n);
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

/// Each rank on a rail sums a slice, over its host and then with the same rail of other hosts.
Task sliced(Team& team, Choice choice, Math math, uint64_t chunk, const uint8_t* in, uint8_t* out,
            size_t n, int to) {
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
      const auto exchange = choice.exchange == Exchange::split ? exchange_split : exchange_whole;
      Task between = exchange(team, math, chunk, work, own.size(), to);
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
                      uint8_t* out, size_t n, int to) {
  if (choice.flat) return flat(team, math, chunk, in, out, n);
  return sliced(team, choice, math, chunk, in, out, n, to);
}

}  // namespace giant
