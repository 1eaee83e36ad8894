#include <algorithm>

#include "layout/internal.h"

// Divides and products: all of them are composition with a layout and its complement, and differ in
// how the parts are grouped.
namespace lapidary {

using namespace layout_detail;

Tiler::Tiler(Layout layout) : kind_(Kind::layout), layout_(std::move(layout)) {}
Tiler::Tiler(Underscore) : kind_(Kind::all) {}
Tiler::Tiler(std::vector<Tiler> parts) : kind_(Kind::parts), parts_(std::move(parts)) {}

Result<Tiler> make_tiler(const IntTuple& shape) {
  if (shape.is_underscore()) return Tiler(_);
  if (shape.is_leaf()) {
    LAPIDARY_TRY(Layout layout, make_layout(shape, IntTuple(1)));
    return Tiler(std::move(layout));
  }
  std::vector<Tiler> parts;
  for (int i = 0; i < shape.rank(); ++i) {
    LAPIDARY_TRY(Tiler part, make_tiler(shape[i]));
    parts.push_back(std::move(part));
  }
  return Tiler(std::move(parts));
}

namespace {

/// A mode divided (or multiplied): its first and its second half.
using Halve = Result<Layout> (*)(const Layout& mode, const Layout& by);

Result<Layout> divide_one(const Layout& a, const Layout& b) {
  LAPIDARY_TRY(const Layout rest, complement(b, b.is_integral() ? IntTuple(a.size()) : a.shape()));
  LAPIDARY_TRY(const Layout both, make_layout({b, rest}));
  return composition(a, both);
}

Result<Layout> multiply_one(const Layout& a, const Layout& b) {
  if (!b.is_integral() || b.is_swizzled())
    return invalid("layout: product: {} says where copies go; give one with plain strides",
                   brief(b));
  // Room for all copies: those that fit in a's gaps, and as many repeats of what a spans. Where a's
  // strides divide one another this target is size(a) * cosize(b), rounded up.
  LAPIDARY_TRY(const Layout gaps, complement(a));
  std::int64_t span = 1, reach = 0;
  const Layout filtered = filter(a);
  for (const Mode& mode : filtered.modes()) {
    if (!multiply(mode.shape, mode.stride, reach)) return too_large("product");
    span = std::max(span, reach);
  }
  if (!multiply(span, layout_detail::ceil_div(cosize(b), gaps.size()), reach))
    return too_large("product");
  LAPIDARY_TRY(const Layout room, complement(a, IntTuple(reach)));
  LAPIDARY_TRY(const Layout copies, composition(room, b));
  return make_layout({a, copies});
}

Status by_mode(const Layout& a, const Tiler& tiler, Halve halve, Builder& out) {
  if (tiler.is_underscore()) {
    out.open(2);
    out.add(a);
    out.mode({1, 0, kPlain});
    return {};
  }
  if (tiler.is_layout()) {
    LAPIDARY_TRY(const Layout both, halve(a, tiler.layout()));
    out.add(both);
    return {};
  }
  const std::size_t n = static_cast<std::size_t>(a.rank());
  if (tiler.parts().size() > n) {
    return invalid("layout: tiler {} has {} modes and {} has {}; give as many or less", text(tiler),
                   tiler.parts().size(), brief(a), n);
  }
  out.open(n);
  for (std::size_t i = 0; i < n; ++i) {
    const Layout mode = a[static_cast<int>(i)];
    if (i < tiler.parts().size()) {
      LAPIDARY_TRY_STATUS(by_mode(mode, tiler.parts()[i], halve, out));
    } else {
      out.add(mode);
    }
  }
  return {};
}

Result<Layout> logical(const char* who, const Layout& a, const Tiler& tiler, Halve halve) {
  Builder out;
  LAPIDARY_TRY_STATUS(by_mode(a.inner(), tiler, halve, out));
  return Access::checked(who, std::move(out.profile), std::move(out.modes), Access::stages(a));
}

/// All first halves as one layout, all second ones as another.
struct Halves {
  Layout first, second;
};

Layout as_tuple(const std::vector<Layout>& parts) {
  Builder out;
  out.open(parts.size());
  for (const Layout& part : parts) out.add(part);
  return Access::trusted(std::move(out.profile), std::move(out.modes));
}

Halves unzip(const Layout& divided, const Tiler& tiler) {
  if (!tiler.is_parts()) return {divided[0], divided[1]};
  std::vector<Layout> first, second;
  for (int i = 0; i < divided.rank(); ++i) {
    if (static_cast<std::size_t>(i) < tiler.parts().size()) {
      Halves halves = unzip(divided[i], tiler.parts()[static_cast<std::size_t>(i)]);
      first.push_back(std::move(halves.first));
      second.push_back(std::move(halves.second));
    } else {
      second.push_back(divided[i]);
    }
  }
  return {as_tuple(first), as_tuple(second)};
}

enum class Grouping { logical, zipped, tiled, flat };

void unpack(const Layout& layout, std::vector<Layout>& out) {
  for (int i = 0; i < layout.rank(); ++i) out.push_back(layout[i]);
}

Result<Layout> grouped(const char* who, const Layout& a, const Tiler& tiler, Halve halve,
                       Grouping grouping) {
  LAPIDARY_TRY(Layout both, logical(who, a, tiler, halve));
  if (grouping == Grouping::logical) return both;
  Halves halves = unzip(both.inner(), tiler);
  std::vector<Layout> parts;
  if (grouping == Grouping::flat) {
    unpack(halves.first, parts);
  } else {
    parts.push_back(std::move(halves.first));
  }
  if (grouping == Grouping::zipped) {
    parts.push_back(std::move(halves.second));
  } else {
    unpack(halves.second, parts);
  }
  return Access::with_stages(as_tuple(parts), Access::stages(a));
}

}  // namespace

Result<Layout> logical_divide(const Layout& a, const Tiler& tiler) {
  return grouped("logical_divide", a, tiler, divide_one, Grouping::logical);
}
Result<Layout> zipped_divide(const Layout& a, const Tiler& tiler) {
  return grouped("zipped_divide", a, tiler, divide_one, Grouping::zipped);
}
Result<Layout> tiled_divide(const Layout& a, const Tiler& tiler) {
  return grouped("tiled_divide", a, tiler, divide_one, Grouping::tiled);
}
Result<Layout> flat_divide(const Layout& a, const Tiler& tiler) {
  return grouped("flat_divide", a, tiler, divide_one, Grouping::flat);
}

Result<Layout> logical_product(const Layout& a, const Tiler& b) {
  return grouped("logical_product", a, b, multiply_one, Grouping::logical);
}
Result<Layout> zipped_product(const Layout& a, const Tiler& b) {
  return grouped("zipped_product", a, b, multiply_one, Grouping::zipped);
}
Result<Layout> tiled_product(const Layout& a, const Tiler& b) {
  return grouped("tiled_product", a, b, multiply_one, Grouping::tiled);
}
Result<Layout> flat_product(const Layout& a, const Tiler& b) {
  return grouped("flat_product", a, b, multiply_one, Grouping::flat);
}

namespace {

/// Modes (a_i, b_i) or (b_i, a_i) of a product; what only one of the two has stands alone.
Result<Layout> paired(const Layout& a, const Layout& b, bool a_first) {
  LAPIDARY_TRY(const Layout both, logical_product(a.inner(), b));
  const Layout copies = both[1];
  const int n = std::max(a.rank(), b.rank());
  // A mode of b may have become a nest, but b's rank is still that of `copies` when b is a tuple.
  std::vector<Layout> modes;
  for (int i = 0; i < n; ++i) {
    const Layout copy = b.is_leaf() ? copies : copies[i];
    if (i >= b.rank()) {
      modes.push_back(a[i]);
    } else if (i >= a.rank()) {
      modes.push_back(copy);
    } else {
      modes.push_back(a_first ? as_tuple({a[i], copy}) : as_tuple({copy, a[i]}));
    }
  }
  return Access::with_stages(as_tuple(modes), Access::stages(a));
}

}  // namespace

Result<Layout> blocked_product(const Layout& a, const Layout& b) { return paired(a, b, true); }
Result<Layout> raked_product(const Layout& a, const Layout& b) { return paired(a, b, false); }

Result<Layout> tile_to_shape(const Layout& block, const IntTuple& shape) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(shape.rank()));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  return tile_to_shape(block, shape, shape.is_leaf() ? IntTuple(0) : IntTuple::tuple(order));
}

Result<Layout> tile_to_shape(const Layout& block, const IntTuple& shape, const IntTuple& order) {
  const int n = shape.rank();
  if (block.rank() > n) {
    return invalid("layout: tile_to_shape: too few target modes: {} has {} and the block {} has {}",
                   brief(shape), n, brief(block), block.rank());
  }
  std::vector<IntTuple> repeats;
  for (int i = 0; i < n; ++i) {
    LAPIDARY_TRY(const std::int64_t extent, product(shape[i]));
    const std::int64_t size = block[i].size();
    if (extent < 1 || extent % size != 0) {
      return invalid("layout: tile_to_shape: extent {} of mode {} is no multiple of the block's {}",
                     extent, i, size);
    }
    repeats.emplace_back(extent / size);
  }
  const bool leaf = shape.is_leaf();
  LAPIDARY_TRY(const Layout tiles,
               make_ordered_layout(leaf ? repeats[0] : IntTuple::tuple(repeats), order));
  LAPIDARY_TRY(const Layout both, logical_product(block.inner(), tiles));
  const Layout copies = both[1];
  Builder out;
  if (!leaf) out.open(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) {
    out.open(2);
    out.add(block[i]);
    out.add(leaf ? copies : copies[i]);
  }
  return Access::checked("tile_to_shape", std::move(out.profile), std::move(out.modes),
                         Access::stages(block));
}

}  // namespace lapidary
