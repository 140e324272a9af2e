#include "group/group.h"

#include <algorithm>
#include <exception>
#include <iostream>
#include <string>
#include <utility>

#include "base/copy.h"
#include "base/error.h"
#include "collective/algorithms.h"
#include "collective/choose.h"
#include "collective/progress.h"
#include "collective/team.h"
#include "group/check.h"
#include "group/debug.h"
#include "group/member.h"
#include "shm/arena.h"
#include "wire/wire.h"

namespace giant {
namespace {

constexpr auto kGoodbye = milliseconds(5000);

std::vector<int> ranks_on_rail(const Topology& topology, int rank) {
  const int rail = topology.rail_of(rank);
  std::vector<int> ranks;
  for (int host = 0; host < topology.num_hosts(); ++host)
    ranks.push_back(topology.rank_on_rail(host, rail));
  return ranks;
}

std::vector<pollfd> polled(const std::vector<Fd>& lives, int own) {
  std::vector<pollfd> list;
  for (size_t peer = 0; peer < lives.size(); ++peer) {
    const int fd = static_cast<int>(peer) == own ? -1 : lives[peer].get();
    list.push_back({fd, POLLIN, 0});
  }
  return list;
}

class Member : public Group {
 public:
  Member(Links links, const GroupOptions& options)
      : options_(options),
        topology_(links.topology),
        rank_(links.rank),
        local_(topology_.local_index(rank_)),
        lives_(std::move(links.lives)),
        arena_(std::move(links.region), local_, topology_.local_size(topology_.host_of(rank_)),
               std::move(links.bells)),
        wire_(std::move(links.rails), ranks_on_rail(topology_, rank_), rank_),
        team_(topology_, rank_, arena_, wire_),
        progress_(arena_, wire_, polled(lives_, local_),
                  topology_.ranks_of(topology_.host_of(rank_))),
        mailbox_(open_mailbox(std::move(links.endpoint), rank_, topology_.size(), options.name)) {
    if (is_debugging("algo") && rank_ == 0) std::cerr << table_of_choices(topology_);
  }

  ~Member() override {
    arena_.leave();
    mailbox_->close(kGoodbye);
  }

  void run(const Call& call, Deadline deadline) override {
    if (broken_) std::rethrow_exception(broken_);
    check_call(call, rank_, topology_.size());
    ++calls_;
    try {
      if (arena_.has_failed()) arena_.throw_fault();
      perform(call, deadline);
    } catch (const UsageError& error) {
      break_off<UsageError>(Fault::usage, call, error.what());
    } catch (const TimeoutError& error) {
      break_off<TimeoutError>(Fault::timeout, call, error.what());
    } catch (const std::exception& error) {
      break_off<PeerError>(Fault::peer, call, error.what());
    }
  }

  Mailbox& mailbox() override { return *mailbox_; }

  void abort(const std::string& why) override {
    arena_.fail(Fault::peer, why);
    mailbox_->abort(why);
  }

  const Topology& topology() const override { return topology_; }

  Counters counters() const override {
    return {calls_, wire_.bytes_sent(), wire_.bytes_received(), progress_.nanoseconds_waiting()};
  }

 private:
  void perform(const Call& call, Deadline deadline) {
    const CallHead head = head_of(call);
    team_.begin(calls_, head);
    switch (call.kind) {
      case Kind::barrier: return barrier(call, deadline);
      case Kind::broadcast: return broadcast(call, deadline);
      case Kind::all_reduce: return all_reduce(call, deadline, -1);
      case Kind::reduce: return all_reduce(call, deadline, topology_.host_of(call.root));
      case Kind::all_gather: return all_gather(call, call, deadline);
      case Kind::reduce_scatter: return reduce_scatter(call, deadline);
      case Kind::gather:
      case Kind::scatter:
      case Kind::all_to_all: return exchange(call, deadline);
    }
    throw UsageError("unknown operation");
  }

  /// Chunks of `each` of `total` elements; a call of nothing has one chunk too, and so meets the others.
  void run_chunks(size_t total, size_t each, Deadline deadline,
                  const std::function<Task(uint64_t chunk, Range)>& make) {
    const size_t count = std::max<size_t>(1, (total + each - 1) / each);
    const uint64_t first = chunks_;
    chunks_ += count;
    progress_.run(
        calls_, count,
        [&](size_t i) { return make(first + i, {i * each, std::min(total, (i + 1) * each)}); },
        deadline);
  }

  void barrier(const Call& call, Deadline deadline) {
    Call one = call;
    const uint8_t in = 0;
    uint8_t out = 0;
    one.bytes = 1;
    one.dtype = DType::u8;
    one.reduction = Reduction::max;
    one.inputs = {&in};
    one.outputs = {&out};
    all_reduce(one, deadline, -1);
  }

  void all_reduce(const Call& call, Deadline deadline, int to) {
    const Math math = Math::of(call);
    Choice choice = choose(call, topology_);
    const auto* const in = static_cast<const uint8_t*>(call.inputs[0]);
    const bool is_wanted = to < 0 || rank_ == call.root;
    auto* const out = is_wanted ? static_cast<uint8_t*>(call.outputs[0]) : nullptr;
    if (is_compressed(call))
      choice.compressing = {options_.compression, &feedback_.of(in, call.bytes / math.width)};
    run_chunks(call.bytes / math.width, chunk_elements(call, choice, topology_), deadline,
               [&](uint64_t chunk, Range part) {
                 const size_t begin = part.begin * math.width;
                 return all_reduce_chunk(team_, choice, math, chunk, in + begin,
                                         out == nullptr ? nullptr : out + begin, part.begin,
                                         part.size(), to);
               });
  }

  /// Small sums are not worth it: they wait for the link, not for its width.
  bool is_compressed(const Call& call) const {
    constexpr size_t kLeast = 64 * 1024;
    return options_.compression != Compression::none && topology_.num_hosts() > 1 &&
           call.dtype == DType::f32 && call.reduction == Reduction::sum && call.bytes >= kLeast;
  }

  void broadcast(const Call& call, Deadline deadline) {
    const Choice choice = choose(call, topology_);
    const auto* const in =
        static_cast<const uint8_t*>(call.inputs.empty() ? nullptr : call.inputs[0]);
    auto* const out = static_cast<uint8_t*>(call.outputs[0]);
    const size_t width = size_of(call.dtype);
    run_chunks(call.bytes, chunk_elements(call, choice, topology_) * width, deadline,
               [&](uint64_t chunk, Range part) {
                 return broadcast_chunk(team_, choice, chunk, in == nullptr ? nullptr : in + part.begin,
                                        out + part.begin, part.size(), call.root);
               });
  }

  /// `same` decides about the algorithm: what all ranks have in common.
  void all_gather(const Call& call, const Call& same, Deadline deadline) {
    const Choice choice = choose(same, topology_);
    const size_t width = size_of(call.dtype);
    run_chunks(call.bytes, chunk_elements(same, choice, topology_) * width, deadline,
               [&](uint64_t chunk, Range part) {
                 return all_gather_chunk(team_, choice, chunk, call, part);
               });
  }

  void reduce_scatter(const Call& call, Deadline deadline) {
    const Math math = Math::of(call);
    Choice choice = choose(call, topology_);
    if (is_compressed(call)) {
      const size_t elements = topology_.size() * call.bytes / math.width;
      choice.compressing = {options_.compression, &feedback_.of(call.inputs[0], elements)};
    }
    run_chunks(call.bytes / math.width, chunk_elements(call, choice, topology_), deadline,
               [&](uint64_t chunk, Range part) {
                 return reduce_scatter_chunk(team_, choice, math, chunk, call, part.begin,
                                             part.size());
               });
  }

  /// all_to_all, gather and scatter: blocks between pairs of ranks.
  void exchange(const Call& call, Deadline deadline) {
    std::vector<uint64_t> matrix;
    if (!call.input_bytes.empty()) matrix = gather_sizes(call, deadline);
    const size_t size = topology_.size();
    const Sizes sizes = [&](int from, int to) -> size_t {
      if (!matrix.empty()) return matrix[from * size + to];
      const bool is_sent = call.kind == Kind::all_to_all ||
                           (call.kind == Kind::gather && to == call.root) ||
                           (call.kind == Kind::scatter && from == call.root);
      return is_sent ? call.bytes : 0;
    };
    const size_t longest =
        matrix.empty() ? call.bytes : *std::max_element(matrix.begin(), matrix.end());
    const Call blocks = with_blocks(call);
    const Choice choice = choose(call, topology_);
    const size_t width = size_of(call.dtype);
    run_chunks(longest, chunk_elements(call, choice, topology_) * width, deadline,
               [&](uint64_t chunk, Range part) {
                 return all_to_all_chunk(team_, choice, chunk, blocks, sizes, part);
               });
  }

  /// Inputs and outputs by rank, as all_to_all has them.
  Call with_blocks(const Call& call) const {
    Call blocks = call;
    if (call.kind == Kind::gather) {
      blocks.inputs.assign(topology_.size(), nullptr);
      blocks.inputs[call.root] = call.inputs[0];
      blocks.outputs.resize(topology_.size(), nullptr);
    }
    if (call.kind == Kind::scatter) {
      blocks.outputs.assign(topology_.size(), nullptr);
      blocks.outputs[call.root] = call.outputs[0];
      blocks.inputs.resize(topology_.size(), nullptr);
    }
    return blocks;
  }

  /// What each rank sends to each: `[from][to]` bytes. Throws UsageError where this rank awaits another
  /// size than is sent.
  std::vector<uint64_t> gather_sizes(const Call& call, Deadline deadline) {
    const size_t size = topology_.size();
    const std::vector<uint64_t> own(call.input_bytes.begin(), call.input_bytes.end());
    std::vector<uint64_t> matrix(size * size);
    Call sizes;
    sizes.kind = Kind::all_gather;
    sizes.bytes = size * sizeof(uint64_t);
    sizes.inputs = {own.data()};
    for (size_t from = 0; from < size; ++from) sizes.outputs.push_back(&matrix[from * size]);
    all_gather(sizes, sizes, deadline);
    for (size_t from = 0; from < size; ++from) {
      const uint64_t sent = matrix[from * size + rank_];
      if (sent != call.output_bytes[from])
        throw UsageError("rank " + std::to_string(from) + " sends " + std::to_string(sent) +
                         " bytes to rank " + std::to_string(rank_) + ", which awaits " +
                         std::to_string(call.output_bytes[from]));
    }
    return matrix;
  }

  template <class E>
  [[noreturn]] void break_off(Fault fault, const Call& call, const std::string& why) {
    std::string text = why;
    if (!arena_.has_failed()) {
      if (!wire_.was_told())
        text = describe(call) + ", call " + std::to_string(calls_) + " of group " + options_.name +
               ": " + why;
      arena_.fail(fault, text);
    }
    wire_.fail(static_cast<uint32_t>(fault), text);
    mailbox_->abort(text);
    broken_ = std::make_exception_ptr(E(text));
    std::rethrow_exception(broken_);
  }

  GroupOptions options_;
  Topology topology_;
  int rank_;
  int local_;
  std::vector<Fd> lives_;
  Arena arena_;
  Wire wire_;
  Team team_;
  Progress progress_;
  std::unique_ptr<Mailbox> mailbox_;
  Feedback feedback_;
  std::atomic<uint64_t> calls_ = 0;
  uint64_t chunks_ = 0;
  std::exception_ptr broken_;
};

}  // namespace

std::unique_ptr<Group> make_group(Links links, const GroupOptions& options) {
  return std::make_unique<Member>(std::move(links), options);
}

}  // namespace giant
