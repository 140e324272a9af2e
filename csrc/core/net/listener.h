#pragma once

#include <optional>
#include <vector>

#include "base/fd.h"
#include "net/endpoint.h"
#include "net/handshake.h"

namespace giant {

/// Takes connections and lets those through that prove themselves. Strangers are dropped: who has
/// not proven itself in `patience`, who says what is no hello or has no proof, the oldest where
/// there are too many.
class Listener {
 public:
  static constexpr milliseconds kPatience{10000};
  static constexpr size_t kMostStrangers = 64;  // and one for each rank

  Listener(const Secret& secret, int own, int size, milliseconds patience = kPatience);

  /// Takes connections of this socket, which listens, from now on.
  void add(Fd socket, bool is_tcp);

  /// Readable when `accept` has something to do, be it to drop strangers; always the same one.
  int pollable() const { return events_.get(); }

  /// Never blocks. Throws PeerError where the process has had no descriptors left for `patience`.
  void accept(std::vector<Accepted>& found);

  size_t num_strangers() const { return strangers_.size(); }

 private:
  struct Socket {
    Fd fd;
    bool is_tcp;
  };
  struct Stranger {
    Fd stream;
    Deadline until;
    Handshake handshake;
  };
  enum class Progress { waits, proven, dropped };

  void watch(int fd);
  /// Before it is closed: epoll goes on watching where a forked child has a copy.
  void unwatch(int fd);
  void handle(int fd, std::vector<Accepted>& found);
  void take_new(const Socket& socket, std::vector<Accepted>& found);
  void admit(Fd stream, bool is_tcp, std::vector<Accepted>& found);
  /// True where the stranger's story is over: it has been let through or dropped.
  bool settle(Stranger& stranger, std::vector<Accepted>& found);
  Progress advance(Stranger& stranger) const;
  void drop_expired(std::vector<Accepted>& found);
  void drop_oldest();
  void starve(int error);
  void feed();
  void set_timer();

  Secret secret_;
  int own_, size_;
  milliseconds patience_;
  Fd events_, timer_;
  std::vector<Socket> sockets_;
  std::vector<Stranger> strangers_;  // oldest first
  // While the process has no descriptors left:
  std::optional<Deadline> pause_;    // do not try before
  std::optional<Deadline> give_up_;  // since the first try that failed
};

}  // namespace giant
