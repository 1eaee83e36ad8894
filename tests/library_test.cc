// The library as its users meet it: tune, plan, run, many threads, ranges of M.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <thread>
#include <vector>

#include "lapidary/gemm.h"
#include "support/files.h"

namespace lapidary {
namespace {

using ::testing::HasSubstr;

class Library : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("LAPIDARY_LOCKS", folder_->path().c_str(), 1); }
  SessionOptions options() {
    return {.device = "cpu",
            .store = (folder_->path() / "store.db").string(),
            .worker = LAPIDARY_BUILD_DIR "/bin/lapidary-worker"};
  }
  static GemmProblem problem(std::int64_t m) {
    return {.m = m,
            .n = 70,
            .k = 50,
            .epilogue = *parse_epilogue("d = relu(acc + bias[n])"),
            .constant = {"b"}};
  }
  Result<TempFolder> folder_ = TempFolder::make();
};

/// Buffers of a plan, filled, and what D should hold.
struct Buffers {
  explicit Buffers(const Plan& plan)
      : workspace(static_cast<std::size_t>(plan.workspace_bytes() + 64)),
        packed(static_cast<std::size_t>(plan.packed_bytes() + 64)) {
    for (const OperandSpec& spec : plan.operands()) {
      std::vector<float> values(static_cast<std::size_t>(spec.span_elems()));
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>((i * 7 + spec.name.size()) % 5) - 2;
      data.push_back(std::move(values));
    }
    for (auto& values : data) operands.push_back(values.data());
  }
  RunArguments arguments() {
    const auto aligned = [](std::vector<char>& v) {
      return reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(v.data()) + 63) / 64 * 64);
    };
    return {.operands = operands, .workspace = aligned(workspace), .packed = aligned(packed)};
  }
  /// Small integers: exact.
  void expect_right(std::int64_t m) const {
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < 70; ++j) {
        float sum = data[2][static_cast<std::size_t>(j)];
        for (std::int64_t k = 0; k < 50; ++k)
          sum += data[0][static_cast<std::size_t>(i * 50 + k)] *
                 data[1][static_cast<std::size_t>(j * 50 + k)];
        ASSERT_EQ(data[3][static_cast<std::size_t>(i * 70 + j)], std::max(0.0f, sum))
            << i << ", " << j << " of " << m;
      }
    }
  }
  std::vector<std::vector<float>> data;
  std::vector<void*> operands;
  std::vector<char> workspace, packed;
};

TEST_F(Library, PlansBeforeAndAfterATuneGiveTheSameResult) {
  auto session = Session::open(options());
  ASSERT_TRUE(session) << session.error();
  auto before = session->plan(problem(9));
  ASSERT_TRUE(before) << before.error();
  EXPECT_FALSE(before->tuned());
  const auto tuned = session->tune(problem(9), {.budget_s = 30});
  ASSERT_TRUE(tuned) << tuned.error();
  ASSERT_TRUE(tuned->winner);
  auto after = session->plan(problem(9));
  ASSERT_TRUE(after) << after.error();
  EXPECT_TRUE(after->tuned());
  EXPECT_EQ(after->candidate(), tuned->winner->candidate);
  EXPECT_TRUE(session->tune(problem(9))->from_store);
  for (const Plan& plan : {*before, *after}) {
    Buffers buffers(plan);
    ASSERT_TRUE(plan.pack(buffers.arguments()));
    ASSERT_TRUE(plan.run(buffers.arguments()));
    buffers.expect_right(9);
  }
}

TEST_F(Library, APlanRunsOnManyThreadsAtOnce) {
  auto session = Session::open(options());
  auto plan = session->plan(problem(33));
  ASSERT_TRUE(plan) << plan.error();
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&plan] {
      Buffers buffers(*plan);
      ASSERT_TRUE(plan->pack(buffers.arguments()));
      for (int i = 0; i < 20; ++i) {
        std::ranges::fill(buffers.data[3], -1.0f);
        ASSERT_TRUE(plan->run(buffers.arguments()));
        buffers.expect_right(33);
      }
    });
  }
}

TEST_F(Library, ARangeServesEveryM) {
  auto session = Session::open(options());
  for (const std::vector<std::int64_t>& anchors : {std::vector<std::int64_t>{4, 64}, {2048}, {1}}) {
    auto range = session->plan_range(problem(1), anchors);
    ASSERT_TRUE(range) << range.error();
    for (const std::int64_t m : {0, 1, 3, 4, 5, 100, 300}) {
      auto plan = range->at(m);
      ASSERT_TRUE(plan) << plan.error() << " at " << m;
      EXPECT_EQ(plan->problem().m, m);
      Buffers buffers(*plan);
      ASSERT_TRUE(plan->pack(buffers.arguments()));
      const Status ran = plan->run(buffers.arguments());
      ASSERT_TRUE(ran) << ran.error() << " at " << m;
      buffers.expect_right(m);
    }
  }
  EXPECT_EQ(session->plan_range(problem(1), {}).error().code, ErrorCode::invalid_argument);
}

TEST_F(Library, MissingBuffersAreNamed) {
  auto session = Session::open(options());
  auto plan = session->plan(problem(3));
  Buffers buffers(*plan);
  ASSERT_TRUE(plan->pack(buffers.arguments()));
  RunArguments arguments = buffers.arguments();
  buffers.operands[2] = nullptr;
  EXPECT_THAT(plan->run(arguments).error().message, HasSubstr("'bias'"));
  arguments.operands = arguments.operands.first(3);
  EXPECT_THAT(plan->run(arguments).error().message, HasSubstr("3 operands"));
  EXPECT_EQ(plan->run(arguments).error().code, ErrorCode::invalid_argument);
}

TEST_F(Library, AStoreThatCannotBeWrittenIsAWarningAndSessionsComeAndGo) {
  std::vector<std::string> heard;
  {
    SessionOptions bad = options();
    bad.store = "/proc/none/store.db";
    bad.on_warning = [&](std::string_view line) { heard.emplace_back(line); };
    auto session = Session::open(bad);
    ASSERT_TRUE(session) << session.error();
    EXPECT_TRUE(session->tune(problem(2)));
    EXPECT_TRUE(session->tune(problem(2))->from_store);  // from memory
    ASSERT_EQ(heard.size(), 1u);
    EXPECT_THAT(heard[0], HasSubstr("/proc/none"));
  }
  SessionOptions quiet = options();
  quiet.store = "/proc/none/store.db";
  EXPECT_TRUE(Session::open(quiet));
  EXPECT_EQ(heard.size(), 1u);
  quiet.device = "cuda:0";
  EXPECT_THAT(Session::open(quiet).error().message, HasSubstr("cuda:0"));
}

class SlowLibrary : public Library {};

TEST_F(SlowLibrary, SpansPastTwoToThe31ElementsWork) {
  auto session = Session::open(options());
  // B spans 40000 * 60000 = 2.4e9 elements, D 50000 * 45000; both with gaps, so that little of them
  // is touched.
  const GemmProblem wide_b{.m = 2,
                           .n = 40000,
                           .k = 64,
                           .a = DType::e4m3,
                           .b = DType::e4m3,
                           .d = DType::f32,
                           .ldb = 60000};
  const GemmProblem tall_d{.m = 50000,
                           .n = 8,
                           .k = 16,
                           .a = DType::e4m3,
                           .b = DType::e4m3,
                           .d = DType::e4m3,
                           .ldd = 45000};
  for (const GemmProblem& problem : {wide_b, tall_d}) {
    const auto tuned = session->tune(problem);
    ASSERT_TRUE(tuned) << tuned.error();
    EXPECT_TRUE(tuned->winner);
    for (const Measurement& row : tuned->candidates) {
      EXPECT_NE(row.status, CandidateStatus::wrong) << text(row.candidate) << ": " << row.reason;
      EXPECT_NE(row.status, CandidateStatus::failed) << text(row.candidate) << ": " << row.reason;
    }
  }
}

}  // namespace
}  // namespace lapidary
