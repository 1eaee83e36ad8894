#include "problem/epilogue.h"

#include <gtest/gtest.h>

#include "lapidary/problem.h"
#include "support/result.h"

namespace lapidary {
namespace {

TEST(Epilogue, CanonicalTextReadsBack) {
  for (const char* program :
       {"d = gelu(acc + bias[n])", "h = acc + c[m,n]; d = h; sumsq[m] = sum(h * h, n)",
        "d = silu(gate) * up",
        "h = acc * scale_a[m] * scale_b[n]; d = h / scale_d; amax = max(abs(h))",
        "d = -acc * (-alpha - (1 - 2)) / (3 / 4)", "d = cast(select(acc < 0, -(-acc), acc), bf16)",
        "x[m,n] = max(acc, 1e-05); d = acc", "d = clamp(acc + bias[n], -7, 7)"}) {
    const auto parsed = parse_epilogue(program);
    ASSERT_TRUE(parsed) << parsed.error();
    EXPECT_EQ(text(*parsed), program);
    const auto again = parse_epilogue(text(*parsed));
    ASSERT_TRUE(again) << again.error();
    EXPECT_EQ(*again, *parsed);
  }
}

TEST(Epilogue, ZeroTermsAreDropped) {
  const auto after = [](const char* program, const char* zero) {
    const Epilogue e = *parse_epilogue(program);
    return text(problem::drop_zero_terms(
        e, [&](int i) { return e.inputs[std::size_t(i)].name == zero ? 0.0 : 2.0; }));
  };
  EXPECT_EQ(after("d = alpha * acc + beta * c[m,n]", "beta"), "d = alpha * acc + 0");
  EXPECT_EQ(after("d = acc - c[m,n] * (2 * -beta) / x", "beta"), "d = acc - 0");
  EXPECT_EQ(after("d = acc + x / beta", "beta"), "d = acc + x / beta");
  EXPECT_EQ(after("d = gelu(acc + beta * c[m,n])", "beta"), "d = gelu(acc + beta * c[m,n])");
  EXPECT_EQ(after("h = c[m,n] + 1; d = -(alpha * acc + beta * h)", "beta"),
            "d = -(alpha * acc + 0)");
  EXPECT_EQ(after("x = sum(acc + beta * acc); d = -(beta * acc)", "beta"),
            "x = sum(acc + 0); d = 0");
}

}  // namespace
}  // namespace lapidary
