#include "net/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace giant {
namespace {

struct Interface {
  std::string name;
  Address address;
  bool is_loopback = false;
};

Address copy_of(const sockaddr* from) {
  Address address;
  address.length = from->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&address.storage, from, address.length);
  return address;
}

/// Those that are up, IPv4 before IPv6.
std::vector<Interface> interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::vector<Interface> found;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
      if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != family) continue;
      if ((each->ifa_flags & IFF_UP) == 0) continue;
      found.push_back(
          {each->ifa_name, copy_of(each->ifa_addr), (each->ifa_flags & IFF_LOOPBACK) != 0});
    }
  }
  return found;
}

Address listed_address(const std::string& names) {
  const std::vector<Interface> all = interfaces();
  std::istringstream words(names);
  for (std::string name; std::getline(words, name, ',');) {
    for (const Interface& each : all) {
      if (each.name == name) return each.address;
    }
  }
  std::string there;
  for (const Interface& each : all) {
    if (there.find(each.name) == std::string::npos) there += (there.empty() ? "" : ", ") + each.name;
  }
  throw UsageError("GIANT_SOCKET_IFNAME is " + names + ", and there are " + there);
}

/// The own end of a route: nothing is sent to find it.
std::optional<Address> address_towards(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), "9", &wanted, &list) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  for (const addrinfo* each = list; each != nullptr; each = each->ai_next) {
    const Fd probe(socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!probe || connect(probe.get(), each->ai_addr, each->ai_addrlen) != 0) continue;
    Address own;
    own.length = sizeof own.storage;
    if (getsockname(probe.get(), own.get(), &own.length) == 0) return own;
  }
  return std::nullopt;
}

}  // namespace

void Address::set_port(uint16_t port) {
  const bool is_old = storage.ss_family == AF_INET;
  (is_old ? reinterpret_cast<sockaddr_in*>(&storage)->sin_port
          : reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port) = htons(port);
}

uint16_t Address::port() const {
  const bool is_old = storage.ss_family == AF_INET;
  return ntohs(is_old ? reinterpret_cast<const sockaddr_in*>(&storage)->sin_port
                      : reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
}

std::string Address::text() const {
  char host[NI_MAXHOST];
  if (getnameinfo(get(), length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) return "?";
  const bool is_old = storage.ss_family == AF_INET;
  return (is_old ? std::string(host) : "[" + std::string(host) + "]") + ":" +
         std::to_string(port());
}

Address own_address() {
  if (const char* const names = std::getenv("GIANT_SOCKET_IFNAME")) return listed_address(names);
  if (const char* const master = std::getenv("MASTER_ADDR")) {
    if (auto found = address_towards(master)) {
      found->set_port(0);
      return *found;
    }
  }
  const std::vector<Interface> all = interfaces();
  for (const bool is_loopback : {false, true}) {
    for (const Interface& each : all) {
      if (each.is_loopback == is_loopback) return each.address;
    }
  }
  throw UsageError("this host has no network interface");
}

}  // namespace giant
