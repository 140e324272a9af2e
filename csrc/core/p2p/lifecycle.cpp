#include <sys/socket.h>

#include <algorithm>

#include "base/error.h"
#include "p2p/core.h"

namespace giant::p2p {
namespace {

// One attempt to connect. It cannot be broken off: close() waits for its end.
constexpr milliseconds kFirstAttempt{1000};
constexpr milliseconds kLongestAttempt{2000};
// For peers to answer the goodbye; all that was sent is on its way then.
constexpr milliseconds kGoodbye{1000};

}  // namespace

void Core::start_connecting(int peer) {
  Outgoing& out = peers_[peer].out;
  if (out.link != Outgoing::Link::none) return;
  out.connector = std::thread([this, peer] { connect(peer); });
  out.link = Outgoing::Link::connecting;
}

// On a thread of its own: a connection takes as long as the peer likes.
void Core::connect(int peer) {
  const std::string name = "rank " + std::to_string(peer);
  for (auto attempt = kFirstAttempt;; attempt = std::min(2 * attempt, kLongestAttempt)) {
    try {
      Fd stream = endpoint_->connect(peer, Purpose::mail, Deadline::after(attempt));
      return adopt(peer, std::move(stream));
    } catch (const TimeoutError& error) {
      const Lock lock(mutex_);
      peers_[peer].out.trouble = error.what();
      if (stop_) return;
    } catch (const std::exception& error) {
      Lock lock(mutex_);
      end_out(peer, End::gone, name + " is gone: " + error.what());
      return run_callbacks(lock);
    }
  }
}

void Core::adopt(int peer, Fd stream) {
  Lock lock(mutex_);
  Outgoing& out = peers_[peer].out;
  if (stop_ || out.end != End::open) return;
  out.stream = std::move(stream);
  out.link = Outgoing::Link::up;
  out.trouble.clear();
  flush_out(peer);
  ring_all();
  run_callbacks(lock);
}

void Core::abort(const std::string& why) {
  Lock lock(mutex_);
  if (!stop_) end_all({Failure::Kind::peer, why});
  run_callbacks(lock);
}

void Core::close(milliseconds grace) {
  const Deadline deadline = Deadline::after(grace);
  const std::lock_guard once(closing_mutex_);
  Lock lock(mutex_);
  if (std::this_thread::get_id() == background_.get_id())
    throw UsageError("a mailbox cannot be closed from a callback" + in_group());
  const Failure closed{Failure::Kind::usage, "the mailbox is closed" + in_group()};
  if (!stop_) {
    ended_ = closed;
    Waiter me;
    accept();
    drive_until(lock, me, [&] { return stop_ || flushed(); }, deadline);
    if (!stop_) say_goodbye();
    const auto rest = std::min(deadline.remaining(), kGoodbye);
    drive_until(lock, me, [&] { return stop_ || quiet(); }, Deadline::after(rest));
  }
  if (!stop_) end_all(closed);
  run_callbacks(lock);
  lock.unlock();
  join_all();
}

// Of what nobody will receive any more, nothing is waited for.
bool Core::flushed() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
    const auto& [out, in] = peer;
    return out.end != End::open || (out.writer.empty() && out.announced.empty() &&
                                    out.sending.empty());
  });
}

bool Core::quiet() const {
  return std::none_of(peers_.begin(), peers_.end(),
                      [](const Peer& peer) { return peer.out.stream || peer.in.stream; });
}

// Peers close the streams when they read it.
void Core::say_goodbye() {
  for (size_t i = 0; i < peers_.size(); ++i) {
    auto& [out, in] = peers_[i];
    const uint64_t sent = out.stream ? out.next_sequence : 0;
    if (out.stream) {
      out.writer.push(make_frame(FrameKind::bye, 0, 0, 0));
      flush_out(static_cast<int>(i));
    }
    if (in.stream) {
      in.writer.push(make_frame(FrameKind::bye, 0, 0, sent));
      flush_in(static_cast<int>(i));
    }
  }
}

// Peers see their streams end at once, even while a thread of ours polls them.
void Core::end_all(const Failure& why) {
  stop_ = true;
  ended_ = why;
  const auto live = std::exchange(live_, {});
  for (const auto& [key, transfer] : live)
    fail(transfer, {why.kind, transfer->describe() + ": " + why.text});
  matcher_.clear();
  for (auto& [out, in] : peers_) {
    if (out.stream) ::shutdown(out.stream.get(), SHUT_RDWR);
    if (in.stream) ::shutdown(in.stream.get(), SHUT_RDWR);
    out.stream.reset();
    in.stream.reset();
    out.writer.clear();
    in.writer.clear();
    out.announced.clear();
    out.sending.clear();
    in.cleared.clear();
    in.current = {};
  }
  for (Waiter* waiter : waiters_) waiter->turn.notify_one();
  background_turn_.notify_one();
  ring_all();
}

void Core::join_all() {
  if (background_.joinable()) background_.join();
  for (Peer& peer : peers_)
    if (peer.out.connector.joinable()) peer.out.connector.join();
  endpoint_.reset();
}

}  // namespace giant::p2p
