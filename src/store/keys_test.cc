#include <gtest/gtest.h>

#include "store/key_text.h"
#include "store/store.h"

namespace lapidary::store {
namespace {

GemmProblem problem(std::int64_t m, std::string_view epilogue = "d = acc") {
  GemmProblem p;
  p.m = m;
  p.n = 64;
  p.k = 32;
  p.a = p.b = DType::bf16;
  p.epilogue = *parse_epilogue(epilogue);
  return *checked(p);
}

TEST(Keys, HoldDeviceProblemAndCandidateInFull) {
  DeviceInfo device;
  device.key = "cpu avx512_bf16 threads=2";
  const std::string key = result_key(device, problem(16));
  const auto parts = key_parts(key);
  ASSERT_TRUE(parts) << key;
  EXPECT_EQ(parts->version, kKeyVersion);
  EXPECT_EQ(parts->device, device.key);
  EXPECT_EQ(parts->problem, text(problem(16)));
  EXPECT_EQ(parts->candidate, "");

  const Candidate candidate{.backend = "onednn", .config = {{"fused", std::int64_t{1}}}};
  const auto quarantined = key_parts(quarantine_key(device, problem(16), candidate));
  ASSERT_TRUE(quarantined);
  EXPECT_EQ(quarantined->candidate, text(candidate));
  EXPECT_EQ(quarantined->problem, parts->problem);
}

TEST(Keys, DifferWhereTheWinnerMay) {
  DeviceInfo two, four;
  two.key = "cpu threads=2";
  four.key = "cpu threads=4";
  two.id = four.id = "cpu";
  const std::string key = result_key(two, problem(16));
  EXPECT_NE(key, result_key(four, problem(16)));
  EXPECT_NE(key, result_key(two, problem(17)));
  EXPECT_NE(key, result_key(two, problem(16, "d = relu(acc)")));
  EXPECT_EQ(key, result_key(two, problem(16, "d=acc;"))) << "one problem, spelled otherwise";
  DeviceInfo renamed = two;
  renamed.name = "only for people";
  EXPECT_EQ(key, result_key(renamed, problem(16)));
}

}  // namespace
}  // namespace lapidary::store
