#include "net/listener.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"
#include "net/socket.h"

namespace giant {
namespace {

// Of one call: a flood must not hold up the caller, nor push out who is about to prove itself.
constexpr int kMostEvents = 64;
constexpr int kMostNew = 32;
constexpr milliseconds kStarvedPause{100};

[[noreturn]] void throw_system(const char* what) {
  throw PeerError(std::string(what) + ": " + std::strerror(errno));
}

bool is_starved(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

// accept() reports what happened to the new connection, too: that one is over, others may wait.
bool is_of_listener(int error) {
  return error == EBADF || error == EINVAL || error == ENOTSOCK || error == EFAULT;
}

/// False where the stream does not take all: no peer's, which has an empty buffer.
bool send_unsent(int stream, Handshake& handshake) {
  while (!handshake.unsent().empty()) {
    const auto bytes = handshake.unsent();
    const ssize_t sent = send(stream, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return false;
    handshake.mark_sent(sent);
  }
  return true;
}

}  // namespace

Listener::Listener(const Secret& secret, int own, int size, milliseconds patience)
    : secret_(secret),
      own_(own),
      size_(size),
      patience_(patience),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
  if (!events_) throw_system("epoll");
  if (!timer_) throw_system("timerfd");
  watch(timer_.get());
}

void Listener::add(Fd socket, bool is_tcp) {
  watch(socket.get());
  sockets_.push_back({std::move(socket), is_tcp});
}

void Listener::accept(std::vector<Accepted>& found) {
  std::array<epoll_event, kMostEvents> ready;
  int count = epoll_wait(events_.get(), ready.data(), kMostEvents, 0);
  if (count < 0 && errno != EINTR) throw_system("epoll");
  count = std::max(count, 0);
  // Those that are here come first: new ones may push them out.
  const auto is_stranger = [&](const epoll_event& event) {
    return std::none_of(sockets_.begin(), sockets_.end(),
                        [&](const Socket& each) { return each.fd.get() == event.data.fd; });
  };
  std::stable_partition(ready.begin(), ready.begin() + count, is_stranger);
  for (int i = 0; i < count; ++i) handle(ready[i].data.fd, found);
  drop_expired(found);
  feed();
  set_timer();
}

void Listener::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &event) != 0) throw_system("epoll");
}

void Listener::unwatch(int fd) {
  if (epoll_ctl(events_.get(), EPOLL_CTL_DEL, fd, nullptr) != 0) throw_system("epoll");
}

void Listener::handle(int fd, std::vector<Accepted>& found) {
  for (const Socket& each : sockets_) {
    if (each.fd.get() == fd) return take_new(each, found);
  }
  if (fd == timer_.get()) {
    uint64_t times = 0;
    if (read(fd, &times, sizeof times) < 0 && errno != EAGAIN && errno != EINTR)
      throw_system("timerfd");
    return;
  }
  const auto at = std::find_if(strangers_.begin(), strangers_.end(),
                               [&](const Stranger& each) { return each.stream.get() == fd; });
  if (at != strangers_.end() && settle(*at, found)) strangers_.erase(at);
}

void Listener::take_new(const Socket& socket, std::vector<Accepted>& found) {
  for (int i = 0; i < kMostNew; ++i) {
    Fd stream(accept4(socket.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    const int error = stream ? 0 : errno;
    if (is_starved(error)) return starve(error);
    give_up_.reset();
    if (is_of_listener(error))
      throw PeerError(std::string("cannot accept connections: ") + std::strerror(error));
    if (error == EAGAIN) return;
    if (stream) admit(std::move(stream), socket.is_tcp, found);
  }
}

void Listener::admit(Fd stream, bool is_tcp, std::vector<Accepted>& found) {
  if (!is_tcp && !is_same_user(stream.get())) return;
  if (!set_options(stream.get(), is_tcp)) return;
  Stranger stranger{std::move(stream), Deadline::after(patience_),
                    Handshake::accepting(secret_, own_, size_)};
  watch(stranger.stream.get());
  if (settle(stranger, found)) return;
  if (strangers_.size() >= kMostStrangers + size_) drop_oldest();
  strangers_.push_back(std::move(stranger));
}

bool Listener::settle(Stranger& stranger, std::vector<Accepted>& found) {
  const Progress progress = advance(stranger);
  if (progress == Progress::waits) return false;
  unwatch(stranger.stream.get());
  if (progress == Progress::proven)
    found.push_back({stranger.handshake.peer(), stranger.handshake.purpose(),
                     std::move(stranger.stream)});
  return true;
}

Listener::Progress Listener::advance(Stranger& stranger) const {
  const int stream = stranger.stream.get();
  Handshake& handshake = stranger.handshake;
  while (handshake.state() == Handshake::State::open) {
    std::array<uint8_t, Handshake::kLongestMessage> space;
    const ssize_t got = recv(stream, space.data(), handshake.wanted(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return Progress::waits;
    if (got <= 0) return Progress::dropped;
    handshake.take(std::span(space).first(got));
    if (!send_unsent(stream, handshake)) return Progress::dropped;
  }
  return handshake.state() == Handshake::State::proven ? Progress::proven : Progress::dropped;
}

// Who has sent its proof while nobody asked is not late.
void Listener::drop_expired(std::vector<Accepted>& found) {
  while (!strangers_.empty() && strangers_.front().until.expired()) {
    if (settle(strangers_.front(), found))
      strangers_.erase(strangers_.begin());
    else
      drop_oldest();
  }
}

void Listener::drop_oldest() {
  unwatch(strangers_.front().stream.get());
  strangers_.erase(strangers_.begin());
}

// The socket stays readable: to poll it would keep a processor busy.
void Listener::starve(int error) {
  if (!give_up_) give_up_ = Deadline::after(patience_);
  if (give_up_->expired())
    throw PeerError(std::string("cannot accept connections: ") + std::strerror(error));
  if (!strangers_.empty()) drop_oldest();
  if (!pause_) {
    for (const Socket& each : sockets_) unwatch(each.fd.get());
  }
  pause_ = Deadline::after(kStarvedPause);
}

void Listener::feed() {
  if (!pause_ || !pause_->expired()) return;
  pause_.reset();
  for (const Socket& each : sockets_) watch(each.fd.get());
}

void Listener::set_timer() {
  itimerspec when{};  // zero: never
  std::optional<milliseconds> next;
  if (pause_) next = pause_->remaining();
  if (!strangers_.empty()) {
    const milliseconds oldest = strangers_.front().until.remaining();
    next = next ? std::min(*next, oldest) : oldest;
  }
  if (next) {
    const auto ms = std::max(*next, milliseconds(1)).count();
    when.it_value = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
  }
  if (timerfd_settime(timer_.get(), 0, &when, nullptr) != 0) throw_system("timerfd");
}

}  // namespace giant
