#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lapidary/layout.h"

// The language of `lapidary layout`: CuTe's notation, with functions, atoms and predicates around
// it.
namespace lapidary::cli {

/// A name without meaning of its own: the shape of an atom (m16n8k16) or an element type (f16).
struct Word {
  std::string text;
  bool operator==(const Word&) const = default;
};

/// What an expression means.
struct LayoutValue {
  std::variant<bool, std::int64_t, IntTuple, Layout, Swizzle, Tiler, Word> is = IntTuple();
  /// Of a thread-value map: the extents (M, N) of the tile whose elements it counts.
  std::optional<IntTuple> tile{};
};

/// "(4,8):(8,1)", "true", "17".
std::string text(const LayoutValue& value);

/// The value of an expression, or one line that says what is wrong, then the expression and a caret
/// below the place.
///   composition((20,2):(16,4), (4,5):(1,4))      S<3,4,3> o 0 o (8,64):(64,1)
///   zipped_divide((6,8):(8,1), (3,4))            mma_c(m16n8k16)
Result<LayoutValue> evaluate_layout(std::string_view expression);

/// "name(arguments)  what it is", a line a function, for the help.
std::string layout_functions_help();

/// Bits of an element type (f16, bf16, e4m3, tf32, ...) or of a plain number; `who` is the flag or
/// function that wants it.
Result<int> element_bits(std::string_view who, std::string_view type);

}  // namespace lapidary::cli
