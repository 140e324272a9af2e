#include "reduce/isa.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/error.h"

namespace giant {
namespace {

// None but these are used: kernels may not ask for more.
bool runs_here(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  if (isa == Isa::avx512) return runs_here(Isa::avx2) && __builtin_cpu_supports("avx512f");
#endif
  return isa == Isa::generic;
}

bool is_named(Isa isa, std::string_view name) {
  return name == name_of(isa) || (isa == Isa::generic && name == "generic");
}

std::string list(const std::vector<Isa>& isas) {
  std::string names;
  for (const Isa isa : isas) names += (names.empty() ? "" : ", ") + std::string(name_of(isa));
  return names;
}

}  // namespace

const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
    case Isa::generic: break;
  }
#if defined(__aarch64__)
  return "neon";
#else
  return "generic";
#endif
}

std::vector<Isa> available_isas() {
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512})
    if (runs_here(isa)) isas.push_back(isa);
  return isas;
}

Isa choose_isa(std::string_view name) {
  const std::vector<Isa> isas = available_isas();
  if (name.empty()) return isas.back();
  const auto found =
      std::find_if(isas.begin(), isas.end(), [&](Isa isa) { return is_named(isa, name); });
  if (found == isas.end())
    throw UsageError("GIANT_ISA is \"" + std::string(name) + "\": this machine has " + list(isas));
  return *found;
}

Isa isa_in_use() {
  static const Isa isa = [] {
    const char* name = std::getenv("GIANT_ISA");
    return choose_isa(name ? name : "");
  }();
  return isa;
}

}  // namespace giant
