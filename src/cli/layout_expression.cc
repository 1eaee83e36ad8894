#include "cli/layout_expression.h"

#include <algorithm>
#include <charconv>
#include <functional>

#include "arch/mma_layouts.h"
#include "support/result.h"
#include "support/text.h"

namespace lapidary::cli {
namespace {

constexpr int kMostNests = 64;
constexpr std::size_t kMostParts = 1024;

template <class... Args>
Error invalid(fmt::format_string<Args...> text, Args&&... args) {
  return fail(ErrorCode::invalid_argument, text, std::forward<Args>(args)...);
}

// ---- Arguments ------------------------------------------------------------------------------

std::string kind(const LayoutValue& value) {
  static constexpr const char* kKinds[] = {"true or false", "a number", "a tuple", "a layout",
                                           "a swizzle",     "a tiler",  "a name"};
  return kKinds[value.is.index()];
}

Error not_a(const LayoutValue& value, std::string_view wanted) {
  return invalid("'{}' is {}, and this must be {}", text(value), kind(value), wanted);
}

/// What a function takes, from the value that stands there.
template <class T>
Result<T> convert(const LayoutValue& value);

template <>
Result<std::int64_t> convert(const LayoutValue& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value.is)) return *number;
  return not_a(value, "a number");
}
template <>
Result<int> convert(const LayoutValue& value) {
  LAPIDARY_TRY(const std::int64_t number, convert<std::int64_t>(value));
  return static_cast<int>(std::clamp<std::int64_t>(number, INT32_MIN, INT32_MAX));
}
template <>
Result<IntTuple> convert(const LayoutValue& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value.is)) return IntTuple(*number);
  if (const auto* tuple = std::get_if<IntTuple>(&value.is)) return *tuple;
  return not_a(value, "a tuple or a number");
}
/// A shape alone is a layout too: compact, the first mode fastest.
template <>
Result<Layout> convert(const LayoutValue& value) {
  if (const auto* layout = std::get_if<Layout>(&value.is)) return *layout;
  if (const auto* number = std::get_if<std::int64_t>(&value.is))
    return make_layout(IntTuple(*number));
  if (const auto* tuple = std::get_if<IntTuple>(&value.is)) return make_layout(*tuple);
  return not_a(value, "a layout");
}
template <>
Result<Swizzle> convert(const LayoutValue& value) {
  if (const auto* swizzle = std::get_if<Swizzle>(&value.is)) return *swizzle;
  return not_a(value, "a swizzle, such as S<3,4,3>");
}
/// In the place of a tiler (3,4) means <3:1,4:1>.
template <>
Result<Tiler> convert(const LayoutValue& value) {
  if (const auto* tiler = std::get_if<Tiler>(&value.is)) return *tiler;
  if (const auto* layout = std::get_if<Layout>(&value.is)) return Tiler(*layout);
  LAPIDARY_TRY(const IntTuple shape, convert<IntTuple>(value));
  return make_tiler(shape);
}
template <>
Result<Word> convert(const LayoutValue& value) {
  if (const auto* word = std::get_if<Word>(&value.is)) return *word;
  if (const auto* number = std::get_if<std::int64_t>(&value.is))
    return Word{std::to_string(*number)};
  return not_a(value, "a name");
}
template <>
Result<LayoutValue> convert(const LayoutValue& value) {
  return value;
}

template <class T>
LayoutValue wrapped(T value) {
  if constexpr (std::is_same_v<T, LayoutValue>) {
    return value;
  } else if constexpr (std::is_same_v<T, IntTuple>) {
    return value.is_leaf() && value.is_plain() ? LayoutValue{value.value()}
                                               : LayoutValue{std::move(value)};
  } else if constexpr (std::is_same_v<T, int>) {
    return LayoutValue{static_cast<std::int64_t>(value)};
  } else {
    return LayoutValue{std::move(value)};
  }
}

using Arguments = std::vector<LayoutValue>;

/// An argument that cannot be, and which.
struct Refused {
  std::size_t argument;
  Error error;
};

struct Function {
  const char *name, *arguments, *about;
  std::size_t count;
  std::function<Result<LayoutValue>(const Arguments&, std::optional<Refused>&)> call;
};

/// A function of the library as one of the language: arguments are converted, the result wrapped.
template <class R, class... P>
Function row(const char* name, const char* arguments, const char* about, R (*f)(P...)) {
  return {
      name, arguments, about, sizeof...(P),
      [f](const Arguments& given, std::optional<Refused>& refused) -> Result<LayoutValue> {
        return [&]<std::size_t... I>(std::index_sequence<I...>) -> Result<LayoutValue> {
          std::tuple<Result<std::decay_t<P>>...> converted{convert<std::decay_t<P>>(given[I])...};
          const auto check = [&](std::size_t i, const auto& one) {
            if (!one && !refused) refused = Refused{i, one.error()};
          };
          (check(I, std::get<I>(converted)), ...);
          if (refused) return refused->error;
          if constexpr (requires(R r) { r.has_value(); }) {
            auto result = f(*std::get<I>(converted)...);
            if (!result) return result.error();
            return wrapped(*std::move(result));
          } else {
            return wrapped(f(*std::get<I>(converted)...));
          }
        }(std::index_sequence_for<P...>());
      }};
}

// ---- Atoms ----------------------------------------------------------------------------------

/// m16n8k16 -> 16, 8, 16; a letter that is missing leaves 0.
Result<std::array<int, 3>> mnk(const Word& shape, std::string_view letters) {
  std::array<int, 3> found{};
  std::string_view rest = shape.text;
  for (const char letter : letters) {
    int value = 0;
    const char* end = rest.data() + rest.size();
    if (!rest.empty() && rest[0] == letter) {
      const auto [at, error] = std::from_chars(rest.data() + 1, end, value);
      if (error == std::errc()) {
        found[letter == 'm' ? 0 : letter == 'n' ? 1 : 2] = value;
        rest.remove_prefix(static_cast<std::size_t>(at - rest.data()));
        continue;
      }
    }
    return invalid("'{}' is no shape of an instruction; write it as {}", shape.text,
                   letters == "mnk" ? "m16n8k16" : "m64n128k16");
  }
  if (!rest.empty()) return invalid("'{}': '{}' is left over", shape.text, rest);
  return found;
}

enum class Operand { a, b, c };

Result<LayoutValue> sync_operand(const Word& shape, int bits, Operand operand) {
  LAPIDARY_TRY(const auto sizes, mnk(shape, "mnk"));
  LAPIDARY_TRY(const arch::MmaAtom atom, arch::mma_sync_atom(sizes[0], sizes[1], sizes[2], bits));
  if (operand == Operand::a) return LayoutValue{atom.a, IntTuple{atom.m, atom.k}};
  if (operand == Operand::b) return LayoutValue{atom.b, IntTuple{atom.n, atom.k}};
  return LayoutValue{atom.c, IntTuple{atom.m, atom.n}};
}
template <Operand operand>
Result<LayoutValue> sync_any(const Word& shape) {
  return sync_operand(shape, 0, operand);
}
template <Operand operand>
Result<LayoutValue> sync_typed(const Word& shape, const Word& type) {
  LAPIDARY_TRY(const int bits, element_bits("layout", type.text));
  return sync_operand(shape, bits, operand);
}

template <Operand operand>
Result<LayoutValue> wgmma_operand(const Word& shape) {
  LAPIDARY_TRY(const auto sizes, mnk(shape, "mnk"));
  const int k = sizes[2];
  if (sizes[0] != 64 || (k != 8 && k != 16 && k != 32)) {
    return invalid(
        "layout: no wgmma is {}; m is 64, and k is 8 (tf32), 16 (f16, bf16) or 32 (8 bits)",
        shape.text);
  }
  LAPIDARY_TRY(const arch::MmaAtom atom, arch::wgmma_atom(sizes[1], 256 / k));
  if (operand == Operand::a) return LayoutValue{atom.a, IntTuple{atom.m, atom.k}};
  return LayoutValue{atom.c, IntTuple{atom.m, atom.n}};
}

Result<Layout> smem_tile(std::int64_t bytes, const Word& type, bool k_major) {
  LAPIDARY_TRY(const int bits, element_bits("layout", type.text));
  for (const auto& [row_bytes, swizzle] :
       {std::pair(16, arch::SmemSwizzle::none), std::pair(32, arch::SmemSwizzle::b32),
        std::pair(64, arch::SmemSwizzle::b64), std::pair(128, arch::SmemSwizzle::b128)}) {
    if (bytes == row_bytes) return arch::smem_atom(swizzle, bits, k_major);
  }
  return invalid("layout: no swizzle has rows of {} bytes; 16 (none), 32, 64 or 128", bytes);
}
Result<Layout> smem_k_major(std::int64_t bytes, const Word& type) {
  return smem_tile(bytes, type, true);
}
Result<Layout> smem_either(std::int64_t bytes, const Word& type, const Word& major) {
  if (major.text != "k" && major.text != "mn")
    return invalid("'{}' is no major mode; k or mn", major.text);
  return smem_tile(bytes, type, major.text == "k");
}

// ---- The functions --------------------------------------------------------------------------

std::vector<int> path_of(const IntTuple& tuple) {
  std::vector<int> path;
  for (const auto& leaf : tuple.leaves())
    path.push_back(static_cast<int>(std::clamp<std::int64_t>(leaf.value, -1, INT32_MAX)));
  return path;
}

constexpr std::size_t kAnyCount = static_cast<std::size_t>(-1);

/// A swizzle or a layout in other units.
template <class F>
Result<LayoutValue> rescaled(const LayoutValue& value, F scale) {
  if (const auto* swizzle = std::get_if<Swizzle>(&value.is)) {
    LAPIDARY_TRY(const Swizzle scaled, scale(*swizzle));
    return LayoutValue{scaled};
  }
  LAPIDARY_TRY(const Layout layout, convert<Layout>(value));
  LAPIDARY_TRY(Layout scaled, scale(layout));
  return LayoutValue{std::move(scaled)};
}

/// make_layout(shape), make_layout(shape, stride), or layouts as modes of one.
Result<LayoutValue> any_layout(const Arguments& given, std::optional<Refused>& refused) {
  const auto is_tuple = [](const LayoutValue& value) {
    return std::holds_alternative<IntTuple>(value.is) ||
           std::holds_alternative<std::int64_t>(value.is);
  };
  if (given.size() == 2 && is_tuple(given[0]) && is_tuple(given[1])) {
    LAPIDARY_TRY(Layout made,
                 make_layout(*convert<IntTuple>(given[0]), *convert<IntTuple>(given[1])));
    return LayoutValue{std::move(made)};
  }
  std::vector<Layout> modes;
  for (std::size_t i = 0; i < given.size(); ++i) {
    Result<Layout> mode = convert<Layout>(given[i]);
    if (!mode) {
      refused = Refused{i, mode.error()};
      return mode.error();
    }
    modes.push_back(*std::move(mode));
  }
  if (modes.size() == 1) return LayoutValue{std::move(modes[0])};
  LAPIDARY_TRY(Layout made, make_layout(modes));
  return LayoutValue{std::move(made)};
}

const std::vector<Function>& functions() {
  using L = const Layout&;
  using T = const IntTuple&;
  using S = const Swizzle&;
  using By = const Tiler&;
  using N = std::int64_t;
  static const std::vector<Function> table = {
      row(
          "size", "L", "how many coordinates", +[](L a) { return size(a); }),
      row(
          "rank", "L", "how many modes", +[](L a) { return rank(a); }),
      row(
          "depth", "L", "how deeply nested", +[](L a) { return depth(a); }),
      row(
          "cosize", "L", "one more than the largest offset", +[](L a) { return cosize(a); }),
      row(
          "coshape", "L", "the same for each mode of the result", +[](L a) { return coshape(a); }),
      row(
          "shape", "L", "its extents", +[](L a) { return a.shape(); }),
      row(
          "stride", "L", "its strides", +[](L a) { return a.stride(); }),
      row(
          "inner", "L", "without its swizzles", +[](L a) { return a.inner(); }),
      row("product", "tuple", "of all its numbers", product),
      row("inner_product", "tuple, tuple", "sum of products", inner_product),
      row(
          "prefix_product", "tuple", "(3,2,4) -> (1,3,6)", +[](T a) { return prefix_product(a); }),
      row("shape_div", "shape, shape", "keep each n-th element, from the left", shape_div),
      row("shape_mod", "shape, shape", "keep the first n elements", shape_mod),
      row("ceil_div", "shape, shape", "how many tiles cover it", ceil_div),
      row("compact_col_major", "shape", "strides, first mode fastest", compact_col_major),
      row("compact_row_major", "shape", "strides, last mode fastest", compact_row_major),
      row("congruent", "tuple, tuple", "the same nest?", congruent),
      row("weakly_congruent", "tuple, tuple", "does the second nest as deeply?", weakly_congruent),
      row("compatible", "shape, shape", "is each coordinate one of the second?", compatible),
      row("evenly_divides", "shape, shape", "does the second divide the first?", evenly_divides),
      row(
          "crd2idx", "crd, L", "the offset of a coordinate",
          +[](T c, L a) { return evaluate(a, c); }),
      row("crd2idx", "crd, shape, stride", "the same",
          static_cast<Result<IntTuple> (*)(T, T, T)>(crd2idx)),
      row(
          "idx2crd", "i, L", "the coordinate of an index", +[](T i, L a) { return idx2crd(i, a); }),
      {"make_layout", "shape, stride or L, L, ...", "shape:stride, or these as modes", kAnyCount,
       any_layout},
      row("make_ordered_layout", "shape, order", "compact, modes in this order",
          make_ordered_layout),
      row("make_layout_like", "L", "compact, in the order of its strides", make_layout_like),
      row("make_identity_layout", "shape", "each coordinate to itself", make_identity_layout),
      row(
          "get", "L, i or (i, ...)", "a mode by number or path",
          +[](L a, T path) { return get(a, path_of(path)); }),
      row(
          "select", "L, (i, ...)", "these modes",
          +[](L a, T modes) { return select(a, path_of(modes)); }),
      row("take", "L, begin, end", "modes begin to end - 1", take),
      row("group_modes", "L, begin, end", "the same as one nest", group_modes),
      row("append", "L, L", "a mode behind", append),
      row("prepend", "L, L", "a mode in front", prepend),
      row("replace", "L, i, L", "another mode i", replace),
      row(
          "flatten", "L", "without nests", +[](L a) { return flatten(a); }),
      row("slice", "crd, L", "the modes where the coordinate has _", slice),
      row("dice", "crd, L", "the modes where it has numbers", dice),
      row(
          "coalesce", "L", "the same function in few modes", +[](L a) { return coalesce(a); }),
      row(
          "coalesce", "L, profile", "by mode", +[](L a, T by) { return coalesce(a, by); }),
      row("filter", "L", "without stride 0 and extent 1", filter),
      row("composition", "L, L or tiler", "R(c) = A(B(c)); also A o B",
          static_cast<Result<Layout> (*)(L, By)>(composition)),
      row(
          "complement", "L", "the gaps of a layout", +[](L a) { return complement(a); }),
      row("complement", "L, cosize", "what is missing to reach it", complement),
      row("right_inverse", "L", "L(R(i)) = i", right_inverse),
      row("left_inverse", "L", "R(L(i)) = i", left_inverse),
      row("nullspace", "L", "what goes to 0", nullspace),
      row("max_common_vector", "L, L", "leading offsets at the same coordinates",
          max_common_vector),
      row("max_common_layout", "L, L", "their coordinates", max_common_layout),
      row(
          "max_alignment", "L or S", "elements of the widest whole vectors",
          +[](const LayoutValue& a) -> Result<std::int64_t> {
            if (const auto* swizzle = std::get_if<Swizzle>(&a.is)) return max_alignment(*swizzle);
            LAPIDARY_TRY(const Layout layout, convert<Layout>(a));
            return max_alignment(layout);
          }),
      row("domain_distribute", "shape, n", "a part of the domain whose size divides n",
          domain_distribute),
      row("logical_divide", "L, L or tiler", "(tile, rest), by mode", logical_divide),
      row("zipped_divide", "L, L or tiler", "((tiles), (rests))", zipped_divide),
      row("tiled_divide", "L, L or tiler", "((tiles), rest, rest, ...)", tiled_divide),
      row("flat_divide", "L, L or tiler", "(tile, ..., rest, ...)", flat_divide),
      row("logical_product", "L, L or tiler", "(L, copies)", logical_product),
      row("zipped_product", "L, L or tiler", "((L), (copies))", zipped_product),
      row("tiled_product", "L, L or tiler", "((L), copy, copy, ...)", tiled_product),
      row("flat_product", "L, L or tiler", "(l, ..., copy, ...)", flat_product),
      row("blocked_product", "L, L", "blocks of the first", blocked_product),
      row("raked_product", "L, L", "the same, interleaved", raked_product),
      row(
          "tile_to_shape", "L, shape", "the block, repeated",
          +[](L a, T s) { return tile_to_shape(a, s); }),
      row(
          "tile_to_shape", "L, shape, order", "in this order of modes",
          +[](L a, T s, T order) { return tile_to_shape(a, s, order); }),
      row(
          "upcast", "L or S, n", "in units of n elements",
          +[](const LayoutValue& a, N n) {
            return rescaled(a, [n](const auto& x) { return upcast(x, n); });
          }),
      row(
          "downcast", "L or S, n", "in units of 1/n element",
          +[](const LayoutValue& a, N n) {
            return rescaled(a, [n](const auto& x) { return downcast(x, n); });
          }),
      row("recast", "L, new bits, old bits", "the same bytes as other elements", recast),
      row(
          "swizzle", "S, offset", "where it sends an offset",
          +[](S s, N offset) { return s(offset); }),
      row("mma_a", "m16n8k16", "A of mma.sync: (thread, value) -> m + M*k", sync_any<Operand::a>),
      row("mma_b", "m16n8k16", "B: n + N*k", sync_any<Operand::b>),
      row("mma_c", "m16n8k16", "C and D: m + M*n", sync_any<Operand::c>),
      row("mma_a", "m16n8k8, tf32", "of this element type", sync_typed<Operand::a>),
      row("mma_b", "m16n8k8, tf32", "of this element type", sync_typed<Operand::b>),
      row("mma_c", "m16n8k8, tf32", "of this element type", sync_typed<Operand::c>),
      row("wgmma_a", "m64n128k16", "A of wgmma in registers", wgmma_operand<Operand::a>),
      row("wgmma_c", "m64n128k16", "its accumulator", wgmma_operand<Operand::c>),
      row("smem_atom", "128, f16", "tile of shared memory with this swizzle, K-major",
          smem_k_major),
      row("smem_atom", "128, f16, mn", "the same, k or mn major", smem_either),
  };
  return table;
}

// ---- The parser -----------------------------------------------------------------------------

/// Reads and evaluates in one pass. Each part remembers where it began, for the caret.
class Evaluator {
 public:
  explicit Evaluator(std::string_view text) : text_(text) {}

  Result<LayoutValue> all() {
    LAPIDARY_TRY(LayoutValue value, composed());
    if (peek() != '\0') return expected("the end");
    if (const auto* word = std::get_if<Word>(&value.is)) {
      at_ = 0;
      return fault(unknown(word->text));
    }
    return value;
  }
  std::size_t where() const { return fault_at_.value_or(at_); }

 private:
  Error fault(std::string message, std::optional<std::size_t> at = {}) {
    if (!fault_at_) fault_at_ = at.value_or(at_);
    return {ErrorCode::invalid_argument, std::move(message)};
  }
  Error expected(std::string_view wanted) {
    const char c = peek();
    return fault(fmt::format("got {}, expected {}",
                             c == '\0'            ? "the end"
                             : c < ' ' || c > '~' ? "an unprintable character"
                                                  : fmt::format("'{}'", c),
                             wanted));
  }
  static std::string unknown(const std::string& word) {
    std::vector<std::string_view> names;
    for (const Function& function : functions()) names.push_back(function.name);
    return fmt::format("'{}' is no function, number or layout{}", word, did_you_mean(word, names));
  }

  char peek() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string::npos)
      ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }
  static bool in_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }
  std::string_view name_here() {
    peek();
    std::size_t end = at_;
    while (end < text_.size() && in_name(text_[end])) ++end;
    return text_.substr(at_, end - at_);
  }
  bool accept_o() {
    if (name_here() != "o") return false;
    ++at_;
    return true;
  }

  /// a o b o c: from the right, a number behind a swizzle being its offset.
  Result<LayoutValue> composed() {
    std::vector<std::pair<LayoutValue, std::size_t>> parts;
    do {
      peek();
      const std::size_t begin = at_;
      LAPIDARY_TRY(LayoutValue part, ratio());
      parts.emplace_back(std::move(part), begin);
      if (parts.size() > kMostParts) return fault("too many parts");
    } while (accept_o());
    if (parts.size() == 1) return std::move(parts[0].first);
    const auto last = convert<Layout>(parts.back().first);
    if (!last) return fault(last.error().message, parts.back().second);
    Layout inner = *last;
    for (std::size_t i = parts.size() - 1; i-- > 0;) {
      const auto& [part, begin] = parts[i];
      std::int64_t offset = 0;
      const LayoutValue* left = &part;
      if (const auto* number = std::get_if<std::int64_t>(&part.is);
          number != nullptr && i > 0 && std::holds_alternative<Swizzle>(parts[i - 1].first.is)) {
        offset = *number;
        left = &parts[--i].first;
      }
      const auto* swizzle = std::get_if<Swizzle>(&left->is);
      const auto layout = swizzle != nullptr ? Result<Layout>(Layout()) : convert<Layout>(*left);
      if (!layout) return fault(layout.error().message, begin);
      auto made = swizzle != nullptr ? make_composed_layout(*swizzle, offset, inner)
                                     : composition(*layout, inner);
      if (!made) return fault(made.error().message, begin);
      inner = *std::move(made);
    }
    return LayoutValue{std::move(inner)};
  }

  /// shape:stride, or what stands alone.
  Result<LayoutValue> ratio() {
    peek();
    const std::size_t begin = at_;
    LAPIDARY_TRY(LayoutValue left, primary());
    if (!accept(':')) return left;
    const auto shape = convert<IntTuple>(left);
    if (!shape) return fault(shape.error().message, begin);
    peek();
    const std::size_t middle = at_;
    LAPIDARY_TRY(const LayoutValue right, primary());
    const auto stride = convert<IntTuple>(right);
    if (!stride) return fault(stride.error().message, middle);
    auto made = make_layout(*shape, *stride);
    if (!made) return fault(made.error().message, begin);
    return LayoutValue{*std::move(made)};
  }

  Result<LayoutValue> primary() {
    if (++nests_ > kMostNests) return fault(fmt::format("more than {} nests", kMostNests));
    Result<LayoutValue> value = primary_inside();
    --nests_;
    return value;
  }

  Result<LayoutValue> primary_inside() {
    const char c = peek();
    if (c == '(') return tuple();
    if (c == '<') return tiler();
    if (c == '-' || (c >= '0' && c <= '9')) return leaf();
    const std::size_t begin = at_;
    const std::string name(name_here());
    if (name.empty()) return expected("a layout, a number, a name or '('");
    at_ += name.size();
    if (name == "_") return LayoutValue{IntTuple(_)};
    if (const bool swizzle = name == "S" || name == "Sw"; swizzle && peek() == '<') {
      const std::size_t end = text_.find('>', at_);
      const auto read = swizzle_from_text(text_.substr(begin, end - begin + (end != text_.npos)));
      if (!read) return fault(read.error().message, begin);
      at_ = end + 1;
      return LayoutValue{*read};
    }
    if (!accept('(')) return LayoutValue{Word{name}};
    return call(name, begin);
  }

  Result<LayoutValue> call(const std::string& name, std::size_t begin) {
    Arguments arguments;
    std::vector<std::size_t> begins;
    if (!accept(')')) {
      do {
        peek();
        begins.push_back(at_);
        LAPIDARY_TRY(LayoutValue argument, composed());
        arguments.push_back(std::move(argument));
        if (arguments.size() > kMostParts) return fault("too many arguments");
      } while (accept(','));
      if (!accept(')')) return expected("',' or ')'");
    }
    std::string takes;
    for (const Function& function : functions()) {
      if (name != function.name) continue;
      takes += fmt::format("{}{}({})", takes.empty() ? "" : " or ", name, function.arguments);
      if (function.count != arguments.size() && function.count != kAnyCount) continue;
      std::optional<Refused> refused;
      Result<LayoutValue> value = function.call(arguments, refused);
      if (value) return value;
      return fault(value.error().message, refused ? begins[refused->argument] : begin);
    }
    if (takes.empty()) return fault(unknown(name), begin);
    return fault(fmt::format("{} argument{} given; it is {}", arguments.size(),
                             arguments.size() == 1 ? "" : "s", takes),
                 begin);
  }

  /// Numbers and tuples make a tuple; as soon as a layout is among them, a tiler.
  Result<LayoutValue> tuple() {
    accept('(');
    std::vector<LayoutValue> parts;
    std::vector<std::size_t> begins;
    if (!accept(')')) {
      do {
        peek();
        begins.push_back(at_);
        LAPIDARY_TRY(LayoutValue part, composed());
        parts.push_back(std::move(part));
        if (parts.size() > kMostParts) return fault("too many modes");
      } while (accept(','));
      if (!accept(')')) return expected("',' or ')'");
    }
    const bool plain = std::ranges::all_of(parts, [](const LayoutValue& part) {
      return std::holds_alternative<std::int64_t>(part.is) ||
             std::holds_alternative<IntTuple>(part.is);
    });
    if (!plain) return tiler_of(parts, begins);
    std::vector<IntTuple> children;
    for (const LayoutValue& part : parts) children.push_back(*convert<IntTuple>(part));
    return LayoutValue{IntTuple::tuple(children)};
  }

  Result<LayoutValue> tiler() {
    accept('<');
    std::vector<LayoutValue> parts;
    std::vector<std::size_t> begins;
    do {
      peek();
      begins.push_back(at_);
      LAPIDARY_TRY(LayoutValue part, composed());
      parts.push_back(std::move(part));
      if (parts.size() > kMostParts) return fault("too many modes");
    } while (accept(',') || accept(';'));
    if (!accept('>')) return expected("',' or '>'");
    return tiler_of(parts, begins);
  }

  Result<LayoutValue> tiler_of(const std::vector<LayoutValue>& parts,
                               const std::vector<std::size_t>& begins) {
    std::vector<Tiler> tilers;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Result<Tiler> part = convert<Tiler>(parts[i]);
      if (!part) return fault(part.error().message, begins[i]);
      tilers.push_back(*std::move(part));
    }
    return LayoutValue{Tiler(std::move(tilers))};
  }

  /// A number, also hexadecimal, or a coordinate stride.
  Result<LayoutValue> leaf() {
    std::size_t end = at_ + (text_[at_] == '-');
    while (end < text_.size() && (in_name(text_[end]) || text_[end] == '@')) ++end;
    const auto read = int_tuple_from_text(text_.substr(at_, end - at_));
    if (!read) {
      // The message counts characters from this word on; the caret shows the place.
      const std::string& message = read.error().message;
      const std::size_t got = message.find("got ");
      return fault(fmt::format("'{}' is no number: {}", text_.substr(at_, end - at_),
                               got == std::string::npos ? message : message.substr(got)));
    }
    at_ = end;
    return wrapped(*read);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int nests_ = 0;
  std::optional<std::size_t> fault_at_{};
};

/// The expression, cut around the place, and a caret below it.
std::string shown(std::string_view expression, std::size_t at) {
  constexpr std::size_t kWidth = 120;
  at = std::min(at, expression.size());
  const std::size_t begin = at > kWidth / 2 && expression.size() > kWidth ? at - kWidth / 2 : 0;
  std::string line = (begin > 0 ? "..." : "") + std::string(expression.substr(begin, kWidth));
  if (begin + kWidth < expression.size()) line += "...";
  for (char& c : line)
    if (c < ' ' || c > '~') c = '?';
  return fmt::format("{}\n{}^", line, std::string(at - begin + (begin > 0 ? 3 : 0), ' '));
}

}  // namespace

std::string text(const LayoutValue& value) {
  return std::visit(
      [](const auto& one) -> std::string {
        using T = std::decay_t<decltype(one)>;
        if constexpr (std::is_same_v<T, bool>) {
          return one ? "true" : "false";
        } else if constexpr (std::is_same_v<T, std::int64_t>) {
          return std::to_string(one);
        } else if constexpr (std::is_same_v<T, Word>) {
          return one.text;
        } else {
          return lapidary::text(one);
        }
      },
      value.is);
}

Result<LayoutValue> evaluate_layout(std::string_view expression) {
  Evaluator evaluator(expression);
  Result<LayoutValue> value = evaluator.all();
  if (value) return value;
  std::string message = value.error().message;
  if (!message.starts_with("layout: ")) message = "layout: " + message;
  return invalid("{}\n{}", message, shown(expression, evaluator.where()));
}

std::string layout_functions_help() {
  std::string help;
  for (const Function& function : functions()) {
    help += fmt::format("  {:<38} {}\n", fmt::format("{}({})", function.name, function.arguments),
                        function.about);
  }
  return help;
}

Result<int> element_bits(std::string_view who, std::string_view type) {
  static constexpr std::pair<const char*, int> kTypes[] = {
      {"f16", 16}, {"bf16", 16}, {"f32", 32}, {"tf32", 32}, {"f64", 64}, {"e4m3", 8},
      {"e5m2", 8}, {"e2m1", 4},  {"s8", 8},   {"u8", 8},    {"s32", 32}, {"4", 4},
      {"8", 8},    {"16", 16},   {"32", 32},  {"64", 64},   {"128", 128}};
  std::vector<std::string_view> names;
  for (const auto& [name, bits] : kTypes) {
    if (type == name) return bits;
    if (!std::isdigit(static_cast<unsigned char>(name[0]))) names.emplace_back(name);
  }
  return invalid("{}: '{}' is no element type; one of {} or a number of bits{}", who, type,
                 fmt::join(names, " "), did_you_mean(type, names));
}

}  // namespace lapidary::cli
