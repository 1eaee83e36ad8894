#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "support/files.h"
#include "support/hash.h"
#include "support/parallel.h"
#include "support/random.h"
#include "support/text.h"

namespace lapidary {
namespace {

Result<int> half(int x) {
  if (x % 2 != 0)
    return fail(ErrorCode::invalid_argument, "half: {} is odd; use an even number", x);
  return x / 2;
}

Result<int> quarter(int x) {
  LAPIDARY_TRY(const int h, half(x));
  return half(h);
}

TEST(Result, TryPassesTheErrorOn) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).error().message, "half: 3 is odd; use an even number");
}

TEST(Hash, Sha256OfAbcIsTheStandards) {
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Files, WriteThenReadGivesTheSameBytes) {
  const auto folder = TempFolder::make();
  ASSERT_TRUE(folder) << folder.error();
  const std::string bytes("a\0b\n", 4);
  ASSERT_TRUE(write_file(folder->path() / "x", bytes));
  EXPECT_EQ(*read_file(folder->path() / "x"), bytes);
  EXPECT_EQ(read_file(folder->path() / "none").error().code, ErrorCode::io);
}

TEST(Text, NearestNeedsAtMostTwoEdits) {
  EXPECT_EQ(nearest("epilog", {"epilogue", "layout"}), "epilogue");
  EXPECT_EQ(nearest("zzz", {"epilogue", "layout"}), "");
  EXPECT_EQ(split("a,,b", ',').size(), 3u);
  EXPECT_EQ(trim("  x y\n"), "x y");
}

TEST(ThreadPool, EveryIndexOnceAlsoFromTwoCallersAtATime) {
  ThreadPool pool(4);
  const auto sweep = [&] {
    for (int round = 0; round < 200; ++round) {
      std::vector<std::atomic<int>> hits(101);
      pool.each(101, 7, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ++hits[static_cast<std::size_t>(i)];
      });
      for (const auto& hit : hits) ASSERT_EQ(hit, 1);
    }
  };
  std::jthread other(sweep);
  sweep();
}

TEST(Random, UniformStaysInRangeAndIsCentred) {
  double sum = 0;
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const float x = uniform(mix(7, i));
    ASSERT_GE(x, -1.0f);
    ASSERT_LT(x, 1.0f);
    sum += x;
  }
  EXPECT_NEAR(sum / 100000, 0.0, 0.01);  // standard error 0.0018
}

}  // namespace
}  // namespace lapidary
