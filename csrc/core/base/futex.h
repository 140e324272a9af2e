#pragma once

#include <atomic>
#include <cstdint>

#include "base/deadline.h"

namespace giant {

/// Sleeps while `word` holds `value`, `most` at the longest; may also wake for no reason. The word may
/// lie in memory that processes share.
void futex_wait(std::atomic<uint32_t>& word, uint32_t value, milliseconds most);

/// Wakes whoever sleeps on `word`.
void futex_wake(std::atomic<uint32_t>& word);

}  // namespace giant
