#include "p2p/matcher.h"

namespace giant::p2p {

void Matcher::post(const TransferPtr& receive) {
  if (receive->order == 0) receive->order = ++order_;
  posted_.emplace(Key{receive->request.tag, receive->request.peer, receive->order}, receive);
}

TransferPtr Matcher::take_posted(int peer, uint64_t tag) {
  const auto first = [&](int rank) {
    const auto it = posted_.lower_bound(Key{tag, rank, 0});
    const bool fits = it != posted_.end() && std::get<0>(it->first) == tag &&
                      std::get<1>(it->first) == rank;
    return fits ? it : posted_.end();
  };
  const auto named = first(peer);
  const auto any = first(Mailbox::kAnySource);
  auto chosen = named == posted_.end() ? any : named;
  if (chosen == posted_.end()) return nullptr;
  if (any != posted_.end() && any->second->order < chosen->second->order) chosen = any;
  TransferPtr receive = std::move(chosen->second);
  posted_.erase(chosen);
  return receive;
}

bool Matcher::unpost(const Transfer& receive) {
  return posted_.erase(Key{receive.request.tag, receive.request.peer, receive.order}) > 0;
}

std::vector<TransferPtr> Matcher::take_posted_if(
    const std::function<bool(const Transfer&)>& wanted) {
  std::vector<TransferPtr> taken;
  std::erase_if(posted_, [&](const auto& entry) {
    if (!wanted(*entry.second)) return false;
    taken.push_back(entry.second);
    return true;
  });
  return taken;
}

void Matcher::keep(Arrival arrival) {
  const Key key{arrival.tag, arrival.peer, ++order_};
  arrived_.emplace(key, std::move(arrival));
}

std::optional<Arrival> Matcher::take_arrived(int peer, uint64_t tag) {
  const auto it =
      peer == Mailbox::kAnySource ? first_arrived_of_any(tag) : first_arrived(peer, tag);
  if (it == arrived_.end()) return std::nullopt;
  std::optional<Arrival> arrival(std::move(it->second));
  arrived_.erase(it);
  return arrival;
}

Matcher::Arrivals::iterator Matcher::first_arrived(int peer, uint64_t tag) {
  const auto it = arrived_.lower_bound(Key{tag, peer, 0});
  const bool fits = it != arrived_.end() && it->second.tag == tag && it->second.peer == peer;
  return fits ? it : arrived_.end();
}

Matcher::Arrivals::iterator Matcher::first_arrived_of_any(uint64_t tag) {
  auto best = arrived_.end();
  auto it = arrived_.lower_bound(Key{tag, 0, 0});
  while (it != arrived_.end() && it->second.tag == tag) {
    if (best == arrived_.end() || std::get<2>(it->first) < std::get<2>(best->first)) best = it;
    it = arrived_.lower_bound(Key{tag, it->second.peer + 1, 0});
  }
  return best;
}

bool Matcher::withdraw(int peer, uint64_t tag, uint64_t sequence) {
  auto it = first_arrived(peer, tag);
  for (; it != arrived_.end() && it->second.tag == tag && it->second.peer == peer; ++it) {
    if (it->second.sequence != sequence) continue;
    arrived_.erase(it);
    return true;
  }
  return false;
}

void Matcher::drop_announced(int peer) {
  std::erase_if(arrived_, [&](const auto& entry) {
    return entry.second.peer == peer && !entry.second.whole;
  });
}

void Matcher::clear() {
  posted_.clear();
  arrived_.clear();
}

}  // namespace giant::p2p
