#include "base/copy.h"

#include <cstdint>
#include <cstring>

namespace giant {
namespace {

constexpr size_t kLine = 64;

// Without the attribute the compiler turns the loop back into memcpy.
__attribute__((optimize("no-tree-loop-distribute-patterns"))) void copy_lines(char* target,
                                                                             const char* source,
                                                                             size_t lines) {
  for (; lines > 0; --lines, target += kLine, source += kLine) {
    char line[kLine];
    std::memcpy(line, source, kLine);
    std::memcpy(target, line, kLine);
  }
}

}  // namespace

void copy_bytes(void* target, const void* source, size_t bytes) {
  if (bytes == 0 || target == source) return;
  const auto distance = reinterpret_cast<uintptr_t>(target) - reinterpret_cast<uintptr_t>(source);
  if (distance % kLine == 0 || bytes < 8 * 1024) {
    std::memcpy(target, source, bytes);
    return;
  }
  const size_t lines = bytes / kLine;
  copy_lines(static_cast<char*>(target), static_cast<const char*>(source), lines);
  std::memcpy(static_cast<char*>(target) + lines * kLine,
              static_cast<const char*>(source) + lines * kLine, bytes % kLine);
}

}  // namespace giant
