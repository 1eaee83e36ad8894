// The example kernels on a GPU, assembled there: the bits that the simulator gives. Skipped without
// a GPU or a ptxas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "assembler/assembler.h"
#include "driver/device.h"
#include "ptx/ptx.h"
#include "sim/sim.h"
#include "testing_kernels.h"
#include "testing_random_kernels.h"

namespace lapidary {
namespace {

using testing_kernels::Buffer;
using testing_kernels::Example;
using testing_kernels::examples;
using testing_kernels::Launching;

/// A GPU and the way to it; why there is none otherwise.
Result<std::unique_ptr<driver::Device>> gpu() {
  LAPIDARY_TRY(const assembler::Tool ptxas, assembler::find_ptxas());
  return driver::open_device("cuda:0");
}

/// Runs a kernel on the device and in the simulator. Both give what their buffers hold then.
struct Outcome {
  std::vector<std::vector<std::byte>> device, simulator;
};
Result<Outcome> run_both(driver::Device& device, driver::LoadedKernel& loaded, const ir::Kernel& ir,
                         const Launching& run) {
  std::vector<std::uint64_t> values;
  std::vector<driver::Memory> owned;
  for (const Buffer& b : run.buffers) {
    LAPIDARY_TRY(driver::Memory block, driver::Memory::make(device, std::ssize(b.contents)));
    LAPIDARY_TRY_STATUS(device.upload(block.data(), b.contents.data(), std::ssize(b.contents)));
    owned.push_back(std::move(block));
  }
  for (const auto& [buffer, bits] : run.arguments) {
    values.push_back(buffer < 0 ? bits
                                : reinterpret_cast<std::uint64_t>(
                                      owned[static_cast<std::size_t>(buffer)].data()));
  }
  std::vector<const void*> pointers;
  for (const std::uint64_t& value : values) pointers.push_back(&value);
  LAPIDARY_TRY(testing_kernels::Simulated done, testing_kernels::simulated(ir, run));
  for (const Finding& f : done.report.findings) ADD_FAILURE() << f.where << ": " << f.message;
  LAPIDARY_TRY_STATUS(loaded.launch(
      {.grid = run.grid, .threads = ir.threads, .shared_bytes = ir.shared_bytes()}, pointers));
  LAPIDARY_TRY_STATUS(device.synchronize());
  Outcome outcome{.device = {}, .simulator = std::move(done.buffers)};
  for (const driver::Memory& block : owned) {
    std::vector<std::byte> got(run.buffers[outcome.device.size()].contents.size());
    LAPIDARY_TRY_STATUS(device.download(got.data(), block.data(), std::ssize(got)));
    outcome.device.push_back(std::move(got));
  }
  return outcome;
}

/// The target of the device.
Arch target(const driver::Device& device) {
  return arch_for(device.info().sm).value_or(Arch::sm_80);
}

Result<std::unique_ptr<driver::LoadedKernel>> load(driver::Device& device, const ir::Kernel& ir) {
  const Arch arch = target(device);
  LAPIDARY_TRY(const assembler::Cubin cubin,
               assembler::assemble(ptx::print(ir, {.target = arch}),
                                   {.target = std::string(name(arch)), .cache = false}));
  return device.load(cubin.image, ir.name, ir.shared_bytes());
}

void expect_same(const Launching& run, const Outcome& outcome) {
  for (std::size_t b = 0; b < run.buffers.size(); ++b) {
    const auto& got = outcome.device[b];
    const auto [at, other] = std::ranges::mismatch(got, outcome.simulator[b]);
    EXPECT_TRUE(at == got.end()) << run.buffers[b].name << " differs first at byte "
                                 << at - got.begin();
  }
}

class GpuKernels : public ::testing::TestWithParam<Example> {};

TEST_P(GpuKernels, GivesTheBitsOfTheSimulator) {
  const auto device = gpu();
  if (!device) GTEST_SKIP() << device.error();
  const Result<Kernel> kernel = GetParam().build();
  ASSERT_TRUE(kernel) << kernel.error();
  const auto loaded = load(**device, kernel->ir());
  ASSERT_TRUE(loaded) << loaded.error();
  for (const Launching& run : GetParam().runs()) {
    SCOPED_TRACE(run.what);
    const Result<Outcome> outcome = run_both(**device, **loaded, kernel->ir(), run);
    ASSERT_TRUE(outcome) << outcome.error();
    if (GetParam().exact) expect_same(run, *outcome);
    for (std::size_t b = 0; b < run.buffers.size(); ++b) {
      const Buffer& buffer = run.buffers[b];
      for (std::size_t i = 0; i < buffer.expected.size(); ++i) {
        const double x = testing_kernels::value(
            buffer.type, outcome->device[b].data() + i * std::size_t(size_bytes(buffer.type)));
        ASSERT_LE(std::abs(x - buffer.expected[i]), buffer.bound.empty() ? 0 : buffer.bound[i])
            << buffer.name << "[" << i << "] = " << x << ", expected " << buffer.expected[i];
      }
    }
  }
}

TEST(GpuRandomKernels, TwoHundredGiveTheBitsOfTheSimulator) {
  const auto device = gpu();
  if (!device) GTEST_SKIP() << device.error();
  constexpr std::uint64_t kCount = 200;
  std::vector<testing_kernels::RandomKernel> kernels;
  std::vector<std::string> texts;
  std::vector<assembler::Job> jobs;
  for (std::uint64_t seed = 0; seed < kCount; ++seed) {
    auto random = testing_kernels::random_kernel(seed);
    ASSERT_TRUE(random) << "seed " << seed << ": " << random.error();
    texts.push_back(ptx::print(random->kernel.ir(), {.target = target(**device)}));
    kernels.push_back(*std::move(random));
  }
  for (std::size_t i = 0; i < texts.size(); ++i) {
    jobs.push_back({texts[i], {.target = std::string(name(target(**device))), .cache = false}});
  }
  const auto cubins = assembler::assemble_all(jobs);
  for (std::size_t i = 0; i < cubins.size(); ++i) {
    SCOPED_TRACE("seed " + std::to_string(i));
    const ir::Kernel& ir = kernels[i].kernel.ir();
    ASSERT_TRUE(cubins[i]) << cubins[i].error() << "\n" << texts[i];
    const auto loaded = (*device)->load(cubins[i]->image, ir.name, ir.shared_bytes());
    ASSERT_TRUE(loaded) << loaded.error();
    const Result<Outcome> outcome = run_both(**device, **loaded, ir, kernels[i].run);
    ASSERT_TRUE(outcome) << outcome.error();
    expect_same(kernels[i].run, *outcome);
  }
}

INSTANTIATE_TEST_SUITE_P(Examples, GpuKernels, ::testing::ValuesIn(examples()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace lapidary
