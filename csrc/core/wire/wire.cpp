#include "wire/wire.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "shm/arena.h"

namespace giant {
namespace {

constexpr int kMostPieces = 16;  // of one writev

std::string name_of(int rank) { return "rank " + std::to_string(rank); }

[[noreturn]] void throw_told(uint32_t fault, const std::string& text) {
  switch (static_cast<Fault>(fault)) {
    case Fault::usage: throw UsageError(text);
    case Fault::timeout: throw TimeoutError(text);
    case Fault::peer: break;
  }
  throw PeerError(text);
}

}  // namespace

Wire::Wire(std::vector<Fd> streams, std::vector<int> ranks, int own)
    : peers_(streams.size()), own_(own) {
  for (size_t host = 0; host < streams.size(); ++host) {
    peers_[host].stream = std::move(streams[host]);
    peers_[host].rank = ranks[host];
    any_ = any_ || static_cast<bool>(peers_[host].stream);
  }
}

Wire::~Wire() = default;

void Wire::begin(uint64_t call, const CallHead& head) {
  call_ = call;
  head_ = head;
}

void Wire::send(int host, Piece piece, const void* data, size_t bytes) {
  if (bytes == 0) return;
  Frame frame;
  frame.call = call_;
  frame.chunk = piece.chunk;
  frame.step = piece.step;
  frame.length = bytes;
  frame.head = head_;
  Peer& peer = peers_[host];
  const bool is_idle = peer.outgoing.empty();
  peer.outgoing.push_back(
      {frame, static_cast<const uint8_t*>(data), bytes, sizeof(Frame) + bytes});
  if (is_idle) write_some(peer);
}

bool Wire::sent(uint64_t chunk) const {
  const auto is_of_chunk = [&](const Outgoing& each) { return each.frame.chunk == chunk; };
  return std::none_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
    return std::any_of(peer.outgoing.begin(), peer.outgoing.end(), is_of_chunk);
  });
}

void Wire::want(int host, Piece piece, void* data, size_t bytes) {
  if (bytes == 0) return;
  // The list may move, and a piece that is being read points into it.
  Peer& peer = peers_[host];
  const ptrdiff_t place = peer.target == nullptr ? -1 : peer.target - peer.wanted.data();
  peer.wanted.push_back({piece, static_cast<uint8_t*>(data), bytes, false});
  if (place >= 0) peer.target = peer.wanted.data() + place;
}

bool Wire::received(uint64_t chunk) const {
  const auto is_missing = [&](const Wanted& each) {
    return each.piece.chunk == chunk && !each.there;
  };
  return std::none_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
    return std::any_of(peer.wanted.begin(), peer.wanted.end(), is_missing);
  });
}

void Wire::forget(uint64_t chunk) {
  for (Peer& peer : peers_) {
    const bool is_reading = peer.target != nullptr;
    const Piece piece = is_reading ? peer.target->piece : Piece{};
    std::erase_if(peer.wanted, [&](const Wanted& each) { return each.piece.chunk == chunk; });
    if (!is_reading) continue;
    peer.target = &*std::find_if(peer.wanted.begin(), peer.wanted.end(),
                                 [&](const Wanted& each) { return each.piece == piece; });
  }
}

bool Wire::Peer::waits() const {
  return std::any_of(wanted.begin(), wanted.end(), [](const Wanted& each) { return !each.there; });
}

bool Wire::pump() {
  bool moved = false;
  for (Peer& peer : peers_) {
    if (!peer.stream) continue;
    if (!peer.outgoing.empty()) moved |= write_some(peer);
    if (peer.waits()) moved |= read_some(peer);
  }
  return moved;
}

void Wire::add_pollable(std::vector<pollfd>& list) const {
  for (const Peer& peer : peers_) {
    if (!peer.stream) continue;
    short events = 0;
    if (peer.waits() && !peer.is_paused()) events |= POLLIN;
    if (!peer.outgoing.empty()) events |= POLLOUT;
    if (events != 0) list.push_back({peer.stream.get(), events, 0});
  }
}

std::vector<int> Wire::awaited() const {
  std::vector<int> ranks;
  for (const Peer& peer : peers_) {
    if (peer.waits()) ranks.push_back(peer.rank);
  }
  return ranks;
}

void Wire::fail(uint32_t fault, const std::string& text) {
  Frame frame;
  frame.kind = Frame::kFault;
  frame.step = fault;
  frame.length = std::min<uint64_t>(text.size(), Frame::kMostText);
  std::vector<uint8_t> bytes(sizeof frame + frame.length);
  std::memcpy(bytes.data(), &frame, sizeof frame);
  std::memcpy(bytes.data() + sizeof frame, text.data(), frame.length);
  for (Peer& peer : peers_) {
    if (!peer.stream) continue;
    // In the midst of a piece the text would be taken for data; the peer sees the end instead.
    const bool is_between = peer.outgoing.empty() || peer.outgoing.front().left ==
                                                         sizeof(Frame) + peer.outgoing.front().bytes;
    if (is_between) ::send(peer.stream.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(peer.stream.get(), SHUT_WR);
    peer.outgoing.clear();
  }
}

bool Wire::write_some(Peer& peer) {
  bool moved = false;
  while (!peer.outgoing.empty()) {
    std::array<iovec, 2 * kMostPieces> parts;
    size_t count = 0;
    for (auto& each : peer.outgoing) {
      if (count + 2 > parts.size()) break;
      if (each.left > each.bytes) {
        const size_t rest = each.left - each.bytes;
        auto* const frame = reinterpret_cast<uint8_t*>(&each.frame);
        parts[count++] = {frame + sizeof(Frame) - rest, rest};
      }
      const size_t rest = std::min(each.left, each.bytes);
      parts[count++] = {const_cast<uint8_t*>(each.data) + each.bytes - rest, rest};
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t done = sendmsg(peer.stream.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return moved;
    if (done < 0) {
      const std::string why = std::strerror(errno);
      // It may have said why before it hung up.
      read_some(peer);
      throw PeerError(name_of(peer.rank) + " is gone: " + why);
    }
    moved = true;
    bytes_sent_ += done;
    for (size_t rest = done; rest > 0;) {
      Outgoing& first = peer.outgoing.front();
      const size_t part = std::min(rest, first.left);
      first.left -= part;
      rest -= part;
      if (first.left == 0) peer.outgoing.pop_front();
    }
  }
  return moved;
}

bool Wire::read_some(Peer& peer) {
  bool moved = false;
  // No further than what is wanted: that a peer hangs up after its last piece is no fault.
  while (peer.waits()) {
    if (peer.frame_got < sizeof(Frame) && !read_frame(peer, moved)) return moved;
    if (peer.target == nullptr) check(peer);
    if (peer.frame.kind == Frame::kFault) {
      if (!read_fault(peer, moved)) return moved;
      continue;
    }
    if (peer.target == nullptr && !find_target(peer)) return moved;
    if (!read_piece(peer, moved)) return moved;
  }
  return moved;
}

bool Wire::read_frame(Peer& peer, bool& moved) {
  auto* const into = reinterpret_cast<uint8_t*>(&peer.frame);
  const size_t got = receive(peer, into + peer.frame_got, sizeof(Frame) - peer.frame_got);
  moved |= got > 0;
  peer.frame_got += got;
  return peer.frame_got == sizeof(Frame);
}

void Wire::check(const Peer& peer) const {
  const Frame& frame = peer.frame;
  const bool is_known = frame.kind == Frame::kData || frame.kind == Frame::kFault;
  const bool is_bounded = frame.length <= Frame::kMostText || frame.kind == Frame::kData;
  if (frame.magic != Frame::kMagic || !is_known || !is_bounded)
    throw PeerError(name_of(peer.rank) + " sent what is no frame of this protocol");
  if (frame.kind == Frame::kData && frame.call == call_ && frame.head != head_)
    throw UsageError("the ranks' calls do not match: " + name_of(peer.rank) + " called " +
                     describe(frame.head) + ", " + name_of(own_) + " " + describe(head_));
}

bool Wire::find_target(Peer& peer) {
  const Piece piece{peer.frame.chunk, peer.frame.step};
  for (Wanted& each : peer.wanted) {
    if (each.piece != piece || each.there) continue;
    if (each.bytes != peer.frame.length)
      throw PeerError(name_of(peer.rank) + " sent " + std::to_string(peer.frame.length) +
                      " bytes where " + std::to_string(each.bytes) + " were due");
    peer.target = &each;
    peer.target_got = 0;
    return true;
  }
  return false;
}

bool Wire::read_piece(Peer& peer, bool& moved) {
  Wanted& target = *peer.target;
  const size_t missing = target.bytes - peer.target_got;
  // Together with the frame behind it, for one system call less.
  Frame next;
  const size_t got =
      receive(peer, {{{target.data + peer.target_got, missing}, {&next, sizeof next}}});
  moved |= got > 0;
  peer.target_got += std::min(got, missing);
  if (peer.target_got < target.bytes) return false;
  target.there = true;
  peer.target = nullptr;
  peer.frame = next;
  peer.frame_got = got - missing;
  return true;
}

bool Wire::read_fault(Peer& peer, bool& moved) {
  const size_t missing = peer.frame.length - peer.text.size();
  std::array<char, Frame::kMostText> text;
  const size_t got = receive(peer, text.data(), missing);
  moved |= got > 0;
  peer.text.append(text.data(), got);
  if (peer.text.size() < peer.frame.length) return false;
  was_told_ = true;
  throw_told(peer.frame.step, peer.text);
}

size_t Wire::receive(Peer& peer, void* data, size_t bytes) {
  return receive(peer, {{{data, bytes}, {nullptr, 0}}});
}

size_t Wire::receive(Peer& peer, std::array<iovec, 2> parts) {
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  while (true) {
    const ssize_t got = recvmsg(peer.stream.get(), &message, MSG_DONTWAIT);
    if (got > 0) {
      bytes_received_ += got;
      return got;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
    const std::string why = got == 0 ? "its connection has ended" : std::strerror(errno);
    throw PeerError(name_of(peer.rank) + " is gone: " + why);
  }
}

}  // namespace giant
