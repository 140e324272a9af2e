#include "net/connector.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "net/socket.h"

namespace giant {
namespace {

constexpr milliseconds kPause{20};

/// Thrown by an attempt where another may do better.
struct Setback {
  std::string text;  // follows the peer's name
  bool is_refusal = false;
};

Setback no_answer() { return {"did not answer"}; }
Setback hung_up() { return {"hung up before it had proven itself"}; }

/// The error of connect(): 0 where the stream stands.
int connect_once(int stream, const Address& address, Deadline deadline) {
  if (connect(stream, address.get(), address.length) == 0) return 0;
  // A signal does not stop it: it goes on like one that was not to block.
  if (errno != EINPROGRESS && errno != EINTR) return errno;
  if (!wait_for(stream, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(stream, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  return error;
}

Fd open_stream(const Target& target, Deadline deadline) {
  const bool is_tcp = target.address.storage.ss_family != AF_UNIX;
  Fd stream = new_socket(target.address.storage.ss_family);
  const int error = connect_once(stream.get(), target.address, deadline);
  switch (error) {
    case 0: break;
    case ECONNREFUSED: throw Setback{"refused the connection", true};
    case EAGAIN:  // the queue of a Unix socket is full
    case ETIMEDOUT: throw no_answer();
    case ECONNRESET:
    case EHOSTUNREACH:
    case ENETUNREACH:
      throw Setback{std::string("could not be reached (") + std::strerror(error) + ")"};
    default: throw PeerError(target.name + " could not be reached: " + std::strerror(error));
  }
  if (!is_tcp && !is_same_user(stream.get()))
    throw PeerError(target.name + " belongs to another user");
  if (!set_options(stream.get(), is_tcp)) throw hung_up();
  return stream;
}

void send_unsent(int stream, Handshake& handshake, Deadline deadline) {
  while (!handshake.unsent().empty()) {
    const auto bytes = handshake.unsent();
    const ssize_t sent = send(stream, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      handshake.mark_sent(sent);
    } else if (errno == EAGAIN) {
      if (!wait_for(stream, POLLOUT, deadline)) throw no_answer();
    } else if (errno != EINTR) {
      throw hung_up();
    }
  }
}

void take_some(int stream, Handshake& handshake, Deadline deadline) {
  std::array<uint8_t, Handshake::kLongestMessage> space;
  const ssize_t got = recv(stream, space.data(), handshake.wanted(), 0);
  if (got > 0) return handshake.take(std::span(space).first(got));
  if (got == 0 || (errno != EAGAIN && errno != EINTR)) throw hung_up();
  if (errno == EAGAIN && !wait_for(stream, POLLIN, deadline)) throw no_answer();
}

Fd attempt(const Target& target, Handshake handshake, Deadline deadline) {
  Fd stream = open_stream(target, deadline);
  while (handshake.state() == Handshake::State::open) {
    send_unsent(stream.get(), handshake, deadline);
    take_some(stream.get(), handshake, deadline);
  }
  if (handshake.state() == Handshake::State::failed)
    throw PeerError(target.name + " is not who it should be: " + std::string(handshake.failure()));
  return stream;
}

}  // namespace

Fd connect_to(const Target& target, const Secret& secret, int own, Purpose purpose,
              Deadline deadline) {
  const auto start = Clock::now();
  while (true) {
    Setback setback;
    try {
      return attempt(target, Handshake::connecting(secret, own, target.rank, purpose), deadline);
    } catch (const Setback& thrown) {
      setback = thrown;
    }
    std::this_thread::sleep_for(std::min(kPause, deadline.remaining()));
    if (!deadline.expired()) continue;
    const auto tried = std::chrono::round<milliseconds>(Clock::now() - start);
    const std::string text =
        target.name + " " + setback.text + ", tried for " + std::to_string(tried.count()) + " ms";
    if (setback.is_refusal) throw PeerError(text);
    throw TimeoutError(text);
  }
}

}  // namespace giant
