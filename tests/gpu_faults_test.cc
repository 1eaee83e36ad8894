// Whole tunes on a GPU with a worker that has kernels which spin, fault, assert or ask for too much
// memory: the run goes on within the costs of docs/architecture.md, and the device is usable after
// each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "gpu.h"
#include "store/store.h"
#include "support/files.h"
#include "tuner/tune.h"
#include "worker/client.h"

namespace lapidary {
namespace {

using std::chrono::steady_clock;
using ::testing::AnyOf;
using ::testing::HasSubstr;

struct Case {
  const char* fault;
  const char* reason;  // that its row gives
  double limit_s;      // that it may cost
};
constexpr Case kCases[] = {
    {"illegal address", "700", 5},
    {"misaligned", "716", 5},
    {"assert", "710", 5},
    {"trap", "7", 5},
    {"out of memory", "device memory", 2},
    {"spins", "no sign of life", 12},
};

class GpuFaults : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (const std::string why = no_gpu(); !why.empty()) GTEST_SKIP() << why;
    ASSERT_TRUE(folder_) << folder_.error();
    ::setenv("LAPIDARY_LOCKS", folder_->path().c_str(), 1);
    const auto device = driver::describe_cuda(0);
    ASSERT_TRUE(device) << device.error();
    device_ = *device;
  }

  struct Outcome {
    TuneResult result;
    double seconds = 0;
  };
  Outcome tune(const std::string& faults) {
    worker::Client client({.program = program("gpu-faults-worker"),
                           .device = "cuda:0",
                           .extra_env = {"LAPIDARY_PLANTED=" + faults}});
    const auto problem = checked({.m = 64, .n = 512, .k = 256, .a = DType::bf16, .b = DType::bf16});
    EXPECT_TRUE(problem) << problem.error();
    EXPECT_TRUE(client.hello()) << client.hello().error();
    const auto start = steady_clock::now();
    const auto result =
        tuner::tune(*problem, {client, *store_, device_}, {.keep = 30, .retune = true});
    const double seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
    EXPECT_TRUE(result) << result.error();
    return {result ? *result : TuneResult{}, seconds};
  }
  static std::string reason(const TuneResult& result, const std::string& fault) {
    for (const Measurement& m : result.candidates) {
      if (m.candidate != Candidate{"faults", {{"fault", fault}}}) continue;
      EXPECT_NE(m.status, CandidateStatus::ok);
      return m.reason;
    }
    ADD_FAILURE() << "no row of " << fault;
    return "";
  }

  Result<TempFolder> folder_ = TempFolder::make();
  std::unique_ptr<store::Store> store_ = store::open_memory();
  DeviceInfo device_;
};

TEST_P(GpuFaults, CostsItsCandidateAndNoMore) {
  const auto& [fault, why, limit_s] = GetParam();
  const Outcome without = tune("");
  ASSERT_TRUE(without.result.winner);
  const Outcome with = tune(fault);
  ASSERT_TRUE(with.result.winner);
  EXPECT_EQ(with.result.winner->candidate.backend, "cublaslt");
  EXPECT_THAT(reason(with.result, fault), HasSubstr(why));
  const double cost = with.seconds - without.seconds;
  std::printf("%s: costs %.2f s (at most %g), the tune without it %.2f s\n", fault, cost, limit_s,
              without.seconds);
  EXPECT_LE(cost, limit_s);
  // The device is usable, and the candidate's key is in the store unless it only asked for memory.
  const Outcome after = tune(fault);
  ASSERT_TRUE(after.result.winner);
  EXPECT_THAT(reason(after.result, fault), AnyOf(HasSubstr("quarantined: "), HasSubstr("memory")));
}

INSTANTIATE_TEST_SUITE_P(All, GpuFaults, ::testing::ValuesIn(kCases), [](const auto& test) {
  std::string name = test.param.fault;
  std::erase(name, ' ');
  return name;
});

}  // namespace
}  // namespace lapidary
