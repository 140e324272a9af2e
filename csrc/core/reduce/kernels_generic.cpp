#include <type_traits>

#include "reduce/fold.h"
#include "reduce/kernels.h"

namespace giant {
namespace {

constexpr size_t kWidth = 16;

template <class Format, class Op>
void run(void* target, const void* const* sources, size_t num_sources, size_t count, double scale) {
  fold<Format, Op>(target, sources, num_sources, count, scale);
}

template <class Format>
Kernel arithmetic(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum: return run<Format, Sum>;
    case Reduction::product: return run<Format, Product>;
    case Reduction::min: return run<Format, Min>;
    case Reduction::max: return run<Format, Max>;
    default: return nullptr;
  }
}

template <class Format>
Kernel bits(Reduction reduction) {
  switch (reduction) {
    case Reduction::bit_and: return run<Format, BitAnd>;
    case Reduction::bit_or: return run<Format, BitOr>;
    case Reduction::bit_xor: return run<Format, BitXor>;
    default: return nullptr;
  }
}

// Sums, products and bits of signed numbers are those of unsigned ones, whose overflow is defined.
template <class T>
Kernel integer(Reduction reduction) {
  using Unsigned = Plain<std::make_unsigned_t<T>, kWidth>;
  if (reduction == Reduction::min || reduction == Reduction::max)
    return arithmetic<Plain<T, kWidth>>(reduction);
  const Kernel kernel = arithmetic<Unsigned>(reduction);
  return kernel ? kernel : bits<Unsigned>(reduction);
}

Kernel boolean(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
    case Reduction::max: return bits<Boolean<kWidth>>(Reduction::bit_or);
    case Reduction::product:
    case Reduction::min: return bits<Boolean<kWidth>>(Reduction::bit_and);
    default: return bits<Boolean<kWidth>>(reduction);
  }
}

}  // namespace

Kernel generic_kernel(DType dtype, Reduction reduction) {
  switch (dtype) {
    case DType::u8: return integer<uint8_t>(reduction);
    case DType::i8: return integer<int8_t>(reduction);
    case DType::i16: return integer<int16_t>(reduction);
    case DType::i32: return integer<int32_t>(reduction);
    case DType::i64: return integer<int64_t>(reduction);
    case DType::f16: return arithmetic<Float16<kWidth>>(reduction);
    case DType::bf16: return arithmetic<Bfloat16<kWidth>>(reduction);
    case DType::f32: return arithmetic<Plain<float, kWidth>>(reduction);
    case DType::f64: return arithmetic<Plain<double, kWidth>>(reduction);
    case DType::boolean: return boolean(reduction);
  }
  return nullptr;
}

}  // namespace giant
