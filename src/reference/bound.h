#pragma once

#include <array>
#include <cstdint>

#include "lapidary/problem.h"

// Values of an epilogue program with what rounding may make of them.
//
// A Bounded is the float64 value of an expression and an interval that holds whatever a kernel may
// have in its place. Kernels evaluate in f32, with or without fused multiply-adds, with their own
// or a library's functions:
//   + - *, leaky_relu   one rounding, relative u = 2^-24
//   /                   4u: a reciprocal and a product, or an approximate division of 2 units in
//   the last place neg abs min max relu drelu clamp select cast, comparisons   exact functions the
//   table in bound.cc
// and every result below 2^-126 may be flushed to zero. Where the operands are exact and the
// float64 result is an f32 number there is no rounding, so the interval stays a point: small
// integers come out bit for bit. Bounds of monotone functions are taken at the ends of the
// interval, others from a Lipschitz constant.
//
// NaN: arithmetic and activations pass it on. relu, min, max and clamp may pass it on or take the
// other operand. A comparison with NaN is false (!= is true).
namespace lapidary::reference {

inline constexpr double kUnit = 0x1p-24;   ///< u of f32
inline constexpr double kTiny = 0x1p-126;  ///< results below may be flushed
inline constexpr double kMaxF32 = 0x1.fffffep+127;

/// Whether a right result is NaN.
enum class NaN : std::uint8_t { never, always, maybe };

struct Bounded {
  double value = 0, lo = 0, hi = 0;  ///< without meaning when nan is always
  NaN nan = NaN::never;

  bool is_point() const { return lo == hi && nan == NaN::never; }
  bool operator==(const Bounded&) const = default;
};

/// Exactly x; NaN for a NaN.
Bounded point(double x);
/// Every result is right: the reference cannot tell (an f32 sum that may overflow on its way, 0 / 0
/// or not).
Bounded anything();
/// Either of two.
Bounded hull(const Bounded& x, const Bounded& y);
/// value in [lo, hi] as a kernel's f32 would hold it: rounded with a relative error of `units` * u,
/// flushed when tiny, infinite beyond the largest f32. A point that is an f32 number stays one.
Bounded rounded(double value, double lo, double hi, NaN nan, double units = 1);

/// Operation `op` (no leaf) on its arguments. `same`: the first two are the same node, which makes
/// x * x a square. `type` is the target of a cast.
Bounded apply(EpilogueOp op, const std::array<Bounded, 3>& args, bool same = false,
              DType type = DType::f32);

/// The results that are right after a store to a type: rounded to nearest even, to infinity or
/// saturating.
struct Stored {
  float lo = 0, hi = 0;
  NaN nan = NaN::never;
};
Stored stored(const Bounded& x, DType type);

/// Is a stored element right?
inline bool accepts(const Stored& right, float x) {
  if (x != x) return right.nan != NaN::never;
  return right.nan != NaN::always && right.lo <= x && x <= right.hi;
}

}  // namespace lapidary::reference
