#include "p2p/core.h"

#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>

#include "base/copy.h"
#include "base/error.h"

namespace giant::p2p {

Core::Core(std::unique_ptr<Endpoint> endpoint, int rank, int size, std::string group)
    : rank_(rank), group_(std::move(group)), endpoint_(std::move(endpoint)), peers_(size) {
  for (Bell& bell : bells_) {
    bell.event = Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!bell.event) throw Error(std::string("eventfd: ") + std::strerror(errno));
  }
}

Core::~Core() = default;

std::string Core::in_group() const { return " (group " + group_ + ")"; }

void Core::check(const Transfer::Request& request) const {
  const bool any = request.way == Transfer::Way::receive && request.peer == Mailbox::kAnySource;
  if (!any && (request.peer < 0 || request.peer >= static_cast<int>(peers_.size())))
    throw UsageError("there is no rank " + std::to_string(request.peer) + " among " +
                     std::to_string(peers_.size()) + in_group());
  if (request.bytes > kMaxMessageBytes)
    throw UsageError("a message of " + std::to_string(request.bytes) + " bytes is too long" +
                     in_group());
  if (request.bytes > 0 && !request.data)
    throw UsageError("a message of " + std::to_string(request.bytes) + " bytes has no memory" +
                     in_group());
}

TransferPtr Core::start(const Transfer::Request& request) {
  check(request);
  const auto transfer = std::make_shared<Transfer>(shared_from_this(), request);
  Lock lock(mutex_);
  if (ended_) {
    fail(transfer, ended_);
    return transfer;
  }
  start_background();
  if (!transfer->is_send())
    post_receive(transfer);
  else if (request.peer == rank_)
    post_send_to_self(transfer);
  else
    post_send(transfer);
  run_callbacks(lock);
  return transfer;
}

void Core::post_send(const TransferPtr& send) {
  const auto& [way, data, bytes, peer, tag, timeout] = send->request;
  Outgoing& out = peers_[peer].out;
  if (out.refused) return fail(send, std::exchange(out.refused, {}));
  if (out.end != End::open) return fail(send, peer_failure(*send, out.why));
  start_connecting(peer);
  send->sequence = out.next_sequence++;
  const bool eager =
      bytes <= Mailbox::kEagerBytes && out.unreturned + charge(bytes) <= kKeptBytes;
  if (!eager) {
    enlist(send);
    out.announced.emplace(send->sequence, send);
    out.writer.push(make_frame(FrameKind::announce, tag, bytes, send->sequence));
    return flush_out(peer);
  }
  out.unreturned += charge(bytes);
  const Frame frame = make_frame(FrameKind::eager, tag, bytes, send->sequence);
  const auto status = out.writer.send(out.stream.get(), frame, data);
  if (status == Writer::Status::broken) break_out(peer);
  if (status == Writer::Status::blocked && out.stream) ring_all();
  if (out.end != End::open) return fail(send, peer_failure(*send, out.why));
  complete(send);
}

void Core::post_send_to_self(const TransferPtr& send) {
  const auto& [way, data, bytes, peer, tag, timeout] = send->request;
  Outgoing& out = peers_[rank_].out;
  if (out.refused) return fail(send, std::exchange(out.refused, {}));
  send->sequence = out.next_sequence++;
  Arrival arrival{.peer = rank_, .tag = tag, .sequence = send->sequence, .bytes = bytes};
  arrival.own_send = send;
  if (const TransferPtr receive = matcher_.take_posted(rank_, tag))
    return deliver(arrival, receive);
  if (bytes > Mailbox::kEagerBytes || out.unreturned + charge(bytes) > kKeptBytes) {
    enlist(send);
    return matcher_.keep(std::move(arrival));
  }
  out.unreturned += charge(bytes);
  arrival.own_send = nullptr;
  arrival.whole = true;
  arrival.payload = std::make_unique_for_overwrite<char[]>(bytes);
  copy_bytes(arrival.payload.get(), data, bytes);
  matcher_.keep(std::move(arrival));
  complete(send);
}

void Core::post_receive(const TransferPtr& receive) {
  const int peer = receive->request.peer;
  if (auto arrival = matcher_.take_arrived(peer, receive->request.tag)) {
    deliver(*arrival, receive);
    if (arrival->peer != rank_) flush_in(arrival->peer);
    return;
  }
  if (const Failure why = end_of_sources(peer))
    return fail(receive, peer_failure(*receive, why));
  matcher_.post(receive);
  enlist(receive);
}

// The answers are only queued: this may be called while the stream is being read.
void Core::deliver(Arrival& arrival, const TransferPtr& receive) {
  const auto& [way, data, bytes, peer, tag, timeout] = receive->request;
  receive->set_source(arrival.peer);
  const bool fits = arrival.bytes == bytes;
  const Failure why =
      fits ? Failure{} : mismatch(arrival.bytes, arrival.peer, bytes, rank_, tag);
  if (arrival.own_send) {
    copy_bytes(data, arrival.own_send->request.data, fits ? bytes : 0);
    finish(arrival.own_send, why);
    finish(receive, why);
  } else if (arrival.whole) {
    if (fits) copy_bytes(data, arrival.payload.get(), bytes);
    if (!fits) answer(arrival.peer, make_frame(FrameKind::refuse_eager, tag, bytes, arrival.bytes));
    give_credit(arrival.peer, arrival.bytes);
    finish(receive, why);
  } else if (fits) {
    receive->sequence = arrival.sequence;
    peers_[arrival.peer].in.cleared[arrival.sequence] = {.receive = receive, .bytes = bytes};
    answer(arrival.peer, make_frame(FrameKind::clear, tag, bytes, arrival.sequence));
    enlist(receive);
  } else {
    answer(arrival.peer, make_frame(FrameKind::refuse, tag, bytes, arrival.sequence));
    finish(receive, why);
  }
}

// Its message was given up before any of it came: it waits for the next, at its old place.
void Core::take_back(const TransferPtr& receive) {
  receive->set_source(receive->request.peer);
  if (auto arrival = matcher_.take_arrived(receive->request.peer, receive->request.tag))
    return deliver(*arrival, receive);
  matcher_.post(receive);
}

void Core::enlist(const TransferPtr& transfer) {
  live_.emplace(std::pair(transfer->expires, transfer.get()), transfer);
  for (int who = 0; who < kSleepers; ++who)
    if (transfer->expires < bells_[who].until) ring(static_cast<Sleeper>(who));
}

void Core::complete(const TransferPtr& transfer) { finish(transfer, {}); }

void Core::fail(const TransferPtr& transfer, Failure why) { finish(transfer, std::move(why)); }

void Core::finish(const TransferPtr& transfer, Failure why) {
  live_.erase(std::pair(transfer->expires, transfer.get()));
  for (auto& function : transfer->callbacks)
    callbacks_.push_back([transfer, function = std::move(function)] {
      function(transfer->failure.exception());
    });
  transfer->callbacks.clear();
  transfer->set_done(std::move(why));
  for (Waiter* waiter : waiters_) {
    if (waiter->transfer != transfer.get()) continue;
    waiter->turn.notify_one();
    if (waiter == driver_) ring(kDriver);
  }
}

bool Core::add_callback(Transfer& transfer, std::function<void(std::exception_ptr)>& function) {
  Lock lock(mutex_);
  if (transfer.done()) return false;
  transfer.callbacks.push_back(std::move(function));
  return true;
}

void Core::run_callbacks(Lock& lock) {
  while (!callbacks_.empty()) {
    const auto due = std::exchange(callbacks_, {});
    lock.unlock();
    for (const auto& callback : due) callback();
    lock.lock();
  }
}

void Core::expire() {
  const auto now = Clock::now();
  while (!live_.empty() && live_.begin()->first.first <= now) {
    const TransferPtr late = live_.begin()->second;
    const auto trouble = late->is_send() ? peers_[late->request.peer].out.trouble : std::string();
    const std::string text =
        late->describe() + (late->is_send() ? " was not received" : " did not arrive") +
        " within " + in_words(late->request.timeout) + in_group() +
        (trouble.empty() ? "" : ": no connection: " + trouble);
    detach(late);
    fail(late, {Failure::Kind::timeout, text});
  }
}

void Core::detach(const TransferPtr& transfer) {
  transfer->is_send() ? detach_send(transfer) : detach_receive(transfer);
}

void Core::detach_send(const TransferPtr& send) {
  const auto& [way, data, bytes, peer, tag, timeout] = send->request;
  if (peer == rank_) {
    matcher_.withdraw(peer, tag, send->sequence);
    return;
  }
  Outgoing& out = peers_[peer].out;
  out.announced.erase(send->sequence);
  if (!out.sending.empty() && out.sending.front() == send) out.writer.release_chunk();
  std::erase(out.sending, send);
  out.writer.push(make_frame(FrameKind::withdraw, tag, 0, send->sequence));
  flush_out(peer);
}

void Core::detach_receive(const TransferPtr& receive) {
  if (matcher_.unpost(*receive)) return;
  Incoming& in = peers_[receive->source()].in;
  if (in.current.receive == receive) {
    in.current.receive = nullptr;
    in.reader.discard();
  }
  const auto it = in.cleared.find(receive->sequence);
  if (it != in.cleared.end() && it->second.receive == receive) it->second.receive = nullptr;
}

Failure Core::mismatch(size_t sent, int from, size_t wanted, int to, uint64_t tag) const {
  return {Failure::Kind::usage,
          "rank " + std::to_string(from) + " sends " + std::to_string(sent) + " bytes to rank " +
              std::to_string(to) + " with tag " + std::to_string(tag) + ", but rank " +
              std::to_string(to) + " receives " + std::to_string(wanted) + " bytes" + in_group()};
}

Failure Core::peer_failure(const Transfer& transfer, const Failure& why) const {
  return {why.kind, transfer.describe() + ": " + why.text};
}

// Why nothing can come any more; none while something can. From any source: a rank that broke off
// may be the one that was meant to send, so that waiting for the others would be a guess.
Failure Core::end_of_sources(int peer) const {
  if (peer != Mailbox::kAnySource) return peers_[peer].in.why;
  Failure last;
  size_t left = 0;
  for (const Peer& other : peers_) {
    if (other.in.end == End::gone) return other.in.why;
    if (other.in.end == End::open) continue;
    ++left;
    last = other.in.why;
  }
  return left + 1 == peers_.size() ? last : Failure{};
}

}  // namespace giant::p2p
