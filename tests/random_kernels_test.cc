// Random kernels (testing_random_kernels.h) in the simulator, under schedules that differ, and
// through the printers and the assembler.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "assembler/assembler.h"
#include "ir/kernel.h"
#include "ptx/ptx.h"
#include "sim/sim.h"
#include "testing_random_kernels.h"

namespace lapidary {
namespace {

using testing_kernels::Launching;
using testing_kernels::random_kernel;

constexpr std::uint64_t kKernels = 300;

/// What all buffers hold after a run without findings.
std::vector<std::vector<std::byte>> simulate(const ir::Kernel& kernel, const Launching& run,
                                             const sim::Options& options) {
  auto done = testing_kernels::simulated(kernel, run, options);
  if (!done) {
    ADD_FAILURE() << done.error();
    return {};
  }
  EXPECT_TRUE(done->report.finished);
  EXPECT_THAT(done->report.printed, ::testing::IsEmpty());
  for (const Finding& f : done->report.findings) ADD_FAILURE() << f.where << ": " << f.message;
  return std::move(done->buffers);
}

TEST(RandomKernels, GiveTheSameBitsUnderEverySchedule) {
  constexpr sim::Options kSchedules[] = {
      {.seed = 1}, {.seed = 2}, {.seed = 3, .sms = 1}, {.seed = 4, .sms = 64}};
  for (std::uint64_t seed = 0; seed < kKernels; ++seed) {
    SCOPED_TRACE(seed);
    const auto made = random_kernel(seed);
    ASSERT_TRUE(made) << made.error();
    const ir::Kernel& kernel = made->kernel.ir();
    ASSERT_THAT(ir::verify(kernel), ::testing::IsEmpty());
    const auto first = simulate(kernel, made->run, {});
    for (const sim::Options& options : kSchedules) {
      const auto other = simulate(kernel, made->run, options);
      ASSERT_EQ(other.size(), first.size());
      for (std::size_t b = 0; b < first.size(); ++b) {
        EXPECT_TRUE(other[b] == first[b])
            << made->run.buffers[b].name << " differs with " << options.sms << " SMs, schedule "
            << options.seed << "\n"
            << made->kernel.text();
      }
    }
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
}

// A generator that stops to make some operation would leave it untested in silence.
TEST(RandomKernels, UseEveryOperationAndWriteSomething) {
  std::set<std::string_view> used;
  std::size_t changed = 0;
  for (std::uint64_t seed = 0; seed < kKernels; ++seed) {
    SCOPED_TRACE(seed);
    const auto made = random_kernel(seed);
    ASSERT_TRUE(made) << made.error();
    for (const ir::Op& op : made->kernel.ir().ops) used.insert(ir::info(op.code).name);
    const auto after = simulate(made->kernel.ir(), made->run, {});
    for (std::size_t b = 0; b < after.size(); ++b)
      changed += after[b] == made->run.buffers[b].contents ? 0 : 1;
  }
  std::set<std::string_view> all;
  for (const ir::OpInfo& row : ir::op_table()) all.insert(row.name);
  // Approximations of the hardware; and what kernels of whole warps and their matrices are for.
  for (const char* left_out : {"exp2", "log2", "rsqrt", "copy_async", "commit_copies",
                               "wait_copies", "load_matrix", "mma"})
    all.erase(left_out);
  EXPECT_EQ(used, all);
  EXPECT_GT(changed, 6 * kKernels);  // each stores to eight arrays, some values are 0
}

TEST(RandomKernels, AreTheSameForTheSameSeed) {
  for (const std::uint64_t seed : {0, 17, 299}) {
    const auto once = random_kernel(seed), again = random_kernel(seed),
               other = random_kernel(seed + 1);
    ASSERT_TRUE(once && again && other);
    EXPECT_EQ(once->kernel.text(), again->kernel.text());
    EXPECT_NE(once->kernel.text(), other->kernel.text());
    for (std::size_t b = 0; b < once->run.buffers.size(); ++b)
      EXPECT_TRUE(once->run.buffers[b].contents == again->run.buffers[b].contents);
  }
}

TEST(RandomKernels, AreAssembled) {
  if (const auto ptxas = assembler::find_ptxas(); !ptxas) GTEST_SKIP() << ptxas.error();
  for (std::uint64_t seed = 0; seed < kKernels; seed += kKernels / 10) {
    SCOPED_TRACE(seed);
    const auto made = random_kernel(seed);
    ASSERT_TRUE(made) << made.error();
    const bool lines = seed % 60 == 0;
    const std::string ptx = ptx::print(made->kernel.ir(), {.lines = lines});
    const auto cubin =
        assembler::assemble(ptx, {.target = "sm_80", .line_info = lines, .cache = false});
    EXPECT_TRUE(cubin) << cubin.error() << "\n" << ptx;
  }
}

}  // namespace
}  // namespace lapidary
