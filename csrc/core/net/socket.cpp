#include "net/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/error.h"

namespace giant {
namespace {

bool set(int stream, int level, int option, int value) {
  return setsockopt(stream, level, option, &value, sizeof value) == 0;
}

}  // namespace

Fd new_socket(int family) {
  Fd made(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made) throw PeerError(std::string("no socket: ") + std::strerror(errno));
  return made;
}

Address unix_address(const std::string& name) {
  Address address;
  auto* const un = reinterpret_cast<sockaddr_un*>(&address.storage);
  if (name.size() >= sizeof un->sun_path) throw UsageError("too long a name of a Unix socket");
  un->sun_family = AF_UNIX;
  std::memcpy(un->sun_path + 1, name.data(), name.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Fd listen_on(const Address& address) {
  Fd listener = new_socket(address.storage.ss_family);
  if (bind(listener.get(), address.get(), address.length) != 0 ||
      listen(listener.get(), SOMAXCONN) != 0)
    throw PeerError(std::string("cannot listen: ") + std::strerror(errno));
  return listener;
}

Address address_of(const Fd& listener) {
  Address address;
  address.length = sizeof address.storage;
  if (getsockname(listener.get(), address.get(), &address.length) != 0)
    throw PeerError(std::string("a socket has no address: ") + std::strerror(errno));
  return address;
}

// No TCP_USER_TIMEOUT: Linux counts with it also the time in which a live peer does not read, and a
// rank that saves a checkpoint for a minute would lose its streams. Keepalive tells whoever waits
// for a dead host within 30 s; who has data under way to one learns it from the kernel's retries.
bool set_options(int stream, bool is_tcp) {
  if (!is_tcp) return true;
  return set(stream, IPPROTO_TCP, TCP_NODELAY, 1) && set(stream, SOL_SOCKET, SO_KEEPALIVE, 1) &&
         set(stream, IPPROTO_TCP, TCP_KEEPIDLE, 10) && set(stream, IPPROTO_TCP, TCP_KEEPINTVL, 5) &&
         set(stream, IPPROTO_TCP, TCP_KEEPCNT, 4);
}

bool is_same_user(int stream) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(stream, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

bool wait_for(int stream, short events, Deadline deadline) {
  pollfd entry{stream, events, 0};
  while (true) {
    const int ready = poll(&entry, 1, deadline.poll_ms(milliseconds(1000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR)
      throw PeerError(std::string("poll: ") + std::strerror(errno));
    if (deadline.expired()) return false;
  }
}

}  // namespace giant
