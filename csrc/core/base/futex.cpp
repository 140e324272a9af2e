#include "base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace giant {

static_assert(std::atomic<uint32_t>::is_always_lock_free);

void futex_wait(std::atomic<uint32_t>& word, uint32_t value, milliseconds most) {
  const timespec limit{.tv_sec = most.count() / 1000, .tv_nsec = most.count() % 1000 * 1000000};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, value, &limit, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace giant
