#pragma once

#include <string>
#include <vector>

namespace giant {

/// Which ranks of a group share a host. Hosts are numbered by their lowest rank.
///
/// Rail r joins the ranks with local index r of all hosts: there are as many rails as the smallest
/// host has ranks, and only their ranks talk to other hosts.
class Topology {
 public:
  /// One host identity for each rank, in rank order.
  explicit Topology(const std::vector<std::string>& identities);

  int size() const { return static_cast<int>(host_of_.size()); }
  int num_hosts() const { return static_cast<int>(ranks_of_.size()); }
  int num_rails() const { return num_rails_; }
  int largest_host() const;
  int host_of(int rank) const { return host_of_[rank]; }
  int local_index(int rank) const { return local_index_[rank]; }
  const std::vector<int>& ranks_of(int host) const { return ranks_of_[host]; }
  int local_size(int host) const { return static_cast<int>(ranks_of_[host].size()); }
  int leader(int host) const { return ranks_of_[host].front(); }
  /// The rail that carries what goes to or comes from a rank.
  int rail_of(int rank) const { return local_index_[rank] % num_rails_; }
  int rank_on_rail(int host, int rail) const { return ranks_of_[host][rail]; }

 private:
  std::vector<int> host_of_;
  std::vector<int> local_index_;
  std::vector<std::vector<int>> ranks_of_;
  int num_rails_ = 0;
};

}  // namespace giant
