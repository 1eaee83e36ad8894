#include <charconv>

#include "layout/internal.h"

// The notation that text.cc writes, read back.
namespace lapidary {

using namespace layout_detail;

namespace {

constexpr int kMostNests = 64;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<IntTuple> tuple(int nests = 0) {
    if (!accept('(')) return leaf();
    if (nests == kMostNests) return fault(fmt::format("at most {} nests", kMostNests));
    std::vector<IntTuple> children;
    if (!accept(')')) {
      do {
        if (children.size() == kMostLeaves)
          return fault(fmt::format("at most {} modes", kMostLeaves));
        LAPIDARY_TRY(IntTuple child, tuple(nests + 1));
        children.push_back(std::move(child));
      } while (accept(','));
      if (!accept(')')) return fault("',' or ')'");
    }
    return IntTuple::tuple(children);
  }

  Result<Swizzle> swizzle() {
    if (!accept('S')) return fault("'S<bits,base,shift>'");
    accept('w');
    std::int64_t parts[3] = {};
    for (int i = 0; i < 3; ++i) {
      if (!accept(i == 0 ? '<' : ',')) return fault(i == 0 ? "'<'" : "','");
      LAPIDARY_TRY(parts[i], number());
      // Out of any range of bits, and still an int.
      parts[i] = std::clamp<std::int64_t>(parts[i], -1000, 1000);
    }
    if (!accept('>')) return fault("'>'");
    return make_swizzle(static_cast<int>(parts[0]), static_cast<int>(parts[1]),
                        static_cast<int>(parts[2]));
  }

  Result<Layout> layout() {
    std::vector<std::pair<Swizzle, std::int64_t>> stages;
    while (peek() == 'S') {
      if (stages.size() == kMostStages)
        return fault(fmt::format("at most {} swizzles", kMostStages));
      LAPIDARY_TRY(const Swizzle read, swizzle());
      if (!accept('o')) return fault("'o' and an offset, then 'o' and a layout");
      LAPIDARY_TRY(const std::int64_t offset, number());
      if (!accept('o')) return fault("'o' and a layout");
      stages.emplace_back(read, offset);
    }
    LAPIDARY_TRY(const IntTuple shape, tuple());
    if (!accept(':')) return fault("':' and the strides");
    LAPIDARY_TRY(const IntTuple stride, tuple());
    LAPIDARY_TRY(Layout made, make_layout(shape, stride));
    for (std::size_t i = stages.size(); i-- > 0;) {
      LAPIDARY_TRY(made, make_composed_layout(stages[i].first, stages[i].second, made));
    }
    return made;
  }

  Result<Tiler> tiler(int nests = 0) {
    if (accept('_')) return Tiler(_);
    if (!accept('<')) {
      LAPIDARY_TRY(Layout one, layout());
      return Tiler(std::move(one));
    }
    if (nests == kMostNests) return fault(fmt::format("at most {} nests", kMostNests));
    std::vector<Tiler> parts;
    do {
      if (parts.size() == kMostLeaves) return fault(fmt::format("at most {} modes", kMostLeaves));
      LAPIDARY_TRY(Tiler part, tiler(nests + 1));
      parts.push_back(std::move(part));
    } while (accept(',') || accept(';'));
    if (!accept('>')) return fault("',' or '>'");
    return Tiler(std::move(parts));
  }

  /// Nothing but white space may follow.
  template <class T>
  Result<T> all(Result<T> read) {
    if (!read) return read;
    skip();
    if (at_ < text_.size()) return fault("the end");
    return read;
  }

 private:
  static constexpr std::size_t kMostStages = 16;

  void skip() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string::npos)
      ++at_;
  }
  char peek() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char wanted) {
    if (peek() != wanted || at_ == text_.size()) return false;
    ++at_;
    return true;
  }

  Error fault(std::string_view wanted) {
    skip();
    const std::string got = at_ == text_.size() ? "the end"
                            : text_[at_] < ' ' || text_[at_] > '~'
                                ? "an unprintable character"
                                : fmt::format("'{}'", text_[at_]);
    return invalid("layout: character {}: got {}, expected {}", at_ + 1, got, wanted);
  }

  Result<std::int64_t> number() {
    skip();
    const bool negative = at_ < text_.size() && text_[at_] == '-';
    std::size_t digits = at_ + negative;
    const bool hex = text_.substr(digits).starts_with("0x");
    if (hex) digits += 2;
    // One token for the sign and the digits, so that the smallest number can be read.
    const std::string token = (negative ? "-" : "") + std::string(text_.substr(digits, 32));
    std::int64_t value = 0;
    const auto [end, error] =
        std::from_chars(token.data(), token.data() + token.size(), value, hex ? 16 : 10);
    if (error == std::errc::result_out_of_range) return fault("a number that fits in 64 bits");
    if (error != std::errc()) return fault("a number");
    at_ = digits + static_cast<std::size_t>(end - token.data()) - negative;
    return value;
  }

  Result<IntTuple> leaf() {
    if (accept('_')) return IntTuple(_);
    if (peek() != '-' && !is_digit(peek())) return fault("a number or '('");
    LAPIDARY_TRY(const std::int64_t value, number());
    InlineVector<int, 8> path;  // innermost first
    while (accept('@')) {
      const std::size_t begin = at_;
      LAPIDARY_TRY(const std::int64_t mode, number());
      if (mode < 0 || mode > kMostMode || path.size() == kMostLevels) {
        at_ = begin;
        return fault(fmt::format("a mode from 0 to {}, at most {} deep", kMostMode, kMostLevels));
      }
      path.push_back(static_cast<int>(mode));
    }
    Path packed = kPlain;
    for (const int mode : path) packed = packed << 8 | static_cast<Path>(mode + 1);
    return Access::tuple(Profile{kLeafToken}, Leaves{{value, packed}});
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

Result<IntTuple> int_tuple_from_text(std::string_view text) {
  Parser parser(text);
  return parser.all(parser.tuple());
}
Result<Swizzle> swizzle_from_text(std::string_view text) {
  Parser parser(text);
  return parser.all(parser.swizzle());
}
Result<Layout> layout_from_text(std::string_view text) {
  Parser parser(text);
  return parser.all(parser.layout());
}
Result<Tiler> tiler_from_text(std::string_view text) {
  Parser parser(text);
  return parser.all(parser.tiler());
}

}  // namespace lapidary
