// Every collective on every shape against a plain loop, and what the algorithms owe each other.

#include <atomic>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "cluster.h"
#include "collective/math.h"

using namespace giant;
using giant::testing::run_ranks;
using giant::testing::run_well;
using giant::testing::topology_of;

namespace {

const std::vector<std::vector<int>> kShapes = {{1},    {2},          {3},       {5},      {8},
                                               {2, 2}, {4, 4},       {1, 1},    {1, 1, 1}, {2, 2, 2},
                                               {3, 1}, {2, 2, 2, 2}, {1, 3, 2}, {1, 1, 5}};
// Nothing, less than a line, a chunk and around it, several windows of chunks.
const std::vector<size_t> kCounts = {0, 1, 17, 5000, 65536, 65537, 700001};

Deadline soon() { return Deadline::after(milliseconds(20000)); }

int size_of(const std::vector<int>& hosts) { return std::accumulate(hosts.begin(), hosts.end(), 0); }

/// Element `i` of block `block` of `rank`: sums of eight are exact in float32.
int value(int rank, size_t block, size_t i) {
  return static_cast<int>((i * 7 + static_cast<size_t>(rank) * 13 + block * 31) % 1009);
}

std::vector<int> block_of(int rank, size_t block, size_t count) {
  std::vector<int> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = value(rank, block, i);
  return values;
}

std::vector<int> sum_of(int size, size_t block, size_t count) {
  std::vector<int> total(count);
  for (int rank = 0; rank < size; ++rank) {
    for (size_t i = 0; i < count; ++i) total[i] += value(rank, block, i);
  }
  return total;
}

Call call_of(Kind kind, size_t count) {
  Call call;
  call.kind = kind;
  call.dtype = DType::i32;
  call.bytes = count * sizeof(int);
  return call;
}

using Blocks = std::vector<std::vector<int>>;

void add_inputs(Call& call, const Blocks& blocks) {
  for (const auto& block : blocks) call.inputs.push_back(block.data());
}

void add_outputs(Call& call, Blocks& blocks) {
  for (auto& block : blocks) call.outputs.push_back(block.data());
}

template <class Body>
void on_all(Body body) {
  for (const auto& hosts : kShapes) {
    for (const size_t count : kCounts) body(hosts, size_of(hosts), count);
  }
}

}  // namespace

TEST(all_reduce_is_the_sum) {
  on_all([](const std::vector<int>& hosts, int size, size_t count) {
    const auto total = sum_of(size, 0, count);
    run_well(hosts, [&](int rank, Group& group) {
      for (const bool in_place : {false, true}) {
        auto in = block_of(rank, 0, count);
        std::vector<int> out(count, -1);
        Call call = call_of(Kind::all_reduce, count);
        call.inputs = {in.data()};
        call.outputs = {in_place ? in.data() : out.data()};
        group.run(call, soon());
        CHECK((in_place ? in : out) == total);
        CHECK(in_place || in == block_of(rank, 0, count));
      }
    });
  });
}

TEST(reduce_gives_the_root_the_sum_and_leaves_others_alone) {
  on_all([](const std::vector<int>& hosts, int size, size_t count) {
    run_well(hosts, [&](int rank, Group& group) {
      for (int root = 0; root < size; root += 2) {
        auto data = block_of(rank, 0, count);
        Call call = call_of(Kind::reduce, count);
        call.root = root;
        call.inputs = {data.data()};
        if (rank == root) call.outputs = {data.data()};
        group.run(call, soon());
        CHECK(data == (rank == root ? sum_of(size, 0, count) : block_of(rank, 0, count)));
      }
    });
  });
}

TEST(reduce_scatter_gives_each_its_block_of_the_sum) {
  on_all([](const std::vector<int>& hosts, int size, size_t count) {
    run_well(hosts, [&](int rank, Group& group) {
      Blocks in;
      for (int block = 0; block < size; ++block) in.push_back(block_of(rank, block, count));
      std::vector<int> out(count, -1);
      Call call = call_of(Kind::reduce_scatter, count);
      add_inputs(call, in);
      call.outputs = {out.data()};
      group.run(call, soon());
      CHECK(out == sum_of(size, rank, count));
    });
  });
}

TEST(all_gather_gives_all_everything) {
  on_all([](const std::vector<int>& hosts, int size, size_t count) {
    run_well(hosts, [&](int rank, Group& group) {
      const auto in = block_of(rank, 0, count);
      Blocks out(size, std::vector<int>(count, -1));
      Call call = call_of(Kind::all_gather, count);
      call.inputs = {in.data()};
      add_outputs(call, out);
      group.run(call, soon());
      for (int other = 0; other < size; ++other) CHECK(out[other] == block_of(other, 0, count));
    });
  });
}

TEST(broadcast_gives_all_what_the_root_has) {
  on_all([](const std::vector<int>& hosts, int size, size_t count) {
    run_well(hosts, [&](int rank, Group& group) {
      for (int root = 0; root < size; ++root) {
        auto data = block_of(rank, 0, count);
        Call call = call_of(Kind::broadcast, count);
        call.root = root;
        if (rank == root) call.inputs = {data.data()};
        call.outputs = {data.data()};
        group.run(call, soon());
        CHECK(data == block_of(root, 0, count));
      }
    });
  });
}

TEST(gather_and_scatter_are_each_others_mirror) {
  on_all([](const std::vector<int>& hosts, int size, size_t count) {
    run_well(hosts, [&](int rank, Group& group) {
      const int root = size - 1;
      const auto in = block_of(rank, 0, count);
      Blocks all(rank == root ? size : 0, std::vector<int>(count, -1));
      Call gather = call_of(Kind::gather, count);
      gather.root = root;
      gather.inputs = {in.data()};
      add_outputs(gather, all);
      group.run(gather, soon());
      for (size_t other = 0; other < all.size(); ++other)
        CHECK(all[other] == block_of(static_cast<int>(other), 0, count));
      std::vector<int> back(count, -1);
      Call scatter = call_of(Kind::scatter, count);
      scatter.root = root;
      add_inputs(scatter, all);
      scatter.outputs = {back.data()};
      group.run(scatter, soon());
      CHECK(back == in);
    });
  });
}

TEST(all_to_all_transposes) {
  on_all([](const std::vector<int>& hosts, int size, size_t count) {
    run_well(hosts, [&](int rank, Group& group) {
      Blocks in;
      for (int to = 0; to < size; ++to) in.push_back(block_of(rank, to, count));
      Blocks out(size, std::vector<int>(count, -1));
      Call call = call_of(Kind::all_to_all, count);
      add_inputs(call, in);
      add_outputs(call, out);
      group.run(call, soon());
      for (int from = 0; from < size; ++from) CHECK(out[from] == block_of(from, rank, count));
    });
  });
}

TEST(all_to_all_takes_uneven_blocks) {
  const auto count_of = [](int from, int to, size_t scale) {
    return (static_cast<size_t>(from * 5 + to * 3) % 4) * scale;
  };
  for (const auto& hosts : kShapes) {
    const int size = size_of(hosts);
    for (const size_t scale : {size_t{1}, size_t{1000}, size_t{50021}}) {
      run_well(hosts, [&](int rank, Group& group) {
        Call call = call_of(Kind::all_to_all, 0);
        Blocks in, out;
        for (int other = 0; other < size; ++other) {
          in.push_back(block_of(rank, other, count_of(rank, other, scale)));
          out.emplace_back(count_of(other, rank, scale), -1);
          call.input_bytes.push_back(in.back().size() * sizeof(int));
          call.output_bytes.push_back(out.back().size() * sizeof(int));
        }
        add_inputs(call, in);
        add_outputs(call, out);
        group.run(call, soon());
        for (int from = 0; from < size; ++from)
          CHECK(out[from] == block_of(from, rank, count_of(from, rank, scale)));
      });
    }
  }
}

TEST(nobody_leaves_a_barrier_before_all_have_come) {
  for (const auto& hosts : kShapes) {
    std::atomic<int> arrived = 0;
    run_well(hosts, [&](int, Group& group) {
      for (int round = 1; round <= 20; ++round) {
        ++arrived;
        group.run(call_of(Kind::barrier, 0), soon());
        CHECK(arrived >= round * size_of(hosts));
        group.run(call_of(Kind::barrier, 0), soon());
      }
    });
  }
}

TEST(float_sums_have_the_same_bits_whatever_the_algorithm) {
  // The same numbers alone, among few and among many: other chunks, slices and algorithms.
  const auto number = [](int rank, size_t i) {
    return static_cast<float>(value(rank, i % 7, i)) * 0.1f + 1.0f / static_cast<float>(i % 97 + 3);
  };
  for (const auto& hosts : kShapes) {
    const int size = size_of(hosts);
    constexpr size_t kMost = 300000;
    std::vector<std::vector<float>> whole(size), scattered(size);
    std::vector<std::vector<float>> pieces(size);
    run_well(hosts, [&](int rank, Group& group) {
      std::vector<float> in(kMost);
      for (size_t i = 0; i < kMost; ++i) in[i] = number(rank, i);
      const auto reduce_part = [&](float* data, size_t count) {
        Call call = call_of(Kind::all_reduce, count);
        call.dtype = DType::f32;
        call.scale = 1.0 / size;
        call.inputs = {data};
        call.outputs = {data};
        group.run(call, soon());
      };
      whole[rank] = in;
      reduce_part(whole[rank].data(), kMost);
      pieces[rank] = in;
      const std::vector<size_t> ends{0, 1, 3, 50, 999, 5000, 20001, 100000, kMost};
      for (size_t i = 1; i < ends.size(); ++i)
        reduce_part(pieces[rank].data() + ends[i - 1], ends[i] - ends[i - 1]);
      // And through reduce_scatter.
      const size_t each = kMost / size;
      scattered[rank].resize(each);
      Call call = call_of(Kind::reduce_scatter, each);
      call.dtype = DType::f32;
      call.scale = 1.0 / size;
      for (int block = 0; block < size; ++block) call.inputs.push_back(in.data() + block * each);
      call.outputs = {scattered[rank].data()};
      group.run(call, soon());
    });
    const size_t each = kMost / size;
    for (int rank = 0; rank < size; ++rank) {
      CHECK(std::memcmp(whole[rank].data(), whole[0].data(), kMost * 4) == 0);
      CHECK(std::memcmp(pieces[rank].data(), whole[0].data(), kMost * 4) == 0);
      CHECK(std::memcmp(scattered[rank].data(), whole[0].data() + rank * each, each * 4) == 0);
    }
  }
}

TEST(calls_that_do_not_match_fail_on_all_ranks) {
  for (const auto& hosts : std::vector<std::vector<int>>{{2}, {4}, {1, 1}, {2, 2}, {1, 2}}) {
    for (int kind = 0; kind < 4; ++kind) {
      const auto errors = run_ranks(hosts, [&](int rank, Group& group) {
        const bool is_odd = rank == size_of(hosts) - 1;
        std::vector<int> data(kind == 3 ? 100000 : 10, 1), out(100000);
        Call call = call_of(Kind::all_reduce, data.size());
        call.inputs = {data.data()};
        call.outputs = {out.data()};
        if (is_odd && kind == 0) call.bytes -= 4;
        if (is_odd && kind == 1) call.dtype = DType::f32;
        if (is_odd && kind == 2) call.reduction = Reduction::max;
        if (is_odd && kind == 3) call = call_of(Kind::barrier, 0);
        group.run(call, soon());
        group.run(call_of(Kind::barrier, 0), soon());
      });
      for (const auto& error : errors) {
        CHECK(error != nullptr);
        if (error) CHECK_THROWS(UsageError, "do not match", std::rethrow_exception(error));
      }
    }
  }
}

TEST(a_rank_that_does_not_come_is_named) {
  for (const auto& hosts : std::vector<std::vector<int>>{{3}, {2, 2}, {1, 1, 1}}) {
    const int late = size_of(hosts) - 1;
    const auto errors = run_ranks(hosts, [&](int rank, Group& group) {
      std::vector<int> data(1000, 1);
      Call call = call_of(Kind::all_reduce, data.size());
      call.inputs = {data.data()};
      call.outputs = {data.data()};
      group.run(call, soon());
      if (rank == late) {
        std::this_thread::sleep_for(milliseconds(1500));
        return;
      }
      group.run(call, Deadline::after(milliseconds(300)));
    });
    for (int rank = 0; rank < late; ++rank) {
      CHECK(errors[rank] != nullptr);
      const std::string words = "timeout of 300 ms: rank " + std::to_string(late);
      if (errors[rank]) CHECK_THROWS(TimeoutError, words, std::rethrow_exception(errors[rank]));
    }
  }
}

TEST(abort_ends_a_call_that_waits) {
  for (const auto& hosts : std::vector<std::vector<int>>{{2}, {1, 1}, {2, 2}}) {
    const auto errors = run_ranks(hosts, [&](int rank, Group& group) {
      if (rank == 0) {
        std::this_thread::sleep_for(milliseconds(100));
        group.abort("rank 0 gave up");
        return;
      }
      group.run(call_of(Kind::barrier, 0), soon());
    });
    for (size_t rank = 1; rank < errors.size(); ++rank) CHECK(errors[rank] != nullptr);
  }
}

TEST(wire_bytes_are_the_minimum) {
  // Of all ranks of a host together, beside frames: 2(H-1)/H of the data for all_reduce, (H-1)/H of
  // it for reduce_scatter and all_gather, the data once for broadcast.
  struct Case {
    Kind kind;
    double factor;  // of hosts - 1 over hosts
  };
  constexpr size_t kCount = 1 << 20;
  for (const auto& hosts : std::vector<std::vector<int>>{{2, 2}, {4, 4}, {2, 2, 2, 2}}) {
    const int size = size_of(hosts);
    const double share = (hosts.size() - 1.0) / hosts.size();
    for (const Case each : {Case{Kind::all_reduce, 2.0}, Case{Kind::reduce_scatter, 1.0},
                            Case{Kind::all_gather, 1.0}, Case{Kind::all_to_all, 1.0}}) {
      std::vector<std::atomic<uint64_t>> sent(hosts.size());
      run_well(hosts, [&](int rank, Group& group) {
        const bool is_one_block = each.kind == Kind::all_reduce;
        std::vector<int> in(kCount), out(kCount);
        Call call = call_of(each.kind, is_one_block ? kCount : kCount / size);
        const auto place = [&](int block) { return is_one_block ? 0 : block * (kCount / size); };
        const bool many_in = each.kind == Kind::reduce_scatter || each.kind == Kind::all_to_all;
        const bool many_out = each.kind == Kind::all_gather || each.kind == Kind::all_to_all;
        for (int i = 0; i < (many_in ? size : 1); ++i) call.inputs.push_back(&in[place(i)]);
        for (int i = 0; i < (many_out ? size : 1); ++i) call.outputs.push_back(&out[place(i)]);
        group.run(call, soon());
        const int host = group.topology().host_of(rank);
        sent[host] += group.counters().bytes_sent_between_hosts;
        group.run(call_of(Kind::barrier, 0), soon());
      });
      const double data = kCount * sizeof(int);
      // all_to_all: each rank of the host sends its blocks for other hosts.
      const double ranks = each.kind == Kind::all_to_all ? hosts[0] : 1;
      const double least = data * share * each.factor * ranks;
      for (const auto& bytes : sent) {
        CHECK(static_cast<double>(bytes) >= least);
        CHECK(static_cast<double>(bytes) < least * 1.01);
      }
    }
  }
}
