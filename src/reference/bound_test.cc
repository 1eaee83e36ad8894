#include "reference/bound.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "numeric/numeric.h"
#include "problem/epilogue.h"
#include "reference/functions.h"
#include "support/random.h"

namespace lapidary::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();

Bounded one(EpilogueOp op, const Bounded& x, const Bounded& y = {}, const Bounded& z = {}) {
  return apply(op, {x, y, z});
}
Bounded range(double lo, double hi) { return {(lo + hi) / 2, lo, hi, NaN::never}; }
bool holds(const Bounded& b, double x) {
  if (std::isnan(x)) return b.nan != NaN::never;
  return b.nan != NaN::always && b.lo <= x && x <= b.hi;
}

/// What a kernel computes in f32, by the plain formula.
float in_f32(EpilogueOp op, float x, float y, float z) {
  const float c = 0.7978845608f;
  switch (op) {
    case EpilogueOp::add:
      return x + y;
    case EpilogueOp::sub:
      return x - y;
    case EpilogueOp::mul:
      return x * y;
    case EpilogueOp::div:
      return x * (1 / y);
    case EpilogueOp::lt:
      return x < y;
    case EpilogueOp::le:
      return x <= y;
    case EpilogueOp::gt:
      return x > y;
    case EpilogueOp::ge:
      return x >= y;
    case EpilogueOp::eq:
      return x == y;
    case EpilogueOp::ne:
      return x != y;
    case EpilogueOp::neg:
      return -x;
    case EpilogueOp::abs:
      return std::fabs(x);
    case EpilogueOp::exp:
      return std::exp2(x * 1.442695041f);
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
      return 1 / (1 + std::exp(-x));
    case EpilogueOp::relu:
      return x > 0 ? x : 0;
    case EpilogueOp::gelu:
      return 0.5f * x * (1 + std::erf(x * 0.7071067812f));
    case EpilogueOp::gelu_tanh:
      return 0.5f * x * (1 + std::tanh(c * (x + 0.044715f * x * x * x)));
    case EpilogueOp::silu:
      return x / (1 + std::exp(-x));
    case EpilogueOp::softplus:
      return x > 20 ? x : std::log1p(std::exp(x));
    case EpilogueOp::drelu:
      return x > 0;
    case EpilogueOp::dgelu:
      return 0.5f * (1 + std::erf(x * 0.7071067812f)) + x * 0.3989422804f * std::exp(-0.5f * x * x);
    case EpilogueOp::dgelu_tanh: {
      const float t = std::tanh(c * (x + 0.044715f * x * x * x));
      return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * c * (1 + 3 * 0.044715f * x * x);
    }
    case EpilogueOp::dsilu: {
      const float s = 1 / (1 + std::exp(-x));
      return s * (1 + x * (1 - s));
    }
    case EpilogueOp::min:
      return std::fmin(x, y);
    case EpilogueOp::max:
      return std::fmax(x, y);
    case EpilogueOp::leaky_relu:
      return x >= 0 ? x : y * x;
    case EpilogueOp::clamp:
      return std::fmin(std::fmax(x, y), z);
    case EpilogueOp::select:
      return x != 0 ? y : z;
    case EpilogueOp::cast:
      return numeric::to_f32(DType::bf16,
                             numeric::from_f32(DType::bf16, x, numeric::Overflow::infinity));
    default:
      return x;
  }
}

constexpr EpilogueOp kOps[] = {
#define LAPIDARY_EPILOGUE_OP(id, arity, text) EpilogueOp::id,
#include "lapidary/epilogue_ops.inc"
#undef LAPIDARY_EPILOGUE_OP
};

TEST(Bound, HoldsWhateverF32DoesAnywhereInTheInterval) {
  for (const EpilogueOp op : kOps) {
    if (problem::arity(op) == 0) continue;
    SCOPED_TRACE(std::string(problem::text(op)));
    for (std::uint64_t i = 0; i < 3000; ++i) {
      std::array<Bounded, 3> args;
      std::array<float, 3> actual{};
      for (std::uint64_t a = 0; a < 3; ++a) {
        const std::uint64_t seed = mix(i, a);
        const float scale = std::ldexp(1.0f, int(mix(seed, 1) % 8) - 3);
        const double centre = double(uniform(mix(seed, 2)) * scale);
        // Points, narrow and wide intervals.
        const double width =
            (i % 3) * double(std::fabs(uniform(mix(seed, 3)))) * (i % 2 ? 1e-6 : 0.5);
        args[a] = {centre, centre - width, centre + width, NaN::never};
        actual[a] = float(centre + width * double(uniform(mix(seed, 4))));
        args[a].lo = std::min(args[a].lo, double(actual[a]));  // the ends are no f32 numbers
        args[a].hi = std::max(args[a].hi, double(actual[a]));
      }
      const Bounded bound = apply(op, args, false, DType::bf16);
      const float got = in_f32(op, actual[0], actual[1], actual[2]);
      ASSERT_TRUE(holds(bound, got))
          << "f(" << actual[0] << ", " << actual[1] << ", " << actual[2] << ") = " << got
          << " not in [" << bound.lo << ", " << bound.hi << "]";
      ASSERT_TRUE(bound.nan == NaN::always ||
                  (bound.lo <= bound.value && bound.value <= bound.hi) || bound.nan == NaN::maybe);
    }
  }
}

TEST(Bound, IsTight) {
  // Arithmetic on exact numbers leaves one rounding, functions what the table says.
  const auto width = [](const Bounded& b) { return (b.hi - b.lo) / 2 / std::fabs(b.value); };
  EXPECT_LT(width(one(EpilogueOp::add, point(1), point(0x1p-30))), 1.01 * kUnit);
  EXPECT_LT(width(one(EpilogueOp::mul, point(double(1.1f)), point(double(1.3f)))), 1.01 * kUnit);
  EXPECT_LT(width(one(EpilogueOp::div, point(1), point(3))), 5.01 * kUnit);
  EXPECT_LT(width(one(EpilogueOp::gelu, point(2))), 7e-6);
  EXPECT_LT(width(one(EpilogueOp::silu, point(2))), 5e-5);
  EXPECT_LT(width(one(EpilogueOp::exp, point(1))), 5e-6);
}

TEST(Bound, ExactNumbersStayPoints) {
  EXPECT_EQ(one(EpilogueOp::add, point(3), point(4)), point(7));
  EXPECT_EQ(one(EpilogueOp::mul, point(-3), point(0.5)), point(-1.5));
  EXPECT_EQ(one(EpilogueOp::div, point(3), point(4)), point(0.75));
  EXPECT_FALSE(one(EpilogueOp::div, point(6), point(3)).is_point())
      << "a kernel may multiply by the reciprocal";
  EXPECT_EQ(one(EpilogueOp::relu, point(-3)), point(0));
  EXPECT_EQ(one(EpilogueOp::leaky_relu, point(-4), point(0.25)), point(-1));
  EXPECT_EQ(one(EpilogueOp::clamp, point(9), point(-7), point(7)), point(7));
  EXPECT_EQ(one(EpilogueOp::drelu, point(0)), point(0));
  EXPECT_EQ(apply(EpilogueOp::cast, {point(257), {}, {}}, false, DType::bf16), point(256));
  EXPECT_EQ(apply(EpilogueOp::cast, {point(1000), {}, {}}, false, DType::e4m3), point(448));
  EXPECT_FALSE(one(EpilogueOp::add, point(1), point(0x1p-25)).is_point());
}

TEST(Bound, SquaresAreNotNegative) {
  const Bounded x = range(-0.5, 1);
  const Bounded square = apply(EpilogueOp::mul, {x, x, {}}, true);
  EXPECT_GT(square.lo, -1e-30);
  EXPECT_LT(one(EpilogueOp::mul, x, x).lo, -0.4);
}

TEST(Bound, ComparisonsAreCertainOnlyApart) {
  EXPECT_EQ(one(EpilogueOp::lt, range(0, 1), range(2, 3)), point(1));
  EXPECT_EQ(one(EpilogueOp::lt, range(3, 4), range(2, 3)), point(0));
  EXPECT_EQ(one(EpilogueOp::lt, range(0, 2.5), range(2, 3)).lo, 0);
  EXPECT_EQ(one(EpilogueOp::lt, range(0, 2.5), range(2, 3)).hi, 1);
  EXPECT_EQ(one(EpilogueOp::eq, point(2), point(2)), point(1));
  EXPECT_EQ(one(EpilogueOp::ne, point(2), range(3, 4)), point(1));
  EXPECT_EQ(one(EpilogueOp::eq, range(1, 2), range(1, 2)).hi, 1);
  const Bounded picked = one(EpilogueOp::select, range(0, 1), point(5), point(-5));
  EXPECT_EQ(picked.lo, -5);
  EXPECT_EQ(picked.hi, 5);
  EXPECT_EQ(one(EpilogueOp::select, point(1), point(5), point(-5)), point(5));
  EXPECT_EQ(one(EpilogueOp::select, point(0), point(5), point(-5)), point(-5));
}

TEST(Bound, NaNAndInfinity) {
  const Bounded nan = point(kNaN), inf = point(kInf);
  EXPECT_EQ(one(EpilogueOp::add, nan, point(1)).nan, NaN::always);
  EXPECT_EQ(one(EpilogueOp::mul, point(0), inf).nan, NaN::always);
  EXPECT_EQ(one(EpilogueOp::sub, inf, inf).nan, NaN::always);
  EXPECT_EQ(one(EpilogueOp::add, inf, point(1)), inf);
  EXPECT_EQ(one(EpilogueOp::gelu, nan).nan, NaN::always);
  EXPECT_EQ(one(EpilogueOp::gelu, inf), inf);
  EXPECT_EQ(one(EpilogueOp::gelu, point(-kInf)).nan, NaN::maybe);
  EXPECT_EQ(one(EpilogueOp::exp, point(-kInf)), point(0));
  EXPECT_EQ(one(EpilogueOp::tanh, nan).nan, NaN::always);
  EXPECT_EQ(one(EpilogueOp::log, point(-1)).nan, NaN::always);
  EXPECT_EQ(one(EpilogueOp::log, point(0)), point(-kInf));
  EXPECT_EQ(one(EpilogueOp::sqrt, range(-1e-9, 1e-9)).nan, NaN::maybe);
  EXPECT_EQ(one(EpilogueOp::lt, nan, point(1)), point(0));
  EXPECT_EQ(one(EpilogueOp::ne, nan, point(1)), point(1));
  // Libraries may drop a NaN here, and then must give the other operand.
  const Bounded relu = one(EpilogueOp::relu, nan);
  EXPECT_TRUE(holds(relu, kNaN) && holds(relu, 0) && !holds(relu, 1));
  const Bounded larger = one(EpilogueOp::max, nan, point(3));
  EXPECT_TRUE(holds(larger, kNaN) && holds(larger, 3) && !holds(larger, 0));
  const Bounded clamped = one(EpilogueOp::clamp, nan, point(-7), point(7));
  EXPECT_TRUE(holds(clamped, kNaN) && holds(clamped, -7) && holds(clamped, 7) &&
              !holds(clamped, 8));
  EXPECT_EQ(one(EpilogueOp::leaky_relu, nan, point(1)).nan, NaN::always);
}

TEST(Bound, ZeroWithinAnIntervalTimesInfinityMayBeNaN) {
  EXPECT_EQ(one(EpilogueOp::mul, range(-1e-9, 1e-9), point(kInf)).nan, NaN::maybe);
  EXPECT_EQ(one(EpilogueOp::mul, point(-kInf), range(-1, 2)).nan, NaN::maybe);
  EXPECT_EQ(one(EpilogueOp::mul, range(1, 2), point(kInf)).nan, NaN::never);
  EXPECT_EQ(one(EpilogueOp::add, range(5, kInf), range(-kInf, 3)).nan, NaN::maybe);
  EXPECT_EQ(one(EpilogueOp::sub, range(5, kInf), range(-3, kInf)).nan, NaN::maybe);
  EXPECT_EQ(one(EpilogueOp::add, range(5, kInf), range(-3, 3)).nan, NaN::never);
}

TEST(Bound, OverflowIsKnownOnlyBeyondTheThreshold) {
  const Bounded far = one(EpilogueOp::exp, point(100));
  EXPECT_TRUE(holds(far, kInf) && holds(far, kMaxF32) && !holds(far, 1e38) &&
              far.nan == NaN::never);
  const Bounded near = one(EpilogueOp::add, point(kMaxF32), point(0x1p102));
  EXPECT_TRUE(holds(near, kInf) && holds(near, kMaxF32) && !holds(near, 3e38));
  const Bounded squared = one(EpilogueOp::mul, point(double(1e30f)), point(double(-1e30f)));
  EXPECT_TRUE(holds(squared, -kInf) && !holds(squared, kInf) && !holds(squared, -1e30));
}

TEST(Bound, LipschitzConstantsBoundTheSlopes) {
  const std::pair<double (*)(double), double> functions[] = {
      {gelu, 1.13}, {gelu_tanh, 1.13}, {silu, 1.1}, {dgelu, 0.8}, {dgelu_tanh, 0.8}, {dsilu, 0.5}};
  for (const auto& [f, constant] : functions) {
    double steepest = 0;
    for (int i = -20000; i < 20000; ++i)
      steepest = std::max(steepest, std::fabs(f((i + 1) / 1000.0) - f(i / 1000.0)) * 1000);
    EXPECT_LE(steepest, constant);
    EXPECT_GT(steepest, 0.98 * constant) << "loose";
  }
}

TEST(Stored, RoundsBothEndsAndSaturates) {
  const Stored bf16 = stored(range(1.0001, 1.0002), DType::bf16);
  EXPECT_EQ(bf16.lo, 1);
  EXPECT_EQ(bf16.hi, 1);
  const Stored tie =
      stored(range(1.0039, 1.00391), DType::bf16);  // 1 + 2^-8 = 1.00390625 lies between
  EXPECT_EQ(tie.lo, 1);
  EXPECT_EQ(tie.hi, 1.0078125f);
  EXPECT_TRUE(accepts(tie, 1) && accepts(tie, 1.0078125f) && !accepts(tie, 1.015625f) &&
              !accepts(tie, float(kNaN)));
  EXPECT_EQ(stored(point(1e6), DType::f16).lo, std::numeric_limits<float>::infinity());
  EXPECT_EQ(stored(point(1e6), DType::e4m3).hi, 448);
  EXPECT_EQ(stored(point(-kInf), DType::e5m2).hi, -57344);
  const Stored nan = stored(point(kNaN), DType::e4m3);
  EXPECT_TRUE(accepts(nan, float(kNaN)) && !accepts(nan, 0) && !accepts(nan, 448));
}

}  // namespace
}  // namespace lapidary::reference
