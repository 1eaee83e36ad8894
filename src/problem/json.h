#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/result.h"

namespace lapidary::problem {

/// A JSON value as it was written: whole numbers apart from others, members in file order. What
/// comes from outside is read through this: a key that stands twice and a nesting deeper than 64
/// are errors.
struct JsonValue {
  enum class Kind { null, boolean, integer, real, string, array, object };

  Kind kind = Kind::null;
  bool boolean = false;
  std::int64_t integer = 0;
  double real = 0;                                           ///< of an integer, too
  std::string string{};                                      ///< of a real, too: as written, "1e3"
  std::vector<JsonValue> items{};                            ///< of an array
  std::vector<std::pair<std::string, JsonValue>> members{};  ///< of an object

  bool is(Kind wanted) const { return kind == wanted; }
  /// The member of that name, or null.
  const JsonValue* find(std::string_view name) const;
};

/// Reads one JSON value and nothing after it. The message is without its source, which the caller
/// knows.
Result<JsonValue> read_json(std::string_view text);

/// The value as messages show it: 16.5, 'nt', [1, 2], {...}; long ones are cut.
std::string shown(const JsonValue& value);

/// A JSON string with its quotes. Control characters and quotes are escaped, bytes that are no
/// UTF-8 become U+FFFD.
std::string json_quoted(std::string_view text);

/// Shortest decimal that reads back as the same double; JSON has no infinities and NaNs: null.
std::string json_number(double number);

}  // namespace lapidary::problem
