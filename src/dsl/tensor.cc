#include "lapidary/tensor.h"

#include <bit>

#include "dsl/builder.h"
#include "support/result.h"

namespace lapidary {
namespace {

/// A sum that is partly known: what is known is added once, at the end.
struct Offset {
  std::optional<Value> value;
  std::int64_t known = 0;

  void add(Value term, const std::source_location& where) {
    value = value ? *value + Operand(term, where) : term;
  }
  /// As an operand at `where`.
  Operand operand(const std::source_location& where) const {
    if (!value) return {known, where};
    return known == 0 ? Operand(*value, where) : Operand(*value + Operand(known, where), where);
  }
};

bool power_of_two(std::int64_t x) { return std::has_single_bit(static_cast<std::uint64_t>(x)); }
int log2_of(std::int64_t x) { return std::countr_zero(static_cast<std::uint64_t>(x)); }

Value times(Value x, std::int64_t factor, const std::source_location& where) {
  if (factor == 1) return x;
  if (factor > 0 && power_of_two(factor)) return x << Operand(log2_of(factor), where);
  return x * Operand(factor, where);
}

/// Adds layout(x), without swizzles, of a layout whose modes one number counts.
void add_dynamic(Offset& offset, const Layout& layout, Value x, const std::source_location& where) {
  const Layout flat = coalesce(layout);
  const auto modes = flat.modes();
  for (std::size_t i = 0; i < modes.size(); ++i) {
    const auto& [shape, stride, path] = modes[i];
    Value digit = x;
    if (i + 1 < modes.size()) {
      digit = power_of_two(shape) ? x & Operand(shape - 1, where) : x % Operand(shape, where);
      x = power_of_two(shape) ? x >> Operand(log2_of(shape), where) : x / Operand(shape, where);
    }
    if (stride != 0) offset.add(times(digit, stride, where), where);
  }
}

/// Adds layout(coordinates), without swizzles.
void add(Offset& offset, const Layout& layout, std::span<const Operand> coordinates) {
  for (std::size_t i = 0; i < coordinates.size(); ++i) {
    const Layout mode = coordinates.size() == 1 ? layout : layout[static_cast<int>(i)];
    if (const auto known = detail::known(coordinates[i])) {
      offset.known += mode(*known);
    } else {
      add_dynamic(offset, mode, detail::value(coordinates[i]), detail::where(coordinates[i]));
    }
  }
}

/// The swizzles of a layout, the innermost first, on an offset.
Operand swizzled(const Layout& layout, Offset offset, const std::source_location& where) {
  const auto stages = layout.stages();
  for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
    offset.known += stage->offset;
    const Swizzle s = stage->swizzle();
    if (!offset.value) {
      offset.known = s(offset.known);
      continue;
    }
    const Operand all = offset.operand(where);
    const Value x = detail::value(all);
    const std::int64_t mask = (std::int64_t{1} << s.bits) - 1;
    const int from = s.shift >= 0 ? s.base + s.shift : s.base;
    const int to = s.shift >= 0 ? s.base : s.base - s.shift;
    // The field, moved to where it is xor-ed in: one shift and one mask.
    const Value moved = from == to  ? x
                        : from > to ? x >> Operand(from - to, where)
                                    : x << Operand(to - from, where);
    offset = {x ^ Operand(moved & Operand(mask << to, where), where), 0};
  }
  return offset.operand(where);
}

}  // namespace

Tensor::Tensor(Array array, std::string_view layout, Where where) : array_(array) {
  Result<Layout> parsed = layout_from_text(layout);
  if (parsed) {
    layout_ = *std::move(parsed);
  } else {
    detail::misuse(array_, where, "tensor: " + parsed.error().message);
  }
}

Array Tensor::array(std::span<const Operand> coordinates) const {
  const std::source_location where = detail::where(coordinates.back());
  if (!layout_.is_integral()) {
    detail::misuse(array_, where,
                   fmt::format("tensor: {} gives coordinates, not offsets", text(layout_)));
    return array_;
  }
  if (static_cast<int>(coordinates.size()) > std::max(1, layout_.rank())) {
    detail::misuse(array_, where,
                   fmt::format("tensor: expected at most {} coordinates of {}, got {}",
                               layout_.rank(), text(layout_), coordinates.size()));
    return array_;
  }
  for (std::size_t i = 0; i < coordinates.size(); ++i) {
    const auto known = detail::known(coordinates[i]);
    const std::int64_t extent =
        coordinates.size() == 1 ? layout_.size() : layout_[static_cast<int>(i)].size();
    if (known && (*known < 0 || *known >= extent)) {
      detail::misuse(
          array_, where,
          fmt::format("tensor: expected coordinate {} below {}, the extent in {}, got {}", i,
                      extent, text(layout_), *known));
      return array_;
    }
  }
  Offset offset{base_, 0};
  add(offset, layout_.inner(), coordinates);
  return array_.at(swizzled(layout_, offset, where));
}

Element Tensor::element(std::span<const Operand> coordinates) const {
  return detail::element(array(coordinates), detail::where(coordinates.back()));
}

Tensor Tensor::partition(const Layout& tv, Operand thread, Where where) const {
  Tensor part = *this;
  if (tv.rank() != 2) {
    detail::misuse(array_, where,
                   fmt::format("partition: expected (threads, values), got {}", text(tv)));
    return part;
  }
  const Result<Layout> mine = composition(layout_.inner(), tv);
  if (!mine) {
    detail::misuse(array_, where, "partition: " + mine.error().message);
    return part;
  }
  Offset offset{base_, 0};
  add(offset, (*mine)[0], {&thread, 1});
  // Swizzles see the sum of both parts: they stay with the values' layout.
  Layout values = coalesce((*mine)[1]);
  const auto stages = layout_.stages();
  for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage) {
    const Result<Layout> next = make_composed_layout(stage->swizzle(), stage->offset, values);
    if (!next) {
      detail::misuse(array_, where, "partition: " + next.error().message);
      return part;
    }
    values = *next;
  }
  part.layout_ = std::move(values);
  part.base_.reset();
  const Operand base = offset.operand(where);
  if (const auto known = detail::known(base)) {
    if (*known != 0) part.base_ = detail::constant(array_, *known, where);
  } else {
    part.base_ = detail::value(base);
  }
  return part;
}

Tensor Tensor::partition(std::string_view tv, Operand thread, Where where) const {
  const Result<Layout> parsed = layout_from_text(tv);
  if (parsed) return partition(*parsed, thread, where);
  detail::misuse(array_, where, "partition: " + parsed.error().message);
  return *this;
}

}  // namespace lapidary
