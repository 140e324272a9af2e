#pragma once

#include <cstddef>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"

namespace giant {

/// Hands copies of descriptors over a non-blocking Unix stream. Throws PeerError, TimeoutError.
void send_fds(int stream, const std::vector<int>& fds, Deadline deadline);

/// Takes `count` descriptors, closed on exec. Throws PeerError where the peer hangs up, sends
/// anything else or more, or where this process may not open so many; TimeoutError.
std::vector<Fd> receive_fds(int stream, size_t count, Deadline deadline);

}  // namespace giant
