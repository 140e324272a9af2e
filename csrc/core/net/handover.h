#pragma once

#include <cstddef>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"

namespace giant {

// Descriptors over a non-blocking Unix stream (SCM_RIGHTS). Throw PeerError, TimeoutError.
void send_fds(int stream, const std::vector<int>& fds, Deadline deadline);
std::vector<Fd> receive_fds(int stream, size_t count, Deadline deadline);

}  // namespace giant
