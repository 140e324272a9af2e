#include "net/roster.h"

#include <algorithm>

#include "base/error.h"
#include "net/random.h"

namespace giant {
namespace {

constexpr char kSecretKey[] = "giant/secret";
// Once one rank is late, the others are only asked whether they are there: each for so long, all of
// them for no longer than that.
constexpr milliseconds kAsking{100};
constexpr milliseconds kAskingAll{5000};

std::string key_of(const char* what, int rank) {
  return std::string("giant/") + what + "/" + std::to_string(rank);
}

Bytes bytes_of(const std::string& text) { return Bytes(text.begin(), text.end()); }

std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

[[noreturn]] void throw_missing(const std::vector<int>& missing, bool asked_all,
                                milliseconds timeout) {
  std::string text = missing.size() == 1 && asked_all ? "rank " : "ranks ";
  for (size_t i = 0; i < missing.size(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(missing[i]);
  if (!asked_all) text += " and perhaps more";
  throw TimeoutError(text + " did not join within " + in_words(timeout));
}

std::vector<std::string> collect(Store& store, const char* what, const EndpointOptions& options,
                                 Deadline deadline) {
  std::vector<std::string> found(options.size);
  std::vector<int> missing;
  Deadline asking = deadline;
  for (int rank = 0; rank < options.size; ++rank) {
    if (!missing.empty() && asking.expired()) throw_missing(missing, false, options.timeout);
    try {
      const Bytes bytes = store.get(key_of(what, rank),
                                    missing.empty() ? deadline : Deadline::after(kAsking));
      found[rank].assign(bytes.begin(), bytes.end());
    } catch (const TimeoutError&) {
      if (missing.empty()) asking = Deadline::after(kAskingAll);
      missing.push_back(rank);
    }
  }
  if (!missing.empty()) throw_missing(missing, true, options.timeout);
  return found;
}

/// The first line: both sides of a handshake must speak the same.
std::string protocol() { return "giant " + std::to_string(Hello::kVersion); }

Member parse_member(int rank, const std::string& text) {
  const size_t first = text.find('\n');
  const size_t last = text.rfind('\n');
  if (text.substr(0, first) != protocol())
    throw PeerError(rank_text(rank) + " runs another version of giantdsl: it does not speak \"" +
                    protocol() + "\"");
  // An identity may hold line breaks, a name has none.
  if (first == last) throw PeerError("the store holds no name of " + rank_text(rank));
  return {text.substr(first + 1, last - first - 1), text.substr(last + 1)};
}

}  // namespace

std::vector<Member> exchange_members(Store& store, const EndpointOptions& options,
                                     const Member& own, Deadline deadline) {
  if (options.rank == 0) {
    Secret secret;
    fill_random(secret.data(), secret.size());
    store.set(kSecretKey, Bytes(secret.begin(), secret.end()));
  }
  store.set(key_of("rank", options.rank),
            bytes_of(protocol() + "\n" + own.identity + "\n" + own.socket_name));
  std::vector<Member> members;
  for (const std::string& text : collect(store, "rank", options, deadline))
    members.push_back(parse_member(static_cast<int>(members.size()), text));
  return members;
}

Secret read_secret(Store& store, Deadline deadline) {
  const Bytes found = store.get(kSecretKey, deadline);
  Secret secret;
  if (found.size() != secret.size()) throw PeerError("the store holds no secret of a group");
  std::copy(found.begin(), found.end(), secret.begin());
  return secret;
}

std::vector<Address> exchange_addresses(Store& store, const EndpointOptions& options,
                                        const Address& own, Deadline deadline) {
  store.set(key_of("address", options.rank), bytes_of(own.text()));
  std::vector<Address> addresses;
  for (const std::string& text : collect(store, "address", options, deadline)) {
    try {
      addresses.push_back(parse_address(text));
    } catch (const UsageError& error) {
      const int rank = static_cast<int>(addresses.size());
      throw PeerError("the store holds no address of " + rank_text(rank) + ": " + error.what());
    }
  }
  return addresses;
}

}  // namespace giant
