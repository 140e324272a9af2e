#pragma once

#include <type_traits>

#include "reduce/vector.h"

// How elements lie in memory and in what they are accumulated. A format has
//   Pack           four vectors to accumulate in: enough to hide the latency of an addition
//   kBytes         of the elements that fill a pack
//   kElementBytes
//   load(pack, memory), finish(pack, scale), store(memory, pack).
namespace giant {

template <class V>
struct FourVectors {
  V a, b, c, d;
};

/// Numbers that are accumulated as they are.
template <class T, size_t W>
struct Plain {
  using V = VectorOf<T, W>;
  using Pack = FourVectors<V>;
  static constexpr size_t kElementBytes = sizeof(T);
  static constexpr size_t kBytes = 4 * W;

  static GIANT_INLINE void load(Pack& pack, const char* from) {
    Vector<T, W>::load(pack.a, from);
    Vector<T, W>::load(pack.b, from + W);
    Vector<T, W>::load(pack.c, from + 2 * W);
    Vector<T, W>::load(pack.d, from + 3 * W);
  }
  static GIANT_INLINE void finish(Pack& pack, double scale) {
    if constexpr (std::is_floating_point_v<T>) {
      finish_one(pack.a, static_cast<T>(scale));
      finish_one(pack.b, static_cast<T>(scale));
      finish_one(pack.c, static_cast<T>(scale));
      finish_one(pack.d, static_cast<T>(scale));
    }
  }
  static GIANT_INLINE void store(char* to, const Pack& pack) {
    Vector<T, W>::store(to, pack.a);
    Vector<T, W>::store(to + W, pack.b);
    Vector<T, W>::store(to + 2 * W, pack.c);
    Vector<T, W>::store(to + 3 * W, pack.d);
  }

 private:
  static GIANT_INLINE void finish_one(V& values, T scale) {
    values *= scale;
    if constexpr (sizeof(T) == 4) {
      make_nans_equal<W>(values);
    } else {
      const VectorOf<uint64_t, W> nan = VectorOf<uint64_t, W>{} + 0x7ff8000000000000u;
      values = (values != values) ? (V)nan : values;
    }
  }
};

/// Bytes that are 0 or not; the result is 0 or 1.
template <size_t W>
struct Boolean : Plain<uint8_t, W> {
  using typename Plain<uint8_t, W>::V;
  using typename Plain<uint8_t, W>::Pack;

  static GIANT_INLINE void load(Pack& pack, const char* from) {
    Plain<uint8_t, W>::load(pack, from);
    pack.a = (V)(pack.a != 0) & 1;
    pack.b = (V)(pack.b != 0) & 1;
    pack.c = (V)(pack.c != 0) & 1;
    pack.d = (V)(pack.d != 0) & 1;
  }
};

/// 16-bit floats, accumulated as float32. `Pair` widens and rounds 2 vectors of floats:
/// load(even, odd, memory), store(memory, even, odd).
template <class Pair, size_t W>
struct Narrow {
  using Pack = FourVectors<Floats<W>>;
  static constexpr size_t kElementBytes = 2;
  static constexpr size_t kBytes = 2 * W;

  static GIANT_INLINE void load(Pack& pack, const char* from) {
    Pair::load(pack.a, pack.b, from);
    Pair::load(pack.c, pack.d, from + W);
  }
  static GIANT_INLINE void finish(Pack& pack, double scale) {
    pack.a *= static_cast<float>(scale);
    pack.b *= static_cast<float>(scale);
    pack.c *= static_cast<float>(scale);
    pack.d *= static_cast<float>(scale);
  }
  static GIANT_INLINE void store(char* to, const Pack& pack) {
    Pair::store(to, pack.a, pack.b);
    Pair::store(to + W, pack.c, pack.d);
  }
};

// The two elements of a 32-bit word go to the same lane of two vectors: that needs no shuffles.
template <size_t W>
struct Bfloat16Pair {
  static GIANT_INLINE void load(Floats<W>& lower, Floats<W>& upper, const char* from) {
    Words<W> words;
    Vector<uint32_t, W>::load(words, from);
    widen_bf16<W>(lower, words << 16);
    widen_bf16<W>(upper, words);
  }
  static GIANT_INLINE void store(char* to, const Floats<W>& lower, const Floats<W>& upper) {
    Words<W> low, high;
    round_to_bf16<W>(low, lower);
    round_to_bf16<W>(high, upper);
    Vector<uint32_t, W>::store(to, (low >> 16) | (high & 0xffff0000u));
  }
};

template <size_t W>
struct Float16Pair {
  static GIANT_INLINE void load(Floats<W>& lower, Floats<W>& upper, const char* from) {
    Words<W> words;
    Vector<uint32_t, W>::load(words, from);
    widen_f16<W>(lower, words & 0xffffu);
    widen_f16<W>(upper, words >> 16);
  }
  static GIANT_INLINE void store(char* to, const Floats<W>& lower, const Floats<W>& upper) {
    Words<W> low, high;
    round_to_f16<W>(low, lower);
    round_to_f16<W>(high, upper);
    Vector<uint32_t, W>::store(to, low | (high << 16));
  }
};

template <size_t W>
using Bfloat16 = Narrow<Bfloat16Pair<W>, W>;
template <size_t W>
using Float16 = Narrow<Float16Pair<W>, W>;

}  // namespace giant
