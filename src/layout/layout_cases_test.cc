// The cases of cute_layout_cases.jsonl: what CuTe's documents and tests say about each operation,
// and what its implementations gave (README.md). A case passes by form when our text is the
// expected one, and by function when the file leaves the form free and ours says the same.
// Properties are checked in both.
#include <gtest/gtest.h>

#include <charconv>
#include <cstdio>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "lapidary/layout.h"
#include "layout/testing_cases.h"
#include "support/result.h"
#include "support/text.h"

namespace lapidary {
namespace {

constexpr std::int64_t kMost = 1 << 20;  // coordinates that a check walks through at most

std::int64_t number(std::string_view text) {
  const bool hex = text.starts_with("0x");
  if (hex) text.remove_prefix(2);
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, hex ? 16 : 10);
  return value;
}
std::vector<int> numbers(std::string_view text) {
  std::vector<int> all;
  for (const std::string_view part : split(text, ','))
    all.push_back(static_cast<int>(number(trim(part))));
  return all;
}

std::string text(bool value) { return value ? "true" : "false"; }
std::string text(std::int64_t value) { return std::to_string(value); }
template <class T>
Result<std::string> texts(const Result<T>& result) {
  if (!result) return result.error();
  return text(*result);
}

using Inputs = std::vector<std::string>;
using Run = std::function<Result<std::string>(const Inputs&)>;
/// Why the result is not what the case's property says; "" when it is.
using Check = std::function<std::string(const Inputs&, const std::string& got)>;

struct Op {
  Run run;
  Check property = {};
};

Layout layout_of(const std::string& written) {
  const auto layout = layout_from_text(written);
  EXPECT_TRUE(layout) << written << ": " << layout.error();
  return layout ? *layout : Layout();
}

// ---- Runs -----------------------------------------------------------------------------------

Run unary(Layout (*op)(const Layout&)) {
  return [op](const Inputs& in) -> Result<std::string> {
    LAPIDARY_TRY(const Layout a, layout_from_text(in[0]));
    return text(op(a));
  };
}
Run unary(Result<Layout> (*op)(const Layout&)) {
  return [op](const Inputs& in) -> Result<std::string> {
    LAPIDARY_TRY(const Layout a, layout_from_text(in[0]));
    return texts(op(a));
  };
}
Run binary(Result<Layout> (*op)(const Layout&, const Layout&)) {
  return [op](const Inputs& in) -> Result<std::string> {
    LAPIDARY_TRY(const Layout a, layout_from_text(in[0]));
    LAPIDARY_TRY(const Layout b, layout_from_text(in[1]));
    return texts(op(a, b));
  };
}
Run with_tiler(Result<Layout> (*op)(const Layout&, const Tiler&)) {
  return [op](const Inputs& in) -> Result<std::string> {
    LAPIDARY_TRY(const Layout a, layout_from_text(in[0]));
    LAPIDARY_TRY(const Tiler b, tiler_from_text(in[1]));
    return texts(op(a, b));
  };
}
template <class Out>
Run of_tuple(Out (*op)(const IntTuple&)) {
  return [op](const Inputs& in) -> Result<std::string> {
    LAPIDARY_TRY(const IntTuple a, int_tuple_from_text(in[0]));
    return texts(Result(op(a)));
  };
}
template <class Out>
Run of_tuples(Out (*op)(const IntTuple&, const IntTuple&)) {
  return [op](const Inputs& in) -> Result<std::string> {
    LAPIDARY_TRY(const IntTuple a, int_tuple_from_text(in[0]));
    LAPIDARY_TRY(const IntTuple b, int_tuple_from_text(in[1]));
    return texts(Result(op(a, b)));
  };
}
template <class T>
Run by_number(Result<T> (*op)(const T&, std::int64_t), Result<T> (*read)(std::string_view)) {
  return [=](const Inputs& in) -> Result<std::string> {
    LAPIDARY_TRY(const T a, read(in[0]));
    return texts(op(a, number(in[1])));
  };
}
/// Both orders of what CuTe calls slice: the coordinate comes first in our functions.
Run picking(Result<Layout> (*op)(const IntTuple&, const Layout&)) {
  return [op](const Inputs& in) -> Result<std::string> {
    LAPIDARY_TRY(const Layout a, layout_from_text(in[0]));
    LAPIDARY_TRY(const IntTuple b, int_tuple_from_text(in[1]));
    return texts(op(b, a));
  };
}

Result<std::string> values_of(const Layout& layout) {
  std::string all;
  for (std::int64_t i = 0; i < layout.size(); ++i)
    all += (i > 0 ? " " : "") + std::to_string(layout(i));
  return all;
}

/// The same point of the space that coordinate strides span: modes that are missing are 0.
bool same_point(const IntTuple& a, const IntTuple& b) {
  if (a.is_leaf() && b.is_leaf()) return a == b;
  for (int i = 0; i < std::max(a.rank(), b.rank()); ++i) {
    const IntTuple left = a.is_tuple() && i < a.rank() ? a[i] : IntTuple(0);
    const IntTuple right = b.is_tuple() && i < b.rank() ? b[i] : IntTuple(0);
    if (!same_point(left, right)) return false;
  }
  return (a.is_tuple() || a.value() == 0) && (b.is_tuple() || b.value() == 0);
}

// ---- Properties -----------------------------------------------------------------------------

std::string composition_holds(const Inputs& in, const std::string& got) {
  const Layout a = layout_of(in[0]), b = layout_of(in[1]), r = layout_of(got);
  if (!compatible(b.shape(), r.shape())) return "shape(B) is not compatible with shape(R)";
  for (std::int64_t i = 0; i < b.size(); ++i) {
    const auto inner = evaluate(b, i);
    if (!inner) return inner.error().message;
    const auto want =
        b.is_integral() ? Result<IntTuple>(IntTuple(a(inner->value()))) : evaluate(a, *inner);
    if (!want || IntTuple(r(i)) != *want) return "R(" + std::to_string(i) + ") is not A(B(i))";
  }
  return "";
}

std::string complement_holds(const Inputs& in, const std::string& got) {
  const Layout a = layout_of(in[0]), r = layout_of(got);
  const std::int64_t size = *product(*int_tuple_from_text(in[1]));
  std::set<std::int64_t> image;
  for (std::int64_t i = 0; i < a.size(); ++i) image.insert(a(i));
  for (std::int64_t i = 1; i < r.size(); ++i) {
    if (r(i) <= r(i - 1)) return "it does not increase";
    if (image.contains(r(i))) return "it meets the layout at " + std::to_string(r(i));
  }
  if (cosize(*make_layout({a, r})) < size) return "the two together do not reach the size";
  const std::int64_t rounded = (size + cosize(a) - 1) / cosize(a) * cosize(a);
  if (cosize(r) > rounded) return "it reaches too far";
  return "";
}

std::string left_inverse_holds(const Inputs& in, const std::string& got) {
  const Layout l = layout_of(in[0]), r = layout_of(got);
  std::map<std::string, std::int64_t> seen;
  bool injective = l.size() <= 4096;
  for (std::int64_t i = 0; injective && i < l.size(); ++i)
    injective = seen.emplace(text(*evaluate(l, i)), i).second;
  for (std::int64_t i = 0; i < l.size(); ++i) {
    const IntTuple there = *evaluate(l, i);
    const auto back = evaluate(r, there);
    if (!back) return back.error().message;
    if (*evaluate(l, *back) != there) return "L(R(L(i))) is not L(i) for i = " + std::to_string(i);
    if (injective && back->value() != i) return "R(L(i)) is not i = " + std::to_string(i);
  }
  return "";
}

/// The sizes of R's modes in the nest of L's results.
IntTuple box(const IntTuple& results, const Layout& r) {
  if (results.is_leaf()) return IntTuple(r.size());
  std::vector<IntTuple> parts;
  for (int i = 0; i < results.rank(); ++i) parts.push_back(box(results[i], r[i]));
  return IntTuple::tuple(parts);
}

std::string right_inverse_holds(const Inputs& in, const std::string& got) {
  const Layout l = layout_of(in[0]), r = layout_of(got);
  const IntTuple domain = box(coshape(l), r);
  for (std::int64_t i = 0; i < r.size(); ++i) {
    const IntTuple there = *idx2crd(i, domain);
    const auto back = l.is_integral() ? Result<IntTuple>(IntTuple(r(i))) : evaluate(r, there);
    if (!back) return back.error().message;
    if (*evaluate(l, *back) != there) return "L(R(i)) is not i = " + std::to_string(i);
  }
  return "";
}

std::string coalesce_holds(const Inputs& in, const std::string& got) {
  const Layout l = layout_of(in[0]), r = layout_of(got);
  if (l.size() != r.size()) return "the size changed";
  if (in.size() == 1 && depth(r) > 1) return "it nests";
  for (std::int64_t i = 0; i < l.size(); ++i)
    if (!same_point(*evaluate(l, i), *evaluate(r, i))) return "R(i) is not L(i)";
  return "";
}

std::string divide_holds(const Inputs& in, const std::string& got) {
  const Layout a = layout_of(in[0]), b = layout_of(in[1]), r = layout_of(got);
  if (r.rank() != 2) return "the rank is not 2";
  if (!compatible(b.shape(), r[0].shape())) return "B does not fit R[0]";
  if (*composition(a, b) != r[0]) return "R[0] is not composition(A, B)";
  std::set<std::int64_t> image;
  for (std::int64_t i = 0; i < r.size(); ++i) image.insert(r(i));
  for (std::int64_t i = 0; i < a.size(); ++i)
    if (!image.contains(a(i))) return "a value of A is missing in R";
  return "";
}

std::string product_holds(const Inputs& in, const std::string& got) {
  const Layout a = layout_of(in[0]), b = layout_of(in[1]), r = layout_of(got);
  if (r.rank() != 2) return "the rank is not 2";
  if (r[0] != a) return "R[0] is not A";
  if (!compatible(b.shape(), r[1].shape())) return "B does not fit R[1]";
  return "";
}

std::string identity_holds(const Inputs& in, const std::string& got) {
  const Layout r = layout_of(got);
  for (std::int64_t i = 0; i < r.size(); ++i)
    if (*evaluate(r, i) != *idx2crd(i, *int_tuple_from_text(in[0]))) return "not the identity";
  return "";
}

std::string nullspace_holds(const Inputs& in, const std::string& got) {
  const Layout l = layout_of(in[0]), r = layout_of(got);
  if (r.size() != l.size() / filter(l).size()) return "the size is wrong";
  for (std::int64_t i = 0; i < r.size(); ++i)
    if (l(r(i)) != 0) return "L(R(i)) is not 0";
  return "";
}

std::string distribute_holds(const Inputs& in, const std::string& got) {
  const Layout r = layout_of(got);
  if (number(in[1]) % r.size() != 0) return "the size does not divide";
  for (std::int64_t i = 1; i < r.size(); ++i)
    if (r(i) <= r(i - 1)) return "it does not increase";
  return *product(*int_tuple_from_text(in[0])) % r.size() == 0 ? ""
                                                               : "it does not divide the domain";
}

std::string slices_hold(const Inputs& in, const std::string&) {
  const Layout l = layout_of(in[0]);
  for (std::int64_t i = 0; i < l[0].size(); ++i) {
    const Layout row = *slice({i, _}, l);
    for (std::int64_t j = 0; j < l[1].size(); ++j) {
      if (row(j) != l(i, j)) return "a sliced row differs";
      if ((*slice({_, j}, l))(i) != l(i, j)) return "a sliced column differs";
    }
  }
  return "";
}

std::string involution_holds(const Inputs& in, const std::string& got) {
  const Swizzle s = *swizzle_from_text(in[0]);
  return s(number(got)) == number(in[1]) ? "" : "applying it twice does not give the input";
}

std::string alignment_holds(const Inputs& in, const std::string& got) {
  if (const auto swizzle = swizzle_from_text(in[0]))
    return upcast(*swizzle, number(got)) && !upcast(*swizzle, 2 * number(got)) ? ""
                                                                               : "not the largest";
  return upcast(layout_of(in[0]), number(got)) ? "" : "upcast by it is refused";
}

/// The leading offsets that two layouts have at the same coordinates, counted.
std::string common_holds(const Inputs& in, const std::string& got) {
  const Layout a = layout_of(in[0]), b = layout_of(in[1]);
  const Layout common = *max_common_layout(a, b);
  if (common.size() != number(got)) return "max_common_layout has another size";
  for (std::int64_t i = 0; i < common.size(); ++i)
    if (a(common(i)) != i || b(common(i)) != i) return "the two differ there";
  std::map<std::int64_t, std::set<std::int64_t>> where;
  for (std::int64_t i = 0; i < b.size(); ++i) where[b(i)].insert(i);
  for (const std::int64_t i : where[common.size()])
    if (a(i) == common.size()) return "there is a longer one";
  return "";
}

// ---- Atoms ----------------------------------------------------------------------------------

/// "SM80 16x8 C": onto that many elements, each once. What fills the layouts is tested in room
/// arch.
Result<std::string> onto(const Inputs& in) {
  LAPIDARY_TRY(const Layout layout, layout_from_text(in[1]));
  if (layout.rank() != 2) return fail(ErrorCode::wrong_result, "rank is not 2");
  std::string extent;
  // B is (N, K) of MxNxK.
  std::vector<std::string> words;
  for (const std::string_view word : split(in[0], ' '))
    if (word.find('x') != std::string_view::npos) extent = word;
  const std::vector<std::string_view> sizes = split(extent, 'x');
  const std::int64_t rows = number(sizes[sizes.size() - 2]), cols = number(sizes.back());
  std::set<std::int64_t> image;
  for (std::int64_t i = 0; i < layout.size(); ++i) image.insert(layout(i));
  if (layout.size() != rows * cols || static_cast<std::int64_t>(image.size()) != rows * cols ||
      *image.begin() != 0 || *image.rbegin() != rows * cols - 1)
    return fail(ErrorCode::wrong_result, "not bijective");
  return fmt::format("bijective onto {}x{} (column-major index m+M*n)", rows, cols);
}

/// The points that the case names, looked up.
Result<std::string> points(const Inputs& in) {
  LAPIDARY_TRY(const Layout layout, layout_from_text(in[1]));
  const std::int64_t cols = layout[1].size(), last = cols - 1, half = cols / 2;
  std::string all;
  // CuTe's cases: two corners, the middle and the end of rows 1, 3 and 7.
  for (const auto& [i, j] : {std::pair<std::int64_t, std::int64_t>{0, 0},
                             {1, 0},
                             {1, half},
                             {3, last},
                             {7, 0},
                             {7, last}}) {
    all += fmt::format("{}({},{})->{}", all.empty() ? "" : "; ", i, j, layout(i, j));
  }
  return all;
}

std::string atom_holds(const Inputs& in, const std::string&) {
  const Layout layout = layout_of(in[1]);
  const std::int64_t cols = layout[1].size();
  // 16 bytes, in elements: the base of the swizzle.
  const std::int64_t chunk = std::int64_t{1} << layout.stages()[0].base;
  std::set<std::int64_t> image;
  for (std::int64_t i = 0; i < 8; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) {
      image.insert(layout(i, j));
      if (layout(i, j) != layout(i, j / chunk * chunk) + j % chunk) return "a chunk is torn";
    }
  }
  const std::int64_t size = 8 * cols;
  return static_cast<std::int64_t>(image.size()) == size && *image.rbegin() == size - 1
             ? ""
             : "not bijective";
}

/// CTAs row-major in clusters of 2x2, clusters column-major: which tile has a work index?
Result<std::string> tile_of_work(const Inputs& in) {
  LAPIDARY_TRY(const IntTuple tiles, int_tuple_from_text(in[0]));
  LAPIDARY_TRY(const Layout cluster, layout_from_text("(2,2):(2,1)"));
  LAPIDARY_TRY(const IntTuple clusters, ceil_div(tiles, cluster.shape()));
  LAPIDARY_TRY(const Layout order, make_layout(clusters));
  LAPIDARY_TRY(const Layout work, blocked_product(cluster, order));
  LAPIDARY_TRY(const Layout inverse, right_inverse(work));
  LAPIDARY_TRY(const Layout identity, make_identity_layout(tiles));
  LAPIDARY_TRY(const Layout tile, composition(identity, inverse));
  return texts(evaluate(tile, number(in[2])));
}

// ---- Unknown integers -----------------------------------------------------------------------

/// The text with each ? replaced by the next of the values.
std::string filled(std::string text, const std::vector<int>& values, std::size_t& next) {
  for (std::size_t at; (at = text.find('?')) != std::string::npos;)
    text.replace(at, 1, std::to_string(values[next++ % values.size()]));
  return text;
}

struct Symbolic {
  Result<Layout> (*run)(const Inputs&);
  std::string (*property)(const Inputs&, const std::string& got);
};

/// A statement about unknown integers, for several of them: is there for each a value of the
/// result's ? with which it is the same function?
Result<std::string> for_instances(const Inputs& in, const std::string& expected,
                                  const Symbolic& op) {
  // Not among them: values with which the unknown mode happens to continue another one.
  for (const std::vector<int>& values : {std::vector<int>{3, 5, 7, 11},
                                         {5, 7, 3, 13},
                                         {9, 6, 5, 2},
                                         {17, 1, 9, 3},
                                         {1000, 77, 12, 5}}) {
    std::size_t next = 0;
    Inputs instance;
    for (const std::string& input : in) instance.push_back(filled(input, values, next));
    LAPIDARY_TRY(const Layout got, op.run(instance));
    if (const std::string why = op.property(instance, text(got)); !why.empty())
      return fail(ErrorCode::wrong_result, "{}: {}", instance[0], why);
    bool same = false;
    for (int extent = 1; extent <= 1100 && !same; ++extent) {
      for (const int stride : {got.modes().back().stride == 0 ? 0 : 1}) {
        std::string candidate = expected;
        std::size_t first = 0;
        // "?:?": the strides' ? is what the result's stride is.
        if (const std::size_t colon = candidate.rfind(":?"); colon != std::string::npos)
          candidate.replace(colon, 2, ":" + std::to_string(got.modes().back().stride));
        candidate = filled(candidate, {extent, stride}, first);
        const Layout want = layout_of(candidate);
        same = want.size() == got.size() && values_of(want).has_value() &&
               *values_of(want) == *values_of(got);
        if (first == 0 && !same) return fail(ErrorCode::wrong_result, "got {}", text(got));
      }
    }
    if (!same) return fail(ErrorCode::wrong_result, "{}: got {}", instance[0], text(got));
  }
  return expected;
}

Result<Layout> compose_texts(const Inputs& in) {
  LAPIDARY_TRY(const Layout a, layout_from_text(in[0]));
  LAPIDARY_TRY(const Layout b, layout_from_text(in[1]));
  return composition(a, b);
}
Result<Layout> complement_texts(const Inputs& in) {
  LAPIDARY_TRY(const Layout a, layout_from_text(in[0]));
  LAPIDARY_TRY(const IntTuple b, int_tuple_from_text(in[1]));
  return complement(a, b);
}
Result<Layout> invert_text(const Inputs& in) {
  LAPIDARY_TRY(const Layout a, layout_from_text(in[0]));
  return right_inverse(a);
}

// ---- The table ------------------------------------------------------------------------------

const std::map<std::string, Op>& ops() {
  using L = const Layout&;
  using T = const IntTuple&;
  static const std::map<std::string, Op> table = {
      {"append", {binary(append)}},
      {"blocked_product", {binary(blocked_product)}},
      {"coalesce", {unary(static_cast<Layout (*)(L)>(coalesce)), coalesce_holds}},
      {"coalesce_profile",
       {[](const Inputs& in) -> Result<std::string> {
          LAPIDARY_TRY(const Layout a, layout_from_text(in[0]));
          LAPIDARY_TRY(const IntTuple b, int_tuple_from_text(in[1]));
          return texts(coalesce(a, b));
        },
        coalesce_holds}},
      {"compact_col_major", {of_tuple(compact_col_major)}},
      {"compact_row_major", {of_tuple(compact_row_major)}},
      {"compatible", {of_tuples(compatible)}},
      {"complement",
       {[](const Inputs& in) { return texts(complement_texts(in)); }, complement_holds}},
      {"complement_error", {[](const Inputs& in) -> Result<std::string> {
         LAPIDARY_TRY(const Layout a, layout_from_text(in[0]));
         return texts(complement(a));
       }}},
      {"composition",
       {binary(static_cast<Result<Layout> (*)(L, L)>(composition)), composition_holds}},
      {"composition_error", {binary(static_cast<Result<Layout> (*)(L, L)>(composition))}},
      {"composition_tiler",
       {with_tiler(static_cast<Result<Layout> (*)(L, const Tiler&)>(composition))}},
      {"cosize", {[](const Inputs& in) -> Result<std::string> {
         LAPIDARY_TRY(const Layout a, layout_from_text(in[0]));
         return std::to_string(cosize(a));
       }}},
      {"crd2idx", {[](const Inputs& in) -> Result<std::string> {
         LAPIDARY_TRY(const IntTuple crd, int_tuple_from_text(in[0]));
         LAPIDARY_TRY(const IntTuple shape, int_tuple_from_text(in[1]));
         LAPIDARY_TRY(const IntTuple stride, int_tuple_from_text(in[2]));
         return texts(crd2idx(crd, shape, stride));
       }}},
      {"dice", {picking(dice)}},
      {"domain_distribute",
       {[](const Inputs& in) -> Result<std::string> {
          LAPIDARY_TRY(const IntTuple shape, int_tuple_from_text(in[0]));
          return texts(domain_distribute(shape, number(in[1])));
        },
        distribute_holds}},
      {"downcast",
       {by_number(static_cast<Result<Layout> (*)(L, std::int64_t)>(downcast), layout_from_text)}},
      {"eval_1d", {[](const Inputs& in) -> Result<std::string> {
         LAPIDARY_TRY(const Layout a, layout_from_text(in[0]));
         return values_of(a);
       }}},
      {"eval_2d", {[](const Inputs& in) -> Result<std::string> {
         LAPIDARY_TRY(const Layout a, layout_from_text(in[0]));
         std::string all;
         for (std::int64_t i = 0; i < a[0].size(); ++i) {
           all += i > 0 ? " / " : "";
           for (std::int64_t j = 0; j < a[1].size(); ++j)
             all += (j > 0 ? " " : "") + std::to_string(a(i, j));
         }
         return all;
       }}},
      {"evenly_divides", {of_tuples(evenly_divides)}},
      {"filter", {unary(filter)}},
      {"flat_divide_tiler", {with_tiler(flat_divide)}},
      {"flat_product", {with_tiler(flat_product)}},
      {"flatten", {unary(static_cast<Layout (*)(L)>(flatten))}},
      {"get_mode", {[](const Inputs& in) -> Result<std::string> {
         LAPIDARY_TRY(const Layout a, layout_from_text(in[0]));
         return texts(get(a, numbers(in[1])));
       }}},
      {"gmma_smem_atom_k_major", {points, atom_holds}},
      {"group_modes", {[](const Inputs& in) -> Result<std::string> {
         LAPIDARY_TRY(const Layout a, layout_from_text(in[0]));
         return texts(group_modes(a, numbers(in[1])[0], numbers(in[1])[1]));
       }}},
      {"idx2crd", {of_tuples(static_cast<Result<IntTuple> (*)(T, T)>(idx2crd))}},
      {"idx2crd_2d", {of_tuples(static_cast<Result<IntTuple> (*)(T, T)>(idx2crd))}},
      {"inner_product", {of_tuples(inner_product)}},
      {"left_inverse", {unary(left_inverse), left_inverse_holds}},
      {"logical_divide", {with_tiler(logical_divide), divide_holds}},
      {"logical_divide_tiler", {with_tiler(logical_divide)}},
      {"logical_product", {with_tiler(logical_product), product_holds}},
      {"make_identity_layout", {of_tuple(make_identity_layout), identity_holds}},
      {"make_layout_concat", {[](const Inputs& in) -> Result<std::string> {
         std::vector<Layout> modes;
         for (const std::string& mode : in) {
           LAPIDARY_TRY(Layout read, layout_from_text(mode));
           modes.push_back(std::move(read));
         }
         return texts(make_layout(modes));
       }}},
      {"make_layout_like", {unary(make_layout_like)}},
      {"make_ordered_layout", {of_tuples(make_ordered_layout)}},
      {"max_alignment",
       {[](const Inputs& in) -> Result<std::string> {
          if (const auto swizzle = swizzle_from_text(in[0]))
            return std::to_string(max_alignment(*swizzle));
          LAPIDARY_TRY(const Layout a, layout_from_text(in[0]));
          return std::to_string(max_alignment(a));
        },
        alignment_holds}},
      {"max_common_vector",
       {[](const Inputs& in) -> Result<std::string> {
          LAPIDARY_TRY(const Layout a, layout_from_text(in[0]));
          LAPIDARY_TRY(const Layout b, layout_from_text(in[1]));
          return texts(max_common_vector(a, b));
        },
        common_holds}},
      {"mma_tv_layout", {onto}},
      {"nullspace", {unary(nullspace), nullspace_holds}},
      {"prefix_product", {[](const Inputs& in) -> Result<std::string> {
         LAPIDARY_TRY(const IntTuple a, int_tuple_from_text(in[0]));
         return texts(prefix_product(a));
       }}},
      {"prepend", {binary(prepend)}},
      {"product", {of_tuple(product)}},
      {"raked_product", {binary(raked_product)}},
      {"recast_layout", {[](const Inputs& in) -> Result<std::string> {
         LAPIDARY_TRY(const Layout a, layout_from_text(in[0]));
         return texts(recast(a, number(in[1]), number(in[2])));
       }}},
      {"replace", {[](const Inputs& in) -> Result<std::string> {
         LAPIDARY_TRY(const Layout a, layout_from_text(in[0]));
         LAPIDARY_TRY(const Layout b, layout_from_text(in[2]));
         return texts(replace(a, static_cast<int>(number(in[1])), b));
       }}},
      {"right_inverse", {unary(right_inverse), right_inverse_holds}},
      {"select", {[](const Inputs& in) -> Result<std::string> {
         LAPIDARY_TRY(const Layout a, layout_from_text(in[0]));
         return texts(select(a, numbers(in[1])));
       }}},
      {"shape_div", {of_tuples(shape_div)}},
      {"shape_mod", {of_tuples(shape_mod)}},
      {"slice", {picking(slice)}},
      {"swizzle_apply",
       {[](const Inputs& in) -> Result<std::string> {
          LAPIDARY_TRY(const Swizzle s, swizzle_from_text(in[0]));
          return fmt::format("0x{:08x}", s(number(in[1])));
        },
        involution_holds}},
      {"swizzle_downcast",
       {by_number(static_cast<Result<Swizzle> (*)(const Swizzle&, std::int64_t)>(downcast),
                  swizzle_from_text)}},
      {"swizzle_eval_1d",
       {[](const Inputs& in) -> Result<std::string> {
          LAPIDARY_TRY(const Layout a, layout_from_text(in[0]));
          return values_of(a);
        },
        slices_hold}},
      {"swizzle_parse_error", {[](const Inputs& in) { return texts(swizzle_from_text(in[0])); }}},
      {"swizzle_upcast",
       {by_number(static_cast<Result<Swizzle> (*)(const Swizzle&, std::int64_t)>(upcast),
                  swizzle_from_text)}},
      {"take", {[](const Inputs& in) -> Result<std::string> {
         LAPIDARY_TRY(const Layout a, layout_from_text(in[0]));
         return texts(take(a, numbers(in[1])[0], numbers(in[1])[1]));
       }}},
      {"tile_to_shape", {[](const Inputs& in) -> Result<std::string> {
         LAPIDARY_TRY(const Layout a, layout_from_text(in[0]));
         LAPIDARY_TRY(const IntTuple shape, int_tuple_from_text(in[1]));
         if (in.size() == 2) return texts(tile_to_shape(a, shape));
         LAPIDARY_TRY(const IntTuple order, int_tuple_from_text(in[2]));
         return texts(tile_to_shape(a, shape, order));
       }}},
      {"tile_to_shape_error", {[](const Inputs& in) -> Result<std::string> {
         LAPIDARY_TRY(const Layout a, layout_from_text(in[0]));
         LAPIDARY_TRY(const IntTuple shape, int_tuple_from_text(in[1]));
         return texts(tile_to_shape(a, shape));
       }}},
      {"tiled_divide_tiler", {with_tiler(tiled_divide)}},
      {"tiled_product", {with_tiler(tiled_product)}},
      {"upcast",
       {by_number(static_cast<Result<Layout> (*)(L, std::int64_t)>(upcast), layout_from_text)}},
      {"weakly_congruent", {of_tuples(weakly_congruent)}},
      {"work_index_to_tile", {tile_of_work}},
      {"zipped_divide_tiler", {with_tiler(zipped_divide)}},
      {"zipped_divide_tiler_shape", {[](const Inputs& in) -> Result<std::string> {
         LAPIDARY_TRY(const IntTuple shape, int_tuple_from_text(in[0]));
         LAPIDARY_TRY(const Layout a, make_layout(shape));
         LAPIDARY_TRY(const Tiler tiler, tiler_from_text(in[1]));
         LAPIDARY_TRY(const Layout divided, zipped_divide(a, tiler));
         return text(divided.shape());
       }}},
      {"zipped_product", {with_tiler(zipped_product)}},
  };
  return table;
}

const std::map<std::string, Symbolic> kSymbolic = {
    {"composition_symbolic", {compose_texts, composition_holds}},
    {"complement_symbolic", {complement_texts, complement_holds}},
    {"right_inverse_symbolic", {invert_text, right_inverse_holds}},
};

/// Cases that we do not answer, each with the reason.
const std::map<std::string, std::string> kOptional = {};

/// Words of our message for the kind of error that a case names.
const std::map<std::string, std::string> kErrors = {
    {"error: not injective", "not injective"},
    {"error: rank of coprofile", "the left has no such mode"},
    {"error: stride divisibility", "does not divide extent"},
    {"error: negative bits", "negative bits"},
    {"error: bits > |shift|", "bits > |shift|"},
    {"error: too many bits", "bits"},
    {"error: too few target modes", "too few target modes"},
};

bool same_function(const std::string& a, const std::string& b) {
  const auto left = layout_from_text(a), right = layout_from_text(b);
  if (!left || !right || left->size() != right->size() || left->size() > kMost) return false;
  for (std::int64_t i = 0; i < left->size(); ++i)
    if (!same_point(*evaluate(*left, i), *evaluate(*right, i))) return false;
  return true;
}

TEST(LayoutCases, AllOfThem) {
  const auto cases = layout_cases(LAPIDARY_SOURCE_DIR "/src/layout/cute_layout_cases.jsonl");
  ASSERT_EQ(cases.size(), 503u);
  int by_form = 0, by_function = 0, by_error = 0, by_instance = 0, optional = 0;
  for (const LayoutCase& c : cases) {
    const std::string inputs = fmt::format("{}", fmt::join(c.inputs, " | "));
    SCOPED_TRACE(c.op + " " + inputs + " -> " + c.expected + "\n  " + c.source);
    if (kOptional.contains(c.op + " " + inputs)) {
      ++optional;
      continue;
    }
    if (const auto found = kSymbolic.find(c.op); found != kSymbolic.end()) {
      const auto got = for_instances(c.inputs, c.expected, found->second);
      EXPECT_TRUE(got) << got.error();
      by_instance += got.has_value();
      continue;
    }
    const auto op = ops().find(c.op);
    if (op == ops().end()) {
      ADD_FAILURE() << "no such operation";
      continue;
    }
    const Result<std::string> got = op->second.run(c.inputs);
    if (c.expected.starts_with("error")) {
      ASSERT_FALSE(got) << *got;
      ASSERT_TRUE(kErrors.contains(c.expected));
      EXPECT_NE(got.error().message.find(kErrors.at(c.expected)), std::string::npos) << got.error();
      EXPECT_EQ(got.error().code, ErrorCode::invalid_argument);
      ++by_error;
      continue;
    }
    if (!got) {
      ADD_FAILURE() << got.error();
      continue;
    }
    if (op->second.property) {
      const std::string why = op->second.property(c.inputs, *got);
      EXPECT_EQ(why, "") << "got " << *got;
      if (!why.empty()) continue;
    }
    if (*got == c.expected) {
      ++by_form;
      continue;
    }
    // The form is free where the case has a property that we hold; then the function is not, but
    // where the file says so.
    const bool free =
        op->second.property != nullptr &&
        (same_function(*got, c.expected) || c.source.find("free choice") != std::string::npos);
    EXPECT_TRUE(free) << "got " << *got;
    by_function += free;
    if (free)
      std::printf("by function: %s %s -> %s, ours %s\n", c.op.c_str(), inputs.c_str(),
                  c.expected.c_str(), got->c_str());
  }
  std::printf(
      "%zu cases: %d by form, %d by function, %d by error, %d by instances of unknowns, %d "
      "optional\n",
      cases.size(), by_form, by_function, by_error, by_instance, optional);
  EXPECT_EQ(by_form + by_function + by_error + by_instance + optional, 503);
  EXPECT_EQ(static_cast<std::size_t>(optional), kOptional.size());
}

}  // namespace
}  // namespace lapidary
