#pragma once

#include <cstddef>
#include <cstdint>

#include "p2p/mailbox.h"

namespace giant::p2p {

/// What a frame is. The sender of messages writes the first five on its stream, the receiver
/// answers with the others; both say bye.
enum class FrameKind : uint32_t {
  eager = 1,     // a whole message of `length` bytes follows
  announce,      // a message of `length` bytes is ready
  data,          // the next `length` bytes of the announced message `sequence` follow
  withdraw,      // the announced message `sequence` is given up
  bye,           // no more frames; backwards, `sequence` counts the messages sent to that rank
  clear,         // the announced message `sequence` of `length` bytes may come
  refuse,        // its receive has `length` bytes
  refuse_eager,  // the receive of an eager message of `sequence` bytes has `length` bytes
  credit,        // `length` bytes of eager messages have been taken
};

/// The head of all that is on a stream, in the byte order of little-endian machines.
struct Frame {
  uint32_t magic;
  FrameKind kind;
  uint64_t tag;
  uint64_t length;
  uint64_t sequence;
};
static_assert(sizeof(Frame) == 32);

/// The most bytes of one data frame: between two of them other frames have their turn.
constexpr size_t kChunkBytes = 1 << 20;
/// The most bytes of eager messages that a peer may have sent without their being received. Beyond
/// it short messages are announced like long ones.
constexpr size_t kKeptBytes = 64 << 20;
/// Credit is given back in portions of this size.
constexpr size_t kCreditBytes = 4 << 20;
constexpr size_t kMaxMessageBytes = size_t(1) << 48;

/// What an eager message counts against kKeptBytes: what holds an empty one costs too.
constexpr size_t charge(size_t bytes) { return bytes + 128; }

Frame make_frame(FrameKind kind, uint64_t tag, uint64_t length, uint64_t sequence);

/// Which way a frame came.
enum class Way { from_sender, from_receiver };

/// Throws PeerError where this cannot be a frame of ours.
void check_frame(const Frame& frame, Way way);

}  // namespace giant::p2p
