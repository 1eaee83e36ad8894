// The laws of testing_laws.h on random inputs from fixed seeds: some in the quick tests, 10^5 of
// each in the slow ones.
#include <gtest/gtest.h>

#include <cstdio>

#include "layout/testing_laws.h"

namespace lapidary {
namespace {

void run_laws(int cases) {
  for (const laws::Law& law : laws::kLaws) {
    SCOPED_TRACE(law.name);
    int accepted = 0;
    for (int i = 0; i < cases; ++i) {
      laws::Draws draws(static_cast<std::uint64_t>(i));
      const laws::Verdict verdict = law.holds(draws);
      accepted += verdict.accepted;
      ASSERT_EQ(verdict.broken, "") << "seed " << i;
    }
    // A law that is hardly ever put to the test holds of itself.
    EXPECT_GE(accepted, cases / 100 * law.accepted_percent);
    std::printf("%-34s %d of %d accepted\n", law.name, accepted, cases);
  }
}

TEST(LayoutLaws, HoldForRandomLayouts) { run_laws(2000); }
TEST(SlowLayoutLaws, HoldForManyRandomLayouts) { run_laws(100000); }

}  // namespace
}  // namespace lapidary
