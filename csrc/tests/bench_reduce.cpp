// GB/s of the reduction kernels: what is read and what is written, counted once each.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include "reduce/kernels.h"

using namespace giant;

namespace {

double seconds_of(Isa isa, DType dtype, void* target, const std::vector<const void*>& sources,
                  size_t count) {
  using Clock = std::chrono::steady_clock;
  double best = 1e9;
  const size_t bytes = count * size_of(dtype) * (sources.size() + 1);
  const int calls = static_cast<int>((64u << 20) / bytes) + 1;
  for (int repeat = 0; repeat < 7; ++repeat) {
    const auto start = Clock::now();
    for (int call = 0; call < calls; ++call)
      reduce_with(isa, dtype, Reduction::sum, target, sources.data(), sources.size(), count);
    const std::chrono::duration<double> time = Clock::now() - start;
    best = std::min(best, time.count() / calls);
  }
  return best;
}

void bench(Isa isa, DType dtype, size_t bytes) {
  std::vector<std::vector<char>> memory(8, std::vector<char>(bytes));
  for (auto& block : memory) std::memset(block.data(), 0x3f, bytes);
  std::vector<char> target(bytes);
  std::printf("%-8s %-9s %6zu KiB", name_of(isa), name_of(dtype), bytes >> 10);
  for (const size_t num_sources : {2, 4, 8}) {
    std::vector<const void*> sources;
    for (size_t s = 0; s < num_sources; ++s) sources.push_back(memory[s].data());
    const double time = seconds_of(isa, dtype, target.data(), sources, bytes / size_of(dtype));
    const double moved = static_cast<double>(bytes) * static_cast<double>(num_sources + 1);
    std::printf("  %zu: %6.1f GB/s", num_sources, moved / time * 1e-9);
  }
  std::printf("\n");
}

}  // namespace

int main() {
  for (const size_t bytes : {64u << 10, 16u << 20})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const Isa isa : available_isas()) bench(isa, dtype, bytes);
}
