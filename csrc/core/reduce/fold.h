#pragma once

#include <cstring>

#include "reduce/format.h"

namespace giant {

struct Sum {
  template <class V>
  static GIANT_INLINE void apply(V& into, const V& value) { into += value; }
};

struct Product {
  template <class V>
  static GIANT_INLINE void apply(V& into, const V& value) { into *= value; }
};

// A NaN in `value` makes both comparisons false, one in `into` is kept.
struct Min {
  template <class V>
  static GIANT_INLINE void apply(V& into, const V& value) {
    into = ((into < value) | (into != into)) ? into : value;
  }
};

struct Max {
  template <class V>
  static GIANT_INLINE void apply(V& into, const V& value) {
    into = ((into > value) | (into != into)) ? into : value;
  }
};

struct BitAnd {
  template <class V>
  static GIANT_INLINE void apply(V& into, const V& value) { into &= value; }
};

struct BitOr {
  template <class V>
  static GIANT_INLINE void apply(V& into, const V& value) { into |= value; }
};

struct BitXor {
  template <class V>
  static GIANT_INLINE void apply(V& into, const V& value) { into ^= value; }
};

template <class Op, class V>
GIANT_INLINE void apply_to_pack(FourVectors<V>& into, const FourVectors<V>& value) {
  Op::apply(into.a, value.a);
  Op::apply(into.b, value.b);
  Op::apply(into.c, value.c);
  Op::apply(into.d, value.d);
}

/// What is left when no whole pack is: goes through the same code, in a buffer, so that it has the
/// same result.
template <class Format, class Op>
GIANT_INLINE void fold_rest(char* target, const void* const* sources, size_t num_sources, size_t at,
                            size_t bytes, double scale) {
  char buffer[Format::kBytes] = {};
  typename Format::Pack result, next;
  std::memcpy(buffer, static_cast<const char*>(sources[0]) + at, bytes);
  Format::load(result, buffer);
  for (size_t s = 1; s < num_sources; ++s) {
    std::memcpy(buffer, static_cast<const char*>(sources[s]) + at, bytes);
    Format::load(next, buffer);
    apply_to_pack<Op>(result, next);
  }
  Format::finish(result, scale);
  Format::store(buffer, result);
  std::memcpy(target + at, buffer, bytes);
}

/// reduce() for one format and operation: one pass over memory, whatever the number of sources.
template <class Format, class Op>
GIANT_INLINE void fold(void* target, const void* const* sources, size_t num_sources, size_t count,
                       double scale) {
  auto* to = static_cast<char*>(target);
  const size_t bytes = count * Format::kElementBytes;
  size_t at = 0;
  for (; at + Format::kBytes <= bytes; at += Format::kBytes) {
    typename Format::Pack result, next;
    Format::load(result, static_cast<const char*>(sources[0]) + at);
    for (size_t s = 1; s < num_sources; ++s) {
      Format::load(next, static_cast<const char*>(sources[s]) + at);
      apply_to_pack<Op>(result, next);
    }
    Format::finish(result, scale);
    Format::store(to + at, result);
  }
  if (at < bytes) fold_rest<Format, Op>(to, sources, num_sources, at, bytes - at, scale);
}

}  // namespace giant
