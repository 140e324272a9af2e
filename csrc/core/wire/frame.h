#pragma once

#include <cstdint>

#include "collective/head.h"

namespace giant {

/// What goes before every piece of data on a rail. Both ends are of one job on machines of one kind:
/// numbers are in the machine's order.
struct Frame {
  static constexpr uint32_t kMagic = 0x67696e74;
  static constexpr uint32_t kData = 1;
  static constexpr uint32_t kFault = 2;  // `length` bytes of text follow, `step` is the Fault
  static constexpr uint64_t kMostText = 4000;

  uint32_t magic = kMagic;
  uint32_t kind = kData;
  uint64_t call = 0;
  uint64_t chunk = 0;
  uint32_t step = 0;
  uint32_t reserved = 0;
  uint64_t length = 0;
  CallHead head;
};
static_assert(sizeof(Frame) == 64);

}  // namespace giant
