#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "ir/kernel.h"

// What a signature of the table says, taken apart.
namespace lapidary::ir {

/// Sets of scalar types that a signature names.
enum class Class : std::uint8_t { any, bits, number, integer, floating, word, logic };
bool contains(Class c, Scalar type);
std::string_view name(Class c);

/// One operand, or the result.
struct Slot {
  enum class Kind : std::uint8_t { letter, scalar, pointer, tile, element_of, same_as };
  std::string_view name;  ///< empty for a result
  Kind kind = Kind::letter;
  char letter = 0;               ///< 0: a type of its own ("any")
  Class limit = Class::any;      ///< of a letter
  Scalar scalar = Scalar::pred;  ///< of Kind::scalar
  std::string_view of;           ///< the operand that element_of and same_as speak of
};
struct Signature {
  std::vector<Slot> operands;
  bool variadic = false;
  std::vector<std::string_view> attributes, regions;
  std::optional<Slot> result;
};
const Signature& signature(Opcode code);

}  // namespace lapidary::ir
