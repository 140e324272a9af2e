#include "group/check.h"

#include <string>

#include "base/error.h"

namespace giant {
namespace {

[[noreturn]] void refuse(const Call& call, const std::string& why) {
  throw UsageError(std::string(name_of(call.kind)) + ": " + why);
}

void check_blocks(const Call& call, const char* what, size_t have, size_t need) {
  if (have != need)
    refuse(call, std::to_string(have) + " " + what + " where there must be " + std::to_string(need));
}

}  // namespace

void check_call(const Call& call, int rank, int size) {
  const bool is_root = rank == call.root;
  const auto all = static_cast<size_t>(size);
  if (call.root < 0 || call.root >= size)
    refuse(call, "root " + std::to_string(call.root) + " is no rank of " + std::to_string(size));
  if (call.bytes % size_of(call.dtype) != 0) refuse(call, "bytes are no whole elements");
  const size_t ins = call.inputs.size(), outs = call.outputs.size();
  switch (call.kind) {
    case Kind::barrier: return;
    case Kind::broadcast:
      if (is_root) check_blocks(call, "inputs", ins, 1);
      return check_blocks(call, "outputs", outs, 1);
    case Kind::all_reduce:
    case Kind::reduce:
      check_reduction(call.dtype, call.reduction);
      check_blocks(call, "inputs", ins, 1);
      if (call.kind == Kind::all_reduce || is_root) check_blocks(call, "outputs", outs, 1);
      return;
    case Kind::all_gather:
      check_blocks(call, "inputs", ins, 1);
      return check_blocks(call, "outputs", outs, all);
    case Kind::gather:
      check_blocks(call, "inputs", ins, 1);
      return check_blocks(call, "outputs", outs, is_root ? all : 0);
    case Kind::reduce_scatter:
      check_reduction(call.dtype, call.reduction);
      check_blocks(call, "inputs", ins, all);
      return check_blocks(call, "outputs", outs, 1);
    case Kind::scatter:
      check_blocks(call, "inputs", ins, is_root ? all : 0);
      return check_blocks(call, "outputs", outs, 1);
    case Kind::all_to_all:
      check_blocks(call, "inputs", ins, all);
      check_blocks(call, "outputs", outs, all);
      if (!call.input_bytes.empty() || !call.output_bytes.empty()) {
        check_blocks(call, "input sizes", call.input_bytes.size(), all);
        check_blocks(call, "output sizes", call.output_bytes.size(), all);
      }
      return;
  }
  refuse(call, "unknown operation");
}

}  // namespace giant
