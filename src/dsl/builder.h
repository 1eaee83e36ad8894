#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>

#include "lapidary/dsl.h"

// What the files of this room share of the builder.
namespace lapidary::detail {

/// The number of an operand that is known while the kernel is built.
std::optional<std::int64_t> known(const Operand& x);
/// Its value otherwise.
Value value(const Operand& x);
std::source_location where(const Operand& x);
/// A misuse in the kernel that an array belongs to.
void misuse(const Array& array, const std::source_location& where, std::string message);
/// An s32 there.
Value constant(const Array& array, std::int64_t number, const std::source_location& where);
/// The element at the array's beginning.
Element element(const Array& array, const std::source_location& where);

}  // namespace lapidary::detail
