#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "p2p/core.h"

namespace giant::p2p {
namespace {

// Then the lock is given up.
constexpr int kWritesAtOnce = 2;

std::string why_ended(int error) {
  return error == 0 ? "its stream ended" : std::strerror(error);
}

}  // namespace

/// What a peer sends us.
class Core::InHandler : public Reader::Handler {
 public:
  InHandler(Core& core, int peer) : core_(core), peer_(peer), in_(core.peers_[peer].in) {}

  bool frame(const Frame& frame) override {
    in_.current = {.frame = frame};
    switch (frame.kind) {
      case FrameKind::eager: begin_eager(frame); break;
      case FrameKind::announce: announced(frame); break;
      case FrameKind::data: begin_data(frame); break;
      case FrameKind::withdraw: withdrawn(frame); break;
      default: return false;  // bye
    }
    return true;
  }

  void payload() override {
    Incoming::Current current = std::move(in_.current);
    in_.current = {};
    current.frame.kind == FrameKind::data ? end_data(current) : end_eager(current);
  }

 private:
  void check_sequence(const Frame& frame) {
    if (frame.sequence != in_.next_sequence++)
      throw PeerError("message " + std::to_string(frame.sequence) + " out of turn");
  }

  void begin_eager(const Frame& frame) {
    check_sequence(frame);
    in_.uncredited += charge(frame.length);
    if (in_.uncredited > kKeptBytes) throw PeerError("more bytes than it has credit for");
    const TransferPtr receive = core_.matcher_.take_posted(peer_, frame.tag);
    if (!receive) {
      in_.current.kept = std::make_unique_for_overwrite<char[]>(frame.length);
      return in_.reader.expect(in_.current.kept.get(), frame.length);
    }
    receive->set_source(peer_);
    if (receive->request.bytes == frame.length) {
      in_.current.receive = receive;
      return in_.reader.expect(receive->request.data, frame.length);
    }
    const size_t wanted = receive->request.bytes;
    core_.answer(peer_, make_frame(FrameKind::refuse_eager, frame.tag, wanted, frame.length));
    core_.fail(receive, core_.mismatch(frame.length, peer_, wanted, core_.rank_, frame.tag));
    in_.reader.expect(nullptr, frame.length);
  }

  void end_eager(Incoming::Current& current) {
    const Frame& frame = current.frame;
    if (!current.kept) {
      core_.give_credit(peer_, frame.length);
      if (current.receive) core_.complete(current.receive);  // not where refused or timed out
      return;
    }
    Arrival arrival{.peer = peer_, .tag = frame.tag, .bytes = frame.length, .whole = true,
                    .payload = std::move(current.kept)};
    // One may have been posted while the payload came.
    if (const TransferPtr receive = core_.matcher_.take_posted(peer_, frame.tag))
      return core_.deliver(arrival, receive);
    core_.matcher_.keep(std::move(arrival));
  }

  void announced(const Frame& frame) {
    check_sequence(frame);
    Arrival arrival{.peer = peer_, .tag = frame.tag, .sequence = frame.sequence,
                    .bytes = frame.length};
    if (const TransferPtr receive = core_.matcher_.take_posted(peer_, frame.tag))
      return core_.deliver(arrival, receive);
    core_.matcher_.keep(std::move(arrival));
  }

  void begin_data(const Frame& frame) {
    const auto it = in_.cleared.find(frame.sequence);
    if (it == in_.cleared.end() || frame.length > it->second.bytes - it->second.moved)
      throw PeerError("data that was not asked for");
    in_.current.receive = it->second.receive;
    char* const data = it->second.receive ? it->second.receive->request.data : nullptr;
    in_.reader.expect(data ? data + it->second.moved : nullptr, frame.length);
  }

  void end_data(const Incoming::Current& current) {
    const auto it = in_.cleared.find(current.frame.sequence);
    it->second.moved += current.frame.length;
    if (it->second.moved < it->second.bytes) return;
    if (it->second.receive) core_.complete(it->second.receive);
    in_.cleared.erase(it);
  }

  void withdrawn(const Frame& frame) {
    if (core_.matcher_.withdraw(peer_, frame.tag, frame.sequence)) return;
    const auto it = in_.cleared.find(frame.sequence);
    if (it == in_.cleared.end()) return;  // was refused, or came whole
    const TransferPtr receive = it->second.receive;
    const bool begun = it->second.moved > 0;
    in_.cleared.erase(it);
    if (!receive) return;
    if (!begun) return core_.take_back(receive);
    const std::string text = "rank " + std::to_string(peer_) + " gave up sending it";
    core_.fail(receive, core_.peer_failure(*receive, {Failure::Kind::peer,
                                                      text + core_.in_group()}));
  }

  Core& core_;
  const int peer_;
  Incoming& in_;
};

/// What a peer answers to what we send.
class Core::OutHandler : public Reader::Handler {
 public:
  OutHandler(Core& core, int peer) : core_(core), peer_(peer), out_(core.peers_[peer].out) {}

  bool frame(const Frame& frame) override {
    switch (frame.kind) {
      case FrameKind::clear: cleared(frame); break;
      case FrameKind::refuse: refused(frame); break;
      case FrameKind::refuse_eager:
        out_.refused = core_.mismatch(frame.sequence, core_.rank_, frame.length, peer_, frame.tag);
        break;
      case FrameKind::credit:
        if (frame.length > out_.unreturned) throw PeerError("credit for more than was sent");
        out_.unreturned -= frame.length;
        break;
      default:
        messages_from_it_ = frame.sequence;
        return false;
    }
    return true;
  }

  void payload() override {}

  /// After the bye: how many messages the peer has sent us.
  uint64_t messages_from_it() const { return messages_from_it_; }

 private:
  TransferPtr take(const Frame& frame) {
    if (frame.sequence >= out_.next_sequence) throw PeerError("an answer to nothing");
    const auto it = out_.announced.find(frame.sequence);
    if (it == out_.announced.end()) return nullptr;  // withdrawn meanwhile
    TransferPtr send = std::move(it->second);
    out_.announced.erase(it);
    return send;
  }

  void cleared(const Frame& frame) {
    const TransferPtr send = take(frame);
    if (!send) return;
    if (send->request.bytes == 0) return core_.complete(send);
    out_.sending.push_back(send);
  }

  void refused(const Frame& frame) {
    const TransferPtr send = take(frame);
    if (!send) return;
    core_.fail(send, core_.mismatch(send->request.bytes, core_.rank_, frame.length, peer_,
                                    frame.tag));
  }

  Core& core_;
  const int peer_;
  Outgoing& out_;
  uint64_t messages_from_it_ = 0;
};

void Core::accept() {
  std::vector<Accepted> all;
  try {
    all = endpoint_->accept();
  } catch (const std::exception& error) {
    return end_all({Failure::Kind::peer, std::string("cannot accept: ") + error.what()});
  }
  for (Accepted& accepted : all) {
    if (accepted.purpose != Purpose::mail || accepted.peer < 0 || accepted.peer == rank_ ||
        accepted.peer >= static_cast<int>(peers_.size()))
      continue;
    Incoming& in = peers_[accepted.peer].in;
    // The end of an attempt that the peer gave up may be unread yet.
    if (in.stream) read_in(accepted.peer);
    if (in.stream && in.reader.untouched()) close_in(accepted.peer);
    if (in.stream || in.end != End::open) continue;
    in.stream = std::move(accepted.stream);
    read_in(accepted.peer);
    // Who sleeps in poll() does not know of it.
    ring_all();
  }
}

bool Core::read_in(int peer) {
  Incoming& in = peers_[peer].in;
  if (!in.stream) return false;
  const std::string name = "rank " + std::to_string(peer);
  InHandler handler(*this, peer);
  try {
    switch (in.reader.read(in.stream.get(), handler)) {
      case Reader::Status::idle: return false;
      case Reader::Status::progress: break;
      case Reader::Status::stopped:
        end_in(peer, End::left, name + " has left the group");
        break;
      case Reader::Status::ended:
        // Without a word: an attempt to connect that the peer gave up.
        if (in.reader.untouched() && peers_[peer].out.end != End::gone)
          close_in(peer);
        else
          lose(peer, name + " is gone: " + why_ended(in.reader.last_error()));
    }
  } catch (const PeerError& error) {
    end_in(peer, End::gone, name + " sent what it may not: " + error.what());
  }
  flush_in(peer);
  return true;
}

bool Core::read_out(int peer) {
  Outgoing& out = peers_[peer].out;
  if (!out.stream) return false;
  const std::string name = "rank " + std::to_string(peer);
  OutHandler handler(*this, peer);
  try {
    switch (out.reader.read(out.stream.get(), handler)) {
      case Reader::Status::idle: return false;
      case Reader::Status::progress: break;
      case Reader::Status::stopped:
        end_out(peer, End::left, name + " has left the group");
        if (handler.messages_from_it() == 0)
          no_more_from(peer, End::left, name + " has left the group");
        break;
      case Reader::Status::ended:
        end_out(peer, End::gone, name + " is gone: " + why_ended(out.reader.last_error()));
        accept();
        if (!peers_[peer].in.stream)
          no_more_from(peer, End::gone, name + " is gone: " + why_ended(out.reader.last_error()));
    }
  } catch (const PeerError& error) {
    end_out(peer, End::gone, name + " answered what it may not: " + error.what());
  }
  flush_out(peer);
  return true;
}

// A stream that takes no answers any more is found out by reading it.
void Core::flush_in(int peer) {
  Incoming& in = peers_[peer].in;
  if (!in.stream) return;
  auto status = Writer::Status::more;
  while (status == Writer::Status::more) status = in.writer.flush(in.stream.get());
  if (status == Writer::Status::broken) in.writer.clear();
  if (status == Writer::Status::blocked) ring_all();
}

void Core::flush_out(int peer) {
  Outgoing& out = peers_[peer].out;
  if (!out.stream) return;
  auto status = Writer::Status::more;
  for (int i = 0; status == Writer::Status::more && i < kWritesAtOnce; ++i) {
    feed_chunk(out);
    status = out.writer.flush(out.stream.get());
    chunk_has_gone(out);
    if (status == Writer::Status::drained && !out.sending.empty()) status = Writer::Status::more;
  }
  if (status == Writer::Status::broken) return break_out(peer);
  if (status == Writer::Status::blocked || status == Writer::Status::more) ring_all();
}

// Our stream takes nothing any more. The peer may have said why.
void Core::break_out(int peer) {
  Outgoing& out = peers_[peer].out;
  const int error = out.writer.last_error();
  out.writer.clear();
  read_out(peer);
  end_out(peer, End::gone, "rank " + std::to_string(peer) + " is gone: " + why_ended(error));
}

void Core::feed_chunk(Outgoing& out) {
  if (out.sending.empty() || out.writer.has_chunk()) return;
  Transfer& send = *out.sending.front();
  const size_t bytes = std::min(kChunkBytes, send.request.bytes - send.moved);
  out.writer.push_chunk(make_frame(FrameKind::data, send.request.tag, bytes, send.sequence),
                        send.request.data + send.moved);
  send.moved += bytes;
}

void Core::chunk_has_gone(Outgoing& out) {
  if (out.sending.empty() || out.writer.has_chunk()) return;
  const TransferPtr send = std::move(out.sending.front());
  out.sending.pop_front();
  if (send->moved == send->request.bytes)
    complete(send);
  else
    out.sending.push_back(send);
}

void Core::answer(int peer, const Frame& frame) {
  if (peer != rank_) return peers_[peer].in.writer.push(frame);
  // To oneself: only the refusal of a message that was done at once is of use.
  if (frame.kind == FrameKind::refuse_eager)
    peers_[rank_].out.refused = mismatch(frame.sequence, rank_, frame.length, rank_, frame.tag);
}

void Core::give_credit(int peer, size_t bytes) {
  if (peer == rank_) {
    peers_[rank_].out.unreturned -= charge(bytes);
    return;
  }
  Incoming& in = peers_[peer].in;
  in.taken += charge(bytes);
  if (in.taken < kCreditBytes || !in.stream) return;
  answer(peer, make_frame(FrameKind::credit, 0, in.taken, 0));
  in.uncredited -= in.taken;
  in.taken = 0;
}

void Core::close_in(int peer) {
  Incoming& in = peers_[peer].in;
  in.stream.reset();
  in.writer.clear();
  in.reader = Reader(Way::from_sender, 16 * 1024);
  in.current = {};
}

void Core::end_in(int peer, End end, const std::string& text) {
  Incoming& in = peers_[peer].in;
  const TransferPtr partial =
      in.current.frame.kind == FrameKind::eager ? in.current.receive : nullptr;
  close_in(peer);
  no_more_from(peer, end, text);
  if (partial) fail(partial, peer_failure(*partial, in.why));
}

// Nobody is there either to read what we would send, though no stream of ours says so.
void Core::lose(int peer, const std::string& text) {
  Outgoing& out = peers_[peer].out;
  end_in(peer, End::gone, text);
  if (out.link != Outgoing::Link::up) end_out(peer, End::gone, text);
}

void Core::no_more_from(int peer, End end, const std::string& text) {
  Incoming& in = peers_[peer].in;
  if (in.end != End::open) return;
  in.end = end;
  in.why = {Failure::Kind::peer, text + in_group()};
  std::vector<TransferPtr> lost;
  for (auto& [sequence, cleared] : in.cleared)
    if (cleared.receive) lost.push_back(cleared.receive);
  in.cleared.clear();
  matcher_.drop_announced(peer);
  for (const auto& receive : matcher_.take_posted_if([&](const Transfer& posted) {
         const int from = posted.request.peer;
         return from == peer || (from == Mailbox::kAnySource && end_of_sources(from));
       }))
    lost.push_back(receive);
  for (const auto& receive : lost) fail(receive, peer_failure(*receive, in.why));
}

void Core::end_out(int peer, End end, const std::string& text) {
  Outgoing& out = peers_[peer].out;
  if (out.end != End::open) return;
  out.end = end;
  out.why = {Failure::Kind::peer, text + in_group()};
  out.stream.reset();
  out.link = Outgoing::Link::none;
  std::vector<TransferPtr> lost;
  for (auto& [sequence, send] : out.announced) lost.push_back(send);
  lost.insert(lost.end(), out.sending.begin(), out.sending.end());
  out.announced.clear();
  out.sending.clear();
  out.writer.clear();
  for (const auto& send : lost) fail(send, peer_failure(*send, out.why));
}

}  // namespace giant::p2p
