#pragma once

#include <cstdint>
#include <vector>

#include "base/fd.h"
#include "net/endpoint.h"
#include "net/handshake.h"

namespace giant {

/// Takes connections and lets those through that prove themselves. Strangers are dropped: who says nothing
/// in kPatience, says what is no hello, or has no proof; the oldest where there are too many.
class Listener {
 public:
  static constexpr milliseconds kPatience{10000};
  static constexpr size_t kMostStrangers = 256;

  Listener(Fd listener, bool is_tcp, const Secret& secret, int own, int size);

  void add_pollable(std::vector<int>& list) const;
  /// Never blocks.
  void accept(std::vector<Accepted>& found);

 private:
  struct Stranger {
    Fd stream;
    Deadline until;
    Hello hello;
    Answer answer;
    Digest proof;
    size_t got = 0;  // of hello and proof together
  };
  enum class State { open, proven, dropped };

  void take_new();
  State advance(Stranger& stranger) const;

  Fd listener_;
  bool is_tcp_;
  Secret secret_;
  int own_, size_;
  std::vector<Stranger> strangers_;
};

}  // namespace giant
