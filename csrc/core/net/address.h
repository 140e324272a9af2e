#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

namespace giant {

/// An address of IPv4, IPv6 or a Unix socket.
struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  /// "10.0.0.2:4711", "[fd00::2]:4711". Of IPv4 and IPv6 alone.
  std::string text() const;
};

/// What text() gives, back again. Throws UsageError.
Address parse_address(const std::string& text);

/// Where this rank can be reached by other hosts, port 0: on the first interface of the list
/// GIANT_SOCKET_IFNAME that there is; else on that of the route to MASTER_ADDR; else on the first
/// that is no loopback; else on loopback. Never on all, and never link-local IPv6, which other
/// hosts cannot use. Throws UsageError where none of the listed is there.
Address own_address();

/// The same, given the two; empty where not set.
Address own_address(const std::string& interfaces, const std::string& master);

}  // namespace giant
