#pragma once

#include <cstring>

#include "compress/compress.h"
#include "reduce/vector.h"

// A block of 256 values is encoded in rows of 32-bit words: of R words, word i holds the values i,
// R + i, 2R + i, … from its lowest bits on. So values never change their lane, which makes the
// format both cheap to write and the same for vectors of all widths. A shorter block has just
// enough rows.
namespace giant {

/// 16 bits a value.
template <size_t W>
struct Bfloat16Codec {
  static constexpr size_t kValuesInWord = 2;
  static constexpr size_t kHeadBytes = 0;

  struct Head {};

  template <bool kFeedback>
  static GIANT_INLINE void measure(Head&, const float*, const float*) {}
  static GIANT_INLINE void write(char*, const Head&) {}
  static GIANT_INLINE void read(Head&, const char*) {}

  /// The bits of one value a lane, and what they are decoded to.
  static GIANT_INLINE void encode(Words<W>& bits, Floats<W>& decoded, const Floats<W>& value,
                                  const Head&) {
    round_to_bf16<W>(bits, value);
    widen_bf16<W>(decoded, bits);
    bits >>= 16;
  }
  /// The bits above those of the value are rubbish.
  static GIANT_INLINE void decode(Floats<W>& value, const Words<W>& bits, const Head&) {
    value = (Floats<W>)(bits << 16);
  }
};

/// The values to encode from number i on. Without feedback `residual` may be null.
template <size_t W, bool kFeedback>
GIANT_INLINE void load_value(Floats<W>& value, const float* values, const float* residual,
                             size_t i) {
  Vector<float, W>::load(value, values + i);
  if constexpr (kFeedback) {
    Floats<W> rest;
    Vector<float, W>::load(rest, residual + i);
    value += rest;
  }
}

/// 8 bits a value. The quantum has 16 significant bits and the number of quanta 7, so that their
/// product is exact: it matters not whether the compiler fuses it with the subtraction after it.
template <size_t W>
struct Int8Codec {
  static constexpr size_t kValuesInWord = 4;
  static constexpr size_t kHeadBytes = 4;

  struct Head {
    float quantum;
  };

  template <bool kFeedback>
  static GIANT_INLINE void measure(Head& head, const float* values, const float* residual) {
    const uint32_t largest = largest_of<kFeedback>(values, residual);
    uint32_t quantum = 0x7fc00000u;  // not a number
    if (largest < 0x7f800000u) {
      float ideal;
      std::memcpy(&ideal, &largest, sizeof ideal);
      ideal = ideal / 127.0f < 0x1p-100f ? 0x1p-100f : ideal / 127.0f;
      std::memcpy(&quantum, &ideal, sizeof ideal);
      quantum &= 0xffffff00u;
    }
    std::memcpy(&head.quantum, &quantum, sizeof quantum);
  }
  static GIANT_INLINE void write(char* to, const Head& head) { std::memcpy(to, &head, kHeadBytes); }
  static GIANT_INLINE void read(Head& head, const char* from) {
    std::memcpy(&head, from, kHeadBytes);
  }

  static GIANT_INLINE void encode(Words<W>& bits, Floats<W>& decoded, const Floats<W>& value,
                                  const Head& head) {
    // Added to this, a number has its last bit at 1: it is rounded to nearest even. A division,
    // since a product might be fused with the addition.
    const Floats<W> anchor = Floats<W>{} + 0x1.8p+23f;
    const Floats<W> anchored = value / head.quantum + anchor;
    decoded = (anchored - anchor) * head.quantum;
    bits = (Words<W>)anchored & 0xffu;
  }
  static GIANT_INLINE void decode(Floats<W>& value, const Words<W>& bits, const Head& head) {
    const Ints<W> quanta = (Ints<W>)(bits << 24) >> 24;
    value = __builtin_convertvector(quanta, Floats<W>) * head.quantum;
  }

 private:
  // Without their sign, floats are in the order of their bits: infinity and NaN come last.
  template <bool kFeedback>
  static GIANT_INLINE uint32_t largest_of(const float* values, const float* residual) {
    Ints<W> most = {};
    for (size_t i = 0; i < kCompressedBlock; i += W / sizeof(float)) {
      Floats<W> value;
      load_value<W, kFeedback>(value, values, residual, i);
      const Ints<W> magnitude = (Ints<W>)value & 0x7fffffff;
      most = (magnitude > most) ? magnitude : most;
    }
    int32_t largest = 0;
    for (size_t i = 0; i < W / sizeof(float); ++i) largest = most[i] > largest ? most[i] : largest;
    return static_cast<uint32_t>(largest);
  }
};

template <class Codec>
constexpr size_t kRows = kCompressedBlock / Codec::kValuesInWord;

template <class Codec>
constexpr size_t kBlockBytes = Codec::kHeadBytes + kRows<Codec> * sizeof(uint32_t);

template <class Codec>
constexpr size_t rows_of(size_t count) {
  return (count + Codec::kValuesInWord - 1) / Codec::kValuesInWord;
}

template <class Codec>
constexpr size_t encoded_bytes(size_t count) {
  const size_t rest = count % kCompressedBlock;
  const size_t head = rest > 0 ? Codec::kHeadBytes : 0;
  return count / kCompressedBlock * kBlockBytes<Codec> + head + rows_of<Codec>(rest) * 4;
}

template <class Codec, size_t W, bool kFeedback>
GIANT_INLINE void encode_block(char* out, const float* values, float* residual) {
  constexpr int kBits = 32 / Codec::kValuesInWord;
  typename Codec::Head head;
  Codec::template measure<kFeedback>(head, values, residual);
  Codec::write(out, head);
  for (size_t row = 0; row < kRows<Codec>; row += W / sizeof(float)) {
    Words<W> word = {};
#pragma GCC unroll 4
    for (size_t k = 0; k < Codec::kValuesInWord; ++k) {
      const size_t i = k * kRows<Codec> + row;
      Words<W> bits;
      Floats<W> value, decoded;
      load_value<W, kFeedback>(value, values, residual, i);
      Codec::encode(bits, decoded, value, head);
      word |= bits << static_cast<int>(k * kBits);
      if constexpr (kFeedback) {
        const Floats<W> lost = value - decoded;
        const Floats<W> zero = {};
        Vector<float, W>::store(residual + i, (lost - lost == zero) ? lost : zero);
      }
    }
    Vector<uint32_t, W>::store(out + Codec::kHeadBytes + row * sizeof(uint32_t), word);
  }
}

template <class Codec, size_t W>
GIANT_INLINE void decode_block(float* out, const char* in) {
  constexpr int kBits = 32 / Codec::kValuesInWord;
  typename Codec::Head head;
  Codec::read(head, in);
  for (size_t row = 0; row < kRows<Codec>; row += W / sizeof(float)) {
    Words<W> word;
    Vector<uint32_t, W>::load(word, in + Codec::kHeadBytes + row * sizeof(uint32_t));
#pragma GCC unroll 4
    for (size_t k = 0; k < Codec::kValuesInWord; ++k) {
      Floats<W> value;
      Codec::decode(value, word >> static_cast<int>(k * kBits), head);
      Vector<float, W>::store(out + k * kRows<Codec> + row, value);
    }
  }
}

/// Lays `count` values out as the rows of a whole block, or back.
template <class Codec>
inline void spread(float* block, const float* values, size_t count) {
  const size_t rows = rows_of<Codec>(count);
  for (size_t i = 0; i < count; ++i) block[i / rows * kRows<Codec> + i % rows] = values[i];
}

template <class Codec>
inline void gather(float* values, const float* block, size_t count) {
  const size_t rows = rows_of<Codec>(count);
  for (size_t i = 0; i < count; ++i) values[i] = block[i / rows * kRows<Codec> + i % rows];
}

template <class Codec, size_t W, bool kFeedback>
GIANT_INLINE void encode_rest(char* out, const float* values, float* residual, size_t count) {
  float block[kCompressedBlock] = {};
  float block_residual[kCompressedBlock] = {};
  char bytes[kBlockBytes<Codec>];
  spread<Codec>(block, values, count);
  if constexpr (kFeedback) spread<Codec>(block_residual, residual, count);
  encode_block<Codec, W, kFeedback>(bytes, block, block_residual);
  if constexpr (kFeedback) gather<Codec>(residual, block_residual, count);
  std::memcpy(out, bytes, encoded_bytes<Codec>(count));
}

template <class Codec, size_t W, bool kFeedback>
GIANT_INLINE void encode_blocks(char* out, const float* values, float* residual, size_t count) {
  const size_t advance = kFeedback ? kCompressedBlock : 0;  // a null pointer stays one
  for (; count >= kCompressedBlock; count -= kCompressedBlock) {
    encode_block<Codec, W, kFeedback>(out, values, residual);
    out += kBlockBytes<Codec>;
    values += kCompressedBlock;
    residual += advance;
  }
  if (count > 0) encode_rest<Codec, W, kFeedback>(out, values, residual, count);
}

/// compress() for one codec; `residual` may be null.
template <class Codec, size_t W>
GIANT_INLINE void encode(void* out, const float* values, float* residual, size_t count) {
  auto* to = static_cast<char*>(out);
  if (residual != nullptr) return encode_blocks<Codec, W, true>(to, values, residual, count);
  encode_blocks<Codec, W, false>(to, values, nullptr, count);
}

/// decompress() for one codec.
template <class Codec, size_t W>
GIANT_INLINE void decode(float* out, const void* in, size_t count) {
  auto* from = static_cast<const char*>(in);
  for (; count >= kCompressedBlock; count -= kCompressedBlock) {
    decode_block<Codec, W>(out, from);
    out += kCompressedBlock;
    from += kBlockBytes<Codec>;
  }
  if (count == 0) return;
  char bytes[kBlockBytes<Codec>] = {};
  float block[kCompressedBlock];
  std::memcpy(bytes, from, encoded_bytes<Codec>(count));
  decode_block<Codec, W>(block, bytes);
  gather<Codec>(out, block, count);
}

}  // namespace giant
