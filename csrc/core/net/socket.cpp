#include "net/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <thread>

#include "base/error.h"

namespace giant {
namespace {

constexpr int kBacklog = 512;
constexpr auto kPause = milliseconds(20);
/// Data that is not acknowledged for so long: the peer or the way to it is gone. Longer than routes
/// take to settle, shorter than people wait.
constexpr int kUnacknowledgedMs = 30000;

Fd new_socket(int family) {
  Fd made(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made) throw PeerError(std::string("no socket: ") + std::strerror(errno));
  return made;
}

void wait_for(int stream, short events, Deadline deadline) {
  pollfd entry{stream, events, 0};
  if (poll(&entry, 1, deadline.poll_ms(milliseconds(1000))) == 0 && deadline.expired())
    throw TimeoutError("the peer did not answer in time");
}

/// The error of a connection attempt: 0 where it stands, EINPROGRESS where time is up.
int attempt(const Fd& stream, const Address& address, Deadline deadline) {
  if (connect(stream.get(), address.get(), address.length) == 0) return 0;
  // A full backlog of a Unix socket is EAGAIN.
  if (errno != EINPROGRESS) return errno;
  pollfd entry{stream.get(), POLLOUT, 0};
  while (poll(&entry, 1, deadline.poll_ms(milliseconds(1000))) == 0) {
    if (deadline.expired()) return EINPROGRESS;
  }
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(stream.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

}  // namespace

Address unix_address(const std::string& name) {
  Address address;
  auto* const un = reinterpret_cast<sockaddr_un*>(&address.storage);
  un->sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof un->sun_path - 1);
  std::memcpy(un->sun_path + 1, name.data(), length);
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

Fd listen_on(const Address& address) {
  Fd listener = new_socket(address.storage.ss_family);
  if (bind(listener.get(), address.get(), address.length) != 0 ||
      listen(listener.get(), kBacklog) != 0)
    throw PeerError(std::string("cannot listen: ") + std::strerror(errno));
  return listener;
}

Address address_of(const Fd& listener) {
  Address address;
  address.length = sizeof address.storage;
  getsockname(listener.get(), address.get(), &address.length);
  return address;
}

Fd connect_to(const Address& address, const std::string& whom, Deadline deadline) {
  const bool is_tcp = address.storage.ss_family != AF_UNIX;
  while (true) {
    Fd stream = new_socket(address.storage.ss_family);
    const int error = attempt(stream, address, deadline);
    if (error == 0) {
      set_options(stream.get(), is_tcp);
      return stream;
    }
    if (deadline.expired())
      throw TimeoutError(whom + " was not reached in time: " + std::strerror(error));
    const bool may_come = error == ECONNREFUSED || error == EAGAIN || error == ETIMEDOUT ||
                          error == EHOSTUNREACH || error == ENETUNREACH || error == ECONNRESET;
    if (!may_come) throw PeerError(whom + " was not reached: " + std::strerror(error));
    std::this_thread::sleep_for(kPause);
  }
}

void set_options(int stream, bool is_tcp) {
  if (!is_tcp) return;
  const int on = 1;
  setsockopt(stream, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(stream, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  const int idle = 10, between = 5, times = 4;
  setsockopt(stream, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(stream, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between);
  setsockopt(stream, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
  setsockopt(stream, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnacknowledgedMs, sizeof kUnacknowledgedMs);
}

bool is_same_user(int stream) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(stream, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

void write_all(int stream, const void* data, size_t bytes, Deadline deadline) {
  const auto* at = static_cast<const uint8_t*>(data);
  while (bytes > 0) {
    const ssize_t done = send(stream, at, bytes, MSG_NOSIGNAL);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && errno == EAGAIN) {
      wait_for(stream, POLLOUT, deadline);
      continue;
    }
    if (done < 0) throw PeerError(std::string("the peer hung up: ") + std::strerror(errno));
    at += done;
    bytes -= done;
  }
}

void read_all(int stream, void* data, size_t bytes, Deadline deadline) {
  auto* at = static_cast<uint8_t*>(data);
  while (bytes > 0) {
    const ssize_t got = recv(stream, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      wait_for(stream, POLLIN, deadline);
      continue;
    }
    if (got <= 0) throw PeerError("the peer hung up");
    at += got;
    bytes -= got;
  }
}

}  // namespace giant
