#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace giant {

using Digest = std::array<uint8_t, 32>;

/// FIPS 180-4.
Digest sha256(std::span<const uint8_t> data);

/// HMAC-SHA256, RFC 2104.
Digest hmac_sha256(std::span<const uint8_t> key, std::span<const uint8_t> data);

/// Takes as long whatever the bytes are.
bool equal_in_constant_time(const Digest& a, const Digest& b);

}  // namespace giant
