#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "lapidary/layout.h"
#include "support/random.h"
#include "support/result.h"

// The laws of the algebra, each on inputs drawn from bytes or from a seed: for the random tests and
// the fuzz target. In a header, since fuzz targets are single files.
namespace lapidary::laws {

/// Choices: from the bytes while there are some, then from the seed.
class Draws {
 public:
  explicit Draws(std::uint64_t seed, std::span<const std::uint8_t> bytes = {})
      : seed_(seed), bytes_(bytes) {}
  /// A number below n.
  int below(int n) {
    if (at_ < bytes_.size()) return bytes_[at_++] % n;
    return static_cast<int>(mix(seed_, at_++) % static_cast<std::uint64_t>(n));
  }
  bool chance(int percent) { return below(100) < percent; }
  template <class T, std::size_t N>
  T one_of(const T (&values)[N]) {
    return values[below(static_cast<int>(N))];
  }

 private:
  std::uint64_t seed_;
  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
};

/// Whether the operation took the inputs, and what is wrong if a law does not hold for them.
struct Verdict {
  bool accepted = false;
  std::string broken{};
};
inline const Verdict kRefused{};
inline const Verdict kHeld{.accepted = true};
template <class... Args>
Verdict broken(fmt::format_string<Args...> text, Args&&... args) {
  return {.accepted = true, .broken = fmt::format(text, std::forward<Args>(args)...)};
}

// ---- Inputs ---------------------------------------------------------------------------------

/// A shape of at most `room` elements.
inline IntTuple draw_within(Draws& draws, std::int64_t& room, int nests) {
  if (nests == 0 || draws.chance(45)) {
    constexpr std::int64_t kExtents[] = {1, 2, 2, 3, 4, 4, 5, 6, 8, 8, 12, 16};
    std::int64_t extent = draws.one_of(kExtents);
    if (extent > room) extent = 1;
    room /= extent;
    return extent;
  }
  std::vector<IntTuple> children;
  for (int i = draws.below(3) + 1; i > 0; --i)
    children.push_back(draw_within(draws, room, nests - 1));
  return IntTuple::tuple(children);
}
inline IntTuple draw_shape(Draws& draws, std::int64_t room = 256) {
  return draw_within(draws, room, 2);
}

/// shape:strides, the strides in the order of the shape's leaves.
inline Layout layout_with(const IntTuple& shape, const std::vector<std::int64_t>& strides) {
  // Any congruent tuple will do to put the strides in: the shape's own, leaf by leaf.
  std::size_t next = 0;
  const std::function<IntTuple(const IntTuple&)> walk = [&](const IntTuple& at) -> IntTuple {
    if (at.is_leaf()) return strides[next++];
    std::vector<IntTuple> children;
    for (int i = 0; i < at.rank(); ++i) children.push_back(walk(at[i]));
    return IntTuple::tuple(children);
  };
  return *make_layout(shape, walk(shape));
}

/// A layout as kernels have them (compact in some order, with gaps or broadcasts), or with any
/// strides.
inline Layout draw_layout(Draws& draws, std::int64_t room = 256) {
  const IntTuple shape = draw_shape(draws, room);
  const std::size_t n = shape.leaves().size();
  std::vector<std::int64_t> strides(n);
  if (draws.chance(25)) {
    constexpr std::int64_t kStrides[] = {0, 1, 1, 2, 3, 4, 6, 8, 9, 12, 16, 24, 32, 64};
    for (std::int64_t& stride : strides) stride = draws.one_of(kStrides);
    return layout_with(shape, strides);
  }
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  if (draws.chance(75))
    for (std::size_t i = n; i > 1; --i)
      std::swap(order[i - 1], order[static_cast<std::size_t>(draws.below(static_cast<int>(i)))]);
  std::int64_t running = draws.chance(80) ? 1 : draws.below(4) + 1;
  const bool gaps = draws.chance(30), broadcasts = draws.chance(15);
  for (const std::size_t i : order) {
    if (broadcasts && draws.chance(30)) continue;
    if (gaps && draws.chance(40)) running *= draws.below(3) + 1;
    strides[i] = running;
    running *= shape.leaves()[i].value;
  }
  return layout_with(shape, strides);
}

inline Swizzle draw_swizzle(Draws& draws, int most_bits = 8) {
  for (;;) {
    const int bits = draws.below(4), base = draws.below(4), distance = bits + draws.below(3);
    if (base + bits + distance > most_bits) continue;
    return {bits, base, draws.chance(75) ? distance : -distance};
  }
}

inline Layout draw_swizzled(Draws& draws) {
  Layout layout = draw_layout(draws);
  const std::int64_t offset = draws.chance(70) ? 0 : draws.below(64);
  return *make_composed_layout(draw_swizzle(draws), offset, layout);
}

/// The same with the signs of some strides, or of all, turned.
inline Layout turned(Draws& draws, const Layout& layout) {
  const bool all = draws.chance(50);
  std::vector<std::int64_t> strides;
  for (const Layout::Mode& mode : layout.modes())
    strides.push_back(all || draws.chance(50) ? -mode.stride : mode.stride);
  return layout_with(layout.shape(), strides);
}

/// Extents and strides powers of two and a bijection: what swizzles move through.
inline Layout draw_bits(Draws& draws) {
  const int modes = draws.below(4) + 1;
  std::vector<std::int64_t> extents, order;
  for (int i = 0; i < modes; ++i) {
    extents.push_back(std::int64_t{1} << draws.below(4));
    order.push_back(draws.below(4));
  }
  return *make_ordered_layout(IntTuple::tuple(extents), IntTuple::tuple(order));
}

/// A tiler by mode for this layout, of numbers or small layouts.
inline Tiler draw_tiler(Draws& draws, const Layout& layout) {
  if (layout.is_leaf() || draws.chance(20)) return Tiler(draw_layout(draws, 16));
  std::vector<Tiler> parts;
  for (int i = draws.below(layout.rank()) + 1; i > 0; --i) {
    const std::int64_t extent = layout[static_cast<int>(parts.size())].size();
    if (draws.chance(10)) {
      parts.emplace_back(_);
    } else if (draws.chance(70)) {
      const std::int64_t tile = std::gcd(extent, std::int64_t{1} << draws.below(4));
      parts.push_back(*make_tiler(IntTuple(tile)));
    } else {
      parts.emplace_back(draw_layout(draws, 8));
    }
  }
  return Tiler(std::move(parts));
}

// ---- Helpers --------------------------------------------------------------------------------

inline std::set<std::int64_t> image(const Layout& layout) {
  std::set<std::int64_t> all;
  for (std::int64_t i = 0; i < layout.size(); ++i) all.insert(layout(i));
  return all;
}
inline bool injective(const Layout& layout) {
  return static_cast<std::int64_t>(image(layout).size()) == layout.size();
}
inline bool same_function(const Layout& a, const Layout& b) {
  if (a.size() != b.size()) return false;
  for (std::int64_t i = 0; i < a.size(); ++i)
    if (a(i) != b(i)) return false;
  return true;
}

/// How far a layout goes with the gaps of its last stride, and whether its strides divide one
/// another so that its complement leaves no offset out.
struct Span {
  std::int64_t block = 1;
  bool even = true;
};
inline Span span_of(const Layout& layout) {
  const Layout filtered = filter(layout);
  std::vector<Layout::Mode> sorted(filtered.modes().begin(), filtered.modes().end());
  std::ranges::sort(sorted, {}, &Layout::Mode::stride);
  Span span;
  for (const Layout::Mode& mode : sorted) {
    span.even &= mode.stride % span.block == 0;
    span.block = std::max(span.block, mode.shape * mode.stride);
  }
  return span;
}

/// A coordinate with 0 for the modes of the shape that it lacks.
inline IntTuple completed(const IntTuple& coordinate, const IntTuple& shape) {
  if (coordinate.is_leaf() || shape.is_leaf()) return coordinate;
  std::vector<IntTuple> children;
  for (int i = 0; i < shape.rank(); ++i) {
    children.push_back(i < coordinate.rank() ? completed(coordinate[i], shape[i]) : IntTuple(0));
  }
  return IntTuple::tuple(children);
}

// ---- Laws -----------------------------------------------------------------------------------

inline Verdict composition_law(const Layout& a, const Layout& b) {
  const auto r = composition(a, b);
  if (!r) return kRefused;
  if (!compatible(b.shape(), r->shape()))
    return broken("composition({}, {}) = {}: shape", text(a), text(b), text(*r));
  for (std::int64_t i = 0; i < b.size(); ++i) {
    // Beyond its size a goes on as its coalesced form does.
    if ((*r)(i) != coalesce(a)(b(i)))
      return broken("composition({}, {}) = {} at {}", text(a), text(b), text(*r), i);
  }
  return kHeld;
}
inline Verdict composition_holds(Draws& draws) {
  const Layout a = draw_layout(draws), b = draw_layout(draws, 64);
  const Verdict verdict = composition_law(a, b);
  // One mode takes everything.
  if (!verdict.accepted && coalesce(a).is_leaf())
    return broken("composition({}, {}) is refused", text(a), text(b));
  return verdict;
}
inline Verdict negative_composition_holds(Draws& draws) {
  const Layout a = draw_layout(draws), b = draw_layout(draws, 64);
  const bool left = draws.chance(50);
  return composition_law(left ? turned(draws, a) : a,
                         left && draws.chance(50) ? b : turned(draws, b));
}
inline Verdict swizzled_composition_holds(Draws& draws) {
  if (draws.chance(50)) return composition_law(draw_swizzled(draws), draw_layout(draws, 64));
  const Layout b = *make_composed_layout(draw_swizzle(draws, 6), 0, draw_bits(draws));
  return composition_law(draw_bits(draws), b);
}
inline Verdict tiler_composition_holds(Draws& draws) {
  const Layout a = draw_layout(draws);
  const Tiler tiler = draw_tiler(draws, a);
  const auto r = composition(a, tiler);
  if (!r) return kRefused;
  if (!tiler.is_parts())
    return same_function(*r, *composition(a, tiler.layout())) ? kHeld : broken("tiler");
  for (int i = 0; i < a.rank(); ++i) {
    const std::size_t k = static_cast<std::size_t>(i);
    const bool kept = k >= tiler.parts().size() || tiler.parts()[k].is_underscore();
    const Layout want = kept ? a[i] : *composition(a[i], tiler.parts()[k].layout());
    if ((*r)[i] != want)
      return broken("composition({}, {}) = {}: mode {}", text(a), text(tiler), text(*r), i);
  }
  return kHeld;
}
/// A coordinate stride of the right chooses a mode of the left.
inline Verdict coordinate_composition_holds(Draws& draws) {
  const Layout a = draw_layout(draws);
  const IntTuple shape = a.shape();
  const auto identity = make_identity_layout(shape);
  if (!identity) return kRefused;
  const auto again = composition(a, *identity);
  if (!again || !same_function(*again, a))
    return broken("composition({}, {}) is not the left", text(a), text(*identity));
  const auto picked = composition(*identity, draw_layout(draws, 64));
  if (!picked) return kRefused;
  const auto r = composition(a, *picked);
  if (!r) return kRefused;
  for (std::int64_t i = 0; i < picked->size(); ++i) {
    const auto want = evaluate(a, completed(*evaluate(*picked, i), shape));
    if (!want || want->value() != (*r)(i))
      return broken("composition({}, {}) = {} at {}", text(a), text(*picked), text(*r), i);
  }
  return kHeld;
}

inline Verdict complement_holds(Draws& draws) {
  const Layout a = draw_layout(draws);
  const std::int64_t size = draws.below(200) + 1;
  const auto r = complement(a, size);
  if (!r) {
    return kRefused;
  }
  const std::set<std::int64_t> mine = image(a);
  for (std::int64_t i = 1; i < r->size(); ++i) {
    if ((*r)(i) <= (*r)(i - 1))
      return broken("complement({}, {}) = {}: order", text(a), size, text(*r));
    if (mine.contains((*r)(i)))
      return broken("complement({}, {}) = {}: meets", text(a), size, text(*r));
  }
  const auto both = make_layout({filter(a), *r});
  if (!both || !injective(*both))
    return broken("complement({}, {}) = {}: overlap", text(a), size, text(*r));
  // It goes no further than whole repeats of what a covers together with its gaps.
  const auto [block, even] = span_of(a);
  const std::int64_t rounded = (size + block - 1) / block * block;
  const Layout::Mode& last = r->modes().back();
  if ((last.stride == block ? last.shape * block : block) < size || (even && cosize(*both) < size))
    return broken("complement({}, {}) = {}: short", text(a), size, text(*r));
  if (cosize(*r) > rounded) return broken("complement({}, {}) = {}: far", text(a), size, text(*r));
  return kHeld;
}

inline Verdict right_inverse_law(const Layout& l) {
  const auto r = right_inverse(l);
  if (!r) return kRefused;
  for (std::int64_t i = 0; i < r->size(); ++i)
    if (l((*r)(i)) != i) return broken("right_inverse({}) = {} at {}", text(l), text(*r), i);
  // A compact layout is inverted whole.
  if (!l.is_swizzled() && injective(l) && cosize(l) == l.size() && r->size() != l.size())
    return broken("right_inverse({}) = {}: too small", text(l), text(*r));
  return r->size() > 1 ? kHeld : kRefused;  // 1:0 proves little
}
inline Verdict right_inverse_holds(Draws& draws) { return right_inverse_law(draw_layout(draws)); }

inline Verdict left_inverse_law(const Layout& l) {
  const auto r = left_inverse(l);
  if (!r) return kRefused;
  const bool exact = injective(l);
  for (std::int64_t i = 0; i < l.size(); ++i) {
    const std::int64_t back = (*r)(l(i));
    if (l(back) != l(i)) return broken("left_inverse({}) = {} at {}", text(l), text(*r), i);
    if (exact && back != i)
      return broken("left_inverse({}) = {}: {} gives {}", text(l), text(*r), i, back);
  }
  return l.size() > 1 ? kHeld : kRefused;
}
inline Verdict left_inverse_holds(Draws& draws) { return left_inverse_law(draw_layout(draws)); }

inline Verdict swizzled_inverses_hold(Draws& draws) {
  const Layout l = *make_composed_layout(draw_swizzle(draws, 6), 0,
                                         draws.chance(80) ? draw_bits(draws) : draw_layout(draws));
  const Verdict right = right_inverse_law(l), left = left_inverse_law(l);
  if (!right.broken.empty()) return right;
  return left.broken.empty() && right.accepted ? right : left;
}

/// Tuples of coordinates: the inverse of a bijection onto a box is one.
inline Verdict coordinate_inverse_holds(Draws& draws) {
  std::int64_t room = 128;
  const IntTuple shape = IntTuple({draw_within(draws, room, 1), draw_within(draws, room, 1)});
  const Layout box =
      *make_layout(IntTuple{shape[0].is_leaf() ? shape[0] : IntTuple(*product(shape[0])),
                            shape[1].is_leaf() ? shape[1] : IntTuple(*product(shape[1]))});
  const Layout order = draw_layout(draws, 128);
  const auto map = composition(*make_identity_layout(box.shape()), order);
  if (!map) return kRefused;
  const auto right = right_inverse(*map);
  const auto left = left_inverse(*map);
  if (!right) return broken("right_inverse({}): {}", text(*map), right.error().message);
  const IntTuple results = coshape(*map);
  if (results.is_tuple() && results.rank() == 2) {
    for (std::int64_t i = 0; i < (*right)[0].size(); ++i) {
      for (std::int64_t j = 0; j < (*right)[1].size(); ++j) {
        const auto there = evaluate(*map, *evaluate(*right, IntTuple{i, j}));
        if (!there || *there != IntTuple{i, j})
          return broken("right_inverse({}) = {} at ({},{})", text(*map), text(*right), i, j);
      }
    }
  }
  if (!left) return kRefused;
  for (std::int64_t i = 0; i < map->size(); ++i) {
    const IntTuple there = *evaluate(*map, i);
    const auto back = evaluate(*left, there);
    if (!back || *evaluate(*map, *back) != there)
      return broken("left_inverse({}) = {} at {}", text(*map), text(*left), i);
  }
  return kHeld;
}

inline Verdict coalesce_holds(Draws& draws) {
  const Layout l = draws.chance(20) ? draw_swizzled(draws) : draw_layout(draws);
  const Layout r = coalesce(l);
  if (!same_function(l, r) || depth(r) > 1) return broken("coalesce({}) = {}", text(l), text(r));
  for (int i = 0; i + 1 < r.rank(); ++i) {
    const auto &a = r.modes()[static_cast<std::size_t>(i)],
               &b = r.modes()[static_cast<std::size_t>(i) + 1];
    if (a.shape == 1 || b.shape == 1 || a.shape * a.stride == b.stride)
      return broken("coalesce({}) = {}: not the fewest modes", text(l), text(r));
  }
  if (coalesce(flatten(l)) != r) return broken("coalesce(flatten({}))", text(l));
  const auto by_mode = coalesce(
      l, IntTuple::tuple(std::vector<std::int64_t>(static_cast<std::size_t>(l.rank()), 1)));
  if (!by_mode || !same_function(*by_mode, l) || by_mode->rank() != l.rank())
    return broken("coalesce({}) by mode", text(l));
  return kHeld;
}

inline Verdict filter_holds(Draws& draws) {
  const Layout l = draw_layout(draws), f = filter(l), n = nullspace(l);
  if (image(l) != image(f)) return broken("filter({}) = {}", text(l), text(f));
  if (n.size() * f.size() != l.size()) return broken("nullspace({}) = {}: size", text(l), text(n));
  for (std::int64_t i = 0; i < n.size(); ++i)
    if (l(n(i)) != 0) return broken("nullspace({}) = {} at {}", text(l), text(n), i);
  return injective(n) ? kHeld : broken("nullspace({}) = {}: repeats", text(l), text(n));
}

inline Verdict divide_holds(Draws& draws) {
  const Layout a = draw_layout(draws), b = draw_layout(draws, 32);
  const auto r = logical_divide(a, b);
  if (!r) return kRefused;
  const auto rest = complement(b, a.size());
  const auto both = make_layout({b, *rest});
  if (r->rank() != 2 || (*r)[0] != *composition(a, b))
    return broken("logical_divide({}, {}) = {}", text(a), text(b), text(*r));
  for (std::int64_t i = 0; i < r->size(); ++i) {
    if ((*r)(i) != coalesce(a)((*both)(i)))
      return broken("logical_divide({}, {}) = {} at {}", text(a), text(b), text(*r), i);
  }
  // Where the tiles fill it, nothing is lost.
  if (span_of(b).even && r->size() == a.size() && image(*r) != image(a))
    return broken("logical_divide({}, {}) = {}: other values", text(a), text(b), text(*r));
  return kHeld;
}

/// zipped, tiled and flat are regroupings of logical.
inline Verdict divide_groupings_hold(Draws& draws) {
  const Layout a = draws.chance(20) ? draw_swizzled(draws) : draw_layout(draws);
  const Tiler tiler = draw_tiler(draws, a);
  const auto logical = logical_divide(a, tiler), zipped = zipped_divide(a, tiler),
             tiled = tiled_divide(a, tiler), flat = flat_divide(a, tiler);
  if (!logical) return kRefused;
  if (logical->size() > 1 << 14) return kRefused;  // tiles with wide gaps in several modes
  if (!zipped || !tiled || !flat)
    return broken("{} by {}: one grouping is refused", text(a), text(tiler));
  if (zipped->rank() != 2 || !same_function(*zipped, *tiled) || !same_function(*zipped, *flat))
    return broken("{} by {}: groupings differ", text(a), text(tiler));
  if (image(*logical) != image(*zipped) || logical->size() != zipped->size())
    return broken("{} by {}: zipped has other values", text(a), text(tiler));
  if (!tiler.is_parts())
    return *logical == *zipped ? kHeld : broken("{} by {}", text(a), text(tiler));
  for (int i = 0; i < static_cast<int>(tiler.parts().size()); ++i) {
    if ((*logical)[i] != *make_layout({(*zipped)[0][i], (*zipped)[1][i]}))
      return broken("{} by {}: mode {} of zipped", text(a), text(tiler), i);
  }
  return kHeld;
}

inline Verdict product_holds(Draws& draws) {
  const Layout a = draw_layout(draws, 32), b = draw_layout(draws, 16);
  const auto r = logical_product(a, b);
  if (!r) return kRefused;
  if (r->rank() != 2 || (*r)[0] != a || !compatible(b.shape(), (*r)[1].shape()))
    return broken("logical_product({}, {}) = {}", text(a), text(b), text(*r));
  if (injective(a) && injective(b) && !injective(*r))
    return broken("logical_product({}, {}) = {}: copies overlap", text(a), text(b), text(*r));
  const auto tiled = tiled_product(a, b), flat = flat_product(a, b), zipped = zipped_product(a, b);
  const auto blocked = blocked_product(a, b), raked = raked_product(a, b);
  if (!tiled || !flat || !zipped || !blocked || !raked)
    return broken("products of {} and {}: one is refused", text(a), text(b));
  if (!same_function(*r, *tiled) || !same_function(*r, *flat) || *zipped != *r)
    return broken("products of {} and {}: groupings differ", text(a), text(b));
  if (image(*blocked) != image(*r) || image(*raked) != image(*r) || blocked->size() != r->size())
    return broken("products of {} and {}: blocked or raked has other values", text(a), text(b));
  // The first block of a blocked product is a: mode i counts a_i fastest.
  if (a.rank() == b.rank() && a.rank() == 2) {
    const std::int64_t rows = a[0].size(), cols = a[1].size();
    for (std::int64_t i = 0; i < (*blocked)[0].size(); ++i) {
      for (std::int64_t j = 0; j < (*blocked)[1].size(); ++j) {
        const std::int64_t copy = (*r)[1](i / rows, j / cols);
        if ((*blocked)(i, j) != a(i % rows, j % cols) + copy)
          return broken("blocked_product({}, {}) = {}", text(a), text(b), text(*blocked));
        const std::int64_t br = b[0].size(), bc = b[1].size();
        if ((*raked)(i, j) != a(i / br, j / bc) + (*r)[1](i % br, j % bc))
          return broken("raked_product({}, {}) = {}", text(a), text(b), text(*raked));
      }
    }
  }
  return kHeld;
}

inline Verdict tile_to_shape_holds(Draws& draws) {
  const Layout block = draws.chance(30)
                           ? *make_composed_layout(draw_swizzle(draws, 5), 0, draw_bits(draws))
                           : draw_layout(draws, 64);
  std::vector<std::int64_t> extents, order;
  for (int i = 0; i < block.rank() + draws.below(2); ++i) {
    extents.push_back(block[i].size() * (draws.below(3) + 1));
    order.push_back(draws.below(3));
  }
  const IntTuple shape = IntTuple::tuple(extents);
  const auto r = tile_to_shape(block, shape, IntTuple::tuple(order));
  if (!r) return kRefused;
  if (!compatible(shape, r->shape()))
    return broken("tile_to_shape({}, {}) = {}: shape", text(block), text(shape), text(*r));
  const Layout plain = r->inner();
  if (injective(block.inner()) && !injective(plain))
    return broken("tile_to_shape({}, {}) = {}: overlap", text(block), text(shape), text(*r));
  for (int i = 0; i < block.rank(); ++i) {
    if (plain[i][0] != block.inner()[i])
      return broken("tile_to_shape({}, {}) = {}: block", text(block), text(shape), text(*r));
  }
  return kHeld;
}

inline Verdict casts_hold(Draws& draws) {
  const Layout l = draws.chance(30) ? draw_swizzled(draws) : draw_layout(draws);
  const std::int64_t n = l.is_swizzled() ? std::int64_t{1} << draws.below(4) : draws.below(5) + 1;
  const auto down = downcast(l, n);
  if (!down) return broken("downcast({}, {}): {}", text(l), n, down.error().message);
  const auto again = upcast(*down, n);
  if (!again || *again != l) return broken("upcast(downcast({}, {}))", text(l), n);
  const auto up = upcast(l, n);
  if (!up) return kRefused;
  if (injective(l)) {
    std::set<std::int64_t> wide;
    for (const std::int64_t offset : image(l)) wide.insert(offset / n);
    if (wide != image(*up)) return broken("upcast({}, {}) = {}", text(l), n, text(*up));
  }
  return n > 1 ? kHeld : kRefused;
}

inline Verdict swizzle_holds(Draws& draws) {
  const Swizzle s = draw_swizzle(draws, 10);
  std::set<std::int64_t> all;
  for (std::int64_t i = 0; i < 1024; ++i) {
    if (s(s(i)) != i) return broken("{} twice at {}", text(s), i);
    all.insert(s(i));
  }
  if (all.size() != 1024 || *all.rbegin() != 1023) return broken("{} is no permutation", text(s));
  const std::int64_t aligned = max_alignment(s);
  const std::int64_t x = draws.below(1024 / static_cast<int>(aligned)) * aligned;
  for (std::int64_t k = 0; k < aligned; ++k)
    if (s(x + k) != s(x) + k) return broken("{} tears a vector of {}", text(s), aligned);
  return kHeld;
}

inline Verdict slices_hold(Draws& draws) {
  const Layout l = draws.chance(40) ? draw_swizzled(draws) : draw_layout(draws);
  if (l.is_leaf() || l.rank() < 2) return kRefused;
  const std::int64_t rows = l[0].size();
  const std::int64_t row = draws.below(static_cast<int>(rows));
  std::vector<IntTuple> coordinate(static_cast<std::size_t>(l.rank()), IntTuple(_));
  coordinate[0] = row;
  const auto found = slice_and_offset(IntTuple::tuple(coordinate), l);
  if (!found) return broken("slice({}, {})", text(IntTuple::tuple(coordinate)), text(l));
  if (found->layout.size() * rows != l.size()) return broken("slice of {}: size", text(l));
  for (std::int64_t i = 0; i < found->layout.size(); ++i) {
    if (l(row + rows * i) != found->offset.value() + found->layout(i))
      return broken("slice({}, {}) = {} at {}", text(IntTuple::tuple(coordinate)), text(l),
                    text(found->layout), i);
  }
  const auto diced = dice(IntTuple::tuple(coordinate), l);
  if (!diced || (*diced).inner()[0] != l.inner()[0]) return broken("dice of {}", text(l));
  return kHeld;
}

inline Verdict text_holds(Draws& draws) {
  Layout l = draws.chance(30) ? draw_swizzled(draws) : draw_layout(draws);
  if (draws.chance(20)) {
    auto identity = make_identity_layout(l.shape());
    if (!identity) return kRefused;
    l = *identity;
  }
  const auto again = layout_from_text(text(l));
  if (!again || *again != l) return broken("'{}' reads back otherwise", text(l));
  const auto shape = int_tuple_from_text(text(l.stride()));
  if (!shape || *shape != l.stride()) return broken("'{}' reads back otherwise", text(l.stride()));
  return kHeld;
}

inline Verdict common_vector_holds(Draws& draws) {
  const Layout a = draw_layout(draws), b = draws.chance(30) ? a : draw_layout(draws);
  const auto common = max_common_vector(a, b);
  const auto where = max_common_layout(a, b);
  if (!common || !where || where->size() != *common)
    return broken("max_common_vector({}, {})", text(a), text(b));
  for (std::int64_t i = 0; i < *common; ++i) {
    if (a((*where)(i)) != i || b((*where)(i)) != i)
      return broken("max_common_layout({}, {}) = {} at {}", text(a), text(b), text(*where), i);
  }
  return *common > 1 ? kHeld : kRefused;
}

inline Verdict alignment_holds(Draws& draws) {
  const Layout l = draws.chance(30) ? draw_swizzled(draws) : draw_layout(draws);
  const std::int64_t n = max_alignment(l);
  if (n < 1) return broken("max_alignment({}) = {}", text(l), n);
  if (!injective(filter(l))) return kRefused;
  // Offsets come in whole, aligned groups of n, or all are multiples of n.
  const std::set<std::int64_t> all = image(l);
  for (const std::int64_t offset : all) {
    const std::int64_t first = offset / n * n;
    const bool alone = offset == first && !all.contains(first + 1);
    if (!alone && (!all.contains(first) || !all.contains(first + n - 1)))
      return broken("max_alignment({}) = {}: not at {}", text(l), n, offset);
  }
  return n > 1 ? kHeld : kRefused;
}

inline Verdict coordinates_hold(Draws& draws) {
  const IntTuple shape = draw_shape(draws);
  const Layout col = *make_layout(shape);
  const auto row = make_layout(shape, *compact_row_major(shape));
  if (!row || !injective(*row) || cosize(*row) != col.size())
    return broken("compact_row_major({})", text(shape));
  for (std::int64_t i = 0; i < col.size(); ++i) {
    const auto crd = idx2crd(i, shape);
    if (!crd || !congruent(*crd, shape) || *crd2idx(*crd, col) != i || col(i) != i)
      return broken("idx2crd({}, {})", i, text(shape));
  }
  const Layout l = draw_layout(draws);
  const auto like = make_layout_like(l);
  if (!like || like->shape() != l.shape() ||
      image(*like).size() != static_cast<std::size_t>(cosize(*like)))
    return broken("make_layout_like({})", text(l));
  return col.size() > 1 ? kHeld : kRefused;
}

inline Verdict shape_division_holds(Draws& draws) {
  const IntTuple shape = draw_shape(draws);
  const std::int64_t by = draws.below(24) + 1, size = *product(shape);
  const auto rest = shape_div(shape, by), first = shape_mod(shape, by);
  if (rest.has_value() != first.has_value())
    return broken("shape_div and shape_mod of {} by {}", text(shape), by);
  if (!rest) return kRefused;
  if (size % by == 0 && (*product(*rest) * by != size || *product(*first) != by))
    return broken("shape_div({}, {}) = {}", text(shape), by, text(*rest));
  if (!evenly_divides(shape, by) != (size % by != 0))
    return broken("evenly_divides({}, {})", text(shape), by);
  const auto spread = domain_distribute(shape, by);
  if (!spread || by % spread->size() != 0 || size % spread->size() != 0 || !injective(*spread))
    return broken("domain_distribute({}, {})", text(shape), by);
  return kHeld;
}

struct Law {
  const char* name;
  Verdict (*holds)(Draws&);
  int accepted_percent;  ///< at least so many draws must be accepted, or the law is not exercised
};
inline constexpr Law kLaws[] = {
    {"composition", composition_holds, 75},
    {"composition with negative strides", negative_composition_holds, 50},
    {"composition with swizzles", swizzled_composition_holds, 75},
    {"composition with tilers", tiler_composition_holds, 80},
    {"composition with coordinates", coordinate_composition_holds, 70},
    {"complement", complement_holds, 80},
    {"right inverse", right_inverse_holds, 50},
    {"left inverse", left_inverse_holds, 75},
    {"inverses with swizzles", swizzled_inverses_hold, 70},
    {"inverses with coordinates", coordinate_inverse_holds, 60},
    {"coalesce", coalesce_holds, 100},
    {"filter and nullspace", filter_holds, 100},
    {"divide", divide_holds, 70},
    {"groupings of divides", divide_groupings_hold, 80},
    {"products", product_holds, 70},
    {"tile to shape", tile_to_shape_holds, 80},
    {"upcast and downcast", casts_hold, 25},
    {"swizzle", swizzle_holds, 100},
    {"slice and dice", slices_hold, 30},
    {"text", text_holds, 98},
    {"common vectors", common_vector_holds, 25},
    {"alignment", alignment_holds, 60},
    {"coordinates", coordinates_hold, 85},
    {"division of shapes", shape_division_holds, 25},
};

}  // namespace lapidary::laws
