#include "reduce/reduce.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "reduce/isa.h"
#include "reduce/kernels.h"

using namespace giant;

namespace {

using Bytes = std::vector<unsigned char>;

const std::vector<DType> kTypes = {DType::u8,  DType::i8,   DType::i16, DType::i32, DType::i64,
                                   DType::f16, DType::bf16, DType::f32, DType::f64, DType::boolean};
const std::vector<Reduction> kReductions = {
    Reduction::sum,     Reduction::product, Reduction::min,    Reduction::max,
    Reduction::bit_and, Reduction::bit_or,  Reduction::bit_xor};

bool is_bits(Reduction reduction) { return reduction >= Reduction::bit_and; }

bool is_float(DType dtype) {
  return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32 || dtype == DType::f64;
}

template <class T>
T read(const unsigned char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
void write(unsigned char* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

// The 16-bit formats from their definition: 1 sign, then exponent, then fraction, in float64, which
// holds every value of them exactly.
struct Small {
  int exponent_bits;
  int fraction_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int special() const { return (1 << exponent_bits) - 1; }
};
constexpr Small kHalf{5, 10};
constexpr Small kBrain{8, 7};

double decode(Small format, uint16_t bits) {
  const int exponent = (bits >> format.fraction_bits) & format.special();
  const int last_bits = bits & ((1 << format.fraction_bits) - 1);
  const double fraction = std::ldexp(last_bits, -format.fraction_bits);
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == format.special())
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - format.bias());
  return sign * std::ldexp(1 + fraction, exponent - format.bias());
}

// By what the nearest multiple of the last place is, ties to even as std::nearbyint has it.
uint16_t encode(Small format, double value) {
  const int special = format.special() << format.fraction_bits;
  if (std::isnan(value)) return static_cast<uint16_t>(special | 1 << (format.fraction_bits - 1));
  const int sign = std::signbit(value) ? 0x8000 : 0;
  if (value == 0) return static_cast<uint16_t>(sign);
  if (std::isinf(value)) return static_cast<uint16_t>(sign | special);
  const int exponent = std::max(std::ilogb(value), 1 - format.bias());
  const double exact = std::ldexp(std::fabs(value), format.fraction_bits - exponent);
  const int places = static_cast<int>(std::nearbyint(exact));
  const int bits = places + ((exponent + format.bias() - 1) << format.fraction_bits);
  return static_cast<uint16_t>(sign | std::min(bits, special));
}

template <class T>
T combine_floats(Reduction reduction, T a, T b) {
  switch (reduction) {
    case Reduction::sum: return a + b;
    case Reduction::product: return a * b;
    case Reduction::min: return std::isnan(a) ? a : std::isnan(b) ? b : a < b ? a : b;
    default: return std::isnan(a) ? a : std::isnan(b) ? b : a > b ? a : b;
  }
}

template <class T>
T combine_integers(Reduction reduction, T a, T b) {
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  switch (reduction) {
    case Reduction::sum: return static_cast<T>(x + y);
    case Reduction::product: return static_cast<T>(x * y);
    case Reduction::min: return a < b ? a : b;
    case Reduction::max: return a > b ? a : b;
    case Reduction::bit_and: return static_cast<T>(x & y);
    case Reduction::bit_or: return static_cast<T>(x | y);
    case Reduction::bit_xor: return static_cast<T>(x ^ y);
  }
  return T();
}

using Elements = std::vector<const unsigned char*>;  // one for each source

template <class T>
void integers(Reduction reduction, unsigned char* to, const Elements& from) {
  T result = read<T>(from[0]);
  for (size_t s = 1; s < from.size(); ++s)
    result = combine_integers(reduction, result, read<T>(from[s]));
  write(to, result);
}

template <class T>
void floats(Reduction reduction, unsigned char* to, const Elements& from, double scale) {
  volatile T result = read<T>(from[0]);
  for (size_t s = 1; s < from.size(); ++s)
    result = combine_floats<T>(reduction, result, read<T>(from[s]));
  result = result * static_cast<T>(scale);
  write<T>(to, std::isnan(result) ? std::numeric_limits<T>::quiet_NaN() : result);
}

void small_floats(Small format, Reduction reduction, unsigned char* to, const Elements& from,
                  double scale) {
  const auto value = [&](size_t s) {
    return static_cast<float>(decode(format, read<uint16_t>(from[s])));
  };
  volatile float result = value(0);
  for (size_t s = 1; s < from.size(); ++s)
    result = combine_floats<float>(reduction, result, value(s));
  result = result * static_cast<float>(scale);
  write(to, encode(format, result));
}

void booleans(Reduction reduction, unsigned char* to, const Elements& from) {
  bool result = *from[0] != 0;
  for (size_t s = 1; s < from.size(); ++s) {
    const bool next = *from[s] != 0;
    const bool is_or = reduction == Reduction::sum || reduction == Reduction::max ||
                       reduction == Reduction::bit_or;
    if (reduction == Reduction::bit_xor) result = result != next;
    else result = is_or ? result || next : result && next;
  }
  *to = result;
}

// What reduce() is to do, for one element.
void one(DType dtype, Reduction reduction, unsigned char* to, const Elements& from, double scale) {
  if (from.size() == 1 && scale == 1 && dtype != DType::boolean) {
    std::memcpy(to, from[0], size_of(dtype));
    return;
  }
  switch (dtype) {
    case DType::u8: return integers<uint8_t>(reduction, to, from);
    case DType::i8: return integers<int8_t>(reduction, to, from);
    case DType::i16: return integers<int16_t>(reduction, to, from);
    case DType::i32: return integers<int32_t>(reduction, to, from);
    case DType::i64: return integers<int64_t>(reduction, to, from);
    case DType::f16: return small_floats(kHalf, reduction, to, from, scale);
    case DType::bf16: return small_floats(kBrain, reduction, to, from, scale);
    case DType::f32: return floats<float>(reduction, to, from, scale);
    case DType::f64: return floats<double>(reduction, to, from, scale);
    case DType::boolean: return booleans(reduction, to, from);
  }
}

// Any bits: with NaNs, infinities and denormals; every other float is of ordinary size.
Bytes random_bytes(DType dtype, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> ordinary(0, 3);
  Bytes bytes(count * size_of(dtype));
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
  for (size_t i = 0; i < count; ++i) {
    unsigned char* to = bytes.data() + i * size_of(dtype);
    if (dtype == DType::boolean) *to &= static_cast<unsigned char>(-(random() % 2)) & 3;
    if (!is_float(dtype) || random() % 8 == 0) continue;
    const double value = ordinary(random);
    if (dtype == DType::f16) write(to, encode(kHalf, value));
    if (dtype == DType::bf16) write(to, encode(kBrain, value));
    if (dtype == DType::f32) write(to, static_cast<float>(value));
    if (dtype == DType::f64) write(to, value);
  }
  return bytes;
}

struct Case {
  DType dtype;
  Reduction reduction;
  size_t num_sources;
  size_t count;
  double scale = 1;
};

std::string describe(const Case& c, Isa isa, size_t shift) {
  return std::string(name_of(isa)) + ": " + std::to_string(c.num_sources) + " of " +
         std::to_string(c.count) + " " + name_of(c.dtype) + ", " + name_of(c.reduction) +
         ", shifted by " + std::to_string(shift);
}

std::vector<Bytes> make_sources(const Case& c) {
  std::vector<Bytes> sources;
  for (size_t s = 0; s < c.num_sources; ++s)
    sources.push_back(random_bytes(c.dtype, c.count, 100 * c.count + s));
  return sources;
}

Bytes expected(const Case& c, const std::vector<Bytes>& sources) {
  Bytes result(c.count * size_of(c.dtype));
  for (size_t at = 0; at < result.size(); at += size_of(c.dtype)) {
    Elements elements;
    for (const Bytes& source : sources) elements.push_back(source.data() + at);
    one(c.dtype, c.reduction, result.data() + at, elements, c.scale);
  }
  return result;
}

// The result, and 64 bytes before and behind it, which must remain 0xee.
void run(const Case& c, Isa isa, size_t shift, const std::vector<Bytes>& sources,
         const Bytes& wanted) {
  std::vector<Bytes> places;
  std::vector<const void*> pointers;
  for (size_t s = 0; s < sources.size(); ++s) {
    places.emplace_back(sources[s].size() + 64);
    unsigned char* place = places.back().data() + (shift * (s + 1)) % 64;
    std::copy(sources[s].begin(), sources[s].end(), place);
    pointers.push_back(place);
  }
  Bytes target(wanted.size() + 192, 0xee);
  const size_t begin = 64 + shift;
  reduce_with(isa, c.dtype, c.reduction, target.data() + begin, pointers.data(), pointers.size(),
              c.count, c.scale);
  Bytes whole(target.size(), 0xee);
  std::copy(wanted.begin(), wanted.end(), whole.begin() + static_cast<ptrdiff_t>(begin));
  if (target != whole) check::fail(__FILE__, __LINE__, describe(c, isa, shift));
}

void run_everywhere(const Case& c) {
  const std::vector<Bytes> sources = make_sources(c);
  const Bytes wanted = expected(c, sources);
  for (const Isa isa : available_isas())
    for (const size_t shift : {0, 1, 12}) run(c, isa, shift, sources, wanted);
}

void for_each_pair(const std::function<void(DType, Reduction)>& body) {
  for (const DType dtype : kTypes)
    for (const Reduction reduction : kReductions)
      if (!is_float(dtype) || !is_bits(reduction)) body(dtype, reduction);
}

template <class T>
std::vector<T> reduced(DType dtype, Reduction reduction, const std::vector<std::vector<T>>& sources,
                       double scale = 1) {
  std::vector<const void*> pointers;
  for (const auto& source : sources) pointers.push_back(source.data());
  std::vector<T> target(sources[0].size());
  reduce(dtype, reduction, target.data(), pointers.data(), pointers.size(), target.size(), scale);
  return target;
}

}  // namespace

TEST(all_kernels_give_what_a_plain_loop_gives) {
  for_each_pair([](DType dtype, Reduction reduction) {
    for (const size_t num_sources : {1, 2, 3, 5, 8})
      for (const size_t count : {0, 1, 7, 64, 1000, 4097})
        run_everywhere({dtype, reduction, num_sources, count});
  });
}

TEST(every_length_of_the_rest_is_right) {
  for (const DType dtype : kTypes)
    for (size_t count = 0; count < 300; ++count) run_everywhere({dtype, Reduction::sum, 3, count});
}

TEST(floats_are_scaled) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64})
    for (const Reduction reduction : {Reduction::sum, Reduction::product, Reduction::max})
      for (const size_t num_sources : {1, 2, 5})
        for (const double scale : {1.0 / 3, 0.5, -7.0})
          run_everywhere({dtype, reduction, num_sources, 1000, scale});
}

TEST(one_source_is_scaled_without_a_sum) {
  const auto result = reduced<float>(DType::f32, Reduction::sum, {{3, -6, 9}}, 1.0 / 3);
  CHECK(result == (std::vector<float>{1, -2, 3}));
}

TEST(the_target_may_be_any_source) {
  for_each_pair([](DType dtype, Reduction reduction) {
    const Case c{dtype, reduction, 3, 1001};
    const std::vector<Bytes> sources = make_sources(c);
    const Bytes wanted = expected(c, sources);
    for (const Isa isa : available_isas()) {
      for (size_t target = 0; target < 3; ++target) {
        std::vector<Bytes> places = sources;
        const std::vector<const void*> from = {places[0].data(), places[1].data(),
                                               places[2].data()};
        reduce_with(isa, dtype, reduction, places[target].data(), from.data(), 3, c.count);
        if (places[target] != wanted) check::fail(__FILE__, __LINE__, describe(c, isa, 0));
      }
    }
  });
}

TEST(one_source_onto_itself_stays) {
  std::vector<int32_t> values = {1, 2, 3};
  const void* from = values.data();
  reduce(DType::i32, Reduction::sum, values.data(), &from, 1, values.size());
  CHECK(values == (std::vector<int32_t>{1, 2, 3}));
}

TEST(the_same_source_may_come_twice) {
  std::vector<float> values(1000, 1.5f);
  const void* from[] = {values.data(), values.data(), values.data()};
  reduce(DType::f32, Reduction::sum, values.data(), from, 3, values.size());
  CHECK(values == std::vector<float>(1000, 4.5f));
}

TEST(nan_wins_wherever_it_stands) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Reduction reduction :
       {Reduction::sum, Reduction::product, Reduction::min, Reduction::max}) {
    for (size_t where = 0; where < 3; ++where) {
      std::vector<std::vector<float>> sources = {{1}, {2}, {3}};
      sources[where][0] = nan;
      CHECK(std::isnan(reduced<float>(DType::f32, reduction, sources)[0]));
    }
  }
}

TEST(infinity_is_a_number_like_others) {
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK_EQ(reduced<float>(DType::f32, Reduction::min, {{infinity}, {2}})[0], 2.0f);
  CHECK_EQ(reduced<float>(DType::f32, Reduction::max, {{-infinity}, {2}})[0], 2.0f);
  CHECK_EQ(reduced<float>(DType::f32, Reduction::sum, {{infinity}, {2}})[0], infinity);
  CHECK(std::isnan(reduced<float>(DType::f32, Reduction::sum, {{infinity}, {-infinity}})[0]));
}

TEST(the_order_is_that_of_the_sources) {
  CHECK_EQ(reduced<float>(DType::f32, Reduction::sum, {{1e8f}, {-1e8f}, {1}})[0], 1.0f);
  CHECK_EQ(reduced<float>(DType::f32, Reduction::sum, {{1}, {1e8f}, {-1e8f}})[0], 0.0f);
}

TEST(integers_wrap_around) {
  constexpr int32_t most = std::numeric_limits<int32_t>::max();
  constexpr int32_t least = std::numeric_limits<int32_t>::min();
  CHECK_EQ(reduced<int32_t>(DType::i32, Reduction::sum, {{most}, {1}})[0], least);
  CHECK_EQ(reduced<int32_t>(DType::i32, Reduction::product, {{most}, {2}})[0], -2);
  CHECK_EQ(int{reduced<uint8_t>(DType::u8, Reduction::sum, {{200}, {100}})[0]}, 44);
  CHECK_EQ(int{reduced<int8_t>(DType::i8, Reduction::sum, {{127}, {1}})[0]}, -128);
  CHECK_EQ(reduced<int16_t>(DType::i16, Reduction::product, {{-32768}, {-1}})[0], -32768);
  CHECK_EQ(reduced<int64_t>(DType::i64, Reduction::product,
                            {{std::numeric_limits<int64_t>::min()}, {2}})[0], 0);
}

TEST(signs_matter_in_min_and_max) {
  CHECK_EQ(int{reduced<int8_t>(DType::i8, Reduction::min, {{-1}, {1}})[0]}, -1);
  CHECK_EQ(int{reduced<uint8_t>(DType::u8, Reduction::min, {{255}, {1}})[0]}, 1);
  CHECK_EQ(reduced<int64_t>(DType::i64, Reduction::max, {{-1}, {1}})[0], 1);
}

TEST(booleans_are_0_or_1_whatever_the_byte) {
  const std::vector<std::vector<uint8_t>> sources = {{0, 0, 2, 4}, {0, 7, 0, 1}};
  const auto check = [&](Reduction reduction, const std::vector<uint8_t>& wanted) {
    CHECK(reduced<uint8_t>(DType::boolean, reduction, sources) == wanted);
  };
  check(Reduction::sum, {0, 1, 1, 1});
  check(Reduction::max, {0, 1, 1, 1});
  check(Reduction::product, {0, 0, 0, 1});
  check(Reduction::min, {0, 0, 0, 1});
  check(Reduction::bit_xor, {0, 1, 1, 0});
  CHECK(reduced<uint8_t>(DType::boolean, Reduction::sum, {{0, 7}}) == (std::vector<uint8_t>{0, 1}));
}

TEST(sums_of_16_bits_are_rounded_once) {
  // 256 + 1 is 256 in bfloat16; in float32 the ones add up first.
  const auto brain = [](float value) { return encode(kBrain, value); };
  std::vector<std::vector<uint16_t>> sources(9, {brain(1)});
  sources[0] = {brain(256)};
  CHECK_EQ(reduced<uint16_t>(DType::bf16, Reduction::sum, sources)[0], brain(264));
  // 65504 is the largest float16, and half of twice that is within its range again.
  const uint16_t largest = encode(kHalf, 65504);
  CHECK_EQ(reduced<uint16_t>(DType::f16, Reduction::sum, {{largest}, {largest}}, 0.5)[0], largest);
  CHECK_EQ(reduced<uint16_t>(DType::f16, Reduction::sum, {{largest}, {largest}})[0], 0x7c00);
}

// All values of a 16-bit format, plus -0, which changes none of them.
TEST(every_16_bit_float_survives) {
  for (const auto& [dtype, format] : {std::pair{DType::f16, kHalf}, {DType::bf16, kBrain}}) {
    std::vector<uint16_t> all(65536), zeros(65536, encode(format, -0.0)), result(65536);
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
    const void* from[] = {all.data(), zeros.data()};
    for (const Isa isa : available_isas()) {
      reduce_with(isa, dtype, Reduction::sum, result.data(), from, 2, all.size());
      size_t wrong = 0;
      for (size_t i = 0; i < all.size(); ++i)
        wrong += result[i] != encode(format, decode(format, all[i]));
      CHECK_EQ(wrong, 0u);
    }
  }
}

// Scales of one source reach every exponent and the halfway points between two 16-bit floats.
TEST(rounding_to_16_bits_is_right_at_every_exponent) {
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const double scale : {0x1.004p0, 0x1.01p0, 0x1p-10, 0x1.8p-12, 0x1.8p-1, 1.75, 0x1p-18})
      run_everywhere({dtype, Reduction::sum, 1, 4097, scale});
}

TEST(what_has_no_meaning_is_refused) {
  const float value = 1;
  const int32_t number = 1;
  float target;
  const void* from[] = {&value};
  const void* numbers[] = {&number};
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64})
    CHECK_THROWS(UsageError, "bitwise xor", check_reduction(dtype, Reduction::bit_xor));
  check_reduction(DType::boolean, Reduction::bit_xor);
  CHECK_THROWS(UsageError, "float32 has no bitwise and",
               reduce(DType::f32, Reduction::bit_and, &target, from, 1, 1));
  CHECK_THROWS(UsageError, "at least one source",
               reduce(DType::f32, Reduction::sum, &target, from, 0, 1));
  CHECK_THROWS(UsageError, "int32 cannot be multiplied",
               reduce(DType::i32, Reduction::sum, &target, numbers, 1, 1, 0.5));
  CHECK_THROWS(UsageError, "no such element type", size_of(static_cast<DType>(99)));
  CHECK_THROWS(UsageError, "no such reduction",
               check_reduction(DType::f32, static_cast<Reduction>(99)));
}

TEST(every_pair_that_passes_the_check_has_a_kernel) {
  for_each_pair([](DType dtype, Reduction reduction) {
    for (const Isa isa : available_isas()) CHECK(kernel_for(isa, dtype, reduction) != nullptr);
  });
}

TEST(names_and_sizes) {
  CHECK_EQ(std::string(name_of(DType::bf16)), "bfloat16");
  CHECK_EQ(std::string(name_of(DType::boolean)), "bool");
  CHECK_EQ(std::string(name_of(Reduction::product)), "product");
  CHECK_EQ(size_of(DType::f64), 8u);
  CHECK_EQ(size_of(DType::bf16), 2u);
  CHECK_EQ(size_of(DType::boolean), 1u);
}

TEST(instruction_sets_go_by_their_names) {
  CHECK(choose_isa("") == available_isas().back());
  CHECK(choose_isa("generic") == Isa::generic);
  for (const Isa isa : available_isas()) CHECK(choose_isa(name_of(isa)) == isa);
  CHECK_THROWS(UsageError, "GIANT_ISA is \"sse9\"", choose_isa("sse9"));
}

TEST(the_instruction_set_is_the_one_asked_for) {
  const char* asked = std::getenv("GIANT_ISA");
  CHECK_EQ(std::string(instruction_set()), asked ? asked : name_of(available_isas().back()));
}

// The variable is read once, so that each value needs a process of its own: it runs the test above.
TEST(the_environment_chooses_the_instruction_set) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const auto run = [&](const std::string& name, const std::string& line) {
    const std::string test = "GIANT_ISA=" + name + " '" + program + "' is_the_one_asked_for";
    return std::system((test + " 2>&1 | grep -q '" + line + "'").c_str());
  };
  for (const Isa isa : available_isas()) CHECK_EQ(run(name_of(isa), "1 tests, 0 failures"), 0);
  CHECK_EQ(run("sse9", "threw: GIANT_ISA is \"sse9\": this machine has"), 0);
}
