#include <gtest/gtest.h>

#include <algorithm>

#include "tuner/stages.h"

namespace lapidary::tuner {
namespace {

Offer offer(std::int64_t id, double us, std::string refused = "") {
  return {.candidate = {"fake", {{"id", id}}}, .refused = std::move(refused), .predicted_us = us};
}

std::vector<std::int64_t> ids(const std::vector<Offer>& offers) {
  std::vector<std::int64_t> found;
  for (const Offer& o : offers)
    found.push_back(std::get<std::int64_t>(o.candidate.config.at("id")));
  return found;
}

TEST(Rank, BestPredictedFirstAndTiesByCandidate) {
  const Ranked ranked =
      rank({offer(3, 5), offer(2, 5), offer(1, 9), offer(0, 1, "no")}, {.keep = 10});
  EXPECT_EQ(ids(ranked.chosen), (std::vector<std::int64_t>{2, 3, 1}));
  EXPECT_TRUE(ranked.passed_over.empty());
}

TEST(Rank, KeepsTheBestAndExploresTheRestEvenly) {
  std::vector<Offer> offers;
  for (std::int64_t i = 0; i < 110; ++i) offers.push_back(offer(i, static_cast<double>(i)));
  const Ranked ranked = rank(offers, {.keep = 10, .explore = 4});
  ASSERT_EQ(ranked.chosen.size(), 14u);
  EXPECT_EQ(ranked.passed_over.size(), 96u);
  const std::vector<std::int64_t> chosen = ids(ranked.chosen);
  for (std::int64_t quarter = 0; quarter < 4; ++quarter) {
    const auto in_quarter = std::ranges::count_if(
        chosen, [&](std::int64_t id) { return id >= 10 + 25 * quarter && id < 35 + 25 * quarter; });
    EXPECT_EQ(in_quarter, 1) << "quarter " << quarter;
  }
}

TEST(Rank, EveryBackendsBestIsMeasured) {
  std::vector<Offer> offers;
  for (std::int64_t i = 0; i < 20; ++i) offers.push_back(offer(i, static_cast<double>(i)));
  offers.push_back({.candidate = {"other", {{"id", 100}}}, .refused = "", .predicted_us = 1000});
  offers.push_back({.candidate = {"other", {{"id", 101}}}, .refused = "", .predicted_us = 1001});
  const Ranked ranked = rank(offers, {.keep = 3, .explore = 0});
  EXPECT_EQ(ids(ranked.chosen), (std::vector<std::int64_t>{0, 1, 2, 100}));
}

TEST(Rank, EveryOfferLandsInOnePlaceForAnySizes) {
  for (int total = 0; total < 30; ++total) {
    for (int explore = 0; explore < 8; ++explore) {
      std::vector<Offer> offers;
      for (std::int64_t i = 0; i < total; ++i) offers.push_back(offer(i, static_cast<double>(i)));
      const Ranked ranked = rank(offers, {.keep = 5, .explore = explore});
      EXPECT_EQ(ranked.chosen.size() + ranked.passed_over.size(), offers.size());
      EXPECT_EQ(ranked.chosen.size(), static_cast<std::size_t>(std::min(
                                          total, 5 + std::min(explore, std::max(0, total - 5)))));
    }
  }
}

TEST(Refuse, SaysWhatIsOverWhichLimit) {
  GemmProblem problem{.m = 1, .n = 1, .k = 1};
  problem.workspace = 100;
  std::vector<Offer> offers = {offer(0, 1), offer(1, 1), offer(2, 2e7), offer(3, 1),
                               offer(4, 1, "its own reason")};
  offers[1].workspace_bytes = 101;
  refuse(offers, problem, {.limit_us = 1e7}, [](const Candidate& c) {
    return std::get<std::int64_t>(c.config.at("id")) == 3 ? "killed by SIGSEGV" : "";
  });
  EXPECT_EQ(offers[0].refused, "");
  EXPECT_EQ(offers[1].refused, "needs 101 bytes of workspace; the problem allows 100");
  EXPECT_EQ(offers[2].refused, "predicted to take 20 s a run; the limit is 10 s");
  EXPECT_EQ(offers[3].refused, "quarantined: killed by SIGSEGV");
  EXPECT_EQ(offers[4].refused, "its own reason");
}

}  // namespace
}  // namespace lapidary::tuner
