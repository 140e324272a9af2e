#pragma once

#include <string_view>
#include <vector>

namespace giant {

/// The instruction sets that kernels are written for. `generic` is what the compiler targets
/// anyway: SSE2 on x86-64, NEON on aarch64.
enum class Isa { generic, avx2, avx512 };

/// "avx2", "avx512", and for `generic` "neon" on aarch64.
const char* name_of(Isa isa);

/// What this machine can run, the best last. Never empty.
std::vector<Isa> available_isas();

/// Empty: the best. Throws UsageError for a name that is unknown, or of no use on this machine.
Isa choose_isa(std::string_view name);

/// What GIANT_ISA asks for; read once. Throws UsageError, see choose_isa.
Isa isa_in_use();

}  // namespace giant
