#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "p2p/transfer.h"

namespace giant::p2p {

using TransferPtr = std::shared_ptr<Transfer>;

/// A message that is there before its receive: whole on the heap, or announced, or, from this very
/// rank, still in its sender's memory.
struct Arrival {
  int peer = 0;
  uint64_t tag = 0;
  uint64_t sequence = 0;
  size_t bytes = 0;
  bool whole = false;
  std::unique_ptr<char[]> payload{};
  TransferPtr own_send{};
};

/// Brings receives and messages together: first come, first served among those of a peer and tag.
/// A receive from any source takes the message that came first.
class Matcher {
 public:
  /// One that was posted before has its old place.
  void post(const TransferPtr& receive);
  /// The receive that a message from `peer` belongs to, no longer posted; or null.
  TransferPtr take_posted(int peer, uint64_t tag);
  /// False where it is not posted.
  bool unpost(const Transfer& receive);
  /// The posted receives that `wanted` says yes to, no longer posted.
  std::vector<TransferPtr> take_posted_if(const std::function<bool(const Transfer&)>& wanted);

  void keep(Arrival arrival);
  std::optional<Arrival> take_arrived(int peer, uint64_t tag);
  /// False where there is no such message.
  bool withdraw(int peer, uint64_t tag, uint64_t sequence);
  /// Forgets what `peer` announced and can send no more.
  void drop_announced(int peer);
  void clear();

 private:
  using Key = std::tuple<uint64_t, int, uint64_t>;  // tag, peer, order
  using Arrivals = std::map<Key, Arrival>;

  Arrivals::iterator first_arrived(int peer, uint64_t tag);
  Arrivals::iterator first_arrived_of_any(uint64_t tag);

  std::map<Key, TransferPtr> posted_;
  Arrivals arrived_;
  uint64_t order_ = 0;
};

}  // namespace giant::p2p
