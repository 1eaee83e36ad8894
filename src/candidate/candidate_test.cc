#include "lapidary/candidate.h"

#include <gtest/gtest.h>

#include <limits>

#include "candidate/json.h"

namespace lapidary {
namespace {

TEST(Config, TextIsCompactSortedAndEscaped) {
  const Config config{{"tile_m", std::int64_t(128)}, {"kind", std::string("stream")}};
  EXPECT_EQ(text(config), R"({"kind":"stream","tile_m":128})");
  EXPECT_EQ(summary(config), "kind=stream tile_m=128");
  EXPECT_EQ(text(Candidate{"onednn", {{"fused", std::int64_t(1)}}}), R"(onednn {"fused":1})");
  EXPECT_EQ(text(Config{}), "{}");
  EXPECT_EQ(summary(Config{}), "");
  const Config odd{{"a\"b", std::string("\\ \n \x01 \xc3\xa9")}};
  EXPECT_EQ(text(odd), R"({"a\"b":"\\ \n \u0001 )"
                       "\xc3\xa9\"}");
}

TEST(Config, ReadsBack) {
  for (const Config& config :
       {Config{}, Config{{"x", std::numeric_limits<std::int64_t>::min()}},
        Config{{"x", std::numeric_limits<std::int64_t>::max()}, {"y", std::string()}},
        Config{{"\"", std::string("\\\"\t\x1f/\x7f")}, {"", std::int64_t(0)}}}) {
    const auto again = config_from_json(text(config));
    ASSERT_TRUE(again) << again.error();
    EXPECT_EQ(*again, config);
  }
}

TEST(Config, SaysWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"[1]", "config: [1] is no object of fields"},
      {R"({"x":1.5})", "config: key 'x': 1.5 is neither a whole number nor a string"},
      {R"({"x":null})", "config: key 'x': null is neither a whole number nor a string"},
      {R"({"x":1,"x":2})", "config: key 'x': stands twice in one object; keep one"},
      {R"({"x":9223372036854775808})",
       "config: key 'x': 9223372036854775808 is neither a whole number nor a string"},
  };
  for (const auto& [json, message] : cases) {
    const auto config = config_from_json(json);
    ASSERT_FALSE(config) << json;
    EXPECT_EQ(config.error(), (Error{ErrorCode::invalid_argument, message}));
  }
}

TuneResult example() {
  TuneResult result;
  result.problem = *problem_from_json(
      R"j({"m":16,"n":64,"k":32,"a":"bf16","epilogue":"d = gelu(acc + bias[n])"})j");
  Measurement winner{
      .candidate = {"portable", {{"kind", std::string("stream")}, {"tile_m", std::int64_t(8)}}},
      .time_us = 0.1 + 0.2,
      .spread = 1e-3,
      .workspace_bytes = 4096,
      .packed_bytes = 1,
      .predicted_us = 1.0 / 3,
      .verified = true};
  Measurement gpu{.candidate = {"own", {}},
                  .status = CandidateStatus::slow,
                  .reason = "dropped: \"slow\"\n",
                  .registers = 168,
                  .smem_bytes = 1 << 20};
  Measurement refused{.candidate = {"onednn", {}},
                      .status = CandidateStatus::refused,
                      .reason = "libdnnl.so is missing"};
  result.winner = winner;
  result.fallback = gpu;
  result.candidates = {winner, gpu, refused};
  result.tune_seconds = result.first_seconds = 12.25;
  return result;
}

TEST(TuneResult, ReadsBack) {
  const TuneResult result = example();
  const auto again = tune_result_from_json(to_json(result));
  ASSERT_TRUE(again) << again.error();
  EXPECT_EQ(*again, result);
  EXPECT_EQ(to_json(*again), to_json(result));
  const TuneResult none{.problem = result.problem};
  const auto empty = tune_result_from_json(to_json(none));
  ASSERT_TRUE(empty) << empty.error();
  EXPECT_EQ(*empty, none);
}

TEST(TuneResult, NumbersThatJsonHasNot) {
  TuneResult result = example();
  result.candidates[0].predicted_us = std::numeric_limits<double>::infinity();
  result.candidates[0].spread = std::numeric_limits<double>::quiet_NaN();
  const auto again = tune_result_from_json(to_json(result));
  ASSERT_TRUE(again) << again.error();
  EXPECT_EQ(again->candidates[0].predicted_us, 0);
  EXPECT_EQ(again->candidates[0].spread, 0);
}

TEST(TuneResult, DamageIsAnErrorAndNeverMore) {
  const std::string json = to_json(example());
  for (std::size_t cut = 0; cut < json.size(); ++cut) {
    EXPECT_FALSE(tune_result_from_json(json.substr(0, cut))) << cut;
  }
  for (std::size_t at = 0; at < json.size(); ++at) {
    for (const char c : {'\0', '"', '9', '{', '\xff', ','}) {
      std::string damaged = json;
      damaged[at] = c;
      const auto result = tune_result_from_json(damaged);  // may be a legal other value
      EXPECT_TRUE(!result || tune_result_from_json(to_json(*result)));
    }
  }
  const std::pair<const char*, const char*> cases[] = {
      {"3", "tune result: 3 is no object"},
      {"{}", "tune result: key 'problem': is missing"},
      {R"j({"problem":"{\"m\":1,\"n\":1,\"k\":1}","candidates":[],"tune_seconds":0,"x":1})j",
       "tune result: key 'x': there is no such key"},
      {R"j({"problem":"{\"m\":1,\"n\":1,\"k\":1}","candidates":[4],"tune_seconds":0})j",
       "tune result: candidates: 4 is no measurement"},
  };
  for (const auto& [text, message] : cases) {
    const auto result = tune_result_from_json(text);
    ASSERT_FALSE(result) << text;
    EXPECT_EQ(result.error().message, message);
  }
}

}  // namespace
}  // namespace lapidary
