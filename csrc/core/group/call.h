#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "reduce/reduce.h"

namespace giant {

enum class Kind : uint8_t {
  barrier,
  broadcast,
  all_reduce,
  reduce,
  all_gather,
  gather,
  reduce_scatter,
  scatter,
  all_to_all,
};

const char* name_of(Kind kind);

/// A collective call, in blocks of bytes. `inputs` and `outputs` name one block, or one for each rank:
///
/// | kind           | inputs              | outputs            | bytes            |
/// |----------------|---------------------|--------------------|------------------|
/// | barrier        | none                | none               | 0                |
/// | broadcast      | one (root's counts) | one                | of the block     |
/// | all_reduce     | one                 | one, may be same   | of the block     |
/// | reduce         | one                 | one, root's        | of the block     |
/// | all_gather     | one                 | one for each rank  | of one block     |
/// | gather         | one                 | root: for each     | of one block     |
/// | reduce_scatter | one for each rank   | one                | of one block     |
/// | scatter        | root: for each      | one                | of one block     |
/// | all_to_all     | one for each rank   | one for each rank  | of one, or 0     |
///
/// all_to_all with `input_bytes` and `output_bytes` (one for each rank) has blocks of its own sizes.
/// Of all_gather, the output at the own rank may be the input; no other overlap is allowed.
struct Call {
  Kind kind = Kind::barrier;
  DType dtype = DType::u8;
  Reduction reduction = Reduction::sum;
  double scale = 1.0;  // multiplies the result of a reduction of floats (average: 1 / size)
  size_t bytes = 0;
  int root = 0;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  std::vector<size_t> input_bytes;
  std::vector<size_t> output_bytes;
};

/// "all_reduce of 1024 float32 (sum)": for messages.
std::string describe(const Call& call);

}  // namespace giant
