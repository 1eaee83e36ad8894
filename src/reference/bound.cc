#include "reference/bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "numeric/numeric.h"
#include "reference/functions.h"

namespace lapidary::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
// A little above 1: covers the roundings of the float64 arithmetic of the bounds themselves.
constexpr double kSlack = 1 + 0x1p-20;

/// What an f32 implementation of a function may be off by: relative * |f(x)| + per_x * |x f(x)| +
/// absolute.
///
/// Ours and the libraries' are not correctly rounded. oneDNN accepts of its own kernels
/// (tests/benchdnn, eltwise) a relative 4e-6, or 4e-5 for tanh, gelu_tanh, swish, softplus and log,
/// and the same as an absolute error where 1 + erf or 1 + tanh cancels; the absolute terms here are
/// a tenth of that or less where the formula allows. exp and what is made of it gain |x| * 2^-22:
/// the f32 product x * log2(e) alone is off by |x| u. sqrt and rsqrt: 2 units in the last place, as
/// NVIDIA's approximate instructions (PTX ISA, sqrt.approx).
struct FunctionError {
  double relative = 0, per_x = 0, absolute = 0;
};
constexpr FunctionError function_error(EpilogueOp op) {
  switch (op) {
    case EpilogueOp::exp:
      return {4e-6, 0x1p-22, 0};
    case EpilogueOp::log:
      return {4e-5, 0, 1e-6};
    case EpilogueOp::sqrt:
    case EpilogueOp::rsqrt:
      return {4 * kUnit, 0, 0};
    case EpilogueOp::tanh:
      return {4e-5, 0, 1e-6};
    case EpilogueOp::erf:
      return {4e-6, 0, 1e-6};
    case EpilogueOp::sigmoid:
      return {4e-6, 0x1p-22, 1e-6};
    case EpilogueOp::softplus:
      return {4e-5, 0x1p-22, 1e-6};
    case EpilogueOp::silu:
      return {4e-5, 0x1p-22, 1e-6};
    case EpilogueOp::gelu:
      return {4e-6, 0, 4e-6};
    case EpilogueOp::gelu_tanh:
      return {4e-5, 0, 4e-6};
    case EpilogueOp::dsilu:
    case EpilogueOp::dgelu:
    case EpilogueOp::dgelu_tanh:
      return {4e-5, 0, 4e-6};
    default:
      return {};
  }
}

double function_value(EpilogueOp op, double x) {
  switch (op) {
    case EpilogueOp::exp:
      return std::exp(x);
    case EpilogueOp::log:
      return std::log(x);
    case EpilogueOp::sqrt:
      return std::sqrt(x);
    case EpilogueOp::rsqrt:
      return 1 / std::sqrt(x);
    case EpilogueOp::tanh:
      return std::tanh(x);
    case EpilogueOp::erf:
      return std::erf(x);
    case EpilogueOp::sigmoid:
      return sigmoid(x);
    case EpilogueOp::softplus:
      return softplus(x);
    case EpilogueOp::silu:
      return silu(x);
    case EpilogueOp::gelu:
      return gelu(x);
    case EpilogueOp::gelu_tanh:
      return gelu_tanh(x);
    case EpilogueOp::dsilu:
      return dsilu(x);
    case EpilogueOp::dgelu:
      return dgelu(x);
    case EpilogueOp::dgelu_tanh:
      return dgelu_tanh(x);
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

/// sup |f'| of the functions that are not monotone: gelu' peaks at sqrt(2) (1.1289), gelu_tanh'
/// near it (1.1290), silu' at 2.3994 (1.0998); gelu'' at 0 is 2 / sqrt(2 pi) (0.7979), silu'' at 0
/// is 1/2, gelu_tanh'' at 0 0.7979.
double lipschitz(EpilogueOp op) {
  switch (op) {
    case EpilogueOp::gelu:
    case EpilogueOp::gelu_tanh:
      return 1.13;
    case EpilogueOp::silu:
      return 1.1;
    case EpilogueOp::dgelu:
    case EpilogueOp::dgelu_tanh:
      return 0.8;
    default:
      return 0.5;  // dsilu
  }
}

NaN either(NaN x, NaN y) {
  if (x == NaN::always || y == NaN::always) return NaN::always;
  return x == NaN::maybe || y == NaN::maybe ? NaN::maybe : NaN::never;
}

Bounded nan_always() {
  return {.value = std::numeric_limits<double>::quiet_NaN(), .nan = NaN::always};
}

/// The result of an operation whose float64 value is NaN: certain when its operands were.
Bounded undefined(bool certain) { return certain ? nan_always() : anything(); }

/// Does the interval hold that value?
bool holds(const Bounded& x, double value) { return x.lo <= value && value <= x.hi; }

Bounded add(const Bounded& x, const Bounded& y) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if ((holds(x, kInfinity) && holds(y, -kInfinity)) ||
      (holds(x, -kInfinity) && holds(y, kInfinity)))
    return undefined(x.is_point() && y.is_point());
  const double lo = x.lo + y.lo, hi = x.hi + y.hi, value = x.value + y.value;
  return rounded(value, lo, hi, either(x.nan, y.nan));
}

Bounded negated(Bounded x) {
  x.value = -x.value;
  std::swap(x.lo, x.hi);
  x.lo = -x.lo;
  x.hi = -x.hi;
  return x;
}

Bounded mul(const Bounded& x, const Bounded& y, bool same, double units = 1) {
  const double value = x.value * y.value;
  if (x.is_point() && y.is_point()) {
    return std::isnan(value) ? nan_always() : rounded(value, value, value, NaN::never, units);
  }
  // 0 * infinity is NaN, also where the zero lies within an interval and no end shows it.
  const auto infinite = [](const Bounded& b) { return std::isinf(b.lo) || std::isinf(b.hi); };
  if ((holds(x, 0) && infinite(y)) || (holds(y, 0) && infinite(x))) return anything();
  const double corners[] = {x.lo * y.lo, x.lo * y.hi, x.hi * y.lo, x.hi * y.hi};
  auto [lo, hi] = std::minmax({corners[0], corners[1], corners[2], corners[3]});
  if (same) lo = x.lo <= 0 && x.hi >= 0 ? 0 : std::min(corners[0], corners[3]);
  return rounded(value, lo, hi, either(x.nan, y.nan), units);
}

/// A power of two, whose reciprocal is exact.
bool is_power_of_two(double x) {
  int exponent = 0;
  return std::isfinite(x) && std::fabs(std::frexp(x, &exponent)) == 0.5 && std::abs(exponent) < 100;
}

Bounded div(const Bounded& x, const Bounded& y) {
  if (y.lo <= 0 && y.hi >= 0) {
    // The sign of a zero is not ours to say, so x / 0 may be either infinity.
    return undefined(x.is_point() && y.is_point() && x.value == 0);
  }
  const double value = x.value / y.value;
  if (x.is_point() && y.is_point()) {
    if (std::isnan(value)) return nan_always();
    if (is_power_of_two(y.value) || x.value == 0 || std::isinf(x.value))
      return rounded(value, value, value, NaN::never);
  }
  const double corners[] = {x.lo / y.lo, x.lo / y.hi, x.hi / y.lo, x.hi / y.hi};
  for (const double corner : corners) {
    if (std::isnan(corner)) return anything();
  }
  const auto [lo, hi] = std::minmax({corners[0], corners[1], corners[2], corners[3]});
  // The reciprocal of a large divisor may be flushed.
  const double flushed =
      std::isfinite(x.value) ? std::max(std::fabs(x.lo), std::fabs(x.hi)) * kTiny : 0;
  const double error = 4 * kUnit * kSlack;
  return rounded(value, lo - std::fabs(lo) * error - flushed, hi + std::fabs(hi) * error + flushed,
                 either(x.nan, y.nan));
}

Bounded truth(bool surely, bool surely_not, NaN nan, bool with_nan) {
  if (nan == NaN::always) return point(with_nan);
  Bounded out = surely ? point(1) : surely_not ? point(0) : Bounded{.value = 0.5, .lo = 0, .hi = 1};
  return nan == NaN::maybe ? hull(out, point(with_nan)) : out;
}

Bounded compare(EpilogueOp op, const Bounded& x, const Bounded& y) {
  const NaN nan = either(x.nan, y.nan);
  const bool apart = x.hi < y.lo || y.hi < x.lo,
             equal = x.lo == x.hi && y.lo == y.hi && x.lo == y.lo;
  switch (op) {
    case EpilogueOp::lt:
      return truth(x.hi < y.lo, x.lo >= y.hi, nan, false);
    case EpilogueOp::le:
      return truth(x.hi <= y.lo, x.lo > y.hi, nan, false);
    case EpilogueOp::gt:
      return truth(x.lo > y.hi, x.hi <= y.lo, nan, false);
    case EpilogueOp::ge:
      return truth(x.lo >= y.hi, x.hi < y.lo, nan, false);
    case EpilogueOp::eq:
      return truth(equal, apart, nan, false);
    default:
      return truth(apart, equal, nan, true);
  }
}

/// min and max: exact; a NaN may be passed on or lose against the other operand.
template <class Pick>
Bounded extreme(const Bounded& x, const Bounded& y, Pick pick) {
  if (x.nan == NaN::always && y.nan == NaN::always) return nan_always();
  if (x.nan == NaN::always) return {y.value, y.lo, y.hi, NaN::maybe};
  if (y.nan == NaN::always) return {x.value, x.lo, x.hi, NaN::maybe};
  Bounded out{pick(x.value, y.value), pick(x.lo, y.lo), pick(x.hi, y.hi), NaN::never};
  if (x.nan == NaN::maybe) out = hull(out, {y.value, y.lo, y.hi, NaN::maybe});
  if (y.nan == NaN::maybe) out = hull(out, {x.value, x.lo, x.hi, NaN::maybe});
  return out;
}

Bounded min_of(const Bounded& x, const Bounded& y) {
  return extreme(x, y, [](double a, double b) { return std::fmin(a, b); });
}
Bounded max_of(const Bounded& x, const Bounded& y) {
  return extreme(x, y, [](double a, double b) { return std::fmax(a, b); });
}

/// Bounds of f at the ends of an interval, widened by the function's own error.
Bounded monotone(EpilogueOp op, const Bounded& x) {
  const FunctionError e = function_error(op);
  const auto error = [&](double at, double f) {
    if (!std::isfinite(f)) return 0.0;
    return std::fabs(f) * (e.relative + (std::isfinite(at) ? e.per_x * std::fabs(at) : 0)) +
           e.absolute;
  };
  const double value = function_value(op, x.value);
  const bool is_point = x.lo == x.hi;
  double at_lo = x.lo, at_hi = x.hi;
  if (op == EpilogueOp::rsqrt) std::swap(at_lo, at_hi);
  const double lo = is_point ? value : function_value(op, at_lo),
               hi = is_point ? value : function_value(op, at_hi);
  if (std::isinf(value) && is_point) return {value, value, value, x.nan};
  return rounded(value, lo - error(at_lo, lo), hi + error(at_hi, hi), x.nan);
}

/// log, sqrt and rsqrt have an end to their domain.
Bounded on_half_line(EpilogueOp op, const Bounded& x) {
  if (x.hi < 0) return nan_always();
  if (op == EpilogueOp::rsqrt && x.lo <= 0)
    return anything();  // an infinity of either sign, as zeros have
  if (x.lo >= 0) return monotone(op, x);
  Bounded inside = monotone(op, {std::max(x.value, 0.0), 0, x.hi, NaN::maybe});
  inside.nan = NaN::maybe;
  return inside;
}

Bounded bent(EpilogueOp op, const Bounded& x) {
  if (!std::isfinite(x.lo) || !std::isfinite(x.hi)) {
    if (!x.is_point()) return anything();
    // At -inf, and for derivatives at both, a formula such as x * sigmoid(x) says NaN where the
    // limit is finite.
    const double limit = function_value(op, x.value);
    if (std::isinf(limit)) return point(limit);
    const double e = function_error(op).absolute + function_error(op).relative * std::fabs(limit);
    return {limit, limit - e, limit + e, NaN::maybe};
  }
  const FunctionError e = function_error(op);
  const double value = function_value(op, x.value);
  const double spread = lipschitz(op) * std::max(x.hi - x.value, x.value - x.lo);
  const double size = std::fabs(value) + spread, at = std::max(std::fabs(x.lo), std::fabs(x.hi));
  const double error = spread + size * (e.relative + e.per_x * at) + e.absolute;
  // x^3 overflows in the f32 formulas of the tanh form far out, where its derivative's zero meets
  // infinity.
  const bool far = op == EpilogueOp::dgelu_tanh && at > 1e12;
  return rounded(value, value - error, value + error, far ? NaN::maybe : x.nan);
}

Bounded relu(const Bounded& x) { return max_of(x, point(0)); }

Bounded drelu(const Bounded& x) {
  if (x.nan == NaN::always) return {.value = 0, .lo = 0, .hi = 1, .nan = NaN::maybe};
  Bounded out = compare(EpilogueOp::gt, {x.value, x.lo, x.hi, NaN::never}, point(0));
  return x.nan == NaN::maybe ? hull(out, {.value = 0, .lo = 0, .hi = 1, .nan = NaN::maybe}) : out;
}

Bounded select(const Bounded& condition, const Bounded& x, const Bounded& y) {
  if (condition.nan != NaN::never) return hull(x, y);
  if (condition.lo > 0 || condition.hi < 0) return x;
  return condition.lo == 0 && condition.hi == 0 ? y : hull(x, y);
}

double round_to(DType type, double x) {
  return numeric::to_f32(type, numeric::from_f64(type, x, numeric::store_overflow(type)));
}

Bounded cast(const Bounded& x, DType type) {
  if (x.nan == NaN::always || type == DType::f32) return x;
  if (x.lo == x.hi) {
    const double y = round_to(type, x.value);
    return {y, y, y, x.nan};
  }
  return {round_to(type, x.value), round_to(type, x.lo), round_to(type, x.hi), x.nan};
}

Bounded leaky_relu(const Bounded& x, const Bounded& slope) {
  const Bounded below = mul(x, slope, false);
  if (x.lo >= 0) return x;
  if (x.hi < 0) return below;
  return hull(x, below);
}

}  // namespace

Bounded point(double x) { return std::isnan(x) ? nan_always() : Bounded{x, x, x, NaN::never}; }

Bounded anything() { return {.value = 0, .lo = -kInf, .hi = kInf, .nan = NaN::maybe}; }

Bounded hull(const Bounded& x, const Bounded& y) {
  if (x.nan == NaN::always && y.nan == NaN::always) return x;
  if (x.nan == NaN::always) return {y.value, y.lo, y.hi, NaN::maybe};
  if (y.nan == NaN::always) return {x.value, x.lo, x.hi, NaN::maybe};
  return {x.value, std::min(x.lo, y.lo), std::max(x.hi, y.hi), either(x.nan, y.nan)};
}

Bounded rounded(double value, double lo, double hi, NaN nan, double units) {
  if (lo == hi && nan == NaN::never) {
    // Infinities are points here only when an operand was infinite: float64 does not overflow on
    // f32 numbers.
    if (double(float(value)) == value && (std::fabs(value) >= kTiny || value == 0))
      return {value, value, value, nan};
  }
  const double unit = units * kUnit * kSlack;
  if (std::isfinite(lo)) lo -= std::fabs(lo) * unit + kTiny;
  if (std::isfinite(hi)) hi += std::fabs(hi) * unit + kTiny;
  // Beyond the largest f32 lies infinity, and only there.
  if (hi > kMaxF32) hi = kInf;
  if (lo < -kMaxF32) lo = -kInf;
  if (std::isinf(hi) && lo > kMaxF32) lo = std::isinf(lo) ? lo : kMaxF32;
  if (std::isinf(lo) && hi < -kMaxF32) hi = std::isinf(hi) ? hi : -kMaxF32;
  return {value, lo, hi, nan};
}

Bounded apply(EpilogueOp op, const std::array<Bounded, 3>& args, bool same, DType type) {
  const auto& [x, y, z] = args;
  switch (op) {
    case EpilogueOp::number:
    case EpilogueOp::operand:
    case EpilogueOp::acc:
    case EpilogueOp::gate:
    case EpilogueOp::up:
      return x;  // leaves have no arguments
    case EpilogueOp::local:
      return x;
    case EpilogueOp::lt:
    case EpilogueOp::le:
    case EpilogueOp::gt:
    case EpilogueOp::ge:
    case EpilogueOp::eq:
    case EpilogueOp::ne:
      return compare(op, x, y);
    case EpilogueOp::relu:
      return relu(x);
    case EpilogueOp::drelu:
      return drelu(x);
    case EpilogueOp::min:
      return min_of(x, y);
    case EpilogueOp::max:
      return max_of(x, y);
    case EpilogueOp::clamp:
      return min_of(max_of(x, y), z);
    case EpilogueOp::select:
      return select(x, y, z);
    case EpilogueOp::cast:
      return cast(x, type);
    default:
      break;
  }
  // Arithmetic and activations: NaN passes.
  if (x.nan == NaN::always) return nan_always();
  switch (op) {
    case EpilogueOp::add:
      return y.nan == NaN::always ? nan_always() : add(x, y);
    case EpilogueOp::sub:
      return y.nan == NaN::always ? nan_always() : add(x, negated(y));
    case EpilogueOp::mul:
      return y.nan == NaN::always ? nan_always() : mul(x, y, same);
    case EpilogueOp::div:
      return y.nan == NaN::always ? nan_always() : div(x, y);
    case EpilogueOp::leaky_relu:
      return y.nan == NaN::always ? hull(x, nan_always()) : leaky_relu(x, y);
    case EpilogueOp::neg:
      return negated(x);
    case EpilogueOp::abs:
      return x.lo >= 0   ? x
             : x.hi <= 0 ? negated(x)
                         : Bounded{std::fabs(x.value), 0, std::max(-x.lo, x.hi), x.nan};
    case EpilogueOp::log:
    case EpilogueOp::sqrt:
    case EpilogueOp::rsqrt:
      return on_half_line(op, x);
    case EpilogueOp::exp:
    case EpilogueOp::tanh:
    case EpilogueOp::erf:
    case EpilogueOp::sigmoid:
    case EpilogueOp::softplus:
      return monotone(op, x);
    default:
      return bent(op, x);
  }
}

Stored stored(const Bounded& x, DType type) {
  if (x.nan == NaN::always) return {.nan = NaN::always};
  const double lo = round_to(type, x.lo);
  return {float(lo), x.lo == x.hi ? float(lo) : float(round_to(type, x.hi)), x.nan};
}

}  // namespace lapidary::reference
