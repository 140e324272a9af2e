#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "group/call.h"
#include "reduce/reduce.h"

namespace giant {

using Sources = std::vector<const void*>;

/// How the elements of a call are reduced. First over the ranks of each host in rank order, then
/// over the hosts in their order: whatever the algorithm, so that all give the same bits.
struct Math {
  DType dtype = DType::u8;
  Reduction reduction = Reduction::sum;
  double scale = 1.0;
  size_t width = 1;  // bytes of an element

  static Math of(const Call& call) {
    return {call.dtype, call.reduction, call.scale, size_of(call.dtype)};
  }

  /// Of the ranks of a host, where other hosts follow.
  void combine(void* target, const Sources& sources, size_t count) const {
    reduce(dtype, reduction, target, sources.data(), sources.size(), count);
  }

  /// The last step, scaled.
  void finish(void* target, const Sources& sources, size_t count) const {
    reduce(dtype, reduction, target, sources.data(), sources.size(), count, scale);
  }
};

}  // namespace giant
