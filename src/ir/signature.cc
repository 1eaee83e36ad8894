#include "ir/signature.h"

#include <utility>

#include "support/result.h"
#include "support/text.h"

namespace lapidary::ir {
namespace {

constexpr std::pair<std::string_view, Class> kClasses[] = {
    {"any", Class::any},         {"bits", Class::bits},      {"number", Class::number},
    {"integer", Class::integer}, {"float", Class::floating}, {"word", Class::word},
    {"logic", Class::logic}};

/// Reads a signature from left to right. A word that it does not know is a defect of the table.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  Signature read() {
    Signature s;
    expect("(");
    while (!accept(")")) {
      if (accept("...")) {
        s.variadic = true;
        continue;
      }
      const std::string_view name = word();
      expect(":");
      s.operands.push_back(slot());
      s.operands.back().name = name;
      accept(",");
    }
    if (accept("{")) {
      while (!accept("}")) {
        s.attributes.push_back(word());
        accept(",");
      }
    }
    while (!accept("->")) s.regions.push_back(word());
    if (!rest_.empty()) s.result = slot();
    LAPIDARY_CHECK(rest_.empty());
    return s;
  }

 private:
  Slot slot() {
    Slot slot;
    const std::string_view first = word();
    if (first.size() == 1 && first[0] >= 'A' && first[0] <= 'Z') {
      slot.letter = first[0];
      if (accept("of ")) {
        slot.kind = Slot::Kind::element_of;
        slot.of = word();
      } else if (accept("in ")) {
        slot.limit = class_of(word());
      }
      return slot;
    }
    if (first == "same") {
      slot.kind = Slot::Kind::same_as;
      slot.of = word();
    } else if (first == "ptr") {
      slot.kind = Slot::Kind::pointer;
      accept("shared");
    } else if (first == "tile") {
      slot.kind = Slot::Kind::tile;
    } else if (first == "any") {
      slot.kind = Slot::Kind::letter;
    } else {
      slot.kind = Slot::Kind::scalar;
      slot.scalar = scalar_of(first);
    }
    return slot;
  }
  static Class class_of(std::string_view word) {
    for (const auto& [name, c] : kClasses) {
      if (name == word) return c;
    }
    LAPIDARY_CHECK(!"a class that the table does not know");
    return Class::any;
  }
  static Scalar scalar_of(std::string_view word) {
    for (const Scalar type : kScalars) {
      if (lapidary::name(type) == word) return type;
    }
    LAPIDARY_CHECK(!"a type that the table does not know");
    return Scalar::pred;
  }
  std::string_view word() {
    skip();
    std::size_t length = 0;
    while (length < rest_.size() &&
           (std::isalnum(static_cast<unsigned char>(rest_[length])) != 0 || rest_[length] == '_')) {
      ++length;
    }
    LAPIDARY_CHECK(length > 0);
    const std::string_view found = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return found;
  }
  bool accept(std::string_view token) {
    skip();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    skip();
    return true;
  }
  void expect(std::string_view token) { LAPIDARY_CHECK(accept(token)); }
  void skip() {
    while (rest_.starts_with(' ')) rest_.remove_prefix(1);
  }
  std::string_view rest_;
};

}  // namespace

bool contains(Class c, Scalar type) {
  switch (c) {
    case Class::any:
      return true;
    case Class::bits:
      return type != Scalar::pred;
    case Class::number:
      return is_number(type);
    case Class::integer:
      return is_integer(type);
    case Class::floating:
      return type == Scalar::f32 || type == Scalar::f64;
    case Class::word:
      return type == Scalar::s32 || type == Scalar::u32 || type == Scalar::f32;
    case Class::logic:
      return type == Scalar::pred || is_integer(type);
  }
  return false;
}

std::string_view name(Class c) {
  for (const auto& [name, value] : kClasses) {
    if (value == c) return name;
  }
  return "";
}

const Signature& signature(Opcode code) {
  static const std::vector<Signature> all = [] {
    std::vector<Signature> parsed;
    for (const OpInfo& row : op_table()) parsed.push_back(Reader(row.signature).read());
    return parsed;
  }();
  return all[static_cast<std::size_t>(code)];
}

}  // namespace lapidary::ir
