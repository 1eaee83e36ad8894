// Passes: the example kernels and random ones give the same bits before and after; and what each
// pass leaves of a kernel.
#include "passes/passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lapidary/tensor.h"
#include "sim/sim.h"
#include "support/result.h"
#include "testing_kernels.h"
#include "testing_random_kernels.h"

namespace lapidary {
namespace {

using testing_kernels::Launching;

/// What all buffers hold after a run.
std::vector<std::vector<std::byte>> outcome(const ir::Kernel& kernel, const Launching& run) {
  auto done = testing_kernels::simulated(kernel, run);
  if (!done) {
    ADD_FAILURE() << done.error();
    return {};
  }
  EXPECT_TRUE(done->report.finished);
  for (const Finding& f : done->report.findings) ADD_FAILURE() << f.where << ": " << f.message;
  return std::move(done->buffers);
}

TEST(Passes, ExamplesKeepTheirBitsAndGetShorter) {
  for (const auto& example : testing_kernels::examples()) {
    SCOPED_TRACE(example.name);
    const Result<Kernel> kernel = example.build();
    ASSERT_TRUE(kernel) << kernel.error();
    const auto after = passes::run(kernel->ir());
    ASSERT_TRUE(after) << after.error();
    EXPECT_LE(after->ops.size(), kernel->ir().ops.size());
    for (const Launching& run : example.runs())
      EXPECT_EQ(outcome(kernel->ir(), run), outcome(*after, run)) << run.what;
  }
}

TEST(Passes, RandomKernelsKeepTheirBits) {
  std::size_t before = 0, behind = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto random = testing_kernels::random_kernel(seed);
    ASSERT_TRUE(random) << random.error();
    ir::Kernel now = random->kernel.ir();
    const auto expected = outcome(now, random->run);
    for (const passes::Pass& pass : passes::pipeline()) {
      now = pass.run(now);
      const auto broken = ir::verify(now);
      ASSERT_TRUE(broken.empty()) << pass.name << ": " << broken.front().message;
      ASSERT_EQ(outcome(now, random->run), expected) << pass.name << "\n" << text(now);
    }
    before += random->kernel.ir().ops.size();
    behind += now.ops.size();
  }
  EXPECT_LT(behind, before);
}

int count(const ir::Kernel& kernel, ir::Opcode code) {
  int found = 0;
  for (const ir::Region& region : kernel.regions) {
    for (const ir::Id id : region.ops) found += kernel.op(id).code == code;
  }
  return found;
}

TEST(Passes, WhatIsKnownIsComputedAndWhatWasDoneIsNotDoneAgain) {
  KernelBuilder k({.name = "known", .threads = 32});
  Array x = k.array_param("x", Scalar::s32);
  Value five = k.constant(Scalar::s32, 5);
  x[k.thread()] = (five * 3 - 15) + k.thread() * 1 + (k.thread() ^ 0);
  x[k.thread() + 32] = k.thread() * 7 + k.thread() * 7;
  const auto kernel = k.finish();
  ASSERT_TRUE(kernel) << kernel.error();
  const auto after = passes::run(kernel->ir());
  ASSERT_TRUE(after) << after.error();
  EXPECT_EQ(count(*after, ir::Opcode::special), 1);
  EXPECT_EQ(count(*after, ir::Opcode::mul), 1) << text(*after);  // by 7
  EXPECT_EQ(count(*after, ir::Opcode::sub), 0);
  EXPECT_EQ(count(*after, ir::Opcode::xor_), 0);
  EXPECT_EQ(count(*after, ir::Opcode::store), 2);
}

TEST(Passes, NothingIsSharedOutOfABranchThatMayNotRun) {
  KernelBuilder k({.name = "branches", .threads = 32});
  Array x = k.array_param("x", Scalar::s32);
  k.if_(k.thread() < 3, [&] { x[k.thread()] = k.thread() * 7; });
  x[k.thread() + 32] = k.thread() * 7;
  const auto kernel = k.finish();
  ASSERT_TRUE(kernel) << kernel.error();
  const auto after = passes::run(kernel->ir());
  ASSERT_TRUE(after) << after.error();
  EXPECT_EQ(count(*after, ir::Opcode::mul), 2) << text(*after);
}

TEST(Passes, DeadValuesAndEmptyLoopsGo) {
  KernelBuilder k({.name = "dead", .threads = 32});
  Array x = k.array_param("x", Scalar::s32);
  (void)k.tile(Scalar::f32, 8);
  k.for_range(0, 10, 1, [&](Value i) { (void)(i * 3); });
  k.if_(k.thread() < 3, [&] { (void)(k.thread() + 1); });
  x[k.thread()] = 1;
  const auto kernel = k.finish();
  ASSERT_TRUE(kernel) << kernel.error();
  const auto after = passes::run(kernel->ir());
  ASSERT_TRUE(after) << after.error();
  EXPECT_EQ(count(*after, ir::Opcode::for_), 0);
  EXPECT_EQ(count(*after, ir::Opcode::if_), 0);
  EXPECT_EQ(count(*after, ir::Opcode::tile), 0);
  EXPECT_EQ(after->ops.size(), 5u) << text(*after);  // x, thread, the pointer, 1, the store
}

}  // namespace
}  // namespace lapidary
