#pragma once

#include <stdexcept>
#include <string>

namespace giant {

/// What every error of this library is.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The caller's mistake: a bad argument, or calls that do not fit together.
struct UsageError : Error {
  using Error::Error;
};

/// Another rank is gone, or broke off.
struct PeerError : Error {
  using Error::Error;
};

/// Another rank did not come in time.
struct TimeoutError : Error {
  using Error::Error;
};

}  // namespace giant
