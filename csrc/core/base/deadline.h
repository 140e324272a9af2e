#pragma once

#include <algorithm>
#include <chrono>

namespace giant {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// A point in time until which something is waited for.
class Deadline {
 public:
  static Deadline after(milliseconds time) { return Deadline(Clock::now() + time); }

  bool expired() const { return Clock::now() >= at_; }

  /// Never negative.
  milliseconds remaining() const {
    const auto rest = std::chrono::ceil<milliseconds>(at_ - Clock::now());
    return std::max(rest, milliseconds(0));
  }

  /// The earlier of what remains and `most`, in the unit of poll().
  int poll_ms(milliseconds most) const {
    return static_cast<int>(std::min(remaining(), most).count());
  }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}

  Clock::time_point at_;
};

}  // namespace giant
