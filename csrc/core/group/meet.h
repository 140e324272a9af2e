#pragma once

#include "group/links.h"
#include "net/store.h"

namespace giant {

/// Meets the other ranks of a group: works out who shares a host, shares memory inside each, and
/// connects the rails. Throws TimeoutError naming the ranks that did not come, PeerError.
Links meet(Store& store, int rank, int size, milliseconds timeout);

}  // namespace giant
