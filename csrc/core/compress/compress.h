#pragma once

#include <cstddef>

#include "group/options.h"

namespace giant {

/// Values that are compressed together: what is cut at multiples of it can be compressed, sent and
/// decompressed piece by piece, and the pieces put together are the whole.
constexpr size_t kCompressedBlock = 256;

/// How many bytes `count` values take, the same on all machines. bf16: 2 a value (1 value more
/// where the count is odd); int8: 1 a value, rounded up to 4, and 4 a block.
size_t compressed_bytes(Compression compression, size_t count);

/// Encodes what a link carries of float32 values. The order of the bytes is of use to decompress()
/// alone, but the same for all instruction sets.
///
/// With a `residual`, of `count` values that the caller keeps from call to call and starts at 0,
/// what is encoded is value + residual, and the residual becomes what was lost: errors do not add
/// up. The three may not overlap; `out` needs no alignment. Compression::none loses nothing.
///
/// bf16 rounds to nearest even; values beyond its range become infinite. int8 keeps the absolute
/// maximum of 256 values (less a part in 2^15) / 127 as their quantum, at least 2^-100, and is off
/// by half a quantum at most.
///
/// What is not finite is never lost. In bf16, infinity and NaN stay what they are. A block of int8
/// that holds one (or whose value + residual does) is decoded to NaN for all its values. What was
/// lost of such values (bf16) or blocks (int8) counts as 0.
void compress(Compression compression, void* out, const float* values, float* residual,
              size_t count);

/// The inverse of compress(), for `count` values in compressed_bytes() bytes, which need no
/// alignment and may not overlap `out`.
void decompress(Compression compression, float* out, const void* in, size_t count);

}  // namespace giant
