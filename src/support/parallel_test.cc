#include "support/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace lapidary {
namespace {

// Rounds that take few helpers between rounds that take all: a helper that sat out must not be
// waited for, nor join late.
TEST(ThreadPool, EveryIndexOnceWhateverTheNumberOfPieces) {
  ThreadPool pool(6);
  std::vector<std::atomic<int>> times(40);
  for (int round = 1; round <= 3000; ++round) {
    const std::int64_t count = round * 7 % 40 + 1, grain = round % 9 + 1;
    for (auto& t : times) t = 0;
    pool.each(count, grain, [&](std::int64_t begin, std::int64_t end) {
      EXPECT_LE(end - begin, grain);
      for (std::int64_t i = begin; i < end; ++i) ++times[static_cast<std::size_t>(i)];
    });
    for (std::int64_t i = 0; i < 40; ++i)
      ASSERT_EQ(times[static_cast<std::size_t>(i)], i < count ? 1 : 0) << round << " " << i;
  }
}

}  // namespace
}  // namespace lapidary
