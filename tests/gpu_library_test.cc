// The library on a GPU as its users meet it: plans on the caller's stream, inside the caller's CUDA
// graph, and what a call costs the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "driver/cuda_api.h"
#include "driver/device.h"
#include "gpu.h"
#include "lapidary/gemm.h"
#include "numeric/numeric.h"
#include "support/files.h"

namespace lapidary {
namespace {

using driver::CudaApi;
using driver::CuPointer;

class GpuLibrary : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = no_gpu(); !why.empty()) GTEST_SKIP() << why;
    ::setenv("LAPIDARY_LOCKS", folder_->path().c_str(), 1);
    cu_ = *driver::cuda_api();
    // The caller has a context of its own doing: the primary one, as the runtime API uses.
    auto current = driver::Current::make("cuda:0");
    ASSERT_TRUE(current) << current.error();
    current_.emplace(*std::move(current));
    ASSERT_EQ(cu_->stream_create(&stream_, driver::kCuStreamNonBlocking), 0);
    auto session = Session::open({.device = "cuda:0",
                                  .store = (folder_->path() / "store.db").string(),
                                  .worker = program("lapidary-worker").string()});
    ASSERT_TRUE(session) << session.error();
    session_.emplace(*std::move(session));
    problem_ = {.m = 40, .n = 64, .k = 96, .a = DType::bf16, .b = DType::bf16};
    problem_.epilogue = *parse_epilogue("d = relu(acc + bias[n])");
  }
  void TearDown() override {
    for (const CuPointer pointer : owned_) (void)cu_->free(pointer);
    if (stream_ != nullptr) (void)cu_->stream_destroy(stream_);
  }

  void* allocate(std::int64_t bytes) {
    CuPointer pointer = 0;
    EXPECT_EQ(cu_->alloc(&pointer, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))), 0);
    owned_.push_back(pointer);
    return reinterpret_cast<void*>(pointer);
  }

  /// Operands of small integers on the device, and their values here.
  struct Buffers {
    std::vector<void*> operands;
    std::vector<std::vector<float>> values;
    void* workspace = nullptr;
  };
  Buffers buffers(const Plan& plan, int seed) {
    Buffers made;
    for (const OperandSpec& spec : plan.operands()) {
      std::vector<float> values(static_cast<std::size_t>(spec.span_elems()));
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] =
            static_cast<float>((i * 7 + i / 13 + spec.name.size() + std::size_t(seed)) % 3) - 1;
      std::vector<std::byte> bytes(values.size() * std::size_t(size_bytes(spec.type)));
      numeric::narrow(spec.type, values.data(), std::int64_t(values.size()), bytes.data());
      void* there = allocate(std::int64_t(bytes.size()));
      EXPECT_EQ(
          cu_->upload(reinterpret_cast<CuPointer>(there), bytes.data(), bytes.size(), stream_), 0);
      made.operands.push_back(there);
      made.values.push_back(std::move(values));
    }
    made.workspace = allocate(plan.workspace_bytes());
    EXPECT_EQ(cu_->stream_synchronize(stream_), 0);
    return made;
  }
  RunArguments arguments(const Buffers& b) {
    return {.operands = b.operands, .workspace = b.workspace, .stream = stream_};
  }
  void expect_right(const Buffers& b) {
    const std::int64_t m = problem_.m, n = problem_.n, k = problem_.k;
    std::vector<std::uint16_t> d(static_cast<std::size_t>(m * n));
    ASSERT_EQ(
        cu_->download(d.data(), reinterpret_cast<CuPointer>(b.operands[3]), d.size() * 2, stream_),
        0);
    ASSERT_EQ(cu_->stream_synchronize(stream_), 0);
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        float sum = b.values[2][std::size_t(j)];
        for (std::int64_t l = 0; l < k; ++l)
          sum += b.values[0][std::size_t(i * k + l)] * b.values[1][std::size_t(j * k + l)];
        ASSERT_EQ(numeric::load(DType::bf16, d.data(), i * n + j), std::max(sum, 0.0f))
            << i << "," << j;
      }
    }
  }

  Result<TempFolder> folder_ = TempFolder::make();
  const CudaApi* cu_ = nullptr;
  std::optional<driver::Current> current_;
  driver::CuStream stream_ = nullptr;
  std::optional<Session> session_;
  GemmProblem problem_;
  std::vector<CuPointer> owned_;
};

TEST_F(GpuLibrary, TunesAndRunsOnTheCallersStream) {
  auto before = session_->plan(problem_);
  ASSERT_TRUE(before) << before.error();
  EXPECT_FALSE(before->tuned());
  const auto tuned = session_->tune(problem_);
  ASSERT_TRUE(tuned) << tuned.error();
  ASSERT_TRUE(tuned->winner);
  const auto plan = session_->plan(problem_);
  ASSERT_TRUE(plan) << plan.error();
  EXPECT_TRUE(plan->tuned());
  for (const Plan& each : {*before, *plan}) {
    const Buffers b = buffers(each, 1);
    const Status ran = each.run(arguments(b));
    ASSERT_TRUE(ran) << ran.error();
    expect_right(b);
  }
}

TEST_F(GpuLibrary, RunsInsideTheCallersGraph) {
  const auto plan = session_->plan(problem_);
  ASSERT_TRUE(plan) << plan.error();
  const Buffers one = buffers(*plan, 1), two = buffers(*plan, 2);
  driver::CuGraph graph = nullptr;
  driver::CuGraphExec exec = nullptr;
  ASSERT_EQ(cu_->capture_begin(stream_, driver::kCuCaptureThreadLocal), 0);
  for (const Buffers* b : {&one, &two}) {
    const Status ran = plan->run(arguments(*b));
    ASSERT_TRUE(ran) << ran.error();
  }
  ASSERT_EQ(cu_->capture_end(stream_, &graph), 0);
  ASSERT_EQ(cu_->graph_instantiate(&exec, graph, 0), 0);
  for (int replay = 0; replay < 2; ++replay) {
    for (const Buffers* b : {&one, &two}) {
      const std::vector<std::uint16_t> garbage(std::size_t(problem_.m * problem_.n), 0x7fc0);
      ASSERT_EQ(cu_->upload(reinterpret_cast<CuPointer>(b->operands[3]), garbage.data(),
                            garbage.size() * 2, stream_),
                0);
    }
    ASSERT_EQ(cu_->graph_launch(exec, stream_), 0);
    expect_right(one);
    expect_right(two);
  }
  EXPECT_EQ(cu_->graph_exec_destroy(exec), 0);
  EXPECT_EQ(cu_->graph_destroy(graph), 0);
}

TEST_F(GpuLibrary, ARangeOfMServesEveryM) {
  const std::int64_t anchors[] = {1, 16, 64};
  const auto range = session_->plan_range(problem_, anchors);
  ASSERT_TRUE(range) << range.error();
  for (const std::int64_t m : {1, 7, 40}) {
    problem_.m = m;
    const auto plan = range->at(m);
    ASSERT_TRUE(plan) << plan.error();
    const Buffers b = buffers(*plan, int(m));
    ASSERT_TRUE(plan->run(arguments(b)));
    expect_right(b);
  }
}

TEST_F(GpuLibrary, WhatACallCostsTheHost) {
  const auto plan = session_->plan(problem_);
  ASSERT_TRUE(plan) << plan.error();
  const Buffers one = buffers(*plan, 1), two = buffers(*plan, 2);
  std::vector<double> micros;
  for (int burst = 0; burst < 20; ++burst) {
    // Fewer than a stream queues, so that no call waits for the card.
    constexpr int kCalls = 200;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) ASSERT_TRUE(plan->run(arguments(i % 2 == 0 ? one : two)));
    micros.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
            .count() /
        kCalls);
    ASSERT_EQ(cu_->stream_synchronize(stream_), 0);
  }
  std::ranges::sort(micros);
  std::printf("plan.run with new pointers each call: %.2f us of the host (median of 20 x 200)\n",
              micros[micros.size() / 2]);
  RecordProperty("host_us", std::to_string(micros[micros.size() / 2]));
}

}  // namespace
}  // namespace lapidary
