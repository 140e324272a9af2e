#include "compress/compress.h"

#include <string>

#include "base/copy.h"
#include "base/error.h"
#include "compress/codec.h"
#include "compress/codecs.h"

namespace giant {
namespace {

// Sizes are the same for vectors of all widths.
constexpr size_t kAnyWidth = 16;

void copy_sums(void* out, const float* values, float* residual, size_t count) {
  if (residual == nullptr) return copy_bytes(out, values, count * sizeof(float));
  auto* to = static_cast<char*>(out);
  for (size_t i = 0; i < count; ++i) {
    const float value = values[i] + residual[i];
    std::memcpy(to + i * sizeof value, &value, sizeof value);
    residual[i] = 0.0f;
  }
}

}  // namespace

size_t compressed_bytes(Compression compression, size_t count) {
  switch (compression) {
    case Compression::none: return count * sizeof(float);
    case Compression::bf16: return encoded_bytes<Bfloat16Codec<kAnyWidth>>(count);
    case Compression::int8: return encoded_bytes<Int8Codec<kAnyWidth>>(count);
  }
  throw UsageError("no such compression: " + std::to_string(static_cast<int>(compression)));
}

CodecKernels codec_for(Isa isa, Compression compression) {
  if (compression != Compression::bf16 && compression != Compression::int8)
    throw UsageError("no codec for compression " + std::to_string(static_cast<int>(compression)));
#if defined(__x86_64__)
  if (isa == Isa::avx2) return avx2_codec(compression);
  if (isa == Isa::avx512) return avx512_codec(compression);
#endif
  return generic_codec(compression);
}

void compress(Compression compression, void* out, const float* values, float* residual,
              size_t count) {
  if (compression == Compression::none) return copy_sums(out, values, residual, count);
  codec_for(isa_in_use(), compression).encode(out, values, residual, count);
}

void decompress(Compression compression, float* out, const void* in, size_t count) {
  if (compression == Compression::none) return copy_bytes(out, in, count * sizeof(float));
  codec_for(isa_in_use(), compression).decode(out, in, count);
}

}  // namespace giant
