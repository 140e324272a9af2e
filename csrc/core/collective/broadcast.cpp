#include "base/copy.h"
#include "collective/algorithms.h"

namespace giant {

Task broadcast_chunk(Team& team, Choice choice, uint64_t chunk, const uint8_t* in, uint8_t* out,
                     size_t bytes, int root) {
  const int first_host = team.topology.host_of(root);
  const int root_index = team.topology.local_index(root);
  const int distance = (team.host - first_host + team.num_hosts) % team.num_hosts;
  const auto slice = [&](int rail) { return split(bytes, choice.rails, rail, 64); };
  const Range own = team.local < choice.rails ? slice(team.local) : Range{};
  /// Hosts that this one gives the data to.
  const auto next = [&] {
    std::vector<int> hosts;
    const int after = (team.host + 1) % team.num_hosts;
    if (choice.spread == Spread::chain && after != first_host) hosts.push_back(after);
    for (int step = 1; choice.spread == Spread::star && distance == 0 && step < team.num_hosts;
         ++step)
      hosts.push_back((team.host + step) % team.num_hosts);
    return hosts;
  };
  const auto give = [&](const uint8_t* data) {
    for (const int host : next()) team.wire.send(host, {chunk, 0}, data, own.size());
  };

  co_await until([&] { return team.is_free(chunk); });
  if (team.rank == root) {
    if (team.local_size > 1) {
      copy_bytes(team.arena.in(team.local, chunk), in, bytes);
      team.arena.publish(Flag::in, chunk);
    }
    give(in + own.begin);
    if (out != nullptr) copy_bytes(out, in, bytes);
  } else if (distance == 0) {
    co_await until([&] { return team.has(root_index, Flag::in, chunk); });
    const uint8_t* const data = team.arena.in(root_index, chunk);
    give(data + own.begin);
    copy_bytes(out, data, bytes);
  } else {
    const int before = (team.host - 1 + team.num_hosts) % team.num_hosts;
    const int source = choice.spread == Spread::chain ? before : first_host;
    if (team.local < choice.rails) {
      const bool is_alone = team.local_size == 1;
      uint8_t* const data = is_alone ? out + own.begin : team.arena.out(team.local, chunk);
      team.wire.want(source, {chunk, 0}, data, own.size());
      co_await until([&] { return team.wire.received(chunk); });
      team.wire.forget(chunk);
      team.arena.publish(Flag::out, chunk);
      give(data);
    }
    for (int rail = 0; rail < choice.rails && team.local_size > 1; ++rail) {
      co_await until([&] { return team.has(rail, Flag::out, chunk); });
      copy_bytes(out + slice(rail).begin, team.arena.out(rail, chunk), slice(rail).size());
    }
  }
  co_await until([&] { return team.wire.sent(chunk); });
  team.arena.publish(Flag::done, chunk);
}

}  // namespace giant
