#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

namespace giant {

/// What compression lost of a tensor's sums in earlier calls, to be added in the next (error feedback,
/// Seide et al. 2014). A tensor is known by its address and size: gradient buckets keep theirs from step to
/// step. One that appears only once loses what one call loses.
class Feedback {
 public:
  /// Two values for each element: of what is sent to be summed, and of the sums.
  struct Lost {
    std::vector<float> sent, summed;
  };

  Lost& of(const void* tensor, size_t count) {
    // Tensors that come and go would collect here for ever.
    constexpr size_t kMost = 256;
    if (lost_.size() > kMost) lost_.clear();
    Lost& found = lost_[{tensor, count}];
    found.sent.resize(count);
    found.summed.resize(count);
    return found;
  }

 private:
  std::map<std::pair<const void*, size_t>, Lost> lost_;
};

}  // namespace giant
