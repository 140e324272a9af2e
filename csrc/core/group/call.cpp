#include "group/call.h"

#include "collective/head.h"

namespace giant {

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::barrier: return "barrier";
    case Kind::broadcast: return "broadcast";
    case Kind::all_reduce: return "all_reduce";
    case Kind::reduce: return "reduce";
    case Kind::all_gather: return "all_gather";
    case Kind::gather: return "gather";
    case Kind::reduce_scatter: return "reduce_scatter";
    case Kind::scatter: return "scatter";
    case Kind::all_to_all: return "all_to_all";
  }
  return "unknown operation";
}

CallHead head_of(const Call& call) {
  return {
      .kind = static_cast<uint8_t>(call.kind),
      .dtype = static_cast<uint8_t>(call.dtype),
      .reduction = static_cast<uint8_t>(call.reduction),
      .uneven = static_cast<uint8_t>(!call.input_bytes.empty()),
      .root = call.root,
      .bytes = call.bytes,
      .scale = call.scale,
  };
}

std::string describe(const CallHead& head) {
  const auto kind = static_cast<Kind>(head.kind);
  const auto dtype = static_cast<DType>(head.dtype);
  std::string text = name_of(kind);
  if (kind == Kind::barrier) return text;
  if (head.uneven != 0) return text + " with uneven splits of " + name_of(dtype);
  text += " of " + std::to_string(head.bytes / size_of(dtype)) + " " + name_of(dtype);
  const bool reduces =
      kind == Kind::all_reduce || kind == Kind::reduce || kind == Kind::reduce_scatter;
  const auto reduction = static_cast<Reduction>(head.reduction);
  if (reduces && head.scale != 1.0) text += " (scaled " + std::string(name_of(reduction)) + ")";
  if (reduces && head.scale == 1.0) text += " (" + std::string(name_of(reduction)) + ")";
  const bool rooted = kind == Kind::broadcast || kind == Kind::reduce || kind == Kind::gather ||
                      kind == Kind::scatter;
  if (rooted) text += ", root " + std::to_string(head.root);
  return text;
}

std::string describe(const Call& call) { return describe(head_of(call)); }

}  // namespace giant
