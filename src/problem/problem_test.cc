#include "lapidary/problem.h"

#include <gtest/gtest.h>

#include "support/result.h"

namespace lapidary {
namespace {

TEST(Problem, CheckedFillsInAndIsIdempotent) {
  GemmProblem p{.m = 16, .n = 32, .k = 64, .a = DType::bf16, .b = DType::bf16};
  p.epilogue = *parse_epilogue("h = acc + c[m,n] + bias[n]; d = h; sumsq[m] = sum(h * h, n)");
  p.types["sumsq"] = DType::bf16;
  p.ldc = 40;
  const auto settled = checked(p);
  ASSERT_TRUE(settled) << settled.error();
  EXPECT_EQ(text(*settled),
            R"j({"m":16,"n":32,"k":64,"a":"bf16","b":"bf16","types":{"sumsq":"bf16"},"ldc":40,)j"
            R"j("epilogue":"h = acc + c[m,n] + bias[n]; d = h; sumsq[m] = sum(h * h, n)"})j");
  const auto again = checked(*settled);
  ASSERT_TRUE(again) << again.error();
  EXPECT_EQ(*again, *settled);
}

}  // namespace
}  // namespace lapidary
