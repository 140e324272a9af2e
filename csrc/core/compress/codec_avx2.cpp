#if defined(__x86_64__)

#include "compress/codec.h"
#include "compress/codecs.h"

#define GIANT_TARGET __attribute__((target("avx2")))

namespace giant {
namespace {

constexpr size_t kWidth = 32;

template <class Format>
GIANT_TARGET void encode_all(void* out, const float* values, float* residual, size_t count) {
  encode<Format, kWidth>(out, values, residual, count);
}

template <class Format>
GIANT_TARGET void decode_all(float* out, const void* in, size_t count) {
  decode<Format, kWidth>(out, in, count);
}

}  // namespace

CodecKernels avx2_codec(Compression compression) {
  using Int8 = Int8Codec<kWidth>;
  using Bfloat16 = Bfloat16Codec<kWidth>;
  if (compression == Compression::int8) return {encode_all<Int8>, decode_all<Int8>};
  return {encode_all<Bfloat16>, decode_all<Bfloat16>};
}

}  // namespace giant

#endif
