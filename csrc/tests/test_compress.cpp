#include "compress/compress.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "compress/codecs.h"

using namespace giant;

namespace {

using Values = std::vector<float>;
using Bytes = std::vector<unsigned char>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr size_t kCounts[] = {0, 1, 2, 3, 7, 64, 255, 256, 257, 513, 1000, 4097};
constexpr Compression kCodings[] = {Compression::bf16, Compression::int8};

Values random_values(size_t count, uint64_t seed, float size = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, size);
  Values values(count);
  for (float& value : values) value = normal(random);
  return values;
}

Bytes compressed(Compression compression, const Values& values, Values* residual = nullptr) {
  Bytes bytes(compressed_bytes(compression, values.size()));
  compress(compression, bytes.data(), values.data(), residual ? residual->data() : nullptr,
           values.size());
  return bytes;
}

Values decompressed(Compression compression, const Bytes& bytes, size_t count) {
  Values values(count, 12345);
  decompress(compression, values.data(), bytes.data(), count);
  return values;
}

Values round_trip(Compression compression, const Values& values, Values* residual = nullptr) {
  return decompressed(compression, compressed(compression, values, residual), values.size());
}

float largest_of_block(const Values& values, size_t i) {
  float largest = 0;
  const size_t begin = i / kCompressedBlock * kCompressedBlock;
  for (size_t k = begin; k < std::min(values.size(), begin + kCompressedBlock); ++k)
    largest = std::max(largest, std::fabs(values[k]));
  return largest;
}

// What one value may be off by.
float bound(Compression compression, const Values& values, size_t i) {
  if (compression == Compression::bf16) return std::ldexp(1.0f, std::ilogb(values[i]) - 8);
  return largest_of_block(values, i) / 127 * 0.505f;
}

bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace

TEST(sizes) {
  CHECK_EQ(compressed_bytes(Compression::none, 10), 40u);
  CHECK_EQ(compressed_bytes(Compression::bf16, 10), 20u);
  CHECK_EQ(compressed_bytes(Compression::bf16, 11), 24u);
  CHECK_EQ(compressed_bytes(Compression::bf16, 1024), 2048u);
  CHECK_EQ(compressed_bytes(Compression::int8, 1), 8u);
  CHECK_EQ(compressed_bytes(Compression::int8, 256), 260u);
  CHECK_EQ(compressed_bytes(Compression::int8, 257), 268u);
  for (const Compression compression : kCodings) CHECK_EQ(compressed_bytes(compression, 0), 0u);
  CHECK_THROWS(UsageError, "no such compression",
               compressed_bytes(static_cast<Compression>(9), 1));
}

TEST(no_compression_is_a_copy) {
  const Values values = random_values(1000, 1);
  CHECK(round_trip(Compression::none, values) == values);
  Values residual(1000, 0.5f);
  const Values sums = round_trip(Compression::none, values, &residual);
  CHECK_EQ(sums[7], values[7] + 0.5f);
  CHECK(residual == Values(1000, 0.0f));
}

TEST(a_round_trip_is_off_by_half_a_quantum_at_most) {
  for (const Compression compression : kCodings) {
    for (const size_t count : kCounts) {
      for (const float size : {1e-20f, 1.0f, 1e30f}) {
        const Values values = random_values(count, count, size);
        const Values back = round_trip(compression, values);
        size_t wrong = 0;
        for (size_t i = 0; i < count; ++i)
          wrong += !(std::fabs(back[i] - values[i]) <= bound(compression, values, i));
        CHECK_EQ(wrong, 0u);
      }
    }
  }
}

TEST(quanta_are_hit_exactly) {
  Values values(256);
  for (size_t i = 0; i < 256; ++i) values[i] = 0.25f * (static_cast<float>(i % 255) - 127);
  CHECK(round_trip(Compression::int8, values) == values);
}

TEST(bf16_rounds_to_nearest_even) {
  const Values values = {0x1.01p0f, 0x1.03p0f, 0x1.010002p0f, -0x1.01p0f, 0.0f, -0.0f};
  const Values wanted = {1.0f, 0x1.04p0f, 0x1.02p0f, -1.0f, 0.0f, -0.0f};
  const Values back = round_trip(Compression::bf16, values);
  for (size_t i = 0; i < values.size(); ++i) CHECK(same_bits(back[i], wanted[i]));
}

TEST(the_extremes_of_int8) {
  constexpr float kMost = std::numeric_limits<float>::max();
  const Values most = round_trip(Compression::int8, {kMost, -kMost, 0, 1});
  CHECK(most[0] > 0.9999f * kMost && most[0] <= kMost);
  CHECK(most[1] < -0.9999f * kMost && most[1] >= -kMost);
  CHECK_EQ(most[3], 0.0f);
  CHECK(round_trip(Compression::int8, Values(300, 0.0f)) == Values(300, 0.0f));
  // Below the smallest quantum nothing is encoded, and feedback keeps it.
  Values residual(1, 0.0f);
  CHECK_EQ(round_trip(Compression::int8, {1e-40f}, &residual)[0], 0.0f);
  CHECK_EQ(residual[0], 1e-40f);
}

TEST(bf16_keeps_infinity_and_nan) {
  Values residual(4, 0.0f);
  const Values back =
      round_trip(Compression::bf16, {kInfinity, -kInfinity, kNan, 0x1.fffffep127f}, &residual);
  CHECK_EQ(back[0], kInfinity);
  CHECK_EQ(back[1], -kInfinity);
  CHECK(std::isnan(back[2]));
  CHECK_EQ(back[3], kInfinity);
  CHECK(residual == Values(4, 0.0f));
}

TEST(int8_turns_a_block_with_a_non_finite_value_into_nan) {
  for (const float bad : {kInfinity, -kInfinity, kNan, -kNan}) {
    for (const size_t where : {0, 100, 255, 256, 599}) {
      Values values = random_values(600, 3), residual(600, 0.01f);
      values[where] = bad;
      const Values back = round_trip(Compression::int8, values, &residual);
      size_t wrong = 0;
      for (size_t i = 0; i < back.size(); ++i) {
        const bool is_hit = i / kCompressedBlock == where / kCompressedBlock;
        wrong += std::isnan(back[i]) != is_hit;
        wrong += is_hit && residual[i] != 0;
        wrong += !std::isfinite(residual[i]);
      }
      CHECK_EQ(wrong, 0u);
    }
  }
}

TEST(the_residual_is_what_was_lost) {
  for (const Compression compression : kCodings) {
    for (const size_t count : kCounts) {
      const Values values = random_values(count, count), before = random_values(count, 9, 0.01f);
      Values residual = before;
      const Values back = round_trip(compression, values, &residual);
      size_t wrong = 0;
      for (size_t i = 0; i < count; ++i) {
        const float encoded = values[i] + before[i];
        wrong += residual[i] != encoded - back[i];
      }
      CHECK_EQ(wrong, 0u);
    }
  }
}

// Rounding is by half a quantum; without feedback 100 of them would add up to far more than one.
TEST(with_feedback_errors_do_not_add_up) {
  for (const Compression compression : kCodings) {
    constexpr size_t kCount = 700;
    Values residual(kCount, 0.0f);
    std::vector<double> sum(kCount), sum_back(kCount), sum_without(kCount);
    Values quantum(kCount, 0.0f);
    const Values values = random_values(kCount, 5);
    for (int step = 0; step < 100; ++step) {
      const Values back = round_trip(compression, values, &residual);
      const Values without = round_trip(compression, values);
      for (size_t i = 0; i < kCount; ++i) {
        sum[i] += values[i];
        sum_back[i] += back[i];
        sum_without[i] += without[i];
        const float half = bound(compression, back, i);
        if (std::isfinite(half)) quantum[i] = std::max(quantum[i], 2 * half);
      }
    }
    size_t wrong = 0, wrong_without = 0;
    for (size_t i = 0; i < kCount; ++i) {
      wrong += std::fabs(sum_back[i] - sum[i]) > quantum[i] + 1e-5;
      wrong_without += std::fabs(sum_without[i] - sum[i]) > quantum[i] + 1e-5;
    }
    CHECK_EQ(wrong, 0u);
    CHECK(wrong_without > kCount / 2);
  }
}

TEST(pieces_of_whole_blocks_are_the_whole) {
  for (const Compression compression : kCodings) {
    const Values values = random_values(1100, 8);
    const Bytes whole = compressed(compression, values);
    const size_t first = 3 * kCompressedBlock;
    Bytes pieces = compressed(compression, Values(values.begin(), values.begin() + first));
    const Bytes rest = compressed(compression, Values(values.begin() + first, values.end()));
    pieces.insert(pieces.end(), rest.begin(), rest.end());
    CHECK(pieces == whole);
  }
}

TEST(all_instruction_sets_and_places_give_the_same_bytes) {
  for (const Compression compression : kCodings) {
    for (const size_t count : kCounts) {
      Values values = random_values(count, count + 1);
      if (count > 600) values[300] = kInfinity;
      const CodecKernels plain = codec_for(Isa::generic, compression);
      Values wanted_residual = random_values(count, 2, 0.01f);
      const Values before = wanted_residual;
      const size_t size = compressed_bytes(compression, count);
      Bytes wanted(size);
      plain.encode(wanted.data(), values.data(), wanted_residual.data(), count);
      Values wanted_back(count);
      plain.decode(wanted_back.data(), wanted.data(), count);
      for (const Isa isa : available_isas()) {
        const CodecKernels kernels = codec_for(isa, compression);
        for (const size_t shift : {0, 1, 5}) {
          Values residual = before, back(count + 1, 777.0f);
          Bytes bytes(size + 64, 0xee);
          kernels.encode(bytes.data() + shift, values.data(), residual.data(), count);
          kernels.decode(back.data(), bytes.data() + shift, count);
          CHECK(std::equal(wanted.begin(), wanted.end(), bytes.begin() + shift));
          CHECK(std::all_of(bytes.begin() + static_cast<ptrdiff_t>(shift + size), bytes.end(),
                            [](unsigned char byte) { return byte == 0xee; }));
          CHECK_EQ(back[count], 777.0f);
          const size_t value_bytes = count * sizeof(float);
          CHECK(count == 0 || std::memcmp(back.data(), wanted_back.data(), value_bytes) == 0);
          CHECK(residual == wanted_residual);
        }
      }
    }
  }
}

TEST(there_is_no_codec_for_no_compression) {
  CHECK_THROWS(UsageError, "no codec", codec_for(Isa::generic, Compression::none));
}
