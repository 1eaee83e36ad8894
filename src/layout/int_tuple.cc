#include <algorithm>

#include "layout/internal.h"

namespace lapidary {

using namespace layout_detail;

namespace layout_detail {

IntTuple Access::tuple(Profile profile, Leaves leaves) {
  IntTuple made;
  made.profile_ = std::move(profile);
  made.leaves_ = std::move(leaves);
  return made;
}

Subtree whole(Span profile) {
  std::size_t leaves = 0;
  for (const Token token : profile) leaves += token == kLeafToken;
  return {0, profile.size(), 0, leaves};
}

namespace {
/// The subtree that begins here.
Subtree scan(Span profile, std::size_t begin, std::size_t leaf) {
  Subtree found{begin, begin, leaf, leaf};
  for (std::size_t open = 1; open > 0; ++found.end) {
    const Token token = profile[found.end];
    if (token == kLeafToken) {
      ++found.leaf_end;
      --open;
    } else {
      open += token;
      --open;
    }
  }
  return found;
}
}  // namespace

Subtree child(Span profile, const Subtree& of, int i) {
  if (is_leaf(profile, of)) return of;
  Subtree at = scan(profile, of.begin + 1, of.leaf_begin);
  for (; i > 0; --i) at = scan(profile, at.end, at.leaf_end);
  return at;
}

int depth(Span profile) {
  int deepest = 0;
  InlineVector<Token, 16> open;  // children still to come, a level each
  for (const Token token : profile) {
    if (token != kLeafToken) {
      open.push_back(token);
      deepest = std::max(deepest, static_cast<int>(open.size()));
      if (token > 0) continue;
      open.pop_back();
    }
    while (!open.empty() && --open.back() == 0) open.pop_back();
  }
  return deepest;
}

IntTuple part(const IntTuple& tuple, const Subtree& at) {
  Profile profile;
  profile.append(tuple.profile().subspan(at.begin, at.end - at.begin));
  Leaves leaves;
  leaves.append(tuple.leaves().subspan(at.leaf_begin, at.leaf_end - at.leaf_begin));
  return Access::tuple(std::move(profile), std::move(leaves));
}

int levels(Path path) {
  int n = 0;
  for (; path != 0; path >>= 8) ++n;
  return n;
}

std::optional<Path> inside(int i, Path path) {
  if (i > kMostMode || (path >> (8 * (kMostLevels - 1))) != 0) return std::nullopt;
  return path << 8 | static_cast<Path>(i + 1);
}

}  // namespace layout_detail

IntTuple::IntTuple() { profile_.push_back(0); }
IntTuple::IntTuple(std::int64_t value) {
  profile_.push_back(kLeafToken);
  leaves_.push_back({value, kPlain});
}
IntTuple::IntTuple(Underscore) {
  profile_.push_back(kLeafToken);
  leaves_.push_back({0, kUnderscore});
}
IntTuple::IntTuple(std::initializer_list<IntTuple> children)
    : IntTuple(tuple(std::span(children.begin(), children.size()))) {}

IntTuple IntTuple::tuple(std::span<const IntTuple> children) {
  children = children.first(std::min(children.size(), std::size_t{kMostChildren}));
  IntTuple made;
  made.profile_[0] = static_cast<Token>(children.size());
  for (const IntTuple& child : children) {
    made.profile_.append(child.profile_);
    made.leaves_.append(child.leaves_);
  }
  return made;
}

IntTuple IntTuple::tuple(std::span<const std::int64_t> leaves) {
  leaves = leaves.first(std::min(leaves.size(), std::size_t{kMostChildren}));
  IntTuple made;
  made.profile_[0] = static_cast<Token>(leaves.size());
  for (const std::int64_t leaf : leaves) {
    made.profile_.push_back(kLeafToken);
    made.leaves_.push_back({leaf, kPlain});
  }
  return made;
}

bool IntTuple::is_plain() const {
  return std::ranges::all_of(leaves_, [](const Leaf& leaf) { return leaf.path == kPlain; });
}

IntTuple IntTuple::operator[](int i) const {
  if (i < 0 || i >= rank()) return {};
  return is_leaf() ? *this : part(*this, child(profile_, whole(profile_), i));
}

Result<IntTuple> basis(std::initializer_list<int> path, std::int64_t scale) {
  Path packed = kPlain;
  for (auto it = std::rbegin(path); it != std::rend(path); ++it) {
    const std::optional<Path> deeper = *it < 0 ? std::nullopt : inside(*it, packed);
    if (!deeper) {
      return invalid("layout: basis: mode {} at {} levels; modes are 0 to {}, levels at most {}",
                     *it, path.size(), kMostMode, kMostLevels);
    }
    packed = *deeper;
  }
  Profile profile{kLeafToken};
  return Access::tuple(std::move(profile), Leaves{{scale, packed}});
}

int depth(const IntTuple& tuple) { return layout_detail::depth(tuple.profile()); }

Result<std::int64_t> product(const IntTuple& tuple) {
  std::int64_t all = 1;
  for (const Leaf& leaf : tuple.leaves()) {
    if (leaf.path != kPlain)
      return invalid("layout: product: {} has a leaf that is no number", brief(tuple));
    if (!multiply(all, leaf.value, all)) return too_large("product");
  }
  return all;
}

IntTuple flatten(const IntTuple& tuple) {
  if (tuple.is_leaf()) return tuple;
  const std::size_t count = std::min(tuple.leaves().size(), std::size_t{kMostChildren});
  Profile profile{static_cast<Token>(count)};
  Leaves leaves;
  for (std::size_t i = 0; i < count; ++i) {
    profile.push_back(kLeafToken);
    leaves.push_back(tuple.leaves()[i]);
  }
  return Access::tuple(std::move(profile), std::move(leaves));
}

bool congruent(const IntTuple& a, const IntTuple& b) {
  return std::ranges::equal(a.profile(), b.profile());
}

namespace {

/// Two tuples walked together; `at_leaf` decides where either of them is a leaf.
template <class AtLeaf>
bool matches(const IntTuple& a, const Subtree& at, const IntTuple& b, const Subtree& bt,
             const AtLeaf& at_leaf) {
  if (is_leaf(a.profile(), at) || is_leaf(b.profile(), bt)) return at_leaf(at, bt);
  const int n = rank(a.profile(), at);
  if (n != rank(b.profile(), bt)) return false;
  for (int i = 0; i < n; ++i) {
    if (!matches(a, child(a.profile(), at, i), b, child(b.profile(), bt, i), at_leaf)) return false;
  }
  return true;
}

/// The product of a subtree's leaves; empty when it does not fit.
std::optional<std::int64_t> size_of(const IntTuple& tuple, const Subtree& at) {
  std::int64_t all = 1;
  for (std::size_t i = at.leaf_begin; i < at.leaf_end; ++i) {
    if (!multiply(all, tuple.leaves()[i].value, all)) return std::nullopt;
  }
  return all;
}

}  // namespace

bool weakly_congruent(const IntTuple& a, const IntTuple& b) {
  return matches(a, whole(a.profile()), b, whole(b.profile()),
                 [&](const Subtree& at, const Subtree&) { return is_leaf(a.profile(), at); });
}

bool compatible(const IntTuple& a, const IntTuple& b) {
  return matches(
      a, whole(a.profile()), b, whole(b.profile()), [&](const Subtree& at, const Subtree& bt) {
        return is_leaf(a.profile(), at) && size_of(b, bt) == a.leaves()[at.leaf_begin].value;
      });
}

bool evenly_divides(const IntTuple& a, const IntTuple& b) {
  const auto divides = [&](const auto& self, const Subtree& at, const Subtree& bt) -> bool {
    if (is_leaf(b.profile(), bt)) {
      const std::optional<std::int64_t> size = size_of(a, at);
      const std::int64_t by = b.leaves()[bt.leaf_begin].value;
      return size && by > 0 && *size % by == 0;
    }
    const int n = rank(b.profile(), bt);
    if (n != rank(a.profile(), at)) return false;
    for (int i = 0; i < n; ++i) {
      if (!self(self, child(a.profile(), at, i), child(b.profile(), bt, i))) return false;
    }
    return true;
  };
  return divides(divides, whole(a.profile()), whole(b.profile()));
}

Result<std::int64_t> inner_product(const IntTuple& a, const IntTuple& b) {
  if (!congruent(a, b)) {
    return invalid("layout: inner_product: {} and {} nest differently; give two of the same nest",
                   brief(a), brief(b));
  }
  if (!a.is_plain() || !b.is_plain())
    return invalid("layout: inner_product: {} and {}: every leaf must be a number", brief(a),
                   brief(b));
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < a.leaves().size(); ++i) {
    std::int64_t term = 0;
    if (!multiply(a.leaves()[i].value, b.leaves()[i].value, term) || !add(sum, term, sum))
      return too_large("inner_product");
  }
  return sum;
}

Result<IntTuple> prefix_product(const IntTuple& tuple, std::int64_t first) {
  if (!tuple.is_plain())
    return invalid("layout: prefix_product: {}: every leaf must be a number", brief(tuple));
  Profile profile;
  profile.append(tuple.profile());
  Leaves leaves;
  std::int64_t running = first;
  for (std::size_t i = 0; i < tuple.leaves().size(); ++i) {
    if (i > 0 && !multiply(running, tuple.leaves()[i - 1].value, running))
      return too_large("prefix_product");
    leaves.push_back({running, kPlain});
  }
  return Access::tuple(std::move(profile), std::move(leaves));
}

namespace {

Status check_extents(const char* who, const IntTuple& shape) {
  for (const Leaf& leaf : shape.leaves()) {
    if (leaf.path != kPlain || leaf.value < 1) {
      return invalid("layout: {}: {} has an extent of {}; extents are numbers from 1", who,
                     brief(shape), leaf.path == kPlain ? std::to_string(leaf.value) : "no number");
    }
  }
  return {};
}

Status same_rank(const char* who, const IntTuple& a, const IntTuple& b) {
  if (a.rank() == b.rank() && a.is_tuple()) return {};
  return invalid("layout: {}: {} has {} modes and {} has {}; give as many, or one number", who,
                 brief(a), a.rank(), brief(b), b.rank());
}

/// `take(extent, left)` gives what becomes of an extent when `left` is still to be divided by.
template <class Take>
Result<IntTuple> divide_from_left(const char* who, const IntTuple& a, const IntTuple& b,
                                  const Take& take) {
  LAPIDARY_TRY_STATUS(check_extents(who, a));
  LAPIDARY_TRY_STATUS(check_extents(who, b));
  if (b.is_tuple() && a.is_tuple()) {
    LAPIDARY_TRY_STATUS(same_rank(who, a, b));
    std::vector<IntTuple> children;
    for (int i = 0; i < a.rank(); ++i) {
      LAPIDARY_TRY(IntTuple one, divide_from_left(who, a[i], b[i], take));
      children.push_back(std::move(one));
    }
    return IntTuple::tuple(children);
  }
  LAPIDARY_TRY(std::int64_t left, product(b));
  Profile profile;
  profile.append(a.profile());
  Leaves leaves;
  for (const Leaf& leaf : a.leaves()) {
    const std::int64_t extent = leaf.value;
    if (extent % left != 0 && left % extent != 0) {
      return invalid("layout: {}: {} by {}: extent {} and what is left, {}, do not divide", who,
                     brief(a), brief(b), extent, left);
    }
    leaves.push_back({take(extent, left), kPlain});
    left = left % extent == 0 ? left / extent : 1;
  }
  return Access::tuple(std::move(profile), std::move(leaves));
}

}  // namespace

Result<IntTuple> shape_div(const IntTuple& a, const IntTuple& b) {
  return divide_from_left("shape_div", a, b, [](std::int64_t extent, std::int64_t left) {
    return extent % left == 0 ? extent / left : 1;
  });
}

Result<IntTuple> shape_mod(const IntTuple& a, const IntTuple& b) {
  return divide_from_left("shape_mod", a, b, [](std::int64_t extent, std::int64_t left) {
    return std::min(extent, left);
  });
}

Result<IntTuple> ceil_div(const IntTuple& a, const IntTuple& b) {
  LAPIDARY_TRY_STATUS(check_extents("ceil_div", a));
  LAPIDARY_TRY_STATUS(check_extents("ceil_div", b));
  if (b.is_tuple() && a.is_tuple()) {
    LAPIDARY_TRY_STATUS(same_rank("ceil_div", a, b));
    std::vector<IntTuple> children;
    for (int i = 0; i < a.rank(); ++i) {
      LAPIDARY_TRY(IntTuple one, ceil_div(a[i], b[i]));
      children.push_back(std::move(one));
    }
    return IntTuple::tuple(children);
  }
  LAPIDARY_TRY(const std::int64_t by, product(b));
  if (a.is_leaf()) return IntTuple(layout_detail::ceil_div(a.value(), by));
  LAPIDARY_TRY(const std::int64_t all, product(a));
  return IntTuple(layout_detail::ceil_div(all, by));
}

namespace {

Result<IntTuple> compact(const char* who, const IntTuple& shape, bool from_left) {
  LAPIDARY_TRY_STATUS(check_extents(who, shape));
  Profile profile;
  profile.append(shape.profile());
  Leaves leaves;
  leaves.append(shape.leaves());
  const std::size_t n = leaves.size();
  std::int64_t running = 1;
  for (std::size_t step = 0; step < n; ++step) {
    Leaf& leaf = leaves[from_left ? step : n - 1 - step];
    const std::int64_t extent = leaf.value;
    leaf.value = extent == 1 ? 0 : running;
    if (!multiply(running, extent, running)) return too_large(who);
  }
  return Access::tuple(std::move(profile), std::move(leaves));
}

}  // namespace

Result<IntTuple> compact_col_major(const IntTuple& shape) {
  return compact("compact_col_major", shape, true);
}
Result<IntTuple> compact_row_major(const IntTuple& shape) {
  return compact("compact_row_major", shape, false);
}

namespace {

/// Fills the leaves of a subtree of `shape` from a coordinate that is as deep or less.
Status spread(const IntTuple& index, const Subtree& at, const IntTuple& shape, const Subtree& to,
              Leaves& out) {
  const auto differ = [&](const char* why) {
    return invalid("layout: coordinate {} in shape {}: {}", brief(index), brief(shape), why);
  };
  if (!is_leaf(index.profile(), at)) {
    const int n = rank(index.profile(), at);
    if (is_leaf(shape.profile(), to) && n != 1)
      return differ("a number of the shape has a tuple of the coordinate in its place");
    if (n != rank(shape.profile(), to))
      return differ("the two must have as many modes, or the coordinate one number for them");
    for (int i = 0; i < n; ++i) {
      LAPIDARY_TRY_STATUS(
          spread(index, child(index.profile(), at, i), shape, child(shape.profile(), to, i), out));
    }
    return {};
  }
  const Leaf& leaf = index.leaves()[at.leaf_begin];
  if (leaf.path != kPlain) return differ("each of its leaves must be a number");
  if (leaf.value < 0) return differ("it has a negative number; coordinates begin at 0");
  std::int64_t left = leaf.value;
  for (std::size_t i = to.leaf_begin; i < to.leaf_end; ++i) {
    const std::int64_t extent = shape.leaves()[i].value;
    const bool last = i + 1 == to.leaf_end;
    out[i].value = last ? left : left % extent;
    left = last ? 0 : left / extent;
  }
  if (left != 0) return differ("() has no coordinate but 0");
  return {};
}

}  // namespace

Result<IntTuple> idx2crd(const IntTuple& index, const IntTuple& shape) {
  LAPIDARY_TRY_STATUS(check_extents("idx2crd", shape));
  Profile profile;
  profile.append(shape.profile());
  Leaves leaves;
  leaves.append(shape.leaves());
  LAPIDARY_TRY_STATUS(spread(index, whole(index.profile()), shape, whole(shape.profile()), leaves));
  return Access::tuple(std::move(profile), std::move(leaves));
}

}  // namespace lapidary
