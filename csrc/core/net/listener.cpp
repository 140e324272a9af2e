#include "net/listener.h"

#include <sys/socket.h>

#include <cerrno>

#include "net/socket.h"

namespace giant {

Listener::Listener(Fd listener, bool is_tcp, const Secret& secret, int own, int size)
    : listener_(std::move(listener)), is_tcp_(is_tcp), secret_(secret), own_(own), size_(size) {}

void Listener::add_pollable(std::vector<int>& list) const {
  list.push_back(listener_.get());
  for (const Stranger& each : strangers_) list.push_back(each.stream.get());
}

void Listener::accept(std::vector<Accepted>& found) {
  take_new();
  for (Stranger& each : strangers_) {
    switch (advance(each)) {
      case State::open: continue;
      case State::dropped: each.stream.reset(); continue;
      case State::proven:
        found.push_back(
            {each.hello.from, static_cast<Purpose>(each.hello.purpose), std::move(each.stream)});
    }
  }
  std::erase_if(strangers_, [](const Stranger& each) { return !each.stream; });
}

void Listener::take_new() {
  while (true) {
    Fd stream(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!stream && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!stream) return;
    if (!is_tcp_ && !is_same_user(stream.get())) continue;
    set_options(stream.get(), is_tcp_);
    if (strangers_.size() >= kMostStrangers) strangers_.erase(strangers_.begin());
    strangers_.push_back({std::move(stream), Deadline::after(kPatience), {}, {}, {}});
  }
}

Listener::State Listener::advance(Stranger& stranger) const {
  while (true) {
    const bool is_hello = stranger.got < sizeof(Hello);
    const size_t before = is_hello ? 0 : sizeof(Hello);
    uint8_t* const into = is_hello ? reinterpret_cast<uint8_t*>(&stranger.hello)
                                   : stranger.proof.data();
    const size_t whole = is_hello ? sizeof(Hello) : stranger.proof.size();
    const size_t have = stranger.got - before;
    const ssize_t got = recv(stranger.stream.get(), into + have, whole - have, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN)
      return stranger.until.expired() ? State::dropped : State::open;
    if (got <= 0) return State::dropped;
    stranger.got += got;
    if (have + got < whole) continue;
    if (!is_hello) {
      const Digest right = make_proof(secret_, stranger.hello, stranger.answer);
      return equal_in_constant_time(stranger.proof, right) ? State::proven : State::dropped;
    }
    if (!is_sensible(stranger.hello, own_, size_)) return State::dropped;
    stranger.answer = make_answer(secret_, stranger.hello);
    // Little enough for any empty buffer: what does not fit is no peer's stream.
    const ssize_t sent = send(stranger.stream.get(), &stranger.answer, sizeof stranger.answer,
                              MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent != static_cast<ssize_t>(sizeof stranger.answer)) return State::dropped;
  }
}

}  // namespace giant
