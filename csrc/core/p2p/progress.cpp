#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "p2p/core.h"

namespace giant::p2p {
namespace {

using std::chrono::microseconds;

// About what it costs to sleep and be woken.
constexpr microseconds kSpin{40};
// The background thread keeps out for so long after the last wait.
constexpr milliseconds kRest{1};
// One in so many rounds of spinning looks at all streams, the others at that of the message only.
constexpr unsigned kLookAtAll = 8;
// For what has no bell.
constexpr milliseconds kGlance{5};
constexpr milliseconds kLongSleep = std::chrono::hours(1);

}  // namespace

void Core::PollSet::clear() {
  fds.clear();
  slots.clear();
}

void Core::PollSet::add(int fd, short events, What what, int index) {
  fds.push_back({.fd = fd, .events = events, .revents = 0});
  slots.push_back({what, index});
}

void Core::wait(Transfer& transfer, Deadline deadline) {
  Lock lock(mutex_);
  Waiter me;
  me.transfer = &transfer;
  const bool over = drive_until(lock, me, [&] { return transfer.done(); }, deadline);
  if (!over)
    throw TimeoutError(transfer.describe() + " is still under way when the wait for it is over" +
                       in_group());
}

bool Core::drive_until(Lock& lock, Waiter& me, const std::function<bool()>& over,
                       Deadline deadline) {
  if (over()) return true;
  auto place = enter(me);
  const milliseconds longest = me.transfer ? kLongSleep : kGlance;
  auto spin_until = Clock::now() + kSpin;
  for (unsigned round = 0; !over() && !deadline.expired(); ++round) {
    if (driver_ && driver_ != &me) {
      me.turn.wait_for(lock, std::min(deadline.remaining(), longest));
      spin_until = Clock::now() + kSpin;
      continue;
    }
    driver_ = &me;
    if (look(me, round) || over()) {
      spin_until = Clock::now() + kSpin;
    } else if (Clock::now() < spin_until) {
      lock.unlock();
      ::sched_yield();
      lock.lock();
    } else {
      sleep(lock, kDriver, Clock::now() + std::min(deadline.remaining(), longest));
      spin_until = Clock::now() + kSpin;
    }
    expire();
    if (callbacks_.empty()) continue;
    // A callback may wait for a message itself, or for something that takes long.
    leave(me, place);
    run_callbacks(lock);
    place = enter(me);
  }
  leave(me, place);
  return over();
}

std::list<Core::Waiter*>::iterator Core::enter(Waiter& me) {
  ring(kBackground);
  return waiters_.insert(waiters_.end(), &me);
}

// Also where the role was free: it may have been offered to the one that leaves now.
void Core::hand_over(const Waiter& me) {
  if (driver_ && driver_ != &me) return;
  driver_ = nullptr;
  for (Waiter* other : waiters_) {
    if (other == &me || (other->transfer && other->transfer->done())) continue;
    other->turn.notify_one();
    return;
  }
}

void Core::leave(const Waiter& me, std::list<Waiter*>::iterator place) {
  hand_over(me);
  waiters_.erase(place);
  left_at_ = Clock::now();
  if (waiters_.empty() && resting_deep_) background_turn_.notify_one();
}

// One round without sleep. True where something moved.
bool Core::look(const Waiter& me, unsigned round) {
  bool touched = false;
  if (me.transfer && touch(*me.transfer, &touched)) return true;
  if (touched && round % kLookAtAll != 0) return false;
  return sweep();
}

// Where the message itself must come or go.
bool Core::touch(const Transfer& transfer, bool* touched) {
  const int peer = transfer.source();
  if (peer == Mailbox::kAnySource || peer == rank_) return false;
  Peer& with = peers_[peer];
  *touched = static_cast<bool>(transfer.is_send() ? with.out.stream : with.in.stream);
  if (!transfer.is_send()) return read_in(peer);
  const bool came = read_out(peer);
  const size_t before = transfer.moved;
  if (!with.out.writer.empty()) flush_out(peer);
  return came || transfer.moved != before;
}

bool Core::sweep() {
  fill(look_set_, -1);
  return ::poll(look_set_.fds.data(), look_set_.fds.size(), 0) > 0 && handle(look_set_);
}

void Core::sleep(Lock& lock, Sleeper who, Clock::time_point until) {
  PollSet set;
  fill(set, who);
  Bell& bell = bells_[who];
  if (!live_.empty()) until = std::min(until, live_.begin()->first.first);
  const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
  bell.until = until;
  bell.asleep = true;
  lock.unlock();
  ::poll(set.fds.data(), set.fds.size(), static_cast<int>(std::max<int64_t>(left.count(), 0)));
  lock.lock();
  bell.asleep = false;
  handle(set);
}

void Core::fill(PollSet& set, int bell) const {
  set.clear();
  if (bell >= 0) set.add(bells_[bell].event.get(), POLLIN, PollSet::What::bell, bell);
  if (stop_) return;
  for (const int fd : endpoint_->pollable()) set.add(fd, POLLIN, PollSet::What::endpoint, 0);
  for (size_t i = 0; i < peers_.size(); ++i) {
    const auto& [out, in] = peers_[i];
    const auto index = static_cast<int>(i);
    const bool in_waits = !in.writer.empty();
    const bool out_waits = !out.writer.empty() || !out.sending.empty();
    const short in_events = in_waits ? POLLIN | POLLOUT : POLLIN;
    const short out_events = out_waits ? POLLIN | POLLOUT : POLLIN;
    if (in.stream) set.add(in.stream.get(), in_events, PollSet::What::in, index);
    if (out.stream) set.add(out.stream.get(), out_events, PollSet::What::out, index);
  }
}

// What poll() said may be out of date: everything here bears to be called for nothing.
bool Core::handle(const PollSet& set) {
  bool moved = false;
  for (size_t i = 0; i < set.fds.size(); ++i) {
    const short events = set.fds[i].revents;
    const auto [what, index] = set.slots[i];
    if (events == 0) continue;
    if (what == PollSet::What::bell) {
      uint64_t rings;
      // It may have been emptied already: then there is nothing to read, and that is as well.
      [[maybe_unused]] const auto count = ::read(set.fds[i].fd, &rings, sizeof rings);
      continue;
    }
    if (stop_) continue;
    moved = true;
    if (what == PollSet::What::endpoint) {
      accept();
    } else if (what == PollSet::What::in) {
      if (events & POLLOUT) flush_in(index);
      if (events & ~POLLOUT) read_in(index);
    } else {
      if (events & POLLOUT) flush_out(index);
      if (events & ~POLLOUT) read_out(index);
    }
  }
  return moved;
}

void Core::ring(Sleeper who) {
  if (!bells_[who].asleep) return;
  const uint64_t one = 1;
  // It can only fail where it has been rung 2^64 times.
  [[maybe_unused]] const auto count = ::write(bells_[who].event.get(), &one, sizeof one);
}

void Core::ring_all() {
  for (int who = 0; who < kSleepers; ++who) ring(static_cast<Sleeper>(who));
}

void Core::start_background() {
  if (!background_.joinable()) background_ = std::thread([this] { run_background(); });
}

void Core::run_background() {
  Lock lock(mutex_);
  while (!stop_) {
    if (!waiters_.empty() || Clock::now() - left_at_ < kRest) {
      rest(lock);
      continue;
    }
    sleep(lock, kBackground, Clock::now() + kLongSleep);
    expire();
    run_callbacks(lock);
  }
}

// A waiter drives. Looks again after a moment; one that waits for longer says when it is done.
void Core::rest(Lock& lock) {
  const auto before = left_at_;
  background_turn_.wait_for(lock, kRest, [&] { return stop_; });
  if (stop_ || waiters_.empty() || left_at_ != before) return;
  resting_deep_ = true;
  background_turn_.wait(lock, [&] { return stop_ || waiters_.empty(); });
  resting_deep_ = false;
}

}  // namespace giant::p2p
