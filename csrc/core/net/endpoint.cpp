#include "net/endpoint.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "net/connector.h"
#include "net/identity.h"
#include "net/listener.h"
#include "net/named_endpoint.h"
#include "net/random.h"
#include "net/roster.h"
#include "net/socket.h"

namespace giant {
namespace {

/// No other process of this network namespace guesses it.
std::string new_socket_name() {
  std::array<uint8_t, 16> bytes;
  fill_random(bytes.data(), bytes.size());
  std::string name = "giant-";
  for (const uint8_t byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    name += kDigits[byte >> 4];
    name += kDigits[byte & 15];
  }
  return name;
}

void check_options(const EndpointOptions& options) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size)
    throw UsageError("rank " + std::to_string(options.rank) + " of " +
                     std::to_string(options.size) + " there cannot be");
}

class NetEndpoint : public Endpoint {
 public:
  /// `targets` has an entry for each rank; the own one is not used.
  NetEndpoint(int rank, const Secret& secret, std::vector<std::string> identities,
              std::vector<Target> targets, Listener listener)
      : rank_(rank),
        secret_(secret),
        identities_(std::move(identities)),
        targets_(std::move(targets)),
        listener_(std::move(listener)) {}

  const std::vector<std::string>& identities() const override { return identities_; }

  // Only reads what never changes: any number of threads may connect, and another accept.
  Fd connect(int peer, Purpose purpose, Deadline deadline) override {
    if (peer == rank_ || peer < 0 || peer >= static_cast<int>(targets_.size()))
      throw UsageError("rank " + std::to_string(rank_) + " cannot connect to rank " +
                       std::to_string(peer) + " of " + std::to_string(targets_.size()));
    return connect_to(targets_[peer], secret_, rank_, purpose, deadline);
  }

  std::vector<int> pollable() const override { return {listener_.pollable()}; }

  std::vector<Accepted> accept() override {
    std::vector<Accepted> found;
    listener_.accept(found);
    return found;
  }

 private:
  const int rank_;
  const Secret secret_;
  const std::vector<std::string> identities_;
  const std::vector<Target> targets_;
  Listener listener_;
};

}  // namespace

std::unique_ptr<Endpoint> open_endpoint_on(const Host& host, Store& store,
                                           const EndpointOptions& options) {
  check_options(options);
  const Deadline deadline = Deadline::after(options.timeout);
  const Member own{host.identity, new_socket_name()};
  Fd unix_socket = listen_on(unix_address(own.socket_name));
  const std::vector<Member> members = exchange_members(store, options, own, deadline);
  const Secret secret = read_secret(store, deadline);
  Listener listener(secret, options.rank, options.size);
  listener.add(std::move(unix_socket), false);

  std::vector<Address> addresses(options.size);
  const auto is_elsewhere = [&](const Member& each) {
    return each.identity != members[0].identity;
  };
  if (std::any_of(members.begin(), members.end(), is_elsewhere)) {
    Fd socket = listen_on(host.address());
    const Address bound = address_of(socket);
    listener.add(std::move(socket), true);
    addresses = exchange_addresses(store, options, bound, deadline);
  }

  std::vector<std::string> identities;
  std::vector<Target> targets;
  for (int rank = 0; rank < options.size; ++rank) {
    const Member& each = members[rank];
    const std::string name = "rank " + std::to_string(rank);
    if (each.identity == own.identity)
      targets.push_back({rank, unix_address(each.socket_name), name + " of this host"});
    else
      targets.push_back({rank, addresses[rank], name + " at " + addresses[rank].text()});
    identities.push_back(each.identity);
  }
  return std::make_unique<NetEndpoint>(options.rank, secret, std::move(identities),
                                       std::move(targets), std::move(listener));
}

std::unique_ptr<Endpoint> open_endpoint(Store& store, const EndpointOptions& options) {
  return open_endpoint_on({host_identity(), [] { return own_address(); }}, store, options);
}

}  // namespace giant
