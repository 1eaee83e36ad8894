#include "reference/functions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace lapidary::reference {
namespace {

constexpr long double kPi = 3.14159265358979323846264338327950288L;

// The definitions, in long double and without regard to cancellation: good where the result is not
// tiny.
long double phi(long double x) { return std::exp(-x * x / 2) / std::sqrt(2 * kPi); }
long double wide_sigmoid(long double x) { return 1 / (1 + std::exp(-x)); }
long double wide_gelu(long double x) { return x * (1 + std::erf(x / std::sqrt(2.0L))) / 2; }
long double wide_gelu_tanh(long double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / kPi) * (x + 0.044715L * x * x * x)));
}
long double wide_silu(long double x) { return x * wide_sigmoid(x); }

/// The derivative as a central difference of order 4: h^4 f^(5) / 30 and the rounding of f, 2^-64 /
/// h.
long double slope(long double (*f)(long double), long double x) {
  const long double h = 0x1p-9L;
  return (8 * (f(x + h) - f(x - h)) - (f(x + 2 * h) - f(x - 2 * h))) / (12 * h);
}

TEST(Functions, AgreeWithTheirDefinitions) {
  for (int i = -800; i <= 800; ++i) {
    const double x = i / 100.0;
    const auto near = [x](double got, long double want, double relative, double absolute) {
      EXPECT_NEAR(got, double(want), relative * std::fabs(double(want)) + absolute) << "x = " << x;
    };
    // The long double forms cancel near 1 + erf(x) = 0: an absolute 2^-62 there.
    near(sigmoid(x), wide_sigmoid(x), 4e-16, 0);
    near(silu(x), wide_silu(x), 6e-16, 0);
    near(softplus(x), std::log1p(std::exp((long double)x)), 4e-16, 0);
    // erfc's argument is rounded: x^2 / 2 units in the last place of the tail.
    near(gelu(x), wide_gelu(x), (3 + x * x) * 0x1p-52, 0x1p-60);
    near(gelu_tanh(x), wide_gelu_tanh(x), 4e-15, 0x1p-60);
    near(dgelu(x), wide_gelu(x) == 0 ? 0.5L : wide_gelu(x) / x + x * phi(x), 1e-15, 1e-15);
    near(dsilu(x), slope(wide_silu, x), 1e-11, 1e-11);
    near(dgelu(x), slope(wide_gelu, x), 1e-10, 1e-10);
    near(dgelu_tanh(x), slope(wide_gelu_tanh, x), 1e-10, 1e-10);
  }
}

TEST(Functions, TailsKeepTheirDigits) {
  // Values to 16 digits from the asymptotic series, computed with 50 digits.
  EXPECT_NEAR(gelu(-10) / (-10 * 7.619853024160526e-24), 1, 1e-13);  // Phi(-10)
  EXPECT_NEAR(gelu(-20) / (-20 * 2.753624118606233e-89), 1, 1e-12);  // Phi(-20)
  EXPECT_NEAR(sigmoid(-40) / 4.248354255291589e-18, 1, 1e-15);
  EXPECT_NEAR(softplus(-40) / 4.248354255291589e-18, 1, 1e-15);
  EXPECT_NEAR(silu(-40) / (-40 * 4.248354255291589e-18), 1, 1e-15);
  EXPECT_EQ(softplus(800), 800);
  EXPECT_EQ(silu(-800), -800 * std::exp(-800.0));
  EXPECT_EQ(sigmoid(-1e9), 0);
}

TEST(Functions, LimitsAndNaN) {
  const double inf = std::numeric_limits<double>::infinity();
  double (*const grow[])(double) = {softplus, silu, gelu, gelu_tanh};
  double (*const flat[])(double) = {sigmoid, dsilu, dgelu, dgelu_tanh};
  for (const auto f : grow) {
    EXPECT_EQ(f(inf), inf);
    EXPECT_EQ(f(-inf), 0);
    EXPECT_TRUE(std::isnan(f(std::nan(""))));
    EXPECT_EQ(f(1e30), 1e30);
    EXPECT_NEAR(f(-1e30), 0, 1e-300);
  }
  for (const auto f : flat) {
    EXPECT_EQ(f(inf), 1);
    EXPECT_EQ(f(-inf), 0);
    EXPECT_TRUE(std::isnan(f(std::nan(""))));
    EXPECT_EQ(f(1e30), 1);
    EXPECT_NEAR(f(-1e30), 0, 1e-300);
  }
}

}  // namespace
}  // namespace lapidary::reference
