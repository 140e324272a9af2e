#pragma once

#include <functional>
#include <memory>
#include <string>

#include "net/address.h"
#include "net/endpoint.h"

namespace giant {

/// What an endpoint knows of its host.
struct Host {
  std::string identity;
  /// Where to listen for other hosts; asked only where there are some.
  std::function<Address()> address;
};

/// open_endpoint() on a given host: how tests invent hosts.
std::unique_ptr<Endpoint> open_endpoint_on(const Host& host, Store& store,
                                           const EndpointOptions& options);

}  // namespace giant
