#pragma once

#include <algorithm>
#include <chrono>
#include <string>

namespace giant {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// "1 s", "250 ms".
inline std::string in_words(milliseconds time) {
  if (time.count() % 1000 == 0) return std::to_string(time.count() / 1000) + " s";
  return std::to_string(time.count()) + " ms";
}

/// A point in time until which something is waited for.
class Deadline {
 public:
  static Deadline after(milliseconds time) { return Deadline(time); }

  /// How long it was when it was set.
  milliseconds given() const { return given_; }

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
  explicit Deadline(milliseconds given) : given_(given), at_(Clock::now() + given) {}

  milliseconds given_;
  Clock::time_point at_;
};

}  // namespace giant
