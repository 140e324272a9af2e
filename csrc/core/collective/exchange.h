#pragma once

#include "collective/algorithms.h"

namespace giant {

// The middle of all-reduce: `work` holds the `n` sums of a host's ranks for one rail, and gets those of all
// hosts. `to` one host, or -1: all.

/// Each host sums a part and gives the result to the hosts that want it.
Task exchange_split(Team& team, Math math, uint64_t chunk, uint8_t* work, size_t n, int to);

/// Each host that wants the result gets everything and sums it.
Task exchange_whole(Team& team, Math math, uint64_t chunk, uint8_t* work, size_t n, int to);

/// As exchange_split, with float32 compressed on the way. All ranks get the same bits. `first` is the
/// place of `work` in the tensor, for what was lost of it before.
Task exchange_compressed(Team& team, Math math, uint64_t chunk, float* work, size_t n, int to,
                         Compressing compressing, size_t first);

}  // namespace giant
