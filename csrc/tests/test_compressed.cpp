// Sums whose way between hosts is compressed.

#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "check.h"
#include "cluster.h"

using namespace giant;
using giant::testing::run_well;

namespace {

constexpr size_t kCount = 200003;

Deadline soon() { return Deadline::after(milliseconds(20000)); }

float number(int rank, int step, size_t i) {
  return std::sin(static_cast<float>(i) * 0.01f + static_cast<float>(rank)) +
         0.001f * static_cast<float>(step);
}

Call sum_of(float* data, size_t count) {
  Call call;
  call.kind = Kind::all_reduce;
  call.dtype = DType::f32;
  call.bytes = count * sizeof(float);
  call.inputs = {data};
  call.outputs = {data};
  return call;
}

double largest_error(const std::vector<double>& sums, const std::vector<double>& exact, int steps) {
  double most = 0;
  for (size_t i = 0; i < exact.size(); ++i)
    most = std::max(most, std::abs(sums[i] - exact[i]) / steps);
  return most;
}

}  // namespace

TEST(compressed_sums_are_near_and_the_same_on_all_ranks) {
  for (const auto& hosts : std::vector<std::vector<int>>{{1, 1}, {2, 2}, {2, 1, 3}}) {
    const int size = std::accumulate(hosts.begin(), hosts.end(), 0);
    for (const Compression how : {Compression::bf16, Compression::int8}) {
      std::vector<std::vector<float>> results(size);
      std::vector<std::atomic<uint64_t>> sent(hosts.size());
      run_well(
          hosts,
          [&](int rank, Group& group) {
            auto& data = results[rank];
            for (size_t i = 0; i < kCount; ++i) data.push_back(number(rank, 0, i));
            group.run(sum_of(data.data(), kCount), soon());
            sent[group.topology().host_of(rank)] += group.counters().bytes_sent_between_hosts;
          },
          {.name = "test", .compression = how});
      const double quantum = (how == Compression::bf16 ? 1.0 / 256 : 1.0 / 127) * size;
      for (int rank = 0; rank < size; ++rank)
        CHECK(std::memcmp(results[rank].data(), results[0].data(), kCount * 4) == 0);
      double most = 0;
      for (size_t i = 0; i < kCount; ++i) {
        double exact = 0;
        for (int rank = 0; rank < size; ++rank) exact += number(rank, 0, i);
        most = std::max(most, std::abs(results[0][i] - exact));
      }
      CHECK(most > 0);
      CHECK(most < 2 * quantum);
      const double share = 2 * (hosts.size() - 1.0) / hosts.size() * kCount;
      const double each = how == Compression::bf16 ? 2 : 1 + 4.0 / 256;
      for (const auto& bytes : sent) CHECK(static_cast<double>(bytes) < share * each * 1.02);
    }
  }
}

TEST(what_is_lost_comes_with_the_next_call) {
  // The mean of many calls is much nearer to the truth than one call is: errors do not add up.
  constexpr int kSteps = 50;
  constexpr size_t kFew = 32768;
  std::vector<double> exact(kFew), sums(kFew);
  run_well(
      {1, 1},
      [&](int rank, Group& group) {
        std::vector<float> data(kFew);
        for (int step = 0; step < kSteps; ++step) {
          for (size_t i = 0; i < kFew; ++i) data[i] = number(rank, step, i);
          group.run(sum_of(data.data(), kFew), soon());
          for (size_t i = 0; i < kFew && rank == 0; ++i) {
            sums[i] += data[i];
            exact[i] += static_cast<double>(number(0, step, i)) + number(1, step, i);
          }
        }
      },
      {.name = "test", .compression = Compression::int8});
  CHECK(largest_error(sums, exact, kSteps) < 0.1 / 127);
}

TEST(reduce_scatter_is_compressed_too) {
  for (const auto& hosts : std::vector<std::vector<int>>{{1, 1}, {2, 2}, {1, 2}}) {
    const int size = std::accumulate(hosts.begin(), hosts.end(), 0);
    const size_t each = kCount / size;
    std::vector<std::atomic<uint64_t>> sent(hosts.size());
    run_well(
        hosts,
        [&](int rank, Group& group) {
          std::vector<float> in(kCount), out(each);
          for (size_t i = 0; i < kCount; ++i) in[i] = number(rank, 0, i);
          Call call = sum_of(nullptr, each);
          call.kind = Kind::reduce_scatter;
          call.inputs.clear();
          for (int block = 0; block < size; ++block) call.inputs.push_back(&in[block * each]);
          call.outputs = {out.data()};
          call.bytes = each * sizeof(float);
          for (int round = 0; round < 2; ++round) group.run(call, soon());
          double most = 0;
          for (size_t i = 0; i < each; ++i) {
            double exact = 0;
            for (int other = 0; other < size; ++other) exact += number(other, 0, rank * each + i);
            most = std::max(most, std::abs(out[i] - exact));
          }
          CHECK(most > 0);
          CHECK(most < size / 127.0);
          sent[group.topology().host_of(rank)] += group.counters().bytes_sent_between_hosts;
        },
        {.name = "test", .compression = Compression::int8});
    for (size_t host = 0; host < hosts.size(); ++host) {
      const double others = static_cast<double>(size - hosts[host]) * each * 2;
      CHECK(static_cast<double>(sent[host]) < others * 1.1);
    }
  }
}

TEST(small_sums_and_other_types_are_not_compressed) {
  run_well(
      {1, 1},
      [&](int rank, Group& group) {
        std::vector<float> few(100, 0.1f + static_cast<float>(rank));
        group.run(sum_of(few.data(), few.size()), soon());
        CHECK_EQ(few[0], 0.1f + 1.1f);
        std::vector<double> wide(100000, 0.1 + rank);
        Call call = sum_of(nullptr, 0);
        call.dtype = DType::f64;
        call.bytes = wide.size() * sizeof(double);
        call.inputs = {wide.data()};
        call.outputs = {wide.data()};
        group.run(call, soon());
        CHECK_EQ(wide[0], 0.1 + 1.1);
      },
      {.name = "test", .compression = Compression::int8});
}
