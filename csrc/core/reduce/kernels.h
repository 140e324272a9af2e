#pragma once

#include "reduce/isa.h"
#include "reduce/reduce.h"

namespace giant {

/// reduce() for one type and reduction, with at least one source.
using Kernel = void (*)(void* target, const void* const* sources, size_t num_sources, size_t count,
                        double scale);

/// For everything that check_reduction lets pass.
Kernel generic_kernel(DType dtype, Reduction reduction);

// Null where the generic kernel is good enough. They exist on x86-64 only.
Kernel avx2_sum(DType dtype);
Kernel avx512_sum(DType dtype);

/// The best kernel of an instruction set. All sets give the same bits.
Kernel kernel_for(Isa isa, DType dtype, Reduction reduction);

/// reduce() with an instruction set of the caller's choice, which this machine must have.
void reduce_with(Isa isa, DType dtype, Reduction reduction, void* target,
                 const void* const* sources, size_t num_sources, size_t count, double scale = 1.0);

}  // namespace giant
