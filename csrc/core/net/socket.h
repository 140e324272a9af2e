#pragma once

#include <string>

#include "base/deadline.h"
#include "base/fd.h"
#include "net/address.h"

namespace giant {

/// A Unix socket without a file: abstract, of this network namespace.
Address unix_address(const std::string& name);

/// Non-blocking, closed on exec. Throws PeerError.
Fd listen_on(const Address& address);

/// Where a listener of port 0 listens.
Address address_of(const Fd& listener);

/// A non-blocking stream. Tries again while nobody listens yet. Throws PeerError, TimeoutError with
/// `whom` in their text.
Fd connect_to(const Address& address, const std::string& whom, Deadline deadline);

/// What streams of a group have in common: messages leave at once, dead peers are noticed.
void set_options(int stream, bool is_tcp);

/// Does the process at the other end of a Unix stream belong to this user?
bool is_same_user(int stream);

// Whole messages over non-blocking streams. Throw PeerError, TimeoutError.
void write_all(int stream, const void* data, size_t bytes, Deadline deadline);
void read_all(int stream, void* data, size_t bytes, Deadline deadline);

}  // namespace giant
