#pragma once

#include "compress/compress.h"
#include "reduce/isa.h"

namespace giant {

/// compress() and decompress() for one compression.
struct CodecKernels {
  void (*encode)(void* out, const float* values, float* residual, size_t count);
  void (*decode)(float* out, const void* in, size_t count);
};

// For all but Compression::none. All instruction sets give the same bytes; avx2 and avx512 exist on
// x86-64 only.
CodecKernels generic_codec(Compression compression);
CodecKernels avx2_codec(Compression compression);
CodecKernels avx512_codec(Compression compression);

/// Throws UsageError for Compression::none, which needs none.
CodecKernels codec_for(Isa isa, Compression compression);

}  // namespace giant
