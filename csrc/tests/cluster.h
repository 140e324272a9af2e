#pragma once

// Groups whose ranks are threads of this process, on invented hosts. Rails are socket pairs.

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fake_endpoint.h"
#include "group/member.h"
#include "shm/arena.h"

namespace giant::testing {

/// `hosts` has the number of ranks of each host; ranks are numbered host by host.
inline Topology topology_of(const std::vector<int>& hosts) {
  std::vector<std::string> identities;
  for (size_t host = 0; host < hosts.size(); ++host)
    identities.insert(identities.end(), hosts[host], "host-" + std::to_string(host));
  return Topology(identities);
}

inline std::vector<std::string> identities_of(const Topology& topology) {
  std::vector<std::string> identities;
  for (int rank = 0; rank < topology.size(); ++rank)
    identities.push_back("host-" + std::to_string(topology.host_of(rank)));
  return identities;
}

/// The links of every rank of a group.
inline std::vector<Links> links_of(const Topology& topology) {
  std::vector<Links> all;
  FakeNetwork network(identities_of(topology));
  std::vector<std::vector<Fd>> bells(topology.num_hosts());
  std::vector<Region> regions;
  for (int host = 0; host < topology.num_hosts(); ++host) {
    const int count = topology.local_size(host);
    regions.push_back(Region::make(Arena::bytes_needed(count)));
    for (int i = 0; i < count; ++i) bells[host].emplace_back(eventfd(0, EFD_NONBLOCK));
  }
  for (int rank = 0; rank < topology.size(); ++rank) {
    const int host = topology.host_of(rank);
    std::vector<Fd> own_bells;
    for (const Fd& bell : bells[host]) own_bells.emplace_back(dup(bell.get()));
    const Region& region = regions[host];
    all.push_back({rank, topology, Region::map(Fd(dup(region.fd())), region.size()),
                   std::move(own_bells), {}, std::vector<Fd>(topology.num_hosts()),
                   network.endpoint(rank)});
  }
  for (int rail = 0; rail < topology.num_rails(); ++rail) {
    for (int a = 0; a < topology.num_hosts(); ++a) {
      for (int b = a + 1; b < topology.num_hosts(); ++b) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) != 0) std::abort();
        all[topology.rank_on_rail(a, rail)].rails[b] = Fd(pair[0]);
        all[topology.rank_on_rail(b, rail)].rails[a] = Fd(pair[1]);
      }
    }
  }
  return all;
}

/// Runs `body(rank, group)` on a thread for each rank; what each threw, or null.
inline std::vector<std::exception_ptr> run_ranks(const std::vector<int>& hosts,
                                                 const std::function<void(int, Group&)>& body,
                                                 GroupOptions options = {.name = "test"}) {
  std::vector<Links> links = links_of(topology_of(hosts));
  const size_t size = links.size();
  std::vector<std::exception_ptr> errors(size);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto group = make_group(std::move(links[rank]), options);
      try {
        body(static_cast<int>(rank), *group);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

/// The same where no rank may throw.
inline void run_well(const std::vector<int>& hosts, const std::function<void(int, Group&)>& body,
                     GroupOptions options = {.name = "test"}) {
  for (const auto& error : run_ranks(hosts, body, options)) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace giant::testing
