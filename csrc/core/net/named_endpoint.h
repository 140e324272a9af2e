#pragma once

#include "net/endpoint.h"

namespace giant {

/// open_endpoint() on a host with a given identity: how tests invent hosts.
std::unique_ptr<Endpoint> open_endpoint_of(Store& store, const EndpointOptions& options,
                                           const std::string& identity);

}  // namespace giant
