#include <algorithm>
#include <numeric>

#include "layout/internal.h"

namespace lapidary {

using namespace layout_detail;

namespace layout_detail {

Modes coalesced(std::span<const Mode> modes) {
  Modes out;
  for (const Mode& mode : modes) {
    if (mode.shape == 1) continue;
    std::int64_t next = 0;
    if (!out.empty() && out.back().path == mode.path &&
        multiply(out.back().shape, out.back().stride, next) && next == mode.stride) {
      out.back().shape *= mode.shape;
    } else {
      out.push_back(mode);
    }
  }
  if (out.empty() && !modes.empty()) out.push_back(modes.back());
  return out;
}

InlineVector<std::int64_t, 8> positions(std::span<const Mode> modes) {
  InlineVector<std::int64_t, 8> at;
  std::int64_t running = 1;
  for (const Mode& mode : modes) {
    at.push_back(running);
    running *= mode.shape;
  }
  return at;
}

namespace {

/// One that stands alone, or several as a flat tuple; () stays ().
Layout flat_layout(const Modes& modes, const Stages& stages = {}) {
  Builder all;
  if (modes.empty()) {
    all.open(0);
  } else {
    all.nest(modes);
  }
  return Access::trusted(std::move(all.profile), std::move(all.modes), stages);
}

/// What a coordinate stride leads to in A: its modes, coalesced, and how far into each of them the
/// modes of B reach together.
struct Target {
  Path path;
  Modes modes;
  InlineVector<std::int64_t, 8> reach;
  bool forward = false, backward = false;
};

std::string mode_text(const Mode& mode) {
  return fmt::format("{}:{}{}", mode.shape, mode.stride, path_text(mode.path));
}

/// Adds to `out` what a run of `count` steps of `step` through the target becomes. Index x of the
/// target has in mode k the digit x / position_k % extent_k, so a run is first taken past the modes
/// that its step spans wholly, then cut where it leaves one.
Status follow(const Layout& a, const Layout& b, const Mode& run, Target& target, Modes& out) {
  const auto refuse = [&](const Mode& at, const std::string& why) {
    return invalid(
        "layout: composition({}, {}): mode {} of the right meets mode {} of the left: {}", brief(a),
        brief(b), mode_text(run), mode_text(at), why);
  };
  const Modes& modes = target.modes;
  if (run.stride == 0 || modes.empty()) {
    out.push_back({run.shape, 0, kPlain});
    return {};
  }
  std::int64_t count = run.shape, step = magnitude(run.stride);
  if (count > 1) (run.stride > 0 ? target.forward : target.backward) = true;
  bool emitted = false;
  const auto emit = [&](std::size_t k, std::int64_t n) {
    std::int64_t stride = 0;
    if (!multiply(run.stride > 0 ? step : -step, modes[k].stride, stride)) {
      if (n > 1) return false;
      stride = 0;  // of extent 1 any stride will do
    }
    std::int64_t far = 0;
    if (!multiply(n - 1, step, far) || !add(target.reach[k], far, target.reach[k])) return false;
    out.push_back({n, stride, modes[k].path});
    emitted = true;
    return true;
  };
  for (std::size_t k = 0; k < modes.size() && !(emitted && count == 1); ++k) {
    const std::int64_t extent = modes[k].shape;
    std::int64_t span = 0;
    if (k + 1 == modes.size()) {
      if (!emit(k, count)) return too_large("composition");
      break;
    }
    if (step % extent == 0) {
      step /= extent;
      continue;
    }
    if (multiply(count - 1, step, span) && span < extent) {
      if (!emit(k, count)) return too_large("composition");
      break;
    }
    if (extent % step != 0) {
      return refuse(modes[k],
                    fmt::format("its step there, {}, does not divide extent {}, and its {} "
                                "steps leave it; use a step that divides {} or a multiple "
                                "of it",
                                step, extent, count, extent));
    }
    const std::int64_t inside = extent / step;
    if (count % inside != 0) {
      return refuse(modes[k], fmt::format("{} steps of {} leave extent {} after {}, which does not "
                                          "divide {}; use a multiple of {} or at most {} steps",
                                          count, step, extent, inside, count, inside, inside));
    }
    if (!emit(k, inside)) return too_large("composition");
    count /= inside;
    step = 1;
  }
  return {};
}

/// The runs of several modes of B add up digit by digit only where no digit carries.
Status check_carries(const Layout& a, const Layout& b, const Target& target) {
  for (std::size_t k = 0; k + 1 < target.modes.size(); ++k) {
    if (target.reach[k] < target.modes[k].shape) continue;
    return invalid(
        "layout: composition({}, {}): the modes of the right together reach {} in mode {} "
        "of the left, whose extent is {}: they would carry into the next; use modes that "
        "do not overlap there",
        brief(a), brief(b), target.reach[k], mode_text(target.modes[k]), target.modes[k].shape);
  }
  if (target.forward && target.backward && target.modes.size() > 1) {
    return invalid(
        "layout: composition({}, {}): the right steps forward and backward through several "
        "modes of the left; use strides of one sign",
        brief(a), brief(b));
  }
  return {};
}

/// The part of A that a coordinate stride of B chooses.
Result<Target> target_of(const Layout& a, const Layout& b, Path path) {
  Subtree at = whole(a.profile());
  for (int level = 0; level < levels(path); ++level) {
    const int i = mode_at(path, level);
    if (is_leaf(a.profile(), at) || i >= rank(a.profile(), at)) {
      return invalid(
          "layout: composition({}, {}): the right steps in mode {}, and the left has no "
          "such mode",
          brief(a), brief(b), path_text(path));
    }
    at = child(a.profile(), at, i);
  }
  Target target{path, coalesced(a.modes().subspan(at.leaf_begin, at.leaf_end - at.leaf_begin)), {}};
  for (std::size_t i = 0; i < target.modes.size(); ++i) target.reach.push_back(0);
  return target;
}

Result<Layout> compose(const Layout& a, const Layout& b, const Stages& stages) {
  std::vector<Target> targets;
  Builder out;
  std::size_t leaf = 0;
  for (const Token token : b.profile()) {
    if (token != kLeafToken) {
      out.open(token);
      continue;
    }
    const Mode& run = b.modes()[leaf++];
    auto target = std::ranges::find(targets, run.path, &Target::path);
    if (target == targets.end()) {
      LAPIDARY_TRY(Target made, target_of(a, b, run.path));
      targets.push_back(std::move(made));
      target = targets.end() - 1;
    }
    Modes found;
    LAPIDARY_TRY_STATUS(follow(a, b, run, *target, found));
    out.nest(found);
  }
  for (const Target& target : targets) LAPIDARY_TRY_STATUS(check_carries(a, b, target));
  return Access::checked("composition", std::move(out.profile), std::move(out.modes), stages);
}

int log2_of(std::int64_t power) { return 63 - __builtin_clzll(static_cast<std::uint64_t>(power)); }
bool is_power_of_two(std::int64_t x) { return x > 0 && (x & (x - 1)) == 0; }

/// The bit above all that a swizzle reads or writes.
int top_bit(const Swizzle& s) {
  return s.bits == 0 ? 0 : s.base + s.bits + (s.shift < 0 ? -s.shift : s.shift);
}

/// S' with A(S(x)) = S'(A(x)) for 0 <= x < limit, which there is when A sends bits to bits.
Result<Swizzle> moved_through(const char* who, const Layout& a, const Swizzle& s,
                              std::int64_t limit) {
  if (s.bits == 0) return s;
  const auto refuse = [&](const std::string& why) {
    return invalid("layout: {}: {} cannot move through {}: {}", who, text(s), brief(a), why);
  };
  const Modes modes = coalesced(a.modes());
  InlineVector<int, 64> to;  // the bit that bit i becomes
  std::uint64_t taken = 0;
  for (const Mode& mode : modes) {
    if (mode.path != kPlain || !is_power_of_two(mode.stride) ||
        (modes.size() > 1 && !is_power_of_two(mode.shape))) {
      return refuse(
          fmt::format("mode {} does not send bits to bits; extents and strides must be "
                      "powers of two",
                      mode_text(mode)));
    }
    const int first = log2_of(mode.stride);
    const int count = modes.size() == 1 ? 62 - first : log2_of(mode.shape);
    for (int i = 0; i < count; ++i) {
      const std::uint64_t bit = std::uint64_t{1} << (first + i);
      if ((taken & bit) != 0) return refuse("two of its modes send to the same bit");
      taken |= bit;
      to.push_back(first + i);
    }
  }
  const int bits = static_cast<int>(to.size());
  if (top_bit(s) > bits || (bits < 62 && limit > std::int64_t{1} << bits)) {
    return refuse(fmt::format("its size {} is too small for what is swizzled; it would need {}",
                              a.size(), std::max(limit, std::int64_t{1} << top_bit(s))));
  }
  const int write = s.shift >= 0 ? s.base : s.base - s.shift;
  const int read = s.shift >= 0 ? s.base + s.shift : s.base;
  const auto bit = [&](int i) { return to[static_cast<std::size_t>(i)]; };
  for (int i = 1; i < s.bits; ++i) {
    if (bit(write + i) != bit(write) + i || bit(read + i) != bit(read) + i)
      return refuse("the bits of the swizzle would no longer be neighbours");
  }
  return make_swizzle(s.bits, std::min(bit(write), bit(read)), bit(read) - bit(write));
}

}  // namespace
}  // namespace layout_detail

Layout coalesce(const Layout& layout) {
  return flat_layout(coalesced(layout.modes()), Access::stages(layout));
}

namespace {

Status coalesce_by(const Layout& layout, const Subtree& at, const IntTuple& profile,
                   const Subtree& by, Builder& out) {
  if (is_leaf(profile.profile(), by)) {
    out.add(coalesce(part(layout, at)));
    return {};
  }
  const int n = rank(layout.profile(), at), wanted = rank(profile.profile(), by);
  if (wanted > n) {
    return invalid(
        "layout: coalesce: profile {} has {} modes where {} has {}; give as many or less",
        brief(profile), wanted, brief(layout), n);
  }
  out.open(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) {
    const Subtree mode = child(layout.profile(), at, i);
    if (i < wanted) {
      LAPIDARY_TRY_STATUS(coalesce_by(layout, mode, profile, child(profile.profile(), by, i), out));
    } else {
      out.add(part(layout, mode));
    }
  }
  return {};
}

}  // namespace

Result<Layout> coalesce(const Layout& layout, const IntTuple& profile) {
  Builder out;
  LAPIDARY_TRY_STATUS(
      coalesce_by(layout, whole(layout.profile()), profile, whole(profile.profile()), out));
  return Access::trusted(std::move(out.profile), std::move(out.modes), Access::stages(layout));
}

namespace {
Modes without_trivial(std::span<const Mode> modes) {
  Modes kept;
  for (const Mode& mode : modes)
    if (mode.shape > 1 && mode.stride != 0) kept.push_back(mode);
  return kept;
}
}  // namespace

Layout filter(const Layout& layout) {
  Modes kept = coalesced(without_trivial(layout.modes()));
  if (kept.empty()) kept.push_back({1, 0, kPlain});
  return flat_layout(kept, Access::stages(layout));
}

Result<Layout> composition(const Layout& a, const Layout& b) {
  Stages stages = Access::stages(a);
  if (b.is_swizzled()) {
    const Layout inner = a.inner();
    const Modes linear = coalesced(a.modes());
    // a(s(offset + x)) = s'(a(offset) + a(x)), the second step where a is linear.
    for (const Stage& stage : b.stages()) {
      if (stage.offset != 0 && linear.size() != 1) {
        return invalid(
            "layout: composition({}, {}): offset {} of the right cannot move through the "
            "left, which has several modes; use offset 0",
            brief(a), brief(b), stage.offset);
      }
      LAPIDARY_TRY(const Swizzle moved,
                   moved_through("composition", inner, stage.swizzle(), cosize(b)));
      std::int64_t offset = 0;
      if (stage.offset != 0 && !multiply(stage.offset, linear[0].stride, offset))
        return too_large("composition");
      stages.push_back({offset, moved.bits, moved.base, moved.shift});
    }
  }
  return compose(a.inner(), b.inner(), stages);
}

namespace {

Status compose_by(const Layout& a, const Tiler& tiler, Builder& out) {
  if (tiler.is_underscore()) {
    out.add(a);
    return {};
  }
  if (tiler.is_layout()) {
    if (tiler.layout().is_swizzled())
      return invalid("layout: composition: the tiler {} is swizzled; use a plain one",
                     brief(tiler.layout()));
    LAPIDARY_TRY(const Layout composed, composition(a, tiler.layout()));
    out.add(composed);
    return {};
  }
  const int n = a.rank();
  if (static_cast<int>(tiler.parts().size()) > n) {
    return invalid("layout: tiler {} has {} modes and {} has {}; give as many or less", text(tiler),
                   tiler.parts().size(), brief(a), n);
  }
  out.open(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) {
    if (i < static_cast<int>(tiler.parts().size())) {
      LAPIDARY_TRY_STATUS(compose_by(a[i], tiler.parts()[static_cast<std::size_t>(i)], out));
    } else {
      out.add(a[i]);
    }
  }
  return {};
}

}  // namespace

Result<Layout> composition(const Layout& a, const Tiler& tiler) {
  if (tiler.is_layout()) return composition(a, tiler.layout());
  Builder out;
  LAPIDARY_TRY_STATUS(compose_by(a.inner(), tiler, out));
  return Access::checked("composition", std::move(out.profile), std::move(out.modes),
                         Access::stages(a));
}

// ---- Complement -----------------------------------------------------------------------------

namespace {

/// The complement of plain modes in [0, size), with strides on `path`.
Status complement_of(const Layout& layout, std::span<const Mode> modes, std::int64_t size,
                     Path path, Modes& out) {
  Modes sorted = without_trivial(modes);
  sort_by(sorted, [](const Mode& mode) { return mode.stride; });
  std::int64_t covered = 1;  // offsets below this are reached, each once
  for (const Mode& mode : sorted) {
    if (mode.stride < covered) {
      return invalid(
          "layout: complement({}): not injective: stride {} lies within the {} offsets that "
          "the smaller strides cover; use a stride of at least {}",
          brief(layout), mode.stride, covered, covered);
    }
    if (mode.stride / covered > 1) out.push_back({mode.stride / covered, covered, path});
    if (!multiply(mode.stride, mode.shape, covered)) return too_large("complement");
  }
  const std::int64_t rest = layout_detail::ceil_div(size, covered);
  if (rest > 1) out.push_back({rest, covered, path});
  return {};
}

/// Walks the target: what no stride of the layout enters deeper is one number.
Status complement_in(const Layout& layout, const IntTuple& target, const Subtree& at, int level,
                     Path prefix, Modes& out) {
  const Path mask = level == kMostLevels ? ~Path{0} : (Path{1} << (8 * level)) - 1;
  Modes here;
  int deepest = -1;
  for (const Mode& mode : layout.modes()) {
    if (mode.stride == 0 || levels(mode.path) < level || (mode.path & mask) != prefix) continue;
    if (levels(mode.path) > level) deepest = std::max(deepest, mode_at(mode.path, level));
    here.push_back(mode);
  }
  if (is_leaf(target.profile(), at) ? deepest >= 0 : deepest >= rank(target.profile(), at)) {
    return invalid(
        "layout: complement({}, {}): the layout steps in mode {}{}, which the target lacks; "
        "give a number for each mode of its result",
        brief(layout), brief(target), deepest, path_text(prefix));
  }
  // A number in the layout's result, or nothing: then a tuple of the target is taken apart, so that
  // each of its modes keeps its own stride.
  if (is_leaf(target.profile(), at) || (deepest < 0 && !here.empty())) {
    std::int64_t size = 1;
    for (std::size_t i = at.leaf_begin; i < at.leaf_end; ++i) {
      if (!multiply(size, target.leaves()[i].value, size)) return too_large("complement");
    }
    return complement_of(layout, here, size, prefix, out);
  }
  for (int i = 0; i < rank(target.profile(), at); ++i) {
    if (level == kMostLevels || i > kMostMode)
      return invalid("layout: complement: target {} nests too deeply", brief(target));
    LAPIDARY_TRY_STATUS(complement_in(layout, target, child(target.profile(), at, i), level + 1,
                                      prefix | static_cast<Path>(i + 1) << (8 * level), out));
  }
  return {};
}

}  // namespace

Result<Layout> complement(const Layout& layout, const IntTuple& cosize_at_least) {
  const char* fault = layout.is_swizzled() ? "it is swizzled" : nullptr;
  for (const Mode& mode : layout.modes())
    if (mode.stride < 0) fault = "it has a negative stride";
  if (fault != nullptr)
    return invalid("layout: complement({}): {}; give a plain layout", brief(layout), fault);
  for (const Leaf& leaf : cosize_at_least.leaves()) {
    if (leaf.path != kPlain || leaf.value < 1)
      return invalid("layout: complement: target {}: give numbers from 1", brief(cosize_at_least));
  }
  Modes found;
  if (layout.is_integral()) {
    LAPIDARY_TRY(const std::int64_t size, product(cosize_at_least));
    LAPIDARY_TRY_STATUS(complement_of(layout, layout.modes(), size, kPlain, found));
  } else {
    LAPIDARY_TRY_STATUS(
        complement_in(layout, cosize_at_least, whole(cosize_at_least.profile()), 0, kPlain, found));
  }
  Builder out;
  out.nest(coalesced(found));
  return Access::checked("complement", std::move(out.profile), std::move(out.modes));
}

// ---- Inverses -------------------------------------------------------------------------------

namespace {

/// Mode k of a layout as an inverse sees it: extent and stride, and its position in the domain.
struct Placed {
  std::int64_t shape, stride, position;
};
using PlacedModes = InlineVector<Placed, 8>;

/// Modes of one path that matter to an inverse, smallest stride first.
PlacedModes placed(const Modes& modes, Path path) {
  const auto at = positions(modes);
  PlacedModes found;
  for (std::size_t i = 0; i < modes.size(); ++i) {
    if (modes[i].shape > 1 && modes[i].stride != 0 && modes[i].path == path)
      found.push_back({modes[i].shape, modes[i].stride, at[i]});
  }
  sort_by(found, [](const Placed& mode) { return mode.stride; });
  return found;
}

/// Builds the domain that coordinate strides span: `leaf(path, out)` adds what belongs to a number
/// of it.
template <class OnLeaf>
Status over_paths(std::span<const Mode> modes, const OnLeaf& leaf, Builder& out, int level = 0,
                  Path prefix = kPlain) {
  const Path mask = level == kMostLevels ? ~Path{0} : (Path{1} << (8 * level)) - 1;
  int children = 0;
  for (const Mode& mode : modes) {
    if (levels(mode.path) > level && (mode.path & mask) == prefix)
      children = std::max(children, mode_at(mode.path, level) + 1);
  }
  if (children == 0) return leaf(prefix, out);
  out.open(static_cast<std::size_t>(children));
  for (int i = 0; i < children; ++i) {
    LAPIDARY_TRY_STATUS(
        over_paths(modes, leaf, out, level + 1, prefix | static_cast<Path>(i + 1) << (8 * level)));
  }
  return {};
}

/// The swizzles of the inverse, in front of the inverse of what they stand before.
Result<Stages> inverse_stages(const char* who, const Layout& layout, const Layout& inverse,
                              std::int64_t limit) {
  Stages stages;
  for (auto it = layout.stages().rbegin(); it != layout.stages().rend(); ++it) {
    if (it->offset != 0)
      return invalid("layout: {}({}): offset {} has no inverse of this form; use offset 0", who,
                     brief(layout), it->offset);
    const Swizzle swizzle = it->swizzle();
    const int read = swizzle.base + std::max(swizzle.shift, 0);
    if (swizzle.bits == 0 || limit <= std::int64_t{1} << read)
      continue;  // what it reads is always 0
    LAPIDARY_TRY(const Swizzle moved, moved_through(who, inverse, swizzle, limit));
    stages.push_back({0, moved.bits, moved.base, moved.shift});
  }
  return stages;
}

}  // namespace

Result<Layout> right_inverse(const Layout& layout) {
  const Modes modes = coalesced(layout.modes());
  Builder out;
  const auto chain = [&](Path path, Builder& to) -> Status {
    Modes found;
    std::int64_t next = 1;  // the stride that continues what was found
    for (const Placed& mode : placed(modes, path)) {
      if (mode.stride != next) continue;
      found.push_back({mode.shape, mode.position, kPlain});
      if (!multiply(next, mode.shape, next)) break;
    }
    to.nest(coalesced(found));
    return {};
  };
  LAPIDARY_TRY_STATUS(over_paths(layout.modes(), chain, out));
  LAPIDARY_TRY(Layout inverse,
               Access::checked("right_inverse", std::move(out.profile), std::move(out.modes)));
  if (!layout.is_swizzled()) return inverse;
  for (const Stage& stage : layout.stages()) {
    // The inverse must take what the swizzle makes of its domain: whole windows of it.
    const Swizzle swizzle = stage.swizzle();
    const int read = swizzle.base + std::max(swizzle.shift, 0);
    const bool idle = swizzle.bits == 0 || inverse.size() <= std::int64_t{1} << read;
    if (!idle && inverse.size() % (std::int64_t{1} << top_bit(swizzle)) != 0) {
      return invalid(
          "layout: right_inverse({}): {} moves offsets out of the {} that have an inverse; use a "
          "layout whose strides reach a multiple of {}",
          brief(layout), text(swizzle), inverse.size(), std::int64_t{1} << top_bit(swizzle));
    }
  }
  LAPIDARY_TRY(const Stages stages,
               inverse_stages("right_inverse", layout, inverse, inverse.size()));
  return Access::with_stages(std::move(inverse), stages);
}

Result<Layout> left_inverse(const Layout& layout) {
  const Modes modes = coalesced(layout.modes());
  Builder out;
  const auto invert = [&](Path path, Builder& to) -> Status {
    const PlacedModes sorted = placed(modes, path);
    Modes found;
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      const Placed& mode = sorted[i];
      if (mode.stride < 0)
        return invalid(
            "layout: left_inverse({}): stride {} is negative; give a layout without such",
            brief(layout), mode.stride);
      if (i == 0 && mode.stride > 1) found.push_back({mode.stride, 0, kPlain});
      if (i + 1 == sorted.size()) {
        found.push_back({mode.shape, mode.position, kPlain});
        break;
      }
      const std::int64_t next = sorted[i + 1].stride;
      if (next % mode.stride != 0 || next / mode.stride < mode.shape) {
        return invalid(
            "layout: left_inverse({}): stride {} is no multiple of {} that clears its extent "
            "{}; no layout inverts it",
            brief(layout), next, mode.stride, mode.shape);
      }
      found.push_back({next / mode.stride, mode.position, kPlain});
    }
    to.nest(coalesced(found));
    return {};
  };
  LAPIDARY_TRY_STATUS(over_paths(layout.modes(), invert, out));
  LAPIDARY_TRY(Layout inverse,
               Access::checked("left_inverse", std::move(out.profile), std::move(out.modes)));
  if (!layout.is_swizzled()) return inverse;
  LAPIDARY_TRY(const Stages stages,
               inverse_stages("left_inverse", layout, inverse, cosize(layout)));
  return Access::with_stages(std::move(inverse), stages);
}

Layout nullspace(const Layout& layout) {
  const auto at = positions(layout.modes());
  Builder out;
  Modes found;
  for (std::size_t i = 0; i < layout.modes().size(); ++i) {
    if (layout.modes()[i].stride == 0 && layout.modes()[i].shape > 1)
      found.push_back({layout.modes()[i].shape, at[i], kPlain});
  }
  out.nest(found);
  return Access::trusted(std::move(out.profile), std::move(out.modes));
}

// ---- What two layouts share -----------------------------------------------------------------

namespace {

/// The first piece of a run of `count` steps through modes: how many steps lie on one stride, and
/// which.
std::pair<std::int64_t, std::int64_t> first_piece(const Modes& modes, std::int64_t count,
                                                  std::int64_t step) {
  for (std::size_t k = 0; k < modes.size(); ++k) {
    const bool last = k + 1 == modes.size();
    if (!last && step % modes[k].shape == 0) {
      step /= modes[k].shape;
      continue;
    }
    std::int64_t stride = 0;
    if (!multiply(step, modes[k].stride, stride)) break;
    return {std::min(count, layout_detail::ceil_div(modes[k].shape, step)), stride};
  }
  return {1, 0};
}

Status check_common(const char* who, const Layout& layout) {
  if (layout.is_integral()) return {};
  return invalid("layout: {}: {} has coordinate strides; give plain ones", who, brief(layout));
}

}  // namespace

Result<std::int64_t> max_common_vector(const Layout& a, const Layout& b) {
  LAPIDARY_TRY_STATUS(check_common("max_common_vector", a));
  LAPIDARY_TRY_STATUS(check_common("max_common_vector", b));
  const Modes left = coalesced(a.modes());
  LAPIDARY_TRY(const Layout inverse, right_inverse(b.inner()));
  std::int64_t common = 1;
  for (const Mode& mode : inverse.modes()) {
    if (mode.shape == 1) break;
    const auto [count, stride] = first_piece(left, mode.shape, mode.stride);
    if (stride != common) break;
    common *= count;
    if (count < mode.shape) break;
  }
  // Within 2^base offsets a swizzle changes nothing.
  for (const Layout* layout : {&a, &b}) {
    for (const Stage& stage : layout->stages())
      common = std::min(common, std::gcd(std::int64_t{1} << stage.base, stage.offset));
  }
  return common;
}

Result<Layout> max_common_layout(const Layout& a, const Layout& b) {
  LAPIDARY_TRY(const std::int64_t common, max_common_vector(a, b));
  LAPIDARY_TRY(const Layout inverse, right_inverse(b.inner()));
  LAPIDARY_TRY(const Layout first, make_layout(IntTuple(common), IntTuple(1)));
  return composition(inverse, first);
}

std::int64_t max_alignment(const Swizzle& swizzle) { return std::int64_t{1} << swizzle.base; }

std::int64_t max_alignment(const Layout& layout) {
  if (!layout.is_integral()) return 1;
  std::int64_t common = 0;
  for (const Mode& mode : coalesced(without_trivial(layout.modes())))
    common = std::gcd(common, magnitude(mode.stride) == 1 ? mode.shape : magnitude(mode.stride));
  if (common == 0) common = 1;
  for (const Stage& stage : layout.stages())
    common = std::gcd(std::gcd(common, stage.offset), max_alignment(stage.swizzle()));
  return common;
}

Result<Layout> domain_distribute(const IntTuple& shape, std::int64_t count) {
  if (count < 1)
    return invalid("layout: domain_distribute: a count of {}; give a number from 1", count);
  LAPIDARY_TRY(const Layout domain, make_layout(shape));
  const auto at = positions(domain.modes());
  Modes found;
  for (std::size_t i = 0; i < domain.modes().size(); ++i) {
    const std::int64_t share = std::gcd(domain.modes()[i].shape, count);
    if (share > 1) found.push_back({share, at[i], kPlain});
    count /= share;
  }
  Builder out;
  out.nest(coalesced(found));
  return Access::checked("domain_distribute", std::move(out.profile), std::move(out.modes));
}

}  // namespace lapidary
