#include "topology.h"

#include <algorithm>
#include <map>

namespace giant {

Topology::Topology(const std::vector<std::string>& identities) {
  std::map<std::string, int> number_of;
  for (int rank = 0; rank < static_cast<int>(identities.size()); ++rank) {
    const auto [found, is_new] =
        number_of.try_emplace(identities[rank], static_cast<int>(ranks_of_.size()));
    if (is_new) ranks_of_.emplace_back();
    auto& ranks = ranks_of_[found->second];
    host_of_.push_back(found->second);
    local_index_.push_back(static_cast<int>(ranks.size()));
    ranks.push_back(rank);
  }
  for (const auto& ranks : ranks_of_) {
    const int here = static_cast<int>(ranks.size());
    num_rails_ = num_rails_ == 0 ? here : std::min(num_rails_, here);
  }
}

int Topology::largest_host() const {
  size_t most = 0;
  for (const auto& ranks : ranks_of_) most = std::max(most, ranks.size());
  return static_cast<int>(most);
}

}  // namespace giant
