#pragma once

#include <string>

#include "collective/algorithms.h"
#include "group/call.h"
#include "topology.h"

namespace giant {

/// The algorithm of a call: a function of the call and the shape of the group alone, so that all
/// ranks choose the same.
Choice choose(const Call& call, const Topology& topology);

/// Elements (of a block where there are several) of a chunk.
size_t chunk_elements(const Call& call, const Choice& choice, const Topology& topology);

/// What is chosen for each operation and some sizes, for people (GIANT_DEBUG=algo).
std::string table_of_choices(const Topology& topology);

}  // namespace giant
