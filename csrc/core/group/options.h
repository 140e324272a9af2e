#pragma once

#include <cstdint>
#include <string>

#include "base/deadline.h"

namespace giant {

enum class Compression : uint8_t { none, bf16, int8 };

struct GroupOptions {
  std::string name;  // for messages
  milliseconds timeout{1800000};
  Compression compression = Compression::none;  // of float32 sums between hosts
};

}  // namespace giant
