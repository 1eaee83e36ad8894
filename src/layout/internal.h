#pragma once

#include <optional>
#include <string>

#include "lapidary/layout.h"
#include "support/result.h"

// What the files of this room share: putting tuples and layouts together from their parts.
namespace lapidary::layout_detail {

using Leaf = IntTuple::Leaf;
using Mode = Layout::Mode;
using Stage = Layout::Stage;
using Modes = InlineVector<Mode, 8>;
using Leaves = InlineVector<Leaf, 8>;
using Stages = InlineVector<Stage, 1>;
using Span = std::span<const Token>;

inline constexpr int kMostChildren = 65534, kMostLevels = 8, kMostMode = 253;
/// Leaves of a layout: no kernel has as many, and what is quadratic in them stays quick.
inline constexpr int kMostLeaves = 1024;

/// The one door to the insides of tuples and layouts.
struct Access {
  static IntTuple tuple(Profile profile, Leaves leaves);
  static Layout with_stages(Layout layout, const Stages& stages);
  /// Checks that sizes and offsets fit and that strides are of one kind. `who` speaks in errors.
  static Result<Layout> checked(const char* who, Profile profile, Modes modes,
                                const Stages& stages = {});
  /// For parts of a layout that was checked.
  static Layout trusted(Profile profile, Modes modes, const Stages& stages = {});
  static const Profile& profile(const Layout& layout) { return layout.profile_; }
  static const Stages& stages(const Layout& layout) { return layout.stages_; }
};

/// A subtree of a profile: tokens [begin, end), and leaves [leaf_begin, leaf_end).
struct Subtree {
  std::size_t begin, end, leaf_begin, leaf_end;
};
/// The whole of a profile, and child i of a subtree. Of a leaf the only child is itself.
Subtree whole(Span profile);
Subtree child(Span profile, const Subtree& of, int i);
inline int rank(Span profile, const Subtree& of) {
  return profile[of.begin] == kLeafToken ? 1 : profile[of.begin];
}
inline bool is_leaf(Span profile, const Subtree& of) { return profile[of.begin] == kLeafToken; }
int depth(Span profile);

IntTuple part(const IntTuple& tuple, const Subtree& at);
/// Without stages.
Layout part(const Layout& layout, const Subtree& at);

/// Builds a layout (or shape) from the left: open(n) begins a nest of n, mode and add give its
/// children.
struct Builder {
  Profile profile;
  Modes modes;
  void open(std::size_t children) { profile.push_back(static_cast<Token>(children)); }
  void mode(const Mode& m) {
    profile.push_back(kLeafToken);
    modes.push_back(m);
  }
  void add(const Layout& layout) {
    profile.append(layout.profile());
    modes.append(layout.modes());
  }
  /// One mode stands alone, several become a nest, none are 1:0.
  void nest(std::span<const Mode> several);
};

// Arithmetic that says when a result does not fit.
inline bool multiply(std::int64_t a, std::int64_t b, std::int64_t& out) {
  return !__builtin_mul_overflow(a, b, &out);
}
inline bool add(std::int64_t a, std::int64_t b, std::int64_t& out) {
  return !__builtin_add_overflow(a, b, &out);
}
inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }
/// |x|; of the smallest number the largest.
inline std::int64_t magnitude(std::int64_t x) {
  return x >= 0 ? x : x == INT64_MIN ? INT64_MAX : -x;
}

// Paths of coordinate strides.
int levels(Path path);
/// The mode number at a level, outermost first.
inline int mode_at(Path path, int level) { return static_cast<int>(path >> (8 * level) & 255) - 1; }
/// Inside mode i: 1@0 in mode 2 is 1@0@2. Empty when that is too deep.
std::optional<Path> inside(int i, Path path);
/// The path without its first level.
inline Path below(Path path) { return path >> 8; }

std::string path_text(Path path);

/// For messages: the text, cut where it gets long.
std::string brief(const Layout& layout);
std::string brief(const IntTuple& tuple);

template <class... Args>
Error invalid(fmt::format_string<Args...> text, Args&&... args) {
  return fail(ErrorCode::invalid_argument, text, std::forward<Args>(args)...);
}
inline Error too_large(const char* who) {
  return invalid("layout: {}: the numbers do not fit in 64 bits; make extents or strides smaller",
                 who);
}

/// Sorts by a key, equal ones staying in order; by insertion, as the lists are short.
template <class List, class Key>
void sort_by(List& list, const Key& key) {
  for (std::size_t i = 1; i < list.size(); ++i) {
    const auto moving = list[i];
    std::size_t at = i;
    for (; at > 0 && key(moving) < key(list[at - 1]); --at) list[at] = list[at - 1];
    list[at] = moving;
  }
}

/// Flat modes that say the same as `modes` with as few as possible, in order.
Modes coalesced(std::span<const Mode> modes);
/// The index in the layout's domain at which each mode begins to count: 1, s0, s0*s1, ...
InlineVector<std::int64_t, 8> positions(std::span<const Mode> modes);
/// make_ordered_layout's strides for a flat list, smallest order first; extent 1 gets 0.
bool ordered_strides(std::span<const std::int64_t> shape, std::span<const std::int64_t> order,
                     std::span<std::int64_t> strides);

}  // namespace lapidary::layout_detail
