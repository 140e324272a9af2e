#if defined(__x86_64__)

#include <immintrin.h>

#include "reduce/fold.h"
#include "reduce/kernels.h"

// Attributes on functions, not options for the file: what a header defines must stay fit for every
// machine, since the linker keeps one copy of it for the whole program.
#define GIANT_TARGET __attribute__((target("avx512f")))

namespace giant {
namespace {

constexpr size_t kWidth = 64;
// The forms without a mask make g++ 12 warn about a variable of its own.
constexpr __mmask16 kAll = 0xffff;

// Not always_inline: that is an error as long as the caller between has no target; hence `flatten`.
struct HardwarePair {
  GIANT_TARGET static void load(Floats<kWidth>& first, Floats<kWidth>& second, const char* from) {
    load_one(first, from);
    load_one(second, from + kWidth / 2);
  }
  GIANT_TARGET static void store(char* to, const Floats<kWidth>& first,
                                 const Floats<kWidth>& second) {
    store_one(to, first);
    store_one(to + kWidth / 2, second);
  }

 private:
  GIANT_TARGET static void load_one(Floats<kWidth>& to, const char* from) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    to = _mm512_maskz_cvtph_ps(kAll, halves);
  }
  GIANT_TARGET static void store_one(char* to, const Floats<kWidth>& from) {
    Floats<kWidth> values = from;
    make_nans_equal<kWidth>(values);
    const __m256i halves = _mm512_maskz_cvtps_ph(kAll, (__m512)values, _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), halves);
  }
};

template <class Format>
GIANT_TARGET __attribute__((flatten)) void sum(void* target, const void* const* sources,
                                               size_t num_sources, size_t count, double scale) {
  fold<Format, Sum>(target, sources, num_sources, count, scale);
}

}  // namespace

Kernel avx512_sum(DType dtype) {
  switch (dtype) {
    case DType::i32: return sum<Plain<uint32_t, kWidth>>;
    case DType::i64: return sum<Plain<uint64_t, kWidth>>;
    case DType::f16: return sum<Narrow<HardwarePair, kWidth>>;
    case DType::bf16: return sum<Bfloat16<kWidth>>;
    case DType::f32: return sum<Plain<float, kWidth>>;
    case DType::f64: return sum<Plain<double, kWidth>>;
    default: return nullptr;
  }
}

}  // namespace giant

#endif
