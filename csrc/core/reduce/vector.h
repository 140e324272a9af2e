#pragma once

#include <cstddef>
#include <cstdint>

// Vectors of a width that the including file chooses, for kernels that are compiled once for each
// instruction set. All of it is inlined into functions that have the `target` attribute. Vectors go
// by reference, since how they are passed by value depends on the instruction set.
#define GIANT_INLINE inline __attribute__((always_inline))

namespace giant {

/// A vector of W bytes of T.
template <class T, size_t W>
struct Vector {
  typedef T Type __attribute__((vector_size(W)));
  typedef T Loose __attribute__((vector_size(W), aligned(1), may_alias));

  static GIANT_INLINE void load(Type& to, const void* from) {
    to = *static_cast<const Loose*>(from);
  }
  static GIANT_INLINE void store(void* to, const Type& from) { *static_cast<Loose*>(to) = from; }
};

template <class T, size_t W>
using VectorOf = typename Vector<T, W>::Type;
template <size_t W>
using Floats = VectorOf<float, W>;
template <size_t W>
using Words = VectorOf<uint32_t, W>;
template <size_t W>
using Ints = VectorOf<int32_t, W>;

/// Which of two NaNs an addition passes on depends on how the compiler orders its operands; one NaN
/// for all makes results equal to the bit.
template <size_t W>
GIANT_INLINE void make_nans_equal(Floats<W>& values) {
  const Words<W> nan = Words<W>{} + 0x7fc00000u;
  values = (values != values) ? (Floats<W>)nan : values;
}

/// The upper 16 bits of each lane, as a float32.
template <size_t W>
GIANT_INLINE void widen_bf16(Floats<W>& values, const Words<W>& upper) {
  values = (Floats<W>)(upper & 0xffff0000u);
}

/// To nearest even, into the upper 16 bits of each lane; the lower ones are rubbish.
template <size_t W>
GIANT_INLINE void round_to_bf16(Words<W>& upper, const Floats<W>& values) {
  const Words<W> bits = (Words<W>)values;
  const Words<W> rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  upper = (values != values) ? Words<W>{} + 0x7fc00000u : rounded;
}

/// The lower 16 bits of each lane as a float16; the upper ones must be 0. Right without denormal
/// float32, which a processor may be told to flush.
template <size_t W>
GIANT_INLINE void widen_f16(Floats<W>& values, const Words<W>& halves) {
  const Words<W> sign = (halves & 0x8000u) << 16;
  const Words<W> magnitude = halves & 0x7fffu;
  const Words<W> normal = (magnitude << 13) + (112u << 23);
  const Words<W> special = normal | 0x7f800000u;
  const Floats<W> denormal = __builtin_convertvector((Ints<W>)magnitude, Floats<W>) * 0x1p-24f;
  Words<W> bits = (magnitude < 0x400u) ? (Words<W>)denormal : normal;
  bits = (magnitude >= 0x7c00u) ? special : bits;
  values = (Floats<W>)(bits | sign);
}

/// To nearest even, into the lower 16 bits of each lane; the upper ones become 0.
template <size_t W>
GIANT_INLINE void round_to_f16(Words<W>& halves, const Floats<W>& values) {
  const Words<W> bits = (Words<W>)values;
  const Words<W> magnitude = bits & 0x7fffffffu;
  const Words<W> normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Added to 0.5, the last bit that remains is worth as much as the last of a denormal float16.
  const Floats<W> shifted = (Floats<W>)magnitude + 0.5f;
  const Words<W> denormal = (Words<W>)shifted - 0x3f000000u;
  const Words<W> infinity = Words<W>{} + 0x7c00u;
  Words<W> result = (magnitude < 0x38800000u) ? denormal : normal;
  result = (magnitude >= 0x47800000u) ? infinity : result;
  result |= (bits >> 16) & 0x8000u;
  halves = (values != values) ? Words<W>{} + 0x7e00u : result;
}

}  // namespace giant
