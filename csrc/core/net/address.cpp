#include "net/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
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

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

struct Interface {
  std::string name;
  Address address;
  bool is_loopback = false;
};

bool is_usable(const sockaddr* address, int family) {
  if (address == nullptr || address->sa_family != family) return false;
  if (family != AF_INET6) return true;
  return !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

bool is_loopback(const Address& address) {
  if (address.storage.ss_family == AF_INET) {
    const auto& old = reinterpret_cast<const sockaddr_in&>(address.storage);
    return ntohl(old.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr);
}

Address without_port(const sockaddr* from) {
  Address address;
  address.length = from->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&address.storage, from, address.length);
  if (from->sa_family == AF_INET)
    reinterpret_cast<sockaddr_in&>(address.storage).sin_port = 0;
  else
    reinterpret_cast<sockaddr_in6&>(address.storage).sin6_port = 0;
  return address;
}

AddressList resolve(const std::string& host, const char* port, int flags) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_DGRAM;
  wanted.ai_flags = flags;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), port, &wanted, &list) != 0) list = nullptr;
  return {list, [](addrinfo* each) {
            if (each != nullptr) freeaddrinfo(each);
          }};
}

/// Those that are up, IPv4 before IPv6.
std::vector<Interface> interfaces_there() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::vector<Interface> found;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
      if (!is_usable(each->ifa_addr, family) || (each->ifa_flags & IFF_UP) == 0) continue;
      found.push_back(
          {each->ifa_name, without_port(each->ifa_addr), (each->ifa_flags & IFF_LOOPBACK) != 0});
    }
  }
  return found;
}

std::string names_of(const std::vector<Interface>& all) {
  std::vector<std::string> names;
  for (const Interface& each : all) {
    if (std::find(names.begin(), names.end(), each.name) == names.end()) names.push_back(each.name);
  }
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

Address listed_address(const std::string& names) {
  const std::vector<Interface> all = interfaces_there();
  std::istringstream words(names);
  for (std::string name; std::getline(words, name, ',');) {
    const auto at = std::find_if(all.begin(), all.end(),
                                 [&](const Interface& each) { return each.name == name; });
    if (at != all.end()) return at->address;
  }
  throw UsageError("GIANT_SOCKET_IFNAME is " + names + "; interfaces that have an address are: " +
                   names_of(all));
}

/// The own end of the route: nothing is sent to find it.
std::optional<Address> address_towards(const std::string& host) {
  const AddressList list = resolve(host, "9", 0);
  for (const addrinfo* each = list.get(); each != nullptr; each = each->ai_next) {
    const Fd probe(socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!probe || connect(probe.get(), each->ai_addr, each->ai_addrlen) != 0) continue;
    Address own;
    own.length = sizeof own.storage;
    if (getsockname(probe.get(), own.get(), &own.length) != 0) continue;
    if (is_usable(own.get(), own.storage.ss_family)) return without_port(own.get());
  }
  return std::nullopt;
}

bool is_named_loopback(const std::string& host) {
  if (host == "localhost") return true;
  const AddressList list = resolve(host, nullptr, AI_NUMERICHOST);
  return list && is_loopback(without_port(list->ai_addr));
}

std::string value_of(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string Address::text() const {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  const int error = getnameinfo(get(), length, host, sizeof host, port, sizeof port,
                                NI_NUMERICHOST | NI_NUMERICSERV);
  if (error != 0) throw UsageError(std::string("an address has no text: ") + gai_strerror(error));
  const bool is_new = storage.ss_family == AF_INET6;
  return (is_new ? "[" + std::string(host) + "]" : std::string(host)) + ":" + port;
}

Address parse_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) throw UsageError("no address: " + text);
  std::string host = text.substr(0, colon);
  const char* const end = text.data() + text.size();
  uint16_t port = 0;
  const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, port);
  if (error != std::errc() || rest != end) throw UsageError("no port: " + text);
  Address address;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    auto& to = reinterpret_cast<sockaddr_in6&>(address.storage);
    to.sin6_family = AF_INET6;
    to.sin6_port = htons(port);
    address.length = sizeof to;
    if (inet_pton(AF_INET6, host.c_str(), &to.sin6_addr) == 1) return address;
  } else {
    auto& to = reinterpret_cast<sockaddr_in&>(address.storage);
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    address.length = sizeof to;
    if (inet_pton(AF_INET, host.c_str(), &to.sin_addr) == 1) return address;
  }
  throw UsageError("no address: " + text);
}

Address own_address(const std::string& interfaces, const std::string& master) {
  if (!interfaces.empty()) return listed_address(interfaces);
  if (!master.empty()) {
    const auto found = address_towards(master);
    // On the master itself its name often means loopback (/etc/hosts), of no use to other hosts.
    if (found && (!is_loopback(*found) || is_named_loopback(master))) return *found;
  }
  const std::vector<Interface> all = interfaces_there();
  const auto first = std::find_if(all.begin(), all.end(),
                                  [](const Interface& each) { return !each.is_loopback; });
  if (first != all.end()) return first->address;
  if (all.empty()) throw UsageError("this host has no network interface with an address");
  return all.front().address;
}

Address own_address() {
  return own_address(value_of("GIANT_SOCKET_IFNAME"), value_of("MASTER_ADDR"));
}

}  // namespace giant
