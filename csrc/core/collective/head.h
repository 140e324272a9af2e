#pragma once

#include <cstdint>

#include "group/call.h"

namespace giant {

/// What must be the same of a call on all ranks, as it lies in shared memory and on the wire.
struct CallHead {
  uint8_t kind = 0;
  uint8_t dtype = 0;
  uint8_t reduction = 0;
  uint8_t uneven = 0;
  int32_t root = 0;
  uint64_t bytes = 0;
  double scale = 1.0;

  bool operator==(const CallHead&) const = default;
};
static_assert(sizeof(CallHead) == 24);

CallHead head_of(const Call& call);

/// As `describe` of the call.
std::string describe(const CallHead& head);

}  // namespace giant
