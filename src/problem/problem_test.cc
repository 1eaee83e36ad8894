#include "lapidary/problem.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "problem/testing_random.h"
#include "support/files.h"
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

TEST(Problem, TextReadsBackToAnEqualProblem) {
  int aliased = 0, batched = 0, gated = 0;
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    const GemmProblem p = problem::random_problem(seed);
    const std::string json = text(p);
    const auto again = problem_from_json(json);
    ASSERT_TRUE(again) << "seed " << seed << ": " << again.error() << "\n" << json;
    ASSERT_EQ(*again, p) << "seed " << seed << "\n" << json << "\n" << text(*again);
    ASSERT_EQ(text(*again), json) << "seed " << seed;
    const auto twice = checked(p);
    ASSERT_TRUE(twice) << twice.error();
    ASSERT_EQ(*twice, p) << "seed " << seed << "\n" << json;
    ASSERT_EQ(operands(*twice), operands(p));
    aliased += !p.alias.empty();
    batched += p.batch > 1;
    gated += p.epilogue.gated;
  }
  EXPECT_GT(aliased, 50);
  EXPECT_GT(batched, 500);
  EXPECT_GT(gated, 200);
}

TEST(Suite, EveryLineOfTheSuitesRoundTrips) {
  int lines = 0;
  for (const auto& file : std::filesystem::directory_iterator(LAPIDARY_SOURCE_DIR "/suites")) {
    const auto suite = suite_from_json(*read_file(file.path()), file.path().filename().string());
    ASSERT_TRUE(suite) << suite.error();
    for (const SuiteLine& line : suite->lines) {
      const std::string json = text(line.problem);
      const auto again = problem_from_json(json);
      ASSERT_TRUE(again) << again.error() << "\n" << json;
      EXPECT_EQ(*again, line.problem) << json;
      EXPECT_EQ(text(*again), json);
      ++lines;
    }
  }
  EXPECT_GT(lines, 200);
}

}  // namespace
}  // namespace lapidary
