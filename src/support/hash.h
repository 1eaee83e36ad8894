#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lapidary {

/// XXH3, 64 bits: for tables in memory and for comparing buffers of one process.
std::uint64_t hash64(std::span<const std::byte> bytes, std::uint64_t seed = 0);
std::uint64_t hash64(std::string_view text, std::uint64_t seed = 0);

/// SHA-256 as 64 hex digits: for everything that is stored.
std::string sha256_hex(std::string_view text);

}  // namespace lapidary
