#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/deadline.h"

namespace giant {

using Bytes = std::vector<uint8_t>;

/// Where ranks leave what others need to find them: c10d's Store, or a map in tests.
class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const Bytes& value) = 0;
  /// Waits for the key. Throws TimeoutError.
  virtual Bytes get(const std::string& key, Deadline deadline) = 0;
};

}  // namespace giant
