#pragma once

#include <string>

#include "base/deadline.h"
#include "base/fd.h"
#include "net/address.h"

namespace giant {

/// Non-blocking, closed on exec. Throws PeerError.
Fd new_socket(int family);

/// A Unix socket without a file: abstract, of this network namespace.
Address unix_address(const std::string& name);

/// Throws PeerError.
Fd listen_on(const Address& address);

/// Where a listener of port 0 listens. Throws PeerError.
Address address_of(const Fd& listener);

/// What streams of a group have in common: messages leave at once, hosts that die are noticed.
/// False where the system refuses, as for a stream that is broken.
bool set_options(int stream, bool is_tcp);

/// Does the process at the other end of a Unix stream belong to this user?
bool is_same_user(int stream);

/// Waits until poll() reports one of `events`, an error or a hang-up; false where time is up first.
bool wait_for(int stream, short events, Deadline deadline);

}  // namespace giant
