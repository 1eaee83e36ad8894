#pragma once

#include <optional>
#include <source_location>
#include <string_view>

#include "lapidary/dsl.h"
#include "lapidary/layout.h"

namespace lapidary {

/// A view of an array: coordinate (i, j) is the element at offset layout(i, j). The layout is known
/// while the kernel is built; a coordinate is a C++ number or a value that is not negative. What
/// can be computed while building is.
///
///   Tensor tile(k.shared("tile", Scalar::f32, 32 * 32), "S<5,0,5> o 0 o (32,32):(32,1)");
///   tile(k.warp(), k.lane()) = x;
class Tensor {
 public:
  using Where = std::source_location;
  Tensor(Array array, Layout layout) : array_(array), layout_(std::move(layout)) {}
  /// The layout as text; one that does not parse is a misuse.
  Tensor(Array array, std::string_view layout, Where where = Where::current());

  const Layout& layout() const { return layout_; }
  Scalar element() const { return array_.element(); }

  /// One coordinate for all modes, leftmost fastest; or one a mode, those beyond the last given
  /// being 0.
  Element operator()(Operand i) const { return element({&i, 1}); }
  Element operator()(Operand i, Operand j) const {
    const Operand list[] = {i, j};
    return element(list);
  }
  Element operator()(Operand i, Operand j, Operand l) const {
    const Operand list[] = {i, j, l};
    return element(list);
  }
  /// The array that begins at that element, for wide accesses: `tile.load(tensor.at(i, j))`.
  Array at(Operand i) const { return array({&i, 1}); }
  Array at(Operand i, Operand j) const {
    const Operand list[] = {i, j};
    return array(list);
  }

  /// The part of one thread. `tv` sends (thread, value) to a coordinate of this tensor (one number
  /// for all its modes); the part has tv's values as its only mode. 32 threads that share (8,16),
  /// two neighbours of a row each:
  ///   t.partition("((4,8),2):((16,1),8)", k.lane())
  Tensor partition(const Layout& tv, Operand thread, Where where = Where::current()) const;
  Tensor partition(std::string_view tv, Operand thread, Where where = Where::current()) const;

 private:
  Element element(std::span<const Operand> coordinates) const;
  Array array(std::span<const Operand> coordinates) const;
  Array array_;
  std::optional<Value> base_;  // added to the offset, before swizzles
  Layout layout_;
};

}  // namespace lapidary
