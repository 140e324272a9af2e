#pragma once

#include "group/call.h"

namespace giant {

/// Throws UsageError for a call that cannot be made: sizes and numbers of blocks that do not fit, a
/// root that is no rank, a reduction that the type does not have.
void check_call(const Call& call, int rank, int size);

}  // namespace giant
