#include "net/endpoint.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>

#include "base/error.h"
#include "net/address.h"
#include "net/handshake.h"
#include "net/identity.h"
#include "net/listener.h"
#include "net/named_endpoint.h"
#include "net/random.h"
#include "net/socket.h"

namespace giant {
namespace {

constexpr char kSecret[] = "giant/secret";

std::string key_of(const char* what, int rank) {
  return std::string("giant/") + what + "/" + std::to_string(rank);
}

Bytes bytes_of(const std::string& text) { return Bytes(text.begin(), text.end()); }

/// What every rank says of itself, in rank order. Throws TimeoutError naming all that are missing.
std::vector<Bytes> collect(Store& store, const char* what, const EndpointOptions& options,
                           Deadline deadline) {
  std::vector<Bytes> found(options.size);
  std::string missing;
  for (int rank = 0; rank < options.size; ++rank) {
    try {
      // Once one is late, it is only asked who else is.
      const Deadline until = missing.empty() ? deadline : Deadline::after(milliseconds(100));
      found[rank] = store.get(key_of(what, rank), until);
    } catch (const TimeoutError&) {
      missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  if (!missing.empty())
    throw TimeoutError("rank " + missing + " did not join within " +
                       std::to_string(options.timeout.count() / 1000) + " s");
  return found;
}

std::string new_name() {
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

/// Rank 0 makes it.
Secret share_secret(Store& store, int rank, Deadline deadline) {
  Secret secret;
  if (rank == 0) {
    fill_random(secret.data(), secret.size());
    store.set(kSecret, Bytes(secret.begin(), secret.end()));
    return secret;
  }
  const Bytes found = store.get(kSecret, deadline);
  if (found.size() != secret.size()) throw PeerError("the store holds no secret of a group");
  std::copy(found.begin(), found.end(), secret.begin());
  return secret;
}

Address address_from(const Bytes& bytes) {
  Address address;
  if (bytes.empty() || bytes.size() > sizeof address.storage)
    throw PeerError("the store holds no address of a rank");
  std::memcpy(&address.storage, bytes.data(), bytes.size());
  address.length = static_cast<socklen_t>(bytes.size());
  return address;
}

class NetEndpoint : public Endpoint {
 public:
  NetEndpoint(Store& store, const EndpointOptions& options, const std::string& identity)
      : rank_(options.rank), size_(options.size) {
    const Deadline deadline = Deadline::after(options.timeout);
    secret_ = share_secret(store, rank_, deadline);
    const std::string name = new_name();
    listeners_.emplace_back(listen_on(unix_address(name)), false, secret_, rank_, size_);
    store.set(key_of("rank", rank_), bytes_of(identity + "\n" + name));
    for (const Bytes& each : collect(store, "rank", options, deadline)) {
      const std::string text(each.begin(), each.end());
      const size_t line = text.rfind('\n');
      if (line == std::string::npos) throw PeerError("the store holds no name of a rank");
      identities_.push_back(text.substr(0, line));
      names_.push_back(text.substr(line + 1));
    }
    const auto differs = [&](const std::string& each) { return each != identities_[0]; };
    if (std::none_of(identities_.begin(), identities_.end(), differs)) return;
    Fd listener = listen_on(own_address());
    const Address own = address_of(listener);
    listeners_.emplace_back(std::move(listener), true, secret_, rank_, size_);
    const auto* const start = reinterpret_cast<const uint8_t*>(&own.storage);
    store.set(key_of("address", rank_), Bytes(start, start + own.length));
    for (const Bytes& each : collect(store, "address", options, deadline))
      addresses_.push_back(address_from(each));
  }

  const std::vector<std::string>& identities() const override { return identities_; }

  Fd connect(int peer, Purpose purpose, Deadline deadline) override {
    if (peer == rank_ || peer < 0 || peer >= size_)
      throw UsageError("rank " + std::to_string(rank_) + " cannot connect to rank " +
                       std::to_string(peer) + " of " + std::to_string(size_));
    const bool is_here = identities_[peer] == identities_[rank_];
    const Address address = is_here ? unix_address(names_[peer]) : addresses_[peer];
    const std::string whom =
        "rank " + std::to_string(peer) + (is_here ? " of this host" : " at " + address.text());
    Fd stream = connect_to(address, whom, deadline);
    if (is_here && !is_same_user(stream.get()))
      throw PeerError(whom + " belongs to another user");
    try {
      prove(stream.get(), peer, purpose, deadline);
    } catch (const TimeoutError& error) {
      throw TimeoutError(whom + ": " + error.what());
    } catch (const PeerError& error) {
      throw PeerError(whom + ": " + error.what());
    }
    return stream;
  }

  std::vector<int> pollable() const override {
    std::vector<int> list;
    for (const Listener& each : listeners_) each.add_pollable(list);
    return list;
  }

  std::vector<Accepted> accept() override {
    std::vector<Accepted> found;
    for (Listener& each : listeners_) each.accept(found);
    return found;
  }

 private:
  void prove(int stream, int peer, Purpose purpose, Deadline deadline) const {
    const Hello hello = make_hello(rank_, peer, purpose);
    write_all(stream, &hello, sizeof hello, deadline);
    Answer answer;
    read_all(stream, &answer, sizeof answer, deadline);
    if (!is_right(secret_, hello, answer)) throw PeerError("it does not know the group's secret");
    const Digest proof = make_proof(secret_, hello, answer);
    write_all(stream, proof.data(), proof.size(), deadline);
  }

  int rank_, size_;
  Secret secret_{};
  std::vector<Listener> listeners_;
  std::vector<std::string> identities_, names_;
  std::vector<Address> addresses_;
};

}  // namespace

std::unique_ptr<Endpoint> open_endpoint_of(Store& store, const EndpointOptions& options,
                                           const std::string& identity) {
  return std::make_unique<NetEndpoint>(store, options, identity);
}

std::unique_ptr<Endpoint> open_endpoint(Store& store, const EndpointOptions& options) {
  return open_endpoint_of(store, options, host_identity());
}

}  // namespace giant
