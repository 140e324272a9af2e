#include "reduce/reduce.h"

#include <string>

#include "base/copy.h"
#include "base/error.h"
#include "reduce/isa.h"
#include "reduce/kernels.h"

namespace giant {
namespace {

bool is_float(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32 || dtype == DType::f64;
}

bool is_of_bits(Reduction reduction) {
  return reduction == Reduction::bit_and || reduction == Reduction::bit_or ||
         reduction == Reduction::bit_xor;
}

}  // namespace

size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::u8:
    case DType::i8:
    case DType::boolean: return 1;
    case DType::i16:
    case DType::f16:
    case DType::bf16: return 2;
    case DType::i32:
    case DType::f32: return 4;
    case DType::i64:
    case DType::f64: return 8;
  }
  throw UsageError("no such element type: " + std::to_string(static_cast<int>(dtype)));
}

const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::u8: return "uint8";
    case DType::i8: return "int8";
    case DType::i16: return "int16";
    case DType::i32: return "int32";
    case DType::i64: return "int64";
    case DType::f16: return "float16";
    case DType::bf16: return "bfloat16";
    case DType::f32: return "float32";
    case DType::f64: return "float64";
    case DType::boolean: return "bool";
  }
  return "unknown type";
}

const char* name_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum: return "sum";
    case Reduction::product: return "product";
    case Reduction::min: return "min";
    case Reduction::max: return "max";
    case Reduction::bit_and: return "bitwise and";
    case Reduction::bit_or: return "bitwise or";
    case Reduction::bit_xor: return "bitwise xor";
  }
  return "unknown reduction";
}

void check_reduction(DType dtype, Reduction reduction) {
  size_of(dtype);
  if (reduction > Reduction::bit_xor)
    throw UsageError("no such reduction: " + std::to_string(static_cast<int>(reduction)));
  if (is_float(dtype) && is_of_bits(reduction))
    throw UsageError(std::string(name_of(dtype)) + " has no " + name_of(reduction));
}

Kernel kernel_for(Isa isa, DType dtype, Reduction reduction) {
  Kernel special = nullptr;
#if defined(__x86_64__)
  if (reduction == Reduction::sum && isa == Isa::avx2) special = avx2_sum(dtype);
  if (reduction == Reduction::sum && isa == Isa::avx512) special = avx512_sum(dtype);
#endif
  return special ? special : generic_kernel(dtype, reduction);
}

void reduce_with(Isa isa, DType dtype, Reduction reduction, void* target,
                 const void* const* sources, size_t num_sources, size_t count, double scale) {
  check_reduction(dtype, reduction);
  if (num_sources == 0) throw UsageError("a reduction needs at least one source");
  if (scale != 1.0 && !is_float(dtype))
    throw UsageError(std::string(name_of(dtype)) + " cannot be multiplied by a scale");
  if (count == 0) return;
  if (num_sources == 1 && scale == 1.0 && dtype != DType::boolean)
    return copy_bytes(target, sources[0], count * size_of(dtype));
  kernel_for(isa, dtype, reduction)(target, sources, num_sources, count, scale);
}

void reduce(DType dtype, Reduction reduction, void* target, const void* const* sources,
            size_t num_sources, size_t count, double scale) {
  reduce_with(isa_in_use(), dtype, reduction, target, sources, num_sources, count, scale);
}

const char* instruction_set() { return name_of(isa_in_use()); }

}  // namespace giant
