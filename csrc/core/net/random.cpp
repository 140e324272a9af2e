#include "net/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/error.h"

namespace giant {

void fill_random(void* bytes, size_t count) {
  auto* at = static_cast<uint8_t*>(bytes);
  while (count > 0) {
    const ssize_t got = getrandom(at, count, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw PeerError(std::string("the system gives no random bytes: ") + std::strerror(errno));
    at += got;
    count -= got;
  }
}

}  // namespace giant
