#include "collective/choose.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "shm/arena.h"

namespace giant {
namespace {

// Found with csrc/tests/bench_group.cpp and benchmarks/collectives.py.
constexpr size_t kFlatBytes = 128 * 1024;   // read by each rank, all inputs together
constexpr size_t kLeaderBytes = 16 * 1024;  // of all blocks: up to here one rank a host talks
constexpr size_t kWholeBytes = 16 * 1024;   // a host sends at most so much to save a step
constexpr size_t kPlainChunk = 256 * 1024;  // what is in a cache when a peer comes to read it
constexpr size_t kChainChunk = 128 * 1024;  // the last host waits for a chunk of each before it

size_t all_bytes(const Call& call, const Topology& topology) {
  switch (call.kind) {
    case Kind::barrier:
    case Kind::broadcast:
    case Kind::all_reduce:
    case Kind::reduce: return call.bytes;
    default: return call.bytes * topology.size();
  }
}

/// The most blocks that one rail of a host takes in for its host, of `per_source` blocks each.
size_t most_landing(const Topology& topology, int rails, bool for_each_local) {
  size_t most = 0;
  for (int host = 0; host < topology.num_hosts(); ++host) {
    size_t sources = 0;
    for (int other = 0; other < topology.num_hosts(); ++other) {
      if (other != host) sources += (topology.local_size(other) + rails - 1) / rails;
    }
    most = std::max(most, sources * (for_each_local ? topology.local_size(host) : 1));
  }
  return most;
}

/// The most sums that one rail of a host takes in for the ranks it serves.
size_t most_sums(const Topology& topology, int rails) {
  return (topology.num_hosts() - 1) * ((topology.largest_host() + rails - 1) / rails);
}

size_t blocks_in_area(Kind kind, const Topology& topology, int rails) {
  const size_t size = topology.size();
  switch (kind) {
    case Kind::reduce_scatter: return std::max(size, most_sums(topology, rails));
    case Kind::all_gather: return std::max<size_t>(1, most_landing(topology, rails, false));
    case Kind::gather:
    case Kind::scatter:
    case Kind::all_to_all: return std::max(size, most_landing(topology, rails, true));
    default: return 1;
  }
}

size_t most_of_chunk(Kind kind, const Topology& topology) {
  // Blocks for one rank each: a whole area keeps them long enough for the price of a message.
  const bool is_exchange =
      kind == Kind::all_to_all || kind == Kind::gather || kind == Kind::scatter;
  if (is_exchange) return Arena::kChunkBytes;
  const bool is_chain = kind == Kind::broadcast && topology.num_hosts() > 2;
  return is_chain ? kChainChunk : kPlainChunk;
}

}  // namespace

Choice choose(const Call& call, const Topology& topology) {
  const size_t hosts = topology.num_hosts();
  const size_t bytes = all_bytes(call, topology);
  // Sizes of uneven blocks are not known to all when this is asked.
  const bool is_small = bytes <= kLeaderBytes && call.input_bytes.empty();
  Choice choice;
  choice.rails = hosts > 1 && is_small ? 1 : topology.num_rails();
  choice.flat = hosts == 1 && bytes * topology.size() <= kFlatBytes;
  if (bytes * (hosts - 1) <= kWholeBytes) choice.exchange = Exchange::whole;
  if (bytes * (hosts - 1) <= kWholeBytes) choice.spread = Spread::star;
  return choice;
}

size_t chunk_elements(const Call& call, const Choice& choice, const Topology& topology) {
  const size_t width = size_of(call.dtype);
  const size_t blocks = blocks_in_area(call.kind, topology, choice.rails);
  const size_t each = most_of_chunk(call.kind, topology) / width / blocks;
  // Whole lines: slices of a chunk are aligned as the tensor is.
  return std::max<size_t>(1, each >= 64 ? each / 64 * 64 : each);
}

std::string table_of_choices(const Topology& topology) {
  constexpr std::array kKinds{Kind::broadcast,  Kind::all_reduce,     Kind::reduce,
                              Kind::all_gather, Kind::reduce_scatter, Kind::all_to_all};
  std::ostringstream text;
  text << "giant: " << topology.size() << " ranks on " << topology.num_hosts() << " hosts, "
       << topology.num_rails() << " rails\n";
  for (const Kind kind : kKinds) {
    for (size_t bytes = 1024; bytes <= (64u << 20); bytes *= 16) {
      Call call;
      call.kind = kind;
      call.bytes = bytes;
      const Choice choice = choose(call, topology);
      text << "  " << name_of(kind) << " of " << bytes << " bytes: ";
      if (choice.flat && kind == Kind::all_reduce) text << "flat, ";
      text << choice.rails << (choice.rails == 1 ? " rail" : " rails");
      if (topology.num_hosts() > 1 && (kind == Kind::all_reduce || kind == Kind::reduce))
        text << (choice.exchange == Exchange::whole ? ", whole" : ", split");
      if (topology.num_hosts() > 1 && kind == Kind::broadcast)
        text << (choice.spread == Spread::star ? ", star" : ", chain");
      text << ", chunks of " << chunk_elements(call, choice, topology) << " bytes\n";
    }
  }
  return text.str();
}

}  // namespace giant
