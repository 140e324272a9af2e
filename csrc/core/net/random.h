#pragma once

#include <cstddef>

namespace giant {

/// From the system, unpredictable. Throws PeerError where it has none.
void fill_random(void* bytes, size_t count);

}  // namespace giant
