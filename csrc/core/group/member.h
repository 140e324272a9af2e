#pragma once

#include <memory>

#include "group/group.h"
#include "group/links.h"

namespace giant {

/// The group of ranks that have met: how tests make one of threads.
std::unique_ptr<Group> make_group(Links links, const GroupOptions& options);

}  // namespace giant
