#include "p2p/frame.h"

#include <string>

#include "base/error.h"

namespace giant::p2p {
namespace {

constexpr uint32_t kMagic = 0x6d746e67;

size_t most_bytes(FrameKind kind) {
  switch (kind) {
    case FrameKind::eager: return Mailbox::kEagerBytes;
    case FrameKind::data: return kChunkBytes;
    case FrameKind::credit: return kKeptBytes;
    case FrameKind::withdraw:
    case FrameKind::bye: return 0;
    default: return kMaxMessageBytes;
  }
}

bool fits(FrameKind kind, Way way) {
  if (kind == FrameKind::bye) return true;
  const bool forward = kind >= FrameKind::eager && kind <= FrameKind::withdraw;
  const bool backward = kind >= FrameKind::clear && kind <= FrameKind::credit;
  return way == Way::from_sender ? forward : backward;
}

}  // namespace

Frame make_frame(FrameKind kind, uint64_t tag, uint64_t length, uint64_t sequence) {
  return {kMagic, kind, tag, length, sequence};
}

void check_frame(const Frame& frame, Way way) {
  if (frame.magic != kMagic) throw PeerError("no frame begins where one should");
  if (!fits(frame.kind, way))
    throw PeerError("a frame of kind " + std::to_string(static_cast<uint32_t>(frame.kind)));
  if (frame.length > most_bytes(frame.kind) || (frame.kind == FrameKind::data && frame.length == 0))
    throw PeerError("a frame of kind " + std::to_string(static_cast<uint32_t>(frame.kind)) +
                    " and length " + std::to_string(frame.length));
}

}  // namespace giant::p2p
