// Times of the collectives between processes of this machine; hosts are invented, rails are socket
// pairs. `bench_group HOSTSxRANKS [OPERATION]`: medians of the slowest rank, in microseconds.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "cluster.h"

using namespace giant;

namespace {

struct Operation {
  Kind kind;
  bool many_in, many_out;
};

const std::vector<Operation> kOperations = {{Kind::all_reduce, false, false},
                                            {Kind::reduce_scatter, true, false},
                                            {Kind::all_gather, false, true},
                                            {Kind::all_to_all, true, true},
                                            {Kind::broadcast, false, false}};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void bench(Group& group, int rank, int size, const char* only) {
  constexpr size_t kMost = 64 << 20;
  std::vector<uint8_t> in(kMost), out(kMost);
  for (const Operation& operation : kOperations) {
    if (only != nullptr && std::string(name_of(operation.kind)).find(only) != 0) continue;
    for (const size_t bytes : {size_t{1} << 10, size_t{1} << 16, size_t{1} << 20, size_t{1} << 22,
                               size_t{1} << 24, size_t{1} << 26}) {
      const size_t block = bytes / size / 4 * 4;
      const bool is_one = !operation.many_in && !operation.many_out;
      Call call;
      call.kind = operation.kind;
      call.dtype = DType::f32;
      call.bytes = is_one ? bytes : block;
      for (int i = 0; i < (operation.many_in ? size : 1); ++i) call.inputs.push_back(&in[i * block]);
      for (int i = 0; i < (operation.many_out ? size : 1); ++i)
        call.outputs.push_back(&out[i * block]);
      std::vector<double> times;
      const int repeat = bytes <= (1 << 16) ? 200 : bytes <= (1 << 20) ? 40 : 3;
      for (int round = 0; round < 7; ++round) {
        group.run({}, Deadline::after(milliseconds(60000)));
        const auto start = Clock::now();
        for (int i = 0; i < repeat; ++i) group.run(call, Deadline::after(milliseconds(60000)));
        times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() /
                        repeat);
      }
      if (rank == 0) {
        std::printf("%-16s %9zu %12.1f us\n", name_of(operation.kind), bytes, median(times));
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace

int main(int count, char** words) {
  const std::string shape = count > 1 ? words[1] : "1x2";
  const size_t cross = shape.find('x');
  const std::vector<int> hosts(std::stoi(shape), std::stoi(shape.substr(cross + 1)));
  std::vector<Links> links = testing::links_of(testing::topology_of(hosts));
  const int size = static_cast<int>(links.size());
  for (int rank = 0; rank < size; ++rank) {
    if (fork() != 0) continue;
    auto group = make_group(std::move(links[rank]), {.name = "bench"});
    bench(*group, rank, size, count > 2 ? words[2] : nullptr);
    group.reset();
    _exit(0);
  }
  for (int rank = 0; rank < size; ++rank) wait(nullptr);
}
