#include <numeric>

#include "layout/internal.h"

// Swizzles, and layouts whose offsets count wider or narrower elements.
namespace lapidary {

using namespace layout_detail;

Result<Swizzle> make_swizzle(int bits, int base, int shift) {
  const Swizzle swizzle{bits, base, shift};
  const auto refuse = [&](std::string_view why) {
    return invalid("layout: S<{},{},{}>: {}", bits, base, shift, why);
  };
  if (bits < 0) return refuse("negative bits; give 0 or more");
  if (base < 0) return refuse("negative base; give 0 or more");
  constexpr int kMost = 62;
  if (bits > kMost || base > kMost || shift > kMost || shift < -kMost)
    return refuse("too many bits; all of it must lie below bit 62");
  const int distance = shift < 0 ? -shift : shift;
  if (bits > distance) {
    return refuse(fmt::format("bits > |shift|: {} bits {} apart would overlap; use at most {} bits",
                              bits, distance, distance));
  }
  if (base + bits + distance > kMost)
    return refuse("too many bits; all of it must lie below bit 62");
  return swizzle;
}

namespace {

Result<int> log2_of(const char* who, std::int64_t n) {
  if (n < 1 || (n & (n - 1)) != 0)
    return invalid("layout: {} of a swizzle by {}: give a power of two", who, n);
  return static_cast<int>(63 - __builtin_clzll(static_cast<std::uint64_t>(n)));
}

Status check_cast(const char* who, const Layout& layout, std::int64_t n) {
  if (n < 1) return invalid("layout: {} by {}: give a number from 1", who, n);
  if (layout.is_integral()) return {};
  return invalid("layout: {}: {} has coordinate strides; give plain ones", who, brief(layout));
}

/// The stages with offsets and swizzles in the new units.
template <class Cast>
Result<Stages> cast_stages(const Layout& layout, std::int64_t n, const Cast& cast, bool up) {
  Stages stages;
  for (const Stage& stage : layout.stages()) {
    LAPIDARY_TRY(const Swizzle swizzle, cast(stage.swizzle(), n));
    std::int64_t offset = 0;
    if (up ? stage.offset % n != 0 : !multiply(stage.offset, n, offset)) {
      return invalid("layout: {}({}, {}): offset {} {}", up ? "upcast" : "downcast", brief(layout),
                     n, stage.offset, up ? "is no multiple of it" : "grows beyond 64 bits");
    }
    if (up) offset = stage.offset / n;
    stages.push_back({offset, swizzle.bits, swizzle.base, swizzle.shift});
  }
  return stages;
}

}  // namespace

Result<Swizzle> upcast(const Swizzle& swizzle, std::int64_t n) {
  LAPIDARY_TRY(const int log, log2_of("upcast", n));
  if (swizzle.base < log) {
    return invalid("layout: upcast: {} moves single elements within {}; use at most {}",
                   text(swizzle), n, std::int64_t{1} << swizzle.base);
  }
  return make_swizzle(swizzle.bits, swizzle.base - log, swizzle.shift);
}

Result<Swizzle> downcast(const Swizzle& swizzle, std::int64_t n) {
  LAPIDARY_TRY(const int log, log2_of("downcast", n));
  return make_swizzle(swizzle.bits, swizzle.base + log, swizzle.shift);
}

Result<Layout> upcast(const Layout& layout, std::int64_t n) {
  LAPIDARY_TRY_STATUS(check_cast("upcast", layout, n));
  Modes modes;
  modes.append(layout.modes());
  for (Mode& mode : modes) {
    const std::int64_t stride = magnitude(mode.stride);
    if (stride % n == 0) {
      mode.stride /= n;
      continue;
    }
    // n / stride neighbours fall into one wide element.
    if (n % stride == 0 && (mode.shape == 1 || mode.shape % (n / stride) == 0)) {
      if (mode.shape > 1) mode.shape /= n / stride;
      mode.stride = mode.stride < 0 ? -1 : 1;
      continue;
    }
    return invalid(
        "layout: upcast({}, {}): mode {}:{} does not fall into elements of {}: its stride "
        "must be a multiple, or divide it with an extent that fills it",
        brief(layout), n, mode.shape, mode.stride, n);
  }
  LAPIDARY_TRY(
      const Stages stages,
      cast_stages(
          layout, n, [](const Swizzle& s, std::int64_t by) { return upcast(s, by); }, true));
  return Access::checked("upcast", Access::profile(layout), std::move(modes), stages);
}

Result<Layout> downcast(const Layout& layout, std::int64_t n) {
  LAPIDARY_TRY_STATUS(check_cast("downcast", layout, n));
  Modes modes;
  modes.append(layout.modes());
  for (Mode& mode : modes) {
    // A run of wide elements is a longer run of narrow ones.
    std::int64_t& grows = magnitude(mode.stride) == 1 ? mode.shape : mode.stride;
    if (!multiply(grows, n, grows)) return too_large("downcast");
  }
  LAPIDARY_TRY(
      const Stages stages,
      cast_stages(
          layout, n, [](const Swizzle& s, std::int64_t by) { return downcast(s, by); }, false));
  return Access::checked("downcast", Access::profile(layout), std::move(modes), stages);
}

Result<Layout> recast(const Layout& layout, std::int64_t new_bits, std::int64_t old_bits) {
  if (new_bits < 1 || old_bits < 1)
    return invalid("layout: recast to {} from {} bits: give numbers from 1", new_bits, old_bits);
  const std::int64_t common = std::gcd(new_bits, old_bits);
  LAPIDARY_TRY(const Layout narrow, downcast(layout, old_bits / common));
  return upcast(narrow, new_bits / common);
}

}  // namespace lapidary
