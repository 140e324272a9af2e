#pragma once

#include <sys/socket.h>

#include <string>

namespace giant {

/// An address of IPv4 or IPv6, with its port where that is known.
struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  void set_port(uint16_t port);
  uint16_t port() const;
  /// "10.0.0.2:4711", "[fe80::1]:4711"
  std::string text() const;
};

/// Where this rank can be reached by other hosts: on the first interface that GIANT_SOCKET_IFNAME
/// lists and there is; else on that of the route to MASTER_ADDR; else on the first that is no
/// loopback; else on loopback. Never on all. Throws UsageError where none of the listed is there.
Address own_address();

}  // namespace giant
