#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lapidary/inline_vector.h"
#include "lapidary/result.h"

// Layouts: functions from coordinates to offsets, written shape:stride, and their algebra.
//
// (4,8):(8,1) has coordinates (i,j), i < 4, j < 8, and sends them to 8*i + j: a 4x8 row-major
// matrix. Modes nest: (4,(2,3)):(6,(3,1)) is a 4x6 matrix whose columns are again 2x3. Every
// layout also takes one number for all of its modes, or for a nest of them, counted with the
// leftmost mode fastest: coordinate 5 of shape (4,8) is (1,1).
//
// Strides may be coordinates: 1@0 steps by one in mode 0 of a result that is itself a coordinate,
// 1@2@0 in mode 2 of its mode 0. (4,8):(1@0,1@1) sends each coordinate to itself.
//
// A layout may end in swizzles: S<3,4,3> o 16 o (8,64):(64,1) adds 16 to what (8,64):(64,1) gives
// and permutes the bits of the sum.
//
// The operations have CuTe's names and meaning. Layouts are values: made once, compared, copied,
// printed. What the input can get wrong comes back as `Result`, with the modes and numbers that do
// not fit; nothing overflows silently.
namespace lapidary {

/// All of a mode, in a coordinate of `slice` and `dice`: slice({_, 3}, layout) is column 3.
struct Underscore {};
inline constexpr Underscore _{};

namespace layout_detail {
struct Access;

/// Where a coordinate stride points: up to eight nested mode numbers, each below 254, the outermost
/// in the lowest byte, plus one. 0 is a plain number.
using Path = std::uint64_t;
inline constexpr Path kPlain = 0, kUnderscore = ~Path{0};

/// Nesting in preorder: kLeafToken, or how many children follow.
using Token = std::uint16_t;
inline constexpr Token kLeafToken = 0xffff;
using Profile = InlineVector<Token, 16>;
}  // namespace layout_detail

/// A number or a tuple of such: 5, (4,8), ((2,3),4), (); shapes, coordinates and strides are these.
/// A leaf may also be a coordinate stride (2@1) or, in a coordinate, `_`.
class IntTuple {
 public:
  struct Leaf {
    std::int64_t value;
    layout_detail::Path path;
    bool operator==(const Leaf&) const = default;
  };

  /// The empty tuple ().
  IntTuple();
  /// A leaf. IntTuple(5) is 5, but a list is always a tuple: IntTuple{5} is (5).
  IntTuple(std::int64_t value);
  IntTuple(Underscore);
  /// A tuple: {{2, 3}, 4} is ((2,3),4). At most 65534 children.
  IntTuple(std::initializer_list<IntTuple> children);
  /// The tuple of these children.
  static IntTuple tuple(std::span<const IntTuple> children);
  static IntTuple tuple(std::span<const std::int64_t> leaves);

  bool is_leaf() const { return profile_[0] == layout_detail::kLeafToken; }
  bool is_tuple() const { return !is_leaf(); }
  /// Every leaf is a plain number.
  bool is_plain() const;
  /// A leaf's number; of 2@1 the 2. 0 of a tuple.
  std::int64_t value() const { return is_leaf() ? leaves_[0].value : 0; }
  bool is_underscore() const { return is_leaf() && leaves_[0].path == layout_detail::kUnderscore; }
  /// How many children; 1 for a leaf.
  int rank() const { return is_leaf() ? 1 : profile_[0]; }
  /// Child i, or the leaf itself for i = 0; () outside of the rank.
  IntTuple operator[](int i) const;
  /// All leaves, from left to right.
  std::span<const Leaf> leaves() const& { return leaves_; }
  void leaves() const&& = delete;  // they would outlive their tuple
  std::span<const layout_detail::Token> profile() const& { return profile_; }
  void profile() const&& = delete;

  bool operator==(const IntTuple&) const = default;

 private:
  friend struct layout_detail::Access;
  layout_detail::Profile profile_;
  InlineVector<Leaf, 8> leaves_;
};

/// A step of `scale` in the mode of a coordinate that the path names, outermost first: basis({1,
/// 0}, 2) is 2@0@1. `invalid_argument` for more than eight levels or a mode outside of [0, 253].
Result<IntTuple> basis(std::initializer_list<int> path, std::int64_t scale = 1);

/// S<bits,base,shift>: a permutation of offsets that XORs a field of `bits` bits into another. With
/// shift > 0 the bits from base + shift on go into those from base on; with shift < 0 the bits from
/// base on go into those from base - shift on. Applying it twice undoes it.
///   S<3,4,3> on bytes: bits 7..9 (the 128-byte row, modulo 8) into bits 4..6 (the 16-byte chunk).
struct Swizzle {
  int bits = 0, base = 0, shift = 0;
  std::int64_t operator()(std::int64_t offset) const {
    const std::uint64_t x = static_cast<std::uint64_t>(offset);
    const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
    const std::uint64_t flipped =
        shift >= 0 ? (x >> (base + shift) & mask) << base : (x >> base & mask) << (base - shift);
    return static_cast<std::int64_t>(x ^ flipped);
  }
  bool operator==(const Swizzle&) const = default;
};

/// A checked swizzle: bits and base not negative, bits <= |shift| so that the two fields are
/// disjoint, and all of it below bit 62.
Result<Swizzle> make_swizzle(int bits, int base, int shift);

/// A function from coordinates to offsets; see the top of this file.
class Layout {
 public:
  struct Mode {
    std::int64_t shape, stride;
    layout_detail::Path path;
    bool operator==(const Mode&) const = default;
  };
  /// swizzle(offset + what lies further inside).
  struct Stage {
    std::int64_t offset;
    std::int32_t bits, base, shift;
    Swizzle swizzle() const { return {bits, base, shift}; }
    bool operator==(const Stage&) const = default;
  };

  /// 1:0.
  Layout();

  /// How many modes; 1 for one without parentheses.
  int rank() const { return is_leaf() ? 1 : profile_[0]; }
  /// Written without parentheses, such as 8:1.
  bool is_leaf() const { return profile_[0] == layout_detail::kLeafToken; }
  std::int64_t size() const { return size_; }
  IntTuple shape() const;
  IntTuple stride() const;
  /// Mode i with its nest, without swizzles: (3,6):(4,12) of (4,(3,6)):(1,(4,12)) for i = 1. 1:0
  /// outside of the rank, as if such modes followed without end. `get` is the checked one.
  Layout operator[](int i) const;
  /// All modes with a stride, the nest forgotten.
  std::span<const Mode> modes() const& { return modes_; }
  void modes() const&& = delete;  // they would outlive their layout
  std::span<const layout_detail::Token> profile() const& { return profile_; }
  void profile() const&& = delete;

  /// Swizzles, the one applied last in front; empty for most layouts.
  std::span<const Stage> stages() const& { return stages_; }
  void stages() const&& = delete;
  bool is_swizzled() const { return !stages_.empty(); }
  /// The layout without its swizzles and their offsets.
  Layout inner() const;
  /// Offsets are numbers, not coordinates.
  bool is_integral() const { return integral_; }

  /// The offset of coordinate i, counted through all modes; i beyond size() goes on in the last
  /// mode, and f(-i) = -f(i) before the swizzles. Modulo 2^64 there, never undefined. Of a layout
  /// with coordinate strides: the smallest std::int64_t; `evaluate` has them.
  std::int64_t operator()(std::int64_t i) const;
  /// The offset of a coordinate with one number per mode: layout(2, 3). Numbers that are missing
  /// are 0, and those beyond the rank count nothing.
  template <class... More>
  std::int64_t operator()(std::int64_t i, std::int64_t j, More... more) const {
    const std::int64_t coordinate[] = {i, j, static_cast<std::int64_t>(more)...};
    return at(coordinate);
  }
  std::int64_t at(std::span<const std::int64_t> coordinate) const;

  bool operator==(const Layout&) const = default;

 private:
  friend struct layout_detail::Access;
  layout_detail::Profile profile_;
  InlineVector<Mode, 8> modes_;
  InlineVector<Stage, 1> stages_;
  std::int64_t size_ = 1;
  bool integral_ = true;
};

/// How to cut or pick a layout: a layout (applied to all of it), `_` (left as it is), or a list of
/// tilers, one per mode. A number n in a shape means n:1: Tiler(IntTuple{128, 64}) is <128:1,64:1>.
class Tiler {
 public:
  Tiler(Layout layout);
  Tiler(Underscore);
  /// By mode. Fails for what is no extent: see make_tiler.
  Tiler(std::vector<Tiler> parts);

  bool is_layout() const { return kind_ == Kind::layout; }
  bool is_parts() const { return kind_ == Kind::parts; }
  bool is_underscore() const { return kind_ == Kind::all; }
  const Layout& layout() const { return layout_; }
  const std::vector<Tiler>& parts() const { return parts_; }
  bool operator==(const Tiler&) const = default;

 private:
  enum class Kind { layout, parts, all };
  Kind kind_;
  Layout layout_;
  std::vector<Tiler> parts_;
};
/// The tiler that a shape means: 128 is 128:1, (128,64) is <128:1,64:1>, _ is all.
Result<Tiler> make_tiler(const IntTuple& shape);

// ---- Tuples ---------------------------------------------------------------------------------

/// How deeply nested: 0 for a leaf, 1 for (4,8), 2 for ((2,3),4).
int depth(const IntTuple& tuple);
/// The product of all leaves; 1 for (). Fails when it does not fit.
Result<std::int64_t> product(const IntTuple& tuple);
/// Without nests: ((2,3),4) -> (2,3,4). A leaf stays one.
IntTuple flatten(const IntTuple& tuple);

/// The same nest.
bool congruent(const IntTuple& a, const IntTuple& b);
/// b nests at least as deeply: every leaf of a may stand for a tuple of b. 7 and (4,(2,3)).
bool weakly_congruent(const IntTuple& a, const IntTuple& b);
/// Every coordinate of shape a is one of shape b: each leaf of a is the size of what stands in its
/// place. 24 and (4,6), (4,6) and (4,(2,3)).
bool compatible(const IntTuple& a, const IntTuple& b);
/// Each leaf of b divides the size of what a has in its place: (32,64) and 128, ((2,8)) and (16).
bool evenly_divides(const IntTuple& a, const IntTuple& b);

/// Sum of products of leaves: ((2,3),4) and ((2,1),2) give 15.
Result<std::int64_t> inner_product(const IntTuple& a, const IntTuple& b);
/// In place of each leaf the product of all before it, times `first`: (3,2,4) -> (1,3,6).
Result<IntTuple> prefix_product(const IntTuple& tuple, std::int64_t first = 1);
/// What is left of a shape when each b-th element, from the left, is kept: (3,6,2,8) by 6 is
/// (1,3,2,8), by 72 (1,1,1,4). A tuple b divides mode by mode.
Result<IntTuple> shape_div(const IntTuple& a, const IntTuple& b);
/// The first b elements of a shape, from the left: (3,6,2,8) and 6 give (3,2,1,1).
Result<IntTuple> shape_mod(const IntTuple& a, const IntTuple& b);
/// Quotients rounded up: how many tiles b cover shape a, by mode. (512,513) by (256,128) is (2,5).
Result<IntTuple> ceil_div(const IntTuple& a, const IntTuple& b);

/// Compact strides of a shape, leftmost mode fastest: (4,(8,2)) -> (1,(4,32)). Extent 1 gets 0.
Result<IntTuple> compact_col_major(const IntTuple& shape);
/// Rightmost mode fastest: (4,(8,2)) -> (16,(2,1)).
Result<IntTuple> compact_row_major(const IntTuple& shape);

/// The coordinate of a shape that an index (or a coarser coordinate) means: 16 in (3,(2,3)) is
/// (1,(1,2)), and so is (1,5). The last mode takes what is left.
Result<IntTuple> idx2crd(const IntTuple& index, const IntTuple& shape);
/// Where a coordinate leads under strides: (1,5) in (3,(2,3)):(3,(12,1)) is 17.
Result<IntTuple> crd2idx(const IntTuple& coordinate, const IntTuple& shape, const IntTuple& stride);

// ---- Making layouts -------------------------------------------------------------------------

/// shape:stride. The two are congruent, extents are at least 1, strides are either numbers or
/// coordinates (0 is both), and the largest offset fits in 64 bits.
Result<Layout> make_layout(const IntTuple& shape, const IntTuple& stride);
/// With compact_col_major's strides.
Result<Layout> make_layout(const IntTuple& shape);
/// These as modes: 3:1 and (4,2):(3,12) make (3,(4,2)):(1,(3,12)). None is swizzled.
Result<Layout> make_layout(std::span<const Layout> modes);
Result<Layout> make_layout(std::initializer_list<Layout> modes);
/// Compact, the modes in the order of `order`'s numbers, the smallest fastest, equal ones from the
/// left: (4,3,8,2) by (2,1,3,0) is (4,3,8,2):(6,2,24,1). A number may stand for a nest.
Result<Layout> make_ordered_layout(const IntTuple& shape, const IntTuple& order);
/// Compact, with the same shape and order of strides; stride 0 stays: (4,2):(8,1) -> (4,2):(2,1).
Result<Layout> make_layout_like(const Layout& layout);
/// Sends each coordinate to itself: (4,2):(1@0,1@1); 4:1 for a number.
Result<Layout> make_identity_layout(const IntTuple& shape);
/// swizzle o offset o layout; on a swizzled layout it comes on top.
Result<Layout> make_composed_layout(const Swizzle& swizzle, std::int64_t offset,
                                    const Layout& layout);

// ---- Looking at layouts ---------------------------------------------------------------------

inline std::int64_t size(const Layout& layout) { return layout.size(); }
inline int rank(const Layout& layout) { return layout.rank(); }
/// How deeply nested: 0 for 8:1, 1 for (4,8):(8,1).
int depth(const Layout& layout);
/// One more than the largest offset (of absolute strides): what the image of the layout needs. With
/// swizzles rounded up to all that their bits reach; 1 for coordinate strides, which have
/// `coshape`.
std::int64_t cosize(const Layout& layout);
/// cosize for each mode of the result: (4,5):(1@0,2@1) has (4,9).
IntTuple coshape(const Layout& layout);

/// The offset (or coordinate) of a coordinate of the layout, checked against its shape.
Result<IntTuple> evaluate(const Layout& layout, const IntTuple& coordinate);
/// The same of layouts with plain strides, as a number.
Result<std::int64_t> crd2idx(const IntTuple& coordinate, const Layout& layout);
/// The nested coordinate of an index into the layout's domain.
Result<IntTuple> idx2crd(const IntTuple& index, const Layout& layout);

/// The mode that a path leads to: get(L, {1, 0}) is mode 0 of mode 1. Swizzles stay.
Result<Layout> get(const Layout& layout, std::span<const int> path);
Result<Layout> get(const Layout& layout, std::initializer_list<int> path);
/// These modes, in this order, as a tuple.
Result<Layout> select(const Layout& layout, std::span<const int> modes);
Result<Layout> select(const Layout& layout, std::initializer_list<int> modes);
/// Modes begin .. end - 1 as a tuple.
Result<Layout> take(const Layout& layout, int begin, int end);
/// Modes begin .. end - 1 become one nest: group_modes((4,5,6):..., 1, 3) is (4,(5,6)):...
Result<Layout> group_modes(const Layout& layout, int begin, int end);
/// Another mode behind, or in front.
Result<Layout> append(const Layout& layout, const Layout& mode);
Result<Layout> prepend(const Layout& layout, const Layout& mode);
/// Another mode in place of mode i.
Result<Layout> replace(const Layout& layout, int i, const Layout& mode);
/// Without nests.
Layout flatten(const Layout& layout);

/// The modes where the coordinate has `_`, and the offset that its numbers add.
struct Slice {
  Layout layout;
  IntTuple offset;
};
/// slice_and_offset({2, _}, L) is row 2. A swizzled layout keeps the offset inside, before its
/// swizzles, since swizzle(a) + swizzle(b) is not swizzle(a + b); `offset` is then 0.
Result<Slice> slice_and_offset(const IntTuple& coordinate, const Layout& layout);
/// Its layout alone: what the numbers add is dropped, but for swizzled layouts.
Result<Layout> slice(const IntTuple& coordinate, const Layout& layout);
/// The modes where the coordinate has numbers.
Result<Layout> dice(const IntTuple& coordinate, const Layout& layout);

// ---- The algebra ----------------------------------------------------------------------------

/// The same function of one number with as few modes as possible: (2,(4,6)):(1,(2,8)) -> 48:1.
Layout coalesce(const Layout& layout);
/// Each leaf of the profile coalesces what stands in its place; modes beyond it stay.
/// (3,(4,5)):(8,(1,4)) by (1,1) is (3,20):(8,1).
Result<Layout> coalesce(const Layout& layout, const IntTuple& profile);
/// Without modes of stride 0 or extent 1, coalesced: (4,3,2):(1,0,4) -> 8:1.
Layout filter(const Layout& layout);

/// R(c) = A(B(c)) with the shape of B, whose leaves may become nests:
/// (6,2):(8,2) o (4,3):(3,1) = ((2,2),3):((24,2),8). The last mode of A goes on without end. Fails
/// where the function has no such form: a run of B that crosses a mode of A must step through it
/// evenly, and B's modes together must not carry from one mode of A into the next.
/// B may have coordinate strides, each then chooses a mode of A. Swizzles of A stay in front;
/// swizzles of B move through A, where A only moves bits.
Result<Layout> composition(const Layout& a, const Layout& b);
/// By mode: what the tiler has for it is composed with each mode; modes beyond it stay.
Result<Layout> composition(const Layout& a, const Tiler& tiler);

/// What is missing from a layout to reach all of `cosize_at_least`: strictly increasing offsets,
/// disjoint from the layout's but for 0. complement(4:2, 24) = (2,3):(1,8). Fails for a layout
/// whose strides overlap. For coordinate strides the target has a number for each mode of the
/// result.
Result<Layout> complement(const Layout& layout, const IntTuple& cosize_at_least = 1);

/// R with L(R(i)) = i for all i < size(R), as far as strides 1, s0, s0*s1, ... are found in L:
/// (2,4):(4,1) -> (4,2):(2,1). 1:0 when L has no stride 1. With coordinate strides R takes the
/// coordinates that L gives.
Result<Layout> right_inverse(const Layout& layout);
/// R with L(R(L(i))) = L(i), and R(L(i)) = i where L is injective: (4,2):(1,10) -> (10,2):(1,4).
/// Fails where the strides, sorted, do not divide one another or overlap.
Result<Layout> left_inverse(const Layout& layout);
/// The coordinates that L sends to 0, as a layout into its domain: (2,2,2):(1,0,2) -> 2:2.
Layout nullspace(const Layout& layout);

/// How many leading offsets 0, 1, 2, ... both layouts reach at the same coordinates. A swizzle
/// counts as none within the 2^base offsets that it leaves together, and limits the result to them.
Result<std::int64_t> max_common_vector(const Layout& a, const Layout& b);
/// The coordinates of these offsets: V with a(V(i)) = b(V(i)) = i, swizzles and their offsets
/// aside.
Result<Layout> max_common_layout(const Layout& a, const Layout& b);
/// The largest n such that n-element vectors stay whole: gcd of all strides, where that of stride 1
/// counts its extent; a swizzle limits it to 2^base. (8,16):(1,4) has 4. 1 for constant layouts.
std::int64_t max_alignment(const Layout& layout);
std::int64_t max_alignment(const Swizzle& swizzle);
/// A layout into the domain of `shape`, of a size that divides `count`: from each mode, left to
/// right, the part that still divides. (192,(8,8)) and 1024 give (64,16):(1,192).
Result<Layout> domain_distribute(const IntTuple& shape, std::int64_t count);

// ---- Divide and product ---------------------------------------------------------------------

/// (tile, rest): composition(a, (b, complement(b, size(a)))). 6:2 by 2:3 is (2,3):(6,2). With a
/// list of tilers each mode becomes (tile, rest): (6,8):(8,1) by <3:1,4:1> is
/// ((3,2),(4,2)):((8,24),(1,4)).
Result<Layout> logical_divide(const Layout& a, const Tiler& tiler);
/// All tiles' modes together, then all rests': ((3,4),(2,2)):((8,1),(24,4)).
Result<Layout> zipped_divide(const Layout& a, const Tiler& tiler);
/// The tiles as one mode, then each rest: ((3,4),2,2):((8,1),24,4).
Result<Layout> tiled_divide(const Layout& a, const Tiler& tiler);
/// Each on its own: (3,4,2,2):(8,1,24,4).
Result<Layout> flat_divide(const Layout& a, const Tiler& tiler);

/// (a, copies): a layout of layouts a, arranged as b says: composition(complement(a, n), b) is the
/// second mode, with n so large that all copies find room. (2,2):(4,1) by 6:1 is
/// ((2,2),(2,3)):((4,1),(2,8)). With a list of tilers by mode.
Result<Layout> logical_product(const Layout& a, const Tiler& b);
Result<Layout> zipped_product(const Layout& a, const Tiler& b);
/// (a, b0, b1, ...).
Result<Layout> tiled_product(const Layout& a, const Tiler& b);
/// (a0, a1, ..., b0, b1, ...).
Result<Layout> flat_product(const Layout& a, const Tiler& b);
/// Blocks of a, arranged by b: modes (a_i, b_i). (2,5):(5,1) by (3,4):(1,3) is
/// ((2,3),(5,4)):((5,10),(1,30)).
Result<Layout> blocked_product(const Layout& a, const Layout& b);
/// Elements of the copies of a interleaved: modes (b_i, a_i).
Result<Layout> raked_product(const Layout& a, const Layout& b);

/// `block` repeated until it has this shape, mode by mode, the blocks in col-major order or in that
/// of `order` (see make_ordered_layout). (8,64):(64,1) to (64,128,2) by (2,1,0) is
/// ((8,8),(64,2),(1,2)):((64,2048),(1,1024),(0,512)). Each extent of the shape is a multiple of the
/// block's. Swizzles of the block stay.
Result<Layout> tile_to_shape(const Layout& block, const IntTuple& shape);
Result<Layout> tile_to_shape(const Layout& block, const IntTuple& shape, const IntTuple& order);

// ---- Element types --------------------------------------------------------------------------

/// Offsets in units of n elements: (8,4):(1,8) by 2 is (4,4):(1,4). Each stride is a multiple of n,
/// or divides it and its extent a multiple of what n has more.
Result<Layout> upcast(const Layout& layout, std::int64_t n);
/// Offsets in units of 1/n element: (8,4):(1,8) by 2 is (16,4):(1,16).
Result<Layout> downcast(const Layout& layout, std::int64_t n);
/// The same bytes seen as elements of `new_bits` in place of `old_bits`: the layout first, then
/// new, then old.
Result<Layout> recast(const Layout& layout, std::int64_t new_bits, std::int64_t old_bits);
/// A swizzle of offsets in units of n elements, or 1/n; n is a power of two.
Result<Swizzle> upcast(const Swizzle& swizzle, std::int64_t n);
Result<Swizzle> downcast(const Swizzle& swizzle, std::int64_t n);

// ---- Text -----------------------------------------------------------------------------------

/// "(4,(2,3))", "2@0@1", "_".
std::string text(const IntTuple& tuple);
/// "S<3,4,3>".
std::string text(const Swizzle& swizzle);
/// "(4,8):(8,1)", "S<3,4,3> o 0 o (8,64):(64,1)".
std::string text(const Layout& layout);
/// "<3:1,(2,4):(1,8)>".
std::string text(const Tiler& tiler);

/// What `text` writes, with white space anywhere between words. `invalid_argument` says what is
/// wrong, at which character, and what would be right.
Result<IntTuple> int_tuple_from_text(std::string_view text);
Result<Swizzle> swizzle_from_text(std::string_view text);
Result<Layout> layout_from_text(std::string_view text);
Result<Tiler> tiler_from_text(std::string_view text);

std::ostream& operator<<(std::ostream& out, const IntTuple& tuple);
std::ostream& operator<<(std::ostream& out, const Swizzle& swizzle);
std::ostream& operator<<(std::ostream& out, const Layout& layout);
std::ostream& operator<<(std::ostream& out, const Tiler& tiler);

}  // namespace lapidary
