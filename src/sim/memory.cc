#include "sim/memory.h"

#include <fmt/format.h>

#include <algorithm>

namespace lapidary::sim {
namespace {

// Far below 2^32, a stray 32-bit number is no address.
constexpr std::uint64_t kFirst = std::uint64_t{1} << 40, kGap = std::uint64_t{1} << 36;

}  // namespace

std::uint64_t Memory::add(std::string name, std::span<const std::byte> contents) {
  const std::uint64_t address = add_undefined(std::move(name), std::ssize(contents));
  Array& array = arrays_.back();
  array.bytes.assign(contents.begin(), contents.end());
  array.written.assign(contents.size(), true);
  return address;
}

std::uint64_t Memory::add_undefined(std::string name, std::int64_t bytes) {
  const std::uint64_t address = kFirst + arrays_.size() * kGap;
  const auto size = static_cast<std::size_t>(bytes);
  // What nobody wrote is a NaN in every type, so that it shows where it is used all the same.
  arrays_.push_back({std::move(name), address, std::vector<std::byte>(size, std::byte{0xff}),
                     std::vector<bool>(size, false)});
  return address;
}

std::span<const std::byte> Memory::contents(std::uint64_t address) const {
  for (const Array& array : arrays_) {
    if (array.address == address) return array.bytes;
  }
  return {};
}

Memory::Array* Memory::find(std::uint64_t address, std::int64_t bytes) {
  if (address < kFirst) return nullptr;
  const std::uint64_t index = (address - kFirst) / kGap;
  if (index >= arrays_.size()) return nullptr;
  Array& array = arrays_[index];
  const std::uint64_t offset = address - array.address;
  return offset + static_cast<std::uint64_t>(bytes) <= array.bytes.size() ? &array : nullptr;
}

std::string Memory::describe(std::uint64_t address) const {
  for (const Array& array : arrays_) {
    // An index a little below the first element belongs to it as well.
    const auto offset = static_cast<std::int64_t>(address - array.address);
    if (offset >= -static_cast<std::int64_t>(kGap / 2) &&
        offset < static_cast<std::int64_t>(kGap / 2))
      return fmt::format("byte {} of {}, which has {}", offset, array.name, array.bytes.size());
  }
  return fmt::format("address {:#x}, where there is no array", address);
}

}  // namespace lapidary::sim
