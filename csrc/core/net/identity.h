#pragma once

#include <string>

namespace giant {

/// The same for ranks that share a host (memory and network), another for others: GIANT_HOST_ID
/// where it is set and not empty, or else the machine's boot id and the network namespace. Throws
/// UsageError where /proc does not tell.
std::string host_identity();

}  // namespace giant
