#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string>
#include <vector>

#include "lapidary/problem.h"
#include "problem/epilogue.h"
#include "problem/keys.h"
#include "support/result.h"
#include "support/text.h"

// A recursive-descent parser that checks as it goes, so that every error has the place of its
// token.
namespace lapidary {
namespace {

using problem::arity;

constexpr std::size_t kMaxBytes = 64 << 10;
constexpr std::size_t kMaxNodes = 4096;
constexpr int kMaxDepth = 200;  // of parentheses and calls: keeps the parser's stack small

enum class TokenKind { number, name, sign, end };

struct Token {
  TokenKind kind = TokenKind::end;
  std::string_view text;
  std::size_t at = 0;
  float value = 0;  // of a number
};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// "'x'" or "the end".
std::string quoted(const Token& token) {
  return token.kind == TokenKind::end ? "the end" : "'" + std::string(token.text) + "'";
}

/// The message, the line of the program that has the fault, and a caret below the place. Long lines
/// are cut to a window around it; bytes that a terminal would act on are shown as '?'.
Error error_at(std::string_view program, std::size_t at, std::string_view what) {
  constexpr std::size_t kBefore = 60, kAfter = 30;
  at = std::min(at, program.size());
  const std::size_t newline = at == 0 ? std::string_view::npos : program.rfind('\n', at - 1);
  std::size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
  std::size_t end = std::min(program.find('\n', at), program.size());
  const auto continues = [&](std::size_t i) {
    return i < program.size() && (program[i] & 0xc0) == 0x80;
  };
  bool cut_before = false, cut_after = false;
  if (at - begin > kBefore) {
    begin = at - kBefore;
    while (continues(begin) && begin < at) ++begin;  // not inside a UTF-8 sequence
    cut_before = true;
  }
  if (end - at > kAfter) {
    end = at + kAfter;
    while (end > at && continues(end)) --end;
    cut_after = true;
  }
  std::string line = cut_before ? "..." : "";
  std::string caret(line.size(), ' ');
  for (std::size_t i = begin; i < end; ++i) {
    const auto byte = static_cast<unsigned char>(program[i]);
    line += byte == '\t' ? ' ' : byte < 0x20 || byte == 0x7f ? '?' : static_cast<char>(byte);
    if (i < at && (byte & 0xc0) != 0x80) caret += ' ';
  }
  if (cut_after) line += "...";
  return fail(ErrorCode::invalid_argument, "epilogue: {}\n{}\n{}^",
              problem::printable(std::string(what)), line, caret);
}

Result<std::vector<Token>> tokens_of(std::string_view program) {
  std::vector<Token> tokens;
  std::size_t at = 0;
  const auto peek = [&](std::size_t i) { return i < program.size() ? program[i] : '\0'; };
  while (at < program.size()) {
    const char c = program[at];
    const std::size_t begin = at;
    if (is_space(c)) {
      ++at;
    } else if (is_letter(c)) {
      while (is_letter(peek(at)) || is_digit(peek(at))) ++at;
      tokens.push_back({TokenKind::name, program.substr(begin, at - begin), begin});
    } else if (is_digit(c) || (c == '.' && is_digit(peek(at + 1)))) {
      while (is_digit(peek(at))) ++at;
      if (peek(at) == '.') ++at;
      while (is_digit(peek(at))) ++at;
      if (peek(at) == 'e' || peek(at) == 'E') {
        const std::size_t sign = peek(at + 1) == '+' || peek(at + 1) == '-' ? 1 : 0;
        if (!is_digit(peek(at + 1 + sign))) {
          return error_at(
              program, begin,
              fmt::format("number '{}' lacks the digits of its exponent; write it as 1e-5",
                          program.substr(begin, at + 1 + sign - begin)));
        }
        at += 1 + sign;
        while (is_digit(peek(at))) ++at;
      }
      const std::string_view text = program.substr(begin, at - begin);
      if (is_letter(peek(at)) || peek(at) == '.') {
        return error_at(program, at,
                        fmt::format("'{}' runs into '{}'; put an operator or a space between them, "
                                    "or mend the number",
                                    text, peek(at)));
      }
      Token token{TokenKind::number, text, begin};
      const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), token.value);
      if (code != std::errc()) {
        return error_at(program, begin,
                        fmt::format("number '{}' is beyond f32; its size must be 0 or within "
                                    "1.4e-45 to 3.4028235e+38",
                                    text));
      }
      tokens.push_back(token);
    } else {
      const std::string_view two = program.substr(at, 2);
      const bool wide = two == "<=" || two == ">=" || two == "==" || two == "!=";
      if (!wide && std::string_view("+-*/()[],;=<>").find(c) == std::string_view::npos) {
        const auto byte = static_cast<unsigned char>(c);
        const std::string shown = byte > 0x20 && byte < 0x7f ? fmt::format("'{}'", c)
                                                             : fmt::format("byte 0x{:02x}", byte);
        return error_at(
            program, at,
            fmt::format("{} has no meaning here; a program consists of names, numbers and "
                        "+ - * / ( ) [ ] , ; = < > <= >= == !=",
                        shown));
      }
      at += wide ? 2 : 1;
      tokens.push_back({TokenKind::sign, program.substr(begin, at - begin), begin});
    }
  }
  tokens.push_back({TokenKind::end, {}, program.size()});
  return tokens;
}

/// Functions by name; the operators and leaves of the table have none.
const std::map<std::string_view, EpilogueOp>& functions() {
  static const std::map<std::string_view, EpilogueOp> table = [] {
    std::map<std::string_view, EpilogueOp> made;
#define LAPIDARY_EPILOGUE_OP(id, arity, text) \
  if (arity > 0 && EpilogueOp::id >= EpilogueOp::neg) made[text] = EpilogueOp::id;
#include "lapidary/epilogue_ops.inc"
#undef LAPIDARY_EPILOGUE_OP
    return made;
  }();
  return table;
}

std::optional<Reduction> reduction_from_name(std::string_view name) {
  if (name == "sum") return Reduction::sum;
  if (name == "max") return Reduction::max;
  if (name == "min") return Reduction::min;
  return std::nullopt;
}

std::string index_text(Axes axes) {
  switch (axes) {
    case Axes::none:
      return "";
    case Axes::m:
      return "[m]";
    case Axes::n:
      return "[n]";
    case Axes::mn:
      return "[m,n]";
  }
  return "";
}

std::string usage(std::string_view function) {
  switch (const EpilogueOp op = functions().at(function); op) {
    case EpilogueOp::cast:
      return "cast(x, bf16)";
    case EpilogueOp::clamp:
      return "clamp(x, lo, hi)";
    case EpilogueOp::select:
      return "select(cond, a, b)";
    case EpilogueOp::leaky_relu:
      return "leaky_relu(x, slope)";
    default:
      return fmt::format("{}({})", function, arity(op) == 1 ? "x" : "x, y");
  }
}

class Parser {
 public:
  Parser(std::string_view program, std::vector<Token> tokens, bool reserve_scales)
      : program_(program), tokens_(std::move(tokens)), reserve_scales_(reserve_scales) {}

  Result<Epilogue> parse() {
    if (here().kind == TokenKind::end)
      return at_here("the program is empty; the least is 'd = acc'");
    while (here().kind != TokenKind::end) {
      LAPIDARY_TRY_STATUS(assignment());
      if (here().kind == TokenKind::end) break;
      if (!take(";")) {
        return at_here(fmt::format("expected ';' or the end after an assignment, found {}{}",
                                   quoted(here()), is(here(), "=") ? "; equality is '=='" : ""));
      }
    }
    for (std::size_t i = 0; i < result_.assignments.size(); ++i) {
      const EpilogueAssignment& made = result_.assignments[i];
      if (!made.output && !used_[i]) {
        return error_at(
            program_, places_[i],
            fmt::format("intermediate '{0}' is never used; use it, or make it an output with an "
                        "index: {0}{1}",
                        made.name, index_text(made.axes == Axes::none ? Axes::mn : made.axes)));
      }
    }
    const auto is_d = [](const EpilogueAssignment& made) { return made.name == "d"; };
    if (std::ranges::none_of(result_.assignments, is_d)) {
      return at_here("the program never writes d; add an assignment 'd = ...'");
    }
    result_.gated = gated_;
    return std::move(result_);
  }

 private:
  const Token& here() const { return tokens_[next_]; }
  const Token& after(std::size_t count) const {
    return tokens_[std::min(next_ + count, tokens_.size() - 1)];
  }
  static bool is(const Token& token, std::string_view sign) {
    return token.kind == TokenKind::sign && token.text == sign;
  }
  bool take(std::string_view sign) {
    if (!is(here(), sign)) return false;
    ++next_;
    return true;
  }
  Error at_here(std::string_view what) const { return error_at(program_, here().at, what); }
  Status expect(std::string_view sign, std::string_view where) {
    if (take(sign)) return {};
    return at_here(fmt::format("expected '{}' {}, found {}", sign, where, quoted(here())));
  }

  Result<int> make(EpilogueNode node) {
    if (result_.nodes.size() >= kMaxNodes) {
      return at_here(
          fmt::format("the program has more than {} operations and operands; split it", kMaxNodes));
    }
    if (node.op != EpilogueOp::operand && node.op != EpilogueOp::local) {
      for (const int argument : node.args) {
        if (argument >= 0) node.axes = node.axes | result_.nodes[std::size_t(argument)].axes;
      }
    }
    result_.nodes.push_back(node);
    return static_cast<int>(result_.nodes.size()) - 1;
  }

  /// "[" axes "]", when there is one.
  Result<std::optional<Axes>> index() {
    if (!take("[")) return std::optional<Axes>();
    Axes axes = Axes::none;
    const auto axis = [&]() -> Status {
      const Token& token = here();
      const bool is_m = token.kind == TokenKind::name && token.text == "m";
      const bool is_n = token.kind == TokenKind::name && token.text == "n";
      if (!is_m && !is_n) {
        return at_here(fmt::format("{} is no axis; an index is [m], [n] or [m,n]", quoted(token)));
      }
      const Axes one = is_m ? Axes::m : Axes::n;
      if (axes != Axes::none && !(axes == Axes::m && is_n)) {
        return at_here(fmt::format("axis '{}' cannot follow '{}'; an index is [m], [n] or [m,n]",
                                   token.text, axes == Axes::m ? "m" : "n"));
      }
      axes = axes | one;
      ++next_;
      return {};
    };
    LAPIDARY_TRY_STATUS(axis());
    if (take(",")) LAPIDARY_TRY_STATUS(axis());
    LAPIDARY_TRY_STATUS(expect("]", "to close the index"));
    return std::optional(axes);
  }

  /// Why a name may be neither an operand nor an assignment; "" when it may.
  std::string reserved(std::string_view name) const {
    if (name == "m" || name == "n") {
      return fmt::format(
          "'{}' is an axis; it stands only in an index or behind the comma of a reduction", name);
    }
    if (name == "acc" || name == "gate" || name == "up") {
      return fmt::format("'{}' is the product and cannot be assigned; choose another name", name);
    }
    if (reserve_scales_ && (name == "scale_a" || name == "scale_b")) {
      return fmt::format(
          "'{}' belongs to the scale mode, which has already applied it to acc; choose another "
          "name, "
          "or set scales to none",
          name);
    }
    if (functions().contains(name)) {
      return fmt::format("'{}' is a function; write {}, or choose another name", name, usage(name));
    }
    if (name == "sum") return "'sum' is a reduction; write sum(x, n), or choose another name";
    return "";
  }

  int assignment_named(std::string_view name) const {
    const auto found = assignments_.find(name);
    return found == assignments_.end() ? -1 : found->second;
  }

  Status assignment() {
    const Token target = here();
    if (target.kind != TokenKind::name) {
      return at_here(fmt::format(
          "expected the name that is assigned to, found {}; an assignment is 'name = expression'",
          quoted(target)));
    }
    ++next_;
    if (is(here(), "(")) {
      return error_at(program_, target.at,
                      fmt::format("'{}(' begins no assignment; an assignment is 'name = "
                                  "expression'",
                                  target.text));
    }
    LAPIDARY_TRY(const auto declared, index());
    LAPIDARY_TRY_STATUS(expect(
        "=", fmt::format("after '{}{}'", target.text, index_text(declared.value_or(Axes::none)))));
    if (const std::string why = reserved(target.text); !why.empty())
      return error_at(program_, target.at, why);
    if (assignment_named(target.text) >= 0) {
      return error_at(
          program_, target.at,
          fmt::format("'{}' is assigned twice; give the second one another name", target.text));
    }
    if (inputs_.contains(target.text)) {
      return error_at(
          program_, target.at,
          fmt::format("'{}' is read as an operand before it is assigned; assign it first, or "
                      "choose another name",
                      target.text));
    }
    if (target.text == "d" && declared && *declared != Axes::mn) {
      return error_at(program_, target.at,
                      fmt::format("'d{}' does not cover the matrix; d is [m,n]: write 'd = ...'",
                                  index_text(*declared)));
    }
    EpilogueAssignment made{.name = std::string(target.text)};
    if (at_reduction()) {
      LAPIDARY_TRY_STATUS(reduction(made, target, declared));
    } else {
      LAPIDARY_TRY(made.root, expression());
      const Axes axes = axes_of(made.root);
      made.output = declared.has_value() || target.text == "d";
      made.axes = target.text == "d" ? Axes::mn : declared.value_or(axes);
      if (!within(axes, made.axes)) {
        return error_at(program_, target.at,
                        fmt::format("'{}{}' is assigned a value that depends on {}; declare {}{}, "
                                    "or reduce the other axis",
                                    target.text, index_text(made.axes), index_text(axes),
                                    target.text, index_text(axes | made.axes)));
      }
    }
    assignments_.emplace(target.text, static_cast<int>(result_.assignments.size()));
    result_.assignments.push_back(std::move(made));
    used_.push_back(false);
    places_.push_back(target.at);
    return {};
  }

  Axes axes_of(int node) const { return result_.nodes[std::size_t(node)].axes; }

  /// Does a reduction stand here? sum always is one; max and min are, unless they have two
  /// expressions.
  bool at_reduction() const {
    if (here().kind != TokenKind::name || !reduction_from_name(here().text) || !is(after(1), "("))
      return false;
    if (here().text == "sum") return true;
    int depth = 0, commas = 0;
    std::size_t comma = 0;
    for (std::size_t i = next_ + 1; i < tokens_.size(); ++i) {
      const Token& token = tokens_[i];
      if (is(token, "(") || is(token, "[")) ++depth;
      if (is(token, ",") && depth == 1) {
        ++commas;
        comma = i;
      }
      if ((is(token, ")") || is(token, "]")) && --depth == 0) {
        return commas == 0 || (commas == 1 && i == comma + 2 && is_axis(tokens_[comma + 1]));
      }
    }
    return false;
  }
  static bool is_axis(const Token& token) {
    return token.kind == TokenKind::name && (token.text == "m" || token.text == "n");
  }

  Status reduction(EpilogueAssignment& made, const Token& target,
                   const std::optional<Axes>& declared) {
    const std::string_view verb = here().text;
    made.reduction = *reduction_from_name(verb);
    made.output = true;
    next_ += 2;  // its name and "("
    LAPIDARY_TRY(made.root, expression());
    made.reduced = Axes::mn;
    if (take(",")) {
      if (!is_axis(here())) {
        return at_here(fmt::format(
            "{} takes an expression and the axis that it removes, m or n; {} is no axis", verb,
            quoted(here())));
      }
      made.reduced = here().text == "m" ? Axes::m : Axes::n;
      ++next_;
    }
    LAPIDARY_TRY_STATUS(expect(")", fmt::format("to close {}(", verb)));
    if (!is(here(), ";") && here().kind != TokenKind::end) {
      return at_here(
          fmt::format("a reduction stands alone at the right of '='; {} cannot follow {}(...)",
                      quoted(here()), verb));
    }
    made.axes = made.reduced == Axes::m ? Axes::n : made.reduced == Axes::n ? Axes::m : Axes::none;
    if (target.text == "d") {
      return error_at(
          program_, target.at,
          fmt::format("d is [m,n] and cannot be a reduction; give the {} a name of its own", verb));
    }
    if (declared.value_or(Axes::none) != made.axes) {
      const std::string over = made.reduced == Axes::mn  ? "both axes"
                               : made.reduced == Axes::m ? "m"
                                                         : "n";
      const std::string leaves = made.axes == Axes::none ? "one value" : index_text(made.axes);
      return error_at(program_, target.at,
                      fmt::format("the {} over {} leaves {}, not {}; write {}{} = ...", verb, over,
                                  leaves, declared ? index_text(*declared) : "one value",
                                  target.text, index_text(made.axes)));
    }
    return {};
  }

  Result<int> expression() {
    LAPIDARY_TRY(int left, sum());
    static constexpr std::pair<std::string_view, EpilogueOp> kSigns[] = {
        {"<", EpilogueOp::lt},  {"<=", EpilogueOp::le}, {">", EpilogueOp::gt},
        {">=", EpilogueOp::ge}, {"==", EpilogueOp::eq}, {"!=", EpilogueOp::ne}};
    const auto sign_here = [&] {
      return std::ranges::find_if(kSigns, [&](const auto& sign) { return is(here(), sign.first); });
    };
    if (const auto sign = sign_here(); sign != std::end(kSigns)) {
      ++next_;
      LAPIDARY_TRY(const int right, sum());
      if (const auto second = sign_here(); second != std::end(kSigns)) {
        return at_here(
            fmt::format("comparisons do not chain; '{}' needs parentheses around one of the two",
                        second->first));
      }
      LAPIDARY_TRY(left, make({.op = sign->second, .args = {left, right, -1}}));
    }
    return left;
  }

  Result<int> sum() {
    LAPIDARY_TRY(int left, product());
    for (;;) {
      const EpilogueOp op = is(here(), "+") ? EpilogueOp::add : EpilogueOp::sub;
      if (!take("+") && !take("-")) return left;
      LAPIDARY_TRY(const int right, product());
      LAPIDARY_TRY(left, make({.op = op, .args = {left, right, -1}}));
    }
  }

  Result<int> product() {
    LAPIDARY_TRY(int left, unary());
    for (;;) {
      const EpilogueOp op = is(here(), "*") ? EpilogueOp::mul : EpilogueOp::div;
      if (!take("*") && !take("/")) return left;
      LAPIDARY_TRY(const int right, unary());
      LAPIDARY_TRY(left, make({.op = op, .args = {left, right, -1}}));
    }
  }

  Result<int> unary() {
    if (!take("-")) return primary();
    if (is(here(), "-")) return at_here("a second '-' needs parentheses: -(-x)");
    LAPIDARY_TRY(const int value, primary());
    return make({.op = EpilogueOp::neg, .args = {value, -1, -1}});
  }

  /// expression() one level deeper, below a parenthesis or a call.
  Result<int> nested() {
    if (depth_ >= kMaxDepth)
      return at_here(
          fmt::format("parentheses and calls nest deeper than {}; use intermediates", kMaxDepth));
    ++depth_;
    auto value = expression();
    --depth_;
    return value;
  }

  Result<int> primary() {
    const Token token = here();
    if (token.kind == TokenKind::number) {
      ++next_;
      return make({.op = EpilogueOp::number, .number = token.value});
    }
    if (take("(")) {
      LAPIDARY_TRY(const int value, nested());
      LAPIDARY_TRY_STATUS(expect(")", "to close the parenthesis"));
      return value;
    }
    if (token.kind != TokenKind::name) {
      return at_here(
          fmt::format("expected a value, found {}; a value is a number, a name, a call or '(...)'",
                      quoted(token)));
    }
    return is(after(1), "(") ? call() : name();
  }

  Result<int> call() {
    const Token token = here();
    const std::string_view function = token.text;
    const auto alone = [&] {
      return error_at(
          program_, token.at,
          fmt::format("{} of one expression is a reduction and stands alone at the right of '='",
                      function));
    };
    if (function == "sum") return alone();
    const auto found = functions().find(function);
    if (found == functions().end()) {
      if (!reserved(function).empty() || function == "d" || inputs_.contains(function) ||
          assignment_named(function) >= 0) {
        return error_at(
            program_, after(1).at,
            fmt::format("'{}' is a value and no function; put an operator before '('", function));
      }
      std::vector<std::string_view> known{"sum"};
      for (const auto& [name, op] : functions()) known.push_back(name);
      const std::string hint = did_you_mean(function, known);
      return at_here(
          fmt::format("'{}' is no function{}", function,
                      hint.empty() ? "; the functions are listed in docs/epilogues.md" : hint));
    }
    next_ += 2;  // its name and "("
    const EpilogueOp op = found->second;
    const bool may_reduce = op == EpilogueOp::max || op == EpilogueOp::min;
    EpilogueNode node{.op = op};
    int count = 0;
    const int wanted = arity(op);
    if (is(here(), ")"))
      return at_here(
          fmt::format("{} needs {} argument{}: {}", function, op == EpilogueOp::cast ? 2 : wanted,
                      wanted == 1 && op != EpilogueOp::cast ? "" : "s", usage(function)));
    do {
      if (op == EpilogueOp::cast && count == 1) break;
      if (may_reduce && count == 1 && is_axis(here()) && is(after(1), ")")) {
        return error_at(
            program_, token.at,
            fmt::format("{} over {} is a reduction and stands alone at the right of '='", function,
                        here().text));
      }
      if (count == wanted) {
        return at_here(fmt::format("{} takes {} argument{}, and this is one more: {}", function,
                                   wanted, wanted == 1 ? "" : "s", usage(function)));
      }
      LAPIDARY_TRY(node.args[std::size_t(count)], nested());
      ++count;
    } while (take(","));
    if (op == EpilogueOp::cast) {
      LAPIDARY_TRY(node.type, cast_type());
    } else if (count < wanted && is(here(), ")")) {
      if (may_reduce) return alone();
      return at_here(fmt::format("{} takes {} arguments, got {}: {}", function, wanted, count,
                                 usage(function)));
    }
    LAPIDARY_TRY_STATUS(expect(")", fmt::format("to close {}(", function)));
    return make(node);
  }

  /// The type behind the comma of a cast.
  Result<DType> cast_type() {
    const bool comma = next_ > 0 && is(tokens_[next_ - 1], ",");
    const auto type =
        comma && here().kind == TokenKind::name ? dtype_from_name(here().text) : std::nullopt;
    if (!type) {
      return at_here(
          fmt::format("cast takes an expression and a type (f32, bf16, f16, e4m3, e5m2), found {}",
                      quoted(here())));
    }
    ++next_;
    return *type;
  }

  Result<int> name() {
    const Token token = here();
    ++next_;
    const std::string name(token.text);
    const auto wrong = [&](std::string_view what) { return error_at(program_, token.at, what); };
    if (name == "acc" || name == "gate" || name == "up") {
      if (is(here(), "["))
        return at_here(
            fmt::format("'{0}' has no index, it is always the element at (m, n); write {0}", name));
      bool& mine = name == "acc" ? plain_ : gated_;
      mine = true;
      if (plain_ && gated_) {
        return wrong(fmt::format(
            "'{}' cannot stand beside '{}'; a gated program reads gate and up, any other reads acc",
            name, name == "acc" ? "gate' or 'up" : "acc"));
      }
      return make({.op = name == "acc"    ? EpilogueOp::acc
                         : name == "gate" ? EpilogueOp::gate
                                          : EpilogueOp::up,
                   .axes = Axes::mn});
    }
    if (name == "d")
      return wrong("'d' cannot be read back; keep the value in an intermediate: h = ...; d = h");
    if (const std::string why = reserved(name); !why.empty()) return wrong(why);
    const std::size_t index_at = here().at;
    LAPIDARY_TRY(const auto axes, index());
    if (const int i = assignment_named(name); i >= 0) {
      const EpilogueAssignment& made = result_.assignments[std::size_t(i)];
      if (made.output && made.reduction != Reduction::none) {
        return wrong(fmt::format(
            "'{}' is the result of a reduction, which is not usable in the same program", name));
      }
      if (made.output) {
        return wrong(
            fmt::format("output '{0}' cannot be read back; keep the value in an intermediate: {1} "
                        "= ...; {0}{2} = {1}",
                        name, name == "h" ? "t" : "h", index_text(made.axes)));
      }
      if (axes)
        return error_at(program_, index_at,
                        fmt::format("intermediate '{0}' takes no index; write {0}", name));
      used_[std::size_t(i)] = true;
      return make(
          {.op = EpilogueOp::local, .args = {made.root, -1, -1}, .symbol = i, .axes = made.axes});
    }
    const Axes wanted = axes.value_or(Axes::none);
    const auto [found, fresh] = inputs_.emplace(name, static_cast<int>(result_.inputs.size()));
    if (fresh) {
      result_.inputs.push_back({.name = name, .axes = wanted});
    } else if (const Axes before = result_.inputs[std::size_t(found->second)].axes;
               before != wanted) {
      return wrong(fmt::format("'{0}{1}' was read as '{0}{2}' before; an operand has one index",
                               name, index_text(wanted), index_text(before)));
    }
    return make({.op = EpilogueOp::operand, .symbol = found->second, .axes = wanted});
  }

  std::string_view program_;
  std::vector<Token> tokens_;
  bool reserve_scales_;
  std::size_t next_ = 0;
  int depth_ = 0;
  bool plain_ = false, gated_ = false;  // has read acc; gate or up
  Epilogue result_;
  std::map<std::string, int, std::less<>> inputs_, assignments_;
  std::vector<bool> used_;           // per assignment
  std::vector<std::size_t> places_;  // of its name
};

}  // namespace

Result<Epilogue> parse_epilogue(std::string_view program, bool reserve_scales) {
  if (program.size() > kMaxBytes) {
    return fail(ErrorCode::invalid_argument,
                "epilogue: the program has {} bytes; at most {} are allowed", program.size(),
                kMaxBytes);
  }
  LAPIDARY_TRY(std::vector<Token> tokens, tokens_of(program));
  return Parser(program, std::move(tokens), reserve_scales).parse();
}

}  // namespace lapidary
