// The example kernels in the simulator: right against float64 under twenty schedules, without a
// finding; and their PTX assembled, where there is a ptxas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "assembler/assembler.h"
#include "ptx/ptx.h"
#include "sim/sim.h"
#include "testing_kernels.h"

namespace lapidary {
namespace {

using testing_kernels::Buffer;
using testing_kernels::Example;
using testing_kernels::examples;
using testing_kernels::Launching;

class Kernels : public ::testing::TestWithParam<Example> {};

TEST_P(Kernels, AgreesWithFloat64UnderTwentySchedules) {
  const Result<Kernel> kernel = GetParam().build();
  ASSERT_TRUE(kernel) << kernel.error();
  for (const Launching& run : GetParam().runs()) {
    SCOPED_TRACE(run.what);
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      SCOPED_TRACE(seed);
      const auto done = testing_kernels::simulated(kernel->ir(), run, {.seed = seed});
      ASSERT_TRUE(done) << done.error();
      EXPECT_TRUE(done->report.finished);
      for (const Finding& f : done->report.findings) ADD_FAILURE() << f.where << ": " << f.message;
      for (std::size_t b = 0; b < run.buffers.size(); ++b) {
        const Buffer& buffer = run.buffers[b];
        const std::byte* const got = done->buffers[b].data();
        for (std::size_t i = 0; i < buffer.expected.size(); ++i) {
          const double x =
              testing_kernels::value(buffer.type, got + i * std::size_t(size_bytes(buffer.type)));
          ASSERT_LE(std::abs(x - buffer.expected[i]), buffer.bound.empty() ? 0 : buffer.bound[i])
              << buffer.name << "[" << i << "] = " << x << ", expected " << buffer.expected[i];
        }
      }
    }
  }
}

TEST_P(Kernels, AssemblesWithoutSpills) {
  if (const auto ptxas = assembler::find_ptxas(); !ptxas) GTEST_SKIP() << ptxas.error();
  const Result<Kernel> kernel = GetParam().build();
  ASSERT_TRUE(kernel) << kernel.error();
  for (const bool lines : {false, true}) {
    for (const Arch arch : {Arch::sm_80, Arch::sm_89, Arch::sm_90a}) {
      SCOPED_TRACE(name(arch));
      const std::string text = ptx::print(kernel->ir(), {.target = arch, .lines = lines});
      const auto cubin = assembler::assemble(
          text, {.target = std::string(name(arch)), .line_info = lines, .cache = false});
      ASSERT_TRUE(cubin) << cubin.error() << "\n" << text;
      EXPECT_EQ(assembler::refusal(*cubin), std::nullopt);
      EXPECT_THAT(assembler::unknown_messages(*cubin), ::testing::IsEmpty());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Examples, Kernels, ::testing::ValuesIn(examples()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace lapidary
