#include "group/debug.h"

#include <cstdlib>

namespace giant {

bool is_debugging(std::string_view word) {
  const char* const text = std::getenv("GIANT_DEBUG");
  if (text == nullptr) return false;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    if (rest.substr(0, comma) == word) return true;
    if (comma == std::string_view::npos) return false;
    rest.remove_prefix(comma + 1);
  }
  return false;
}

}  // namespace giant
