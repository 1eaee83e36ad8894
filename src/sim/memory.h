#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lapidary::sim {

/// The device's global memory: arrays far apart, so that an index that leaves one meets no other.
/// Each byte knows whether it was written.
class Memory {
 public:
  /// A new array; its address, a multiple of 256 that is never 0. Bytes that are given count as
  /// written.
  std::uint64_t add(std::string name, std::span<const std::byte> contents);
  std::uint64_t add_undefined(std::string name, std::int64_t bytes);
  /// What an array holds now.
  std::span<const std::byte> contents(std::uint64_t address) const;

  struct Array {
    std::string name;
    std::uint64_t address = 0;
    std::vector<std::byte> bytes;
    std::vector<bool> written;
  };
  /// The array that holds [address, address + bytes); null when none does.
  Array* find(std::uint64_t address, std::int64_t bytes);
  /// "byte 40 behind x (4096 bytes)": what lies nearest below the address.
  std::string describe(std::uint64_t address) const;

 private:
  std::vector<Array> arrays_;  // by address
};

}  // namespace lapidary::sim
