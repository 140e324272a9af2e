#pragma once

#include <poll.h>
#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "wire/frame.h"

namespace giant {

/// Names a piece of data on a rail: chunk and step; both ends work them out from the call.
struct Piece {
  uint64_t chunk = 0;
  uint32_t step = 0;

  bool operator==(const Piece&) const = default;
};

/// The streams from this rank to the ranks of its rail, one to each other host. Nothing blocks: what
/// is sent and wanted is noted, and `pump` moves what can be moved.
///
/// What arrives before it is wanted stays in the stream. That cannot lock up: pieces of a chunk are
/// sent only while the peer's window of chunks is open for it, or soon will be.
class Wire {
 public:
  /// `streams` by host, none to the own one; `ranks` names the rank at the other end of each, `own`
  /// this one.
  Wire(std::vector<Fd> streams, std::vector<int> ranks, int own);
  ~Wire();

  bool any() const { return any_; }

  /// What the following pieces belong to: a peer in another call is a UsageError in `pump`.
  void begin(uint64_t call, const CallHead& head);

  /// The data must stay as it is until all of the chunk is `sent`. A piece of no bytes does not travel.
  void send(int host, Piece piece, const void* data, size_t bytes);
  bool sent(uint64_t chunk) const;

  /// Where a piece goes when it comes.
  void want(int host, Piece piece, void* data, size_t bytes);
  /// Is everything there that is wanted of a chunk?
  bool received(uint64_t chunk) const;
  /// Once it was received.
  void forget(uint64_t chunk);

  /// Moves what can be moved now; did anything move? Throws PeerError, UsageError, or what a peer
  /// that failed says.
  bool pump();

  /// What must be polled for `pump` to have work; empty where it waits for nothing.
  void add_pollable(std::vector<pollfd>& list) const;

  /// Ranks that something is wanted from.
  std::vector<int> awaited() const;

  /// Did a peer say why it failed? What `pump` threw is its text then.
  bool was_told() const { return was_told_; }

  /// Tells all peers, as far as they take it at once, and hangs up.
  void fail(uint32_t fault, const std::string& text);

  /// Read by other threads too.
  uint64_t bytes_sent() const { return bytes_sent_; }
  uint64_t bytes_received() const { return bytes_received_; }

 private:
  struct Outgoing {
    Frame frame;
    const uint8_t* data;
    size_t bytes;
    size_t left;  // of frame and data together
  };
  struct Wanted {
    Piece piece;
    uint8_t* data;
    size_t bytes;
    bool there;
  };
  struct Peer {
    bool waits() const;
    bool is_paused() const { return frame_got == sizeof(Frame) && target == nullptr; }

    Fd stream;
    int rank = -1;
    std::deque<Outgoing> outgoing;
    std::vector<Wanted> wanted;
    Frame frame;           // that is being read
    size_t frame_got = 0;
    Wanted* target = nullptr;  // of the piece that is being read
    size_t target_got = 0;
    std::string text;      // of a fault that is being read
  };

  bool write_some(Peer& peer);
  bool read_some(Peer& peer);
  bool read_frame(Peer& peer, bool& moved);
  bool read_piece(Peer& peer, bool& moved);
  bool read_fault(Peer& peer, bool& moved);
  void check(const Peer& peer) const;
  bool find_target(Peer& peer);
  size_t receive(Peer& peer, void* data, size_t bytes);
  size_t receive(Peer& peer, std::array<iovec, 2> parts);

  std::vector<Peer> peers_;
  int own_;
  bool any_ = false;
  uint64_t call_ = 0;
  CallHead head_;
  bool was_told_ = false;
  std::atomic<uint64_t> bytes_sent_ = 0;
  std::atomic<uint64_t> bytes_received_ = 0;
};

}  // namespace giant
