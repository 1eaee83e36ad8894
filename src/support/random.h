#pragma once

#include <cstdint>

namespace lapidary {

/// Counter-based generator: value i of seed s is `mix(s, i)`, so any element can be made alone and
/// in parallel. The finaliser is splitmix64's (Steele, Lea, Flood: "Fast Splittable Pseudorandom
/// Number Generators", 2014).
constexpr std::uint64_t mix(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

/// Uniform in [-1, 1), exact in f32.
constexpr float uniform(std::uint64_t bits) {
  return static_cast<float>(static_cast<std::int32_t>(bits >> 32) >> 7) * 0x1p-24f;
}

/// 64 bits from the system (getrandom; std::random_device would need a newer glibc).
std::uint64_t system_random();

}  // namespace lapidary
