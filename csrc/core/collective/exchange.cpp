#include "collective/exchange.h"

#include "compress/compress.h"

namespace giant {
namespace {

/// The sums of all hosts in their order: the own one at `own`, others one after another.
Sources inputs_of_hosts(const Team& team, const uint8_t* own, const uint8_t* others, size_t stride) {
  Sources sources(team.num_hosts);
  for (int host = 0; host < team.num_hosts; ++host)
    sources[host] = host == team.host ? own : others + team.place_of(host) * stride;
  return sources;
}

bool is_wanted(int host, int to) { return to < 0 || host == to; }

}  // namespace

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

Task exchange_compressed(Team& team, Math math, uint64_t chunk, float* work, size_t n, int to,
                         Compressing compressing, size_t first) {
  const Compression how = compressing.how;
  const auto part = [&](int host) { return split(n, team.num_hosts, host); };
  const auto bytes = [&](int host) { return compressed_bytes(how, part(host).size()); };
  const auto lost = [&](std::vector<float>& of, int host) { return &of[first + part(host).begin]; };
  const auto before = [&](int host) {
    size_t sum = 0;
    for (int other = 0; other < host; ++other) sum += (bytes(other) + 63) / 64 * 64;
    return sum;
  };
  const Range own = part(team.host);
  const size_t own_bytes = (bytes(team.host) + 63) / 64 * 64;
  // Parts on their way out, parts that come in for the own sum, and those unpacked.
  uint8_t* const packed = team.scratch(
      chunk, before(team.num_hosts) + team.num_hosts * (own_bytes + own.size() * sizeof(float)));
  uint8_t* const theirs = packed + before(team.num_hosts);
  auto* const unpacked = reinterpret_cast<float*>(theirs + team.num_hosts * own_bytes);
  for (int host = 0; host < team.num_hosts; ++host) {
    if (host == team.host) continue;
    team.wire.want(host, {chunk, 0}, theirs + team.place_of(host) * own_bytes, bytes(team.host));
    compress(how, packed + before(host), work + part(host).begin,
             lost(compressing.lost->sent, host), part(host).size());
    team.wire.send(host, {chunk, 0}, packed + before(host), bytes(host));
  }
  co_await until([&] { return team.wire.received(chunk) && team.wire.sent(chunk); });
  team.wire.forget(chunk);
  Sources sources(team.num_hosts, work + own.begin);
  for (int host = 0; host < team.num_hosts; ++host) {
    if (host == team.host) continue;
    const int place = team.place_of(host);
    decompress(how, unpacked + place * own.size(), theirs + place * own_bytes, own.size());
    sources[host] = unpacked + place * own.size();
  }
  math.finish(work + own.begin, sources, own.size());
  uint8_t* const sums = packed + before(team.host);
  compress(how, sums, work + own.begin, lost(compressing.lost->summed, team.host), own.size());
  for (int host = 0; host < team.num_hosts; ++host) {
    if (host == team.host) continue;
    if (is_wanted(team.host, to))
      team.wire.want(host, {chunk, 1}, packed + before(host), bytes(host));
    if (is_wanted(host, to)) team.wire.send(host, {chunk, 1}, sums, bytes(team.host));
  }
  co_await until([&] { return team.wire.received(chunk); });
  team.wire.forget(chunk);
  // The own part as well goes through what the others see.
  for (int host = 0; host < team.num_hosts && is_wanted(team.host, to); ++host)
    decompress(how, work + part(host).begin, packed + before(host), part(host).size());
}

}  // namespace giant
