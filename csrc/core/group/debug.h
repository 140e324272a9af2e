#pragma once

#include <string_view>

namespace giant {

/// Does GIANT_DEBUG, a list with commas, hold the word?
bool is_debugging(std::string_view word);

}  // namespace giant
