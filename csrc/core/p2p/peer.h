#pragma once

#include <deque>
#include <map>
#include <string>
#include <thread>

#include "base/fd.h"
#include "p2p/matcher.h"
#include "p2p/reader.h"
#include "p2p/writer.h"

namespace giant::p2p {

/// How it stands with one direction of a pair of ranks.
enum class End { open, left, gone };

/// What goes to a peer: our stream, and the messages that are not received yet.
struct Outgoing {
  enum class Link { none, connecting, up };

  Link link = Link::none;
  Fd stream;
  Reader reader{Way::from_receiver, 1024};
  Writer writer;
  uint64_t next_sequence = 0;
  size_t unreturned = 0;  // charge of eager messages without credit for them yet
  std::map<uint64_t, TransferPtr> announced;  // by sequence
  std::deque<TransferPtr> sending;            // may go; the first one's chunk is in the writer
  End end = End::open;
  Failure why;           // once the end is not open
  Failure refused;       // of a message that was done when its receiver refused it
  std::string trouble;   // what the last attempt to connect said
  std::thread connector;
};

/// What comes from a peer: its stream, and what it is in the middle of.
struct Incoming {
  /// The payload that is being read.
  struct Current {
    Frame frame{};
    TransferPtr receive{};
    std::unique_ptr<char[]> kept{};
  };

  Fd stream;
  Reader reader{Way::from_sender, 16 * 1024};
  Writer writer;
  uint64_t next_sequence = 0;
  size_t uncredited = 0;  // charge of eager messages that came, less the credit given
  size_t taken = 0;       // part of it that was received
  Current current;
  /// Announced messages that may come, by sequence; null where the receive has timed out.
  struct Cleared {
    TransferPtr receive;
    size_t bytes = 0;
    size_t moved = 0;
  };
  std::map<uint64_t, Cleared> cleared;
  End end = End::open;
  Failure why;
};

struct Peer {
  Outgoing out;
  Incoming in;
};

}  // namespace giant::p2p
