#include "problem/json.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

namespace lapidary::problem {
namespace {

constexpr std::size_t kMaxDepth = 64;

/// Receives nlohmann's events and builds the value. The library's own tree would lose how numbers
/// were written and that a key stood twice.
class Builder {
 public:
  JsonValue root;
  std::string error;

  bool null() { return add({}); }
  bool boolean(bool value) { return add({.kind = JsonValue::Kind::boolean, .boolean = value}); }
  bool number_integer(std::int64_t value) {
    return add(
        {.kind = JsonValue::Kind::integer, .integer = value, .real = static_cast<double>(value)});
  }
  bool number_unsigned(std::uint64_t value) {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return number_float(static_cast<double>(value), std::to_string(value));
    }
    return number_integer(static_cast<std::int64_t>(value));
  }
  bool number_float(double value, const std::string& written) {
    return add({.kind = JsonValue::Kind::real, .real = value, .string = written});
  }
  bool string(std::string& value) {
    return add({.kind = JsonValue::Kind::string, .string = std::move(value)});
  }
  bool binary(std::vector<std::uint8_t>&) { return false; }
  bool start_object(std::size_t) { return open(JsonValue::Kind::object); }
  bool end_object() { return close(); }
  bool start_array(std::size_t) { return open(JsonValue::Kind::array); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    if (!keys_.back().insert(name).second) {
      const std::string quoted = json_quoted(name);
      error = fmt::format("key '{}': stands twice in one object; keep one",
                          quoted.substr(1, quoted.size() - 2));
      return false;
    }
    key_ = std::move(name);
    return true;
  }
  template <class Exception>
  bool parse_error(std::size_t, const std::string&, const Exception& exception) {
    // "[json.exception.parse_error.101] parse error at line 1, column 5: ..."
    const std::string_view what = exception.what();
    const std::size_t at = what.find("] ");
    error = at == std::string_view::npos ? what : what.substr(at + 2);
    return false;
  }

 private:
  /// Where the next value goes: the root, an array's end, or behind the key just read.
  JsonValue& slot() {
    if (open_.empty()) return root;
    JsonValue& parent = *open_.back();
    if (parent.kind == JsonValue::Kind::array) return parent.items.emplace_back();
    return parent.members.emplace_back(std::move(key_), JsonValue{}).second;
  }
  bool add(JsonValue value) {
    slot() = std::move(value);
    return true;
  }
  bool open(JsonValue::Kind kind) {
    if (open_.size() >= kMaxDepth) {
      error = fmt::format("nests deeper than {} levels", kMaxDepth);
      return false;
    }
    JsonValue& mine = slot();
    mine.kind = kind;
    open_.push_back(&mine);  // stays in place: its parent grows only after it is closed
    keys_.emplace_back();
    return true;
  }
  bool close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  std::vector<JsonValue*> open_;
  std::vector<std::set<std::string>> keys_;  // of the open objects
  std::string key_;
};

}  // namespace

const JsonValue* JsonValue::find(std::string_view name) const {
  for (const auto& [key, value] : members) {
    if (key == name) return &value;
  }
  return nullptr;
}

Result<JsonValue> read_json(std::string_view text) {
  Builder builder;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
    return fail(ErrorCode::invalid_argument, "{}",
                builder.error.empty() ? "is no JSON" : builder.error);
  }
  return std::move(builder.root);
}

std::string shown(const JsonValue& value) {
  const auto cut = [](std::string text) {
    constexpr std::size_t kMost = 60;
    if (text.size() <= kMost) return text;
    std::size_t end = kMost;
    while (end > 0 && (text[end] & 0xc0) == 0x80) --end;  // not inside a UTF-8 sequence
    return text.substr(0, end) + "...";
  };
  switch (value.kind) {
    case JsonValue::Kind::null:
      return "null";
    case JsonValue::Kind::boolean:
      return value.boolean ? "true" : "false";
    case JsonValue::Kind::integer:
      return std::to_string(value.integer);
    case JsonValue::Kind::real:
      return cut(value.string);
    case JsonValue::Kind::string: {
      std::string plain = json_quoted(value.string);  // escapes what a terminal would act on
      return "'" + cut(plain.substr(1, plain.size() - 2)) + "'";
    }
    case JsonValue::Kind::array: {
      std::string list;
      for (const JsonValue& item : value.items) {
        if (list.size() > 60) break;
        list += (list.empty() ? "" : ", ") + shown(item);
      }
      return "[" + cut(list) + "]";
    }
    case JsonValue::Kind::object:
      return value.members.empty() ? "{}" : "{...}";
  }
  return "";
}

std::string json_quoted(std::string_view text) {
  // error_handler_t::replace puts U+FFFD for bytes that are no UTF-8, where the default throws.
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_number(double number) {
  if (!std::isfinite(number)) return "null";
  std::array<char, 32> buffer;
  const auto [end, code] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number);
  return code == std::errc() ? std::string(buffer.data(), end) : "null";
}

}  // namespace lapidary::problem
