#pragma once

#include <cstddef>
#include <cstdint>

namespace giant {

enum class DType : uint8_t { u8, i8, i16, i32, i64, f16, bf16, f32, f64, boolean };
enum class Reduction : uint8_t { sum, product, min, max, bit_and, bit_or, bit_xor };

size_t size_of(DType dtype);
const char* name_of(DType dtype);       // "float32", as PyTorch calls it
const char* name_of(Reduction reduction);

/// Throws UsageError where the reduction has no meaning for the type (bits of floats).
void check_reduction(DType dtype, Reduction reduction);

/// target[i] = sources[0][i] op sources[1][i] op …, always in that order, so that the result
/// depends neither on `count` nor on where the elements lie nor on the instruction set.
///
/// 16-bit floats accumulate in float32, are multiplied by `scale` there, and are rounded once, to
/// nearest even. `scale` multiplies the result of floats, as a float32 but for float64; it must be
/// 1 for integers. One source is a scaled copy. `target` may be one of the sources, but may not
/// overlap one partly. Nothing needs to be aligned. NaN wins in min and max, as in PyTorch; all
/// NaNs in a result have the same bits, unless it is a plain copy. Integers wrap around. Booleans:
/// sum and max are "or", product and min "and".
///
/// Throws UsageError: see check_reduction; no source; a scale for integers; a bad GIANT_ISA.
void reduce(DType dtype, Reduction reduction, void* target, const void* const* sources,
            size_t num_sources, size_t count, double scale = 1.0);

/// The name of the kernels in use: "avx2", "avx512", "neon" or "generic"; GIANT_ISA names others.
const char* instruction_set();

}  // namespace giant
