#pragma once

#include <string>

namespace giant {

/// The same for ranks that share a host (memory and network), another for others: GIANT_HOST_ID, or
/// the machine's boot id and the network namespace.
std::string host_identity();

}  // namespace giant
