#include <algorithm>

#include "layout/internal.h"

namespace lapidary {

using namespace layout_detail;

namespace layout_detail {

Layout Access::trusted(Profile profile, Modes modes, const Stages& stages) {
  Layout made;
  made.profile_ = std::move(profile);
  made.modes_ = std::move(modes);
  made.stages_ = stages;
  for (const Mode& mode : made.modes_) {
    made.size_ *= mode.shape;
    made.integral_ &= mode.path == kPlain;
  }
  return made;
}

Result<Layout> Access::checked(const char* who, Profile profile, Modes modes,
                               const Stages& stages) {
  if (modes.size() > kMostLeaves)
    return invalid("layout: {}: {} modes; at most {}", who, modes.size(), kMostLeaves);
  std::int64_t size = 1, highest = 1;
  bool plain = false, coordinates = false;
  for (Mode& mode : modes) {
    if (mode.shape < 1)
      return invalid("layout: {}: an extent of {}; extents are numbers from 1", who, mode.shape);
    if (mode.stride == 0) mode.path = kPlain;
    plain |= mode.path == kPlain && mode.stride != 0;
    coordinates |= mode.path != kPlain;
    std::int64_t reach = 0;
    if (mode.stride == INT64_MIN || !multiply(size, mode.shape, size) ||
        !multiply(mode.shape - 1, magnitude(mode.stride), reach) || !add(highest, reach, highest))
      return too_large(who);
  }
  if (plain && coordinates) {
    return invalid(
        "layout: {}: strides are numbers and coordinates at once; give one kind (0 is both)", who);
  }
  for (std::size_t i = 0; coordinates && i < modes.size(); ++i) {
    for (std::size_t j = 0; j < modes.size(); ++j) {
      // 1@0 makes mode 0 a number, 1@1@0 makes it a tuple.
      const int n = levels(modes[i].path);
      if (n == 0 || n >= levels(modes[j].path)) continue;
      const Path mask = n == kMostLevels ? ~Path{0} : (Path{1} << (8 * n)) - 1;
      if ((modes[j].path & mask) == modes[i].path) {
        return invalid("layout: {}: stride {}{} needs a number where {}{} needs a tuple", who,
                       modes[i].stride, path_text(modes[i].path), modes[j].stride,
                       path_text(modes[j].path));
      }
    }
  }
  if (!stages.empty() && coordinates)
    return invalid("layout: {}: a swizzle takes numbers, not coordinates", who);
  for (const Stage& stage : stages) {
    std::int64_t end = 0;
    if (stage.offset == INT64_MIN || !add(highest, magnitude(stage.offset), end))
      return too_large(who);
  }
  return trusted(std::move(profile), std::move(modes), stages);
}

Layout Access::with_stages(Layout layout, const Stages& stages) {
  layout.stages_ = stages;
  return layout;
}

Layout part(const Layout& layout, const Subtree& at) {
  Profile profile;
  profile.append(layout.profile().subspan(at.begin, at.end - at.begin));
  Modes modes;
  modes.append(layout.modes().subspan(at.leaf_begin, at.leaf_end - at.leaf_begin));
  return Access::trusted(std::move(profile), std::move(modes));
}

void Builder::nest(std::span<const Mode> several) {
  if (several.empty()) return mode({1, 0, kPlain});
  if (several.size() > 1) open(several.size());
  for (const Mode& one : several) mode(one);
}

bool ordered_strides(std::span<const std::int64_t> shape, std::span<const std::int64_t> order,
                     std::span<std::int64_t> strides) {
  InlineVector<std::size_t, 8> by_order;
  for (std::size_t i = 0; i < shape.size(); ++i) by_order.push_back(i);
  sort_by(by_order, [&](std::size_t i) { return order[i]; });
  std::int64_t running = 1;
  for (const std::size_t i : by_order) {
    strides[i] = shape[i] == 1 ? 0 : running;
    if (!multiply(running, shape[i], running)) return false;
  }
  return true;
}

namespace {

/// The profile of a tuple of `rank` children and what stands in it.
struct Children {
  Builder builder;
  explicit Children(std::size_t rank) { builder.open(rank); }
};

Error no_mode(const char* who, int i, const Layout& layout) {
  return invalid("layout: {}: {} has no mode {}; it has {}", who, brief(layout), i,
                 layout.rank() == 1 ? "mode 0 alone" : fmt::format("0 to {}", layout.rank() - 1));
}

Layout child_of(const Layout& layout, int i) {
  return part(layout, child(layout.profile(), whole(layout.profile()), i));
}

Status plain_mode(const char* who, const Layout& mode) {
  if (!mode.is_swizzled()) return {};
  return invalid("layout: {}: the mode {} is swizzled; swizzles stand in front of a whole layout",
                 who, brief(mode));
}

}  // namespace
}  // namespace layout_detail

Layout::Layout() {
  profile_.push_back(kLeafToken);
  modes_.push_back({1, 0, kPlain});
}

IntTuple Layout::shape() const {
  Leaves leaves;
  for (const Mode& mode : modes_) leaves.push_back({mode.shape, kPlain});
  return Access::tuple(profile_, std::move(leaves));
}

IntTuple Layout::stride() const {
  Leaves leaves;
  for (const Mode& mode : modes_) leaves.push_back({mode.stride, mode.path});
  return Access::tuple(profile_, std::move(leaves));
}

Layout Layout::operator[](int i) const {
  if (i < 0 || i >= rank()) return {};
  return child_of(*this, i);
}

Layout Layout::inner() const { return Access::with_stages(*this, {}); }

namespace {

using Unsigned = std::uint64_t;  // wraps where std::int64_t would be undefined

std::int64_t swizzled(std::span<const Layout::Stage> stages, Unsigned offset) {
  for (auto it = stages.rbegin(); it != stages.rend(); ++it)
    offset = static_cast<Unsigned>(
        it->swizzle()(static_cast<std::int64_t>(offset + static_cast<Unsigned>(it->offset))));
  return static_cast<std::int64_t>(offset);
}

/// What index i adds, counted through these modes.
Unsigned offset_of(std::span<const Layout::Mode> modes, std::int64_t i) {
  if (i < 0) return -offset_of(modes, magnitude(i));
  Unsigned left = static_cast<Unsigned>(i), offset = 0;
  for (std::size_t k = 0; k < modes.size() && left != 0; ++k) {
    const Unsigned extent = static_cast<Unsigned>(modes[k].shape);
    const Unsigned quotient = k + 1 == modes.size() ? 0 : left / extent;
    offset += (left - quotient * extent) * static_cast<Unsigned>(modes[k].stride);
    left = quotient;
  }
  return offset;
}

}  // namespace

std::int64_t Layout::operator()(std::int64_t i) const {
  if (!integral_) return INT64_MIN;
  return swizzled(stages_, offset_of(modes_, i));
}

std::int64_t Layout::at(std::span<const std::int64_t> coordinate) const {
  if (!integral_) return INT64_MIN;
  Unsigned offset = 0;
  const Subtree all = whole(profile_);
  for (int i = 0; i < rank() && i < static_cast<int>(coordinate.size()); ++i) {
    const Subtree mode = child(profile_, all, i);
    offset += offset_of(std::span(modes_.begin() + mode.leaf_begin, modes_.begin() + mode.leaf_end),
                        coordinate[static_cast<std::size_t>(i)]);
  }
  return swizzled(stages_, offset);
}

int depth(const Layout& layout) { return layout_detail::depth(layout.profile()); }

// ---- Making ---------------------------------------------------------------------------------

Result<Layout> make_layout(const IntTuple& shape, const IntTuple& stride) {
  if (!congruent(shape, stride)) {
    return invalid("layout: shape {} and stride {} nest differently; give each extent its stride",
                   brief(shape), brief(stride));
  }
  Profile profile;
  profile.append(shape.profile());
  Modes modes;
  for (std::size_t i = 0; i < shape.leaves().size(); ++i) {
    const Leaf &extent = shape.leaves()[i], &step = stride.leaves()[i];
    if (extent.path != kPlain)
      return invalid("layout: shape {} has a leaf that is no number", brief(shape));
    if (step.path == kUnderscore)
      return invalid("layout: stride {} has a leaf that is no number", brief(stride));
    modes.push_back({extent.value, step.value, step.path});
  }
  return Access::checked("make_layout", std::move(profile), std::move(modes));
}

Result<Layout> make_layout(const IntTuple& shape) {
  LAPIDARY_TRY(const IntTuple stride, compact_col_major(shape));
  return make_layout(shape, stride);
}

Result<Layout> make_layout(std::span<const Layout> modes) {
  Builder all;
  all.open(std::min(modes.size(), std::size_t{kMostChildren}));
  if (modes.size() > kMostLeaves)
    return invalid("layout: make_layout: {} modes; at most {}", modes.size(), kMostLeaves);
  for (const Layout& mode : modes) {
    LAPIDARY_TRY_STATUS(plain_mode("make_layout", mode));
    all.add(mode);
  }
  return Access::checked("make_layout", std::move(all.profile), std::move(all.modes));
}

Result<Layout> make_layout(std::initializer_list<Layout> modes) {
  return make_layout(std::span(modes.begin(), modes.size()));
}

Result<Layout> make_ordered_layout(const IntTuple& shape, const IntTuple& order) {
  if (!weakly_congruent(order, shape) || !order.is_plain()) {
    return invalid(
        "layout: make_ordered_layout: order {} does not fit shape {}; give a number for "
        "each mode, or for a nest",
        brief(order), brief(shape));
  }
  // The order's number for each leaf of the shape: both are walked in preorder.
  std::vector<std::int64_t> extents, orders;
  const auto walk = [&](const auto& self, const Subtree& at, const Subtree& by) -> void {
    if (is_leaf(order.profile(), by)) {
      orders.insert(orders.end(), at.leaf_end - at.leaf_begin, order.leaves()[by.leaf_begin].value);
      return;
    }
    for (int i = 0; i < rank(shape.profile(), at); ++i)
      self(self, child(shape.profile(), at, i), child(order.profile(), by, i));
  };
  walk(walk, whole(shape.profile()), whole(order.profile()));
  Profile profile;
  profile.append(shape.profile());
  Modes modes;
  for (const Leaf& leaf : shape.leaves()) {
    if (leaf.path != kPlain || leaf.value < 1)
      return invalid("layout: make_ordered_layout: shape {}: extents are numbers from 1",
                     brief(shape));
    extents.push_back(leaf.value);
    modes.push_back({leaf.value, 0, kPlain});
  }
  std::vector<std::int64_t> strides(extents.size());
  if (!ordered_strides(extents, orders, strides)) return too_large("make_ordered_layout");
  for (std::size_t i = 0; i < strides.size(); ++i) modes[i].stride = strides[i];
  return Access::checked("make_ordered_layout", std::move(profile), std::move(modes));
}

Result<Layout> make_layout_like(const Layout& layout) {
  if (!layout.is_integral())
    return invalid("layout: make_layout_like: {} has coordinate strides; give plain ones",
                   brief(layout));
  Profile profile = Access::profile(layout);
  Modes modes;
  modes.append(layout.modes());
  InlineVector<std::int64_t, 8> extents, orders, strides;
  for (const Mode& mode : modes) {
    // Stride 0 takes no room: as if it were not there.
    extents.push_back(mode.stride == 0 ? 1 : mode.shape);
    orders.push_back(magnitude(mode.stride));
    strides.push_back(0);
  }
  if (!ordered_strides(extents, orders, std::span(strides.begin(), strides.end())))
    return too_large("make_layout_like");
  for (std::size_t i = 0; i < modes.size(); ++i) modes[i].stride = strides[i];
  return Access::checked("make_layout_like", std::move(profile), std::move(modes));
}

Result<Layout> make_identity_layout(const IntTuple& shape) {
  Profile profile;
  profile.append(shape.profile());
  Modes modes;
  bool too_deep = false;
  const auto walk = [&](const auto& self, const Subtree& at,
                        const InlineVector<int, 8>& where) -> void {
    if (is_leaf(shape.profile(), at)) {
      Path path = kPlain;
      for (std::size_t i = where.size(); i-- > 0;) {
        const std::optional<Path> deeper = inside(where[i], path);
        too_deep |= !deeper;
        path = deeper.value_or(kPlain);
      }
      modes.push_back({shape.leaves()[at.leaf_begin].value, 1, path});
      return;
    }
    for (int i = 0; i < rank(shape.profile(), at); ++i) {
      InlineVector<int, 8> further = where;
      further.push_back(i);
      self(self, child(shape.profile(), at, i), further);
    }
  };
  if (shape.leaves().size() > kMostLeaves)
    return invalid("layout: make_identity_layout: {} modes; at most {}", shape.leaves().size(),
                   kMostLeaves);
  walk(walk, whole(shape.profile()), {});
  if (!shape.is_plain())
    return invalid("layout: make_identity_layout: shape {}: extents are numbers from 1",
                   brief(shape));
  if (too_deep) {
    return invalid("layout: make_identity_layout: {} nests deeper than {} levels or wider than {}",
                   brief(shape), kMostLevels, kMostMode + 1);
  }
  return Access::checked("make_identity_layout", std::move(profile), std::move(modes));
}

Result<Layout> make_composed_layout(const Swizzle& swizzle, std::int64_t offset,
                                    const Layout& layout) {
  LAPIDARY_TRY(const Swizzle checked, make_swizzle(swizzle.bits, swizzle.base, swizzle.shift));
  Stages stages{{offset, checked.bits, checked.base, checked.shift}};
  stages.append(layout.stages());
  Modes modes;
  modes.append(layout.modes());
  return Access::checked("make_composed_layout", Access::profile(layout), std::move(modes), stages);
}

// ---- Looking --------------------------------------------------------------------------------

namespace {

/// The leaves of what coordinate strides lead to: `leaf(path so far, modes)` is asked where no mode
/// goes deeper. Plain layouts have one, at the top.
template <class OnLeaf>
IntTuple by_path(std::span<const Layout::Mode> modes, const OnLeaf& leaf, int level = 0,
                 Path prefix = kPlain) {
  int children = 0;
  bool deeper = false;
  const Path mask = level == kMostLevels ? ~Path{0} : (Path{1} << (8 * level)) - 1;
  for (const Layout::Mode& mode : modes) {
    if (levels(mode.path) <= level || (mode.path & mask) != prefix) continue;
    deeper = true;
    children = std::max(children, mode_at(mode.path, level) + 1);
  }
  if (!deeper) return IntTuple(leaf(prefix));
  std::vector<IntTuple> parts;
  for (int i = 0; i < children; ++i)
    parts.push_back(
        by_path(modes, leaf, level + 1, prefix | static_cast<Path>(i + 1) << (8 * level)));
  return IntTuple::tuple(parts);
}

}  // namespace

IntTuple coshape(const Layout& layout) {
  if (layout.is_integral()) return IntTuple(cosize(layout));
  return by_path(layout.modes(), [&](Path path) {
    std::int64_t highest = 1;
    for (const Layout::Mode& mode : layout.modes())
      if (mode.path == path) highest += (mode.shape - 1) * magnitude(mode.stride);
    return highest;
  });
}

std::int64_t cosize(const Layout& layout) {
  if (!layout.is_integral()) return 1;
  std::int64_t end = 1;
  for (const Layout::Mode& mode : layout.modes()) end += (mode.shape - 1) * magnitude(mode.stride);
  for (auto it = layout.stages().rbegin(); it != layout.stages().rend(); ++it) {
    // A swizzle moves offsets within windows of a power of two: those that it writes into.
    const int top = it->bits == 0 ? 0 : it->base + it->bits + (it->shift < 0 ? -it->shift : 0);
    const std::int64_t window = std::int64_t{1} << top;
    std::int64_t rounded = 0;
    if (!add(end, magnitude(it->offset), end) || !multiply(ceil_div(end, window), window, rounded))
      return INT64_MAX;
    end = rounded;
  }
  return end;
}

Result<IntTuple> evaluate(const Layout& layout, const IntTuple& coordinate) {
  LAPIDARY_TRY(const IntTuple spread, idx2crd(coordinate, layout.shape()));
  bool fits = true;
  const auto sum = [&](Path path) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < layout.modes().size(); ++i) {
      const Layout::Mode& mode = layout.modes()[i];
      std::int64_t term = 0;
      if (mode.path != path) continue;
      fits = fits && multiply(spread.leaves()[i].value, mode.stride, term) &&
             add(offset, term, offset);
    }
    return offset;
  };
  IntTuple found;
  if (layout.is_integral()) {
    std::int64_t offset = sum(kPlain);
    for (const Layout::Stage& stage : layout.stages()) {
      std::int64_t end = 0;
      fits = fits && add(offset, stage.offset, end);
    }
    if (fits) found = IntTuple(swizzled(layout.stages(), static_cast<Unsigned>(offset)));
  } else {
    found = by_path(layout.modes(), sum);
  }
  if (!fits) return too_large("evaluate");
  return found;
}

Result<std::int64_t> crd2idx(const IntTuple& coordinate, const Layout& layout) {
  if (!layout.is_integral())
    return invalid("layout: crd2idx: {} gives coordinates, not numbers; use evaluate",
                   brief(layout));
  LAPIDARY_TRY(const IntTuple offset, evaluate(layout, coordinate));
  return offset.value();
}

Result<IntTuple> crd2idx(const IntTuple& coordinate, const IntTuple& shape,
                         const IntTuple& stride) {
  LAPIDARY_TRY(const Layout layout, make_layout(shape, stride));
  return evaluate(layout, coordinate);
}

Result<IntTuple> idx2crd(const IntTuple& index, const Layout& layout) {
  return idx2crd(index, layout.shape());
}

Result<Layout> get(const Layout& layout, std::span<const int> path) {
  Subtree at = whole(layout.profile());
  for (const int i : path) {
    if (i < 0 || i >= rank(layout.profile(), at)) return no_mode("get", i, part(layout, at));
    at = child(layout.profile(), at, i);
  }
  return Access::with_stages(part(layout, at), Access::stages(layout));
}
Result<Layout> get(const Layout& layout, std::initializer_list<int> path) {
  return get(layout, std::span(path.begin(), path.size()));
}

Result<Layout> select(const Layout& layout, std::span<const int> modes) {
  if (modes.size() > kMostLeaves)
    return invalid("layout: select: {} modes; at most {}", modes.size(), kMostLeaves);
  Children chosen(modes.size());
  for (const int i : modes) {
    if (i < 0 || i >= layout.rank()) return no_mode("select", i, layout);
    chosen.builder.add(child_of(layout, i));
  }
  return Access::checked("select", std::move(chosen.builder.profile),
                         std::move(chosen.builder.modes), Access::stages(layout));
}
Result<Layout> select(const Layout& layout, std::initializer_list<int> modes) {
  return select(layout, std::span(modes.begin(), modes.size()));
}

namespace {
Status check_range(const char* who, const Layout& layout, int begin, int end) {
  if (0 <= begin && begin < end && end <= layout.rank()) return {};
  return invalid("layout: {}: modes {} to {} of {}: give begin < end, from 0 to its rank {}", who,
                 begin, end, brief(layout), layout.rank());
}
}  // namespace

Result<Layout> take(const Layout& layout, int begin, int end) {
  LAPIDARY_TRY_STATUS(check_range("take", layout, begin, end));
  Children chosen(static_cast<std::size_t>(end - begin));
  for (int i = begin; i < end; ++i) chosen.builder.add(child_of(layout, i));
  return Access::trusted(std::move(chosen.builder.profile), std::move(chosen.builder.modes),
                         Access::stages(layout));
}

Result<Layout> group_modes(const Layout& layout, int begin, int end) {
  LAPIDARY_TRY_STATUS(check_range("group_modes", layout, begin, end));
  Children all(static_cast<std::size_t>(layout.rank() - (end - begin) + 1));
  for (int i = 0; i < layout.rank(); ++i) {
    if (i == begin) all.builder.open(static_cast<std::size_t>(end - begin));
    all.builder.add(child_of(layout, i));
  }
  return Access::trusted(std::move(all.builder.profile), std::move(all.builder.modes),
                         Access::stages(layout));
}

namespace {
/// The layout's modes with `mode` before mode `at`, in place of `gone` modes there.
Result<Layout> put(const char* who, const Layout& layout, int at, int gone, const Layout& mode) {
  LAPIDARY_TRY_STATUS(plain_mode(who, mode));
  Children all(static_cast<std::size_t>(layout.rank() + 1 - gone));
  for (int i = 0; i <= layout.rank(); ++i) {
    if (i == at) all.builder.add(mode);
    if (i < layout.rank() && (i < at || i >= at + gone)) all.builder.add(child_of(layout, i));
  }
  return Access::checked(who, std::move(all.builder.profile), std::move(all.builder.modes),
                         Access::stages(layout));
}
}  // namespace

Result<Layout> append(const Layout& layout, const Layout& mode) {
  return put("append", layout, layout.rank(), 0, mode);
}
Result<Layout> prepend(const Layout& layout, const Layout& mode) {
  return put("prepend", layout, 0, 0, mode);
}
Result<Layout> replace(const Layout& layout, int i, const Layout& mode) {
  if (i < 0 || i >= layout.rank()) return no_mode("replace", i, layout);
  return put("replace", layout, i, 1, mode);
}

Layout flatten(const Layout& layout) {
  if (layout.is_leaf()) return layout;
  Builder all;
  all.open(layout.modes().size());
  for (const Layout::Mode& mode : layout.modes()) all.mode(mode);
  return Access::trusted(std::move(all.profile), std::move(all.modes), Access::stages(layout));
}

namespace {

/// Collects the modes where the coordinate has `_` (or, for `numbers`, where it has a number).
Status pick(const IntTuple& coordinate, const Subtree& at, const Layout& layout, const Subtree& to,
            bool numbers, Builder& out, std::size_t& count) {
  if (is_leaf(coordinate.profile(), at)) {
    if ((coordinate.leaves()[at.leaf_begin].path == kUnderscore) != numbers) {
      out.add(part(layout, to));
      ++count;
    }
    return {};
  }
  const int n = rank(coordinate.profile(), at);
  if (n != rank(layout.profile(), to)) {
    return invalid("layout: slice: coordinate {} and {} nest differently: {} and {} modes",
                   brief(coordinate), brief(layout), n, rank(layout.profile(), to));
  }
  for (int i = 0; i < n; ++i) {
    LAPIDARY_TRY_STATUS(pick(coordinate, child(coordinate.profile(), at, i), layout,
                             child(layout.profile(), to, i), numbers, out, count));
  }
  return {};
}

Result<Layout> picked(const IntTuple& coordinate, const Layout& layout, bool numbers,
                      const Stages& stages) {
  Builder found;
  std::size_t count = 0;
  LAPIDARY_TRY_STATUS(pick(coordinate, whole(coordinate.profile()), layout, whole(layout.profile()),
                           numbers, found, count));
  if (coordinate.is_leaf() && count == 1)
    return Access::trusted(std::move(found.profile), std::move(found.modes), stages);
  Profile profile{static_cast<Token>(count)};
  profile.append(found.profile);
  return Access::trusted(std::move(profile), std::move(found.modes), stages);
}

}  // namespace

Result<Slice> slice_and_offset(const IntTuple& coordinate, const Layout& layout) {
  // What the numbers add: the same coordinate with 0 for each `_`.
  Profile profile;
  profile.append(coordinate.profile());
  Leaves leaves;
  for (const Leaf& leaf : coordinate.leaves())
    leaves.push_back(leaf.path == kUnderscore ? Leaf{0, kPlain} : leaf);
  LAPIDARY_TRY(IntTuple offset,
               evaluate(layout.inner(), Access::tuple(std::move(profile), std::move(leaves))));
  Stages stages = Access::stages(layout);
  if (!stages.empty()) {
    if (!add(stages.back().offset, offset.value(), stages.back().offset)) return too_large("slice");
    offset = IntTuple(0);
  }
  LAPIDARY_TRY(Layout found, picked(coordinate, layout, false, stages));
  return Slice{std::move(found), std::move(offset)};
}

Result<Layout> slice(const IntTuple& coordinate, const Layout& layout) {
  LAPIDARY_TRY(Slice found, slice_and_offset(coordinate, layout));
  return std::move(found.layout);
}

Result<Layout> dice(const IntTuple& coordinate, const Layout& layout) {
  return picked(coordinate, layout, true, Access::stages(layout));
}

}  // namespace lapidary
