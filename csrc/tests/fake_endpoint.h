#pragma once

#include <memory>
#include <string>
#include <vector>

#include "net/endpoint.h"

/// Ranks as threads of one process: what they connect is a socketpair, or a TCP connection of this
/// machine with itself where their hosts differ.
///
/// The endpoints may outlive the network object.
class FakeNetwork {
 public:
  /// One invented host identity for each rank, in rank order.
  explicit FakeNetwork(std::vector<std::string> identities);

  /// The endpoint of a rank, once for each.
  std::unique_ptr<giant::Endpoint> endpoint(int rank);

  /// While held, connections to `rank` wait until their deadline.
  void hold(int rank, bool held);

  /// A stream that `to` takes for one of `from`, to write on it whatever one likes.
  giant::Fd dial(int from, int to, giant::Purpose purpose = giant::Purpose::mail);

  struct State;

 private:
  std::shared_ptr<State> state_;
};
