#pragma once

#include <cstddef>
#include <cstdint>

#include "base/fd.h"

namespace giant {

/// Memory that processes share by handing on its descriptor: it has no name, and goes with its last user.
class Region {
 public:
  /// Takes the memory at once: a lack of it is an error here and not a signal later. Zeroed.
  /// Throws PeerError saying how much was asked for.
  static Region make(size_t bytes);

  /// Maps what another process made. Throws PeerError where it is smaller than `bytes`.
  static Region map(Fd fd, size_t bytes);

  Region(Region&& other) noexcept;
  Region& operator=(Region&&) = delete;
  ~Region();

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  int fd() const { return fd_.get(); }

 private:
  Region(Fd fd, size_t bytes);

  Fd fd_;
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace giant
