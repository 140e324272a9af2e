#pragma once

#include <algorithm>
#include <cstddef>

namespace giant {

/// Elements [begin, end).
struct Range {
  size_t begin = 0;
  size_t end = 0;

  size_t size() const { return end - begin; }
};

/// Part `index` of `total` elements in `parts` parts of nearly the same size, each but the last a
/// multiple of `granule`; late parts may be empty.
inline Range split(size_t total, size_t parts, size_t index, size_t granule = 16) {
  const size_t each = (total + parts - 1) / parts;
  const size_t size = (each + granule - 1) / granule * granule;
  return {std::min(total, index * size), std::min(total, (index + 1) * size)};
}

}  // namespace giant
