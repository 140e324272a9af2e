#include "net/identity.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>

#include "base/error.h"

namespace giant {

std::string host_identity() {
  const char* const given = std::getenv("GIANT_HOST_ID");
  if (given != nullptr && *given != '\0') return given;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::array<char, 128> space;
  const ssize_t length = readlink("/proc/self/ns/net", space.data(), space.size());
  if (!(file >> boot) || length <= 0)
    throw UsageError("/proc does not tell this host from others; set GIANT_HOST_ID");
  return boot + " " + std::string(space.data(), length);
}

}  // namespace giant
