#include <gtest/gtest.h>

#include <map>

#include "support/result.h"
#include "tuner/stages.h"

namespace lapidary::tuner {
namespace {

/// A device of the mind: every candidate has a time, and may fail in one of the steps.
struct FakeDevice {
  std::map<std::string, double> us = {};
  std::map<std::string, Error> prepare_fails = {}, replay_fails = {};
  std::map<std::string, std::string> wrong = {};
  std::map<std::string, int> replays = {}, verified = {};
  std::vector<std::string> order = {};
  double clock_s = 0, replay_cost_s = 0.01;

  Probe probe() {
    return {.prepare = [this](const Candidate& c) -> Result<Probe::Prepared> {
              if (prepare_fails.contains(c.backend)) return prepare_fails.at(c.backend);
              return Probe::Prepared{us.at(c.backend), 0, 0};
            },
            .replay = [this](const Candidate& c, std::int64_t) -> Result<double> {
              order.push_back(c.backend);
              clock_s += replay_cost_s;
              if (replay_fails.contains(c.backend)) return replay_fails.at(c.backend);
              return us.at(c.backend) * (1 + 0.001 * (replays[c.backend]++ % 3));
            },
            .verify = [this](const Candidate& c) -> Result<std::optional<std::string>> {
              ++verified[c.backend];
              if (wrong.contains(c.backend)) return std::optional(wrong.at(c.backend));
              return std::optional<std::string>();
            }};
  }
  Budget budget(double limit_s = 0) {
    return {[this] { return clock_s; }, limit_s};
  }
};

std::vector<Offer> offers(const std::vector<std::string>& names) {
  std::vector<Offer> list;
  for (const std::string& name : names) list.push_back({.candidate = {name, {}}, .refused = ""});
  return list;
}

const Measurement& row(const std::vector<Measurement>& rows, const std::string& backend) {
  return *std::ranges::find_if(
      rows, [&](const Measurement& r) { return r.candidate.backend == backend; });
}

TEST(Measure, RoundsAreInterleavedForthAndBack) {
  FakeDevice device{.us = {{"a", 10}, {"b", 10.5}, {"c", 10.2}}};
  const auto rows =
      measure(offers({"a", "b", "c"}), device.probe(), device.budget(), {.rounds = 7});
  ASSERT_TRUE(rows);
  EXPECT_EQ(device.replays["a"], 7);
  EXPECT_EQ((std::vector<std::string>(device.order.begin(), device.order.begin() + 6)),
            (std::vector<std::string>{"a", "b", "c", "c", "b", "a"}));
  EXPECT_NEAR(*row(*rows, "a").time_us, 10.01, 0.02);
}

TEST(Measure, SlowOnesDropOutEarlyButNeverTheDefault) {
  FakeDevice device{.us = {{"default", 50}, {"fast", 10}, {"slow", 14}, {"hopeless", 1000}}};
  const auto rows = measure(offers({"default", "fast", "slow", "hopeless"}), device.probe(),
                            device.budget(), {.rounds = 9});
  ASSERT_TRUE(rows);
  EXPECT_EQ(device.replays["default"], 9);
  EXPECT_EQ(device.replays["fast"], 9);
  EXPECT_LT(device.replays["slow"], 9);
  EXPECT_EQ(device.replays["hopeless"], 0);
  EXPECT_EQ(row(*rows, "slow").status, CandidateStatus::slow);
  EXPECT_NE(row(*rows, "slow").reason.find("1.40x the fastest"), std::string::npos)
      << row(*rows, "slow").reason;
  EXPECT_EQ(row(*rows, "default").status, CandidateStatus::ok);
}

TEST(Measure, AFailureIsARowAndTheRestGoesOn) {
  FakeDevice device{.us = {{"a", 10}, {"b", 10}, {"c", 10}}};
  device.prepare_fails["b"] = {ErrorCode::compile_failed, "no such kernel"};
  device.replay_fails["c"] = {ErrorCode::launch_failed, "killed by SIGSEGV"};
  const auto rows = measure(offers({"a", "b", "c"}), device.probe(), device.budget(), {});
  ASSERT_TRUE(rows);
  EXPECT_EQ(row(*rows, "a").status, CandidateStatus::ok);
  EXPECT_EQ(row(*rows, "b").reason, "no such kernel");
  EXPECT_EQ(row(*rows, "c").status, CandidateStatus::failed);
  EXPECT_FALSE(row(*rows, "c").time_us);
  device.replay_fails["c"] = {ErrorCode::wrong_result, "differs between runs"};
  EXPECT_EQ(row(*measure(offers({"a", "c"}), device.probe(), device.budget(), {}), "c").status,
            CandidateStatus::wrong);
  device.replay_fails["c"] = {ErrorCode::device_fault, "no worker can be started"};
  EXPECT_EQ(measure(offers({"a", "c"}), device.probe(), device.budget(), {}).error().code,
            ErrorCode::device_fault);
  device.replay_fails["c"] = {ErrorCode::cancelled, "interrupted"};
  EXPECT_EQ(measure(offers({"a", "c"}), device.probe(), device.budget(), {}).error().code,
            ErrorCode::cancelled);
}

TEST(Measure, TheBudgetEndsRoundsButLeavesWhatWasMeasured) {
  FakeDevice device{.us = {{"a", 10}, {"b", 10}}, .replay_cost_s = 1.0};
  const auto rows =
      measure(offers({"a", "b"}), device.probe(), device.budget(3.5), {.rounds = 100});
  ASSERT_TRUE(rows);
  EXPECT_EQ(device.replays["a"], 2);
  EXPECT_TRUE(row(*rows, "b").time_us);
}

TEST(Race, RightOnesThatDroppedOutBehindAWrongOneRaceAgain) {
  FakeDevice device{
      .us = {{"default", 12}, {"liar", 8}, {"best", 10}, {"near", 10.02}, {"far", 11}}};
  device.wrong["liar"] = "exact: d[3,4] is 7, should be 8";
  const auto rows =
      race(offers({"default", "liar", "best", "near", "far"}), device.probe(), device.budget(), {});
  ASSERT_TRUE(rows);
  EXPECT_EQ(row(*rows, "liar").status, CandidateStatus::wrong);
  EXPECT_EQ(row(*rows, "liar").reason, "exact: d[3,4] is 7, should be 8");
  EXPECT_TRUE(row(*rows, "best").verified);
  EXPECT_TRUE(row(*rows, "near").verified);
  EXPECT_FALSE(row(*rows, "far").verified);
  EXPECT_GE(device.verified["default"], 1) << "the default is proved whatever its time";
  EXPECT_EQ(device.verified["liar"], 1);
  const auto winner = select(*rows);
  ASSERT_TRUE(winner);
  EXPECT_EQ((*rows)[*winner].candidate.backend, "best");
}

TEST(Confirm, ALeadThatDoesNotComeAgainIsNoLead) {
  FakeDevice device{.us = {{"default", 10}, {"a", 9.5}}};
  auto rows = race(offers({"default", "a"}), device.probe(), device.budget(), {});
  ASSERT_TRUE(rows);
  ASSERT_EQ(*select(*rows), 1u);
  EXPECT_EQ(*confirm(*rows, 1, device.probe(), device.budget(), {}), 1u);
  device.us["a"] = 10.2;  // what the race saw was chance
  EXPECT_EQ(*confirm(*rows, 1, device.probe(), device.budget(), {}), 0u);
  (*rows)[1].time_us = 2;  // a lead beyond doubt is not asked again
  EXPECT_EQ(*confirm(*rows, 1, device.probe(), device.budget(), {}), 1u);
}

Measurement proved(const std::string& name, double us, double spread = 0,
                   std::int64_t workspace = 0) {
  return {.candidate = {name, {}},
          .reason = "",
          .time_us = us,
          .spread = spread,
          .workspace_bytes = workspace,
          .verified = true};
}

TEST(Select, TheDefaultKeepsItsPlaceWithinTheNoise) {
  EXPECT_EQ(*select({proved("default", 100.4), proved("a", 100)}), 0u);
  EXPECT_EQ(*select({proved("default", 100.6), proved("a", 100)}), 1u);
  EXPECT_EQ(*select({proved("default", 104, 0.02), proved("a", 100)}), 0u);
}

TEST(Select, WithinTheNoiseTheSmallestWorkspaceThenTheSmallestName) {
  EXPECT_EQ(*select({proved("default", 200), proved("a", 100, 0, 64), proved("b", 100.3, 0, 32),
                     proved("c", 102, 0, 0)}),
            2u);
  EXPECT_EQ(*select({proved("default", 200), proved("z", 100), proved("y", 100.1)}), 2u);
}

TEST(Select, NothingUnprovedWins) {
  Measurement unproved = proved("a", 1);
  unproved.verified = false;
  EXPECT_FALSE(select({unproved}));
  EXPECT_EQ(*select({proved("default", 100), unproved}), 0u);
  EXPECT_FALSE(select({}));
}

TEST(OrderRows, FastestFirstThenByWhatBecameOfThem) {
  std::vector<Measurement> rows = {proved("b", 20), proved("a", 10)};
  rows.push_back(
      {.candidate = {"r", {}}, .status = CandidateStatus::refused, .reason = "no", .time_us = {}});
  rows.push_back(
      {.candidate = {"w", {}}, .status = CandidateStatus::wrong, .reason = "no", .time_us = 1});
  order_rows(rows);
  EXPECT_EQ(rows[0].candidate.backend, "a");
  EXPECT_EQ(rows[1].candidate.backend, "b");
  EXPECT_EQ(rows[2].candidate.backend, "w");
  EXPECT_EQ(rows[3].candidate.backend, "r");
}

}  // namespace
}  // namespace lapidary::tuner
