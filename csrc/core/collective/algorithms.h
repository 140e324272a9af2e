#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/range.h"
#include "collective/feedback.h"
#include "collective/math.h"
#include "collective/task.h"
#include "collective/team.h"
#include "group/call.h"
#include "group/options.h"

namespace giant {

/// How all-reduce and reduce go between hosts.
enum class Exchange : uint8_t {
  split,  // each host sums a part and gives it to the others: 2(H-1)/H of the data, two steps
  whole,  // each host gets all and sums it: (H-1) of the data, one step
};

/// How broadcast goes between hosts.
enum class Spread : uint8_t {
  chain,  // from host to host: a link carries the data once
  star,   // from the root's host to each: one step
};

/// How float32 sums go between hosts; no `lost`: as they are.
struct Compressing {
  Compression how = Compression::none;
  Feedback::Lost* lost = nullptr;
};

/// Chosen by size and shape, see choose.h. `rails` ranks of each host talk to other hosts.
struct Choice {
  int rails = 1;
  bool flat = false;  // all-reduce inside a host: everyone sums everything, one step
  Exchange exchange = Exchange::split;
  Spread spread = Spread::chain;
  Compressing compressing;
};

// One chunk of a call each, on one rank. `chunk` is its number, `n` its elements (of a block where
// there are several), counted from `first`. ALGORITHMS.md has steps and bytes.

/// `in` and `out` of this chunk, `first` its place in the tensor. `out` null: the result is not wanted here.
/// `to` one host, or -1: all.
Task all_reduce_chunk(Team& team, Choice choice, Math math, uint64_t chunk, const uint8_t* in,
                      uint8_t* out, size_t first, size_t n, int to);

Task reduce_scatter_chunk(Team& team, Choice choice, Math math, uint64_t chunk, const Call& call,
                          size_t first, size_t n);

Task all_gather_chunk(Team& team, Choice choice, uint64_t chunk, const Call& call, Range bytes);

Task broadcast_chunk(Team& team, Choice choice, uint64_t chunk, const uint8_t* in, uint8_t* out,
                     size_t bytes, int root);

/// Bytes that go from one rank to another.
using Sizes = std::function<size_t(int from, int to)>;

/// all_to_all, gather and scatter: `range` of each block, as far as the block goes. `area` is what the
/// chunk takes of each block at most.
Task all_to_all_chunk(Team& team, Choice choice, uint64_t chunk, const Call& call,
                      const Sizes& sizes, Range range);

}  // namespace giant
