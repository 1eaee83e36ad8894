// Example kernels against cuBLASLt on a GPU: gpu-kernels-bench [M N K]. Every algorithm that
// cuBLASLt offers and every config of `gemm_mma` must give the same bits on small integers; then
// all are timed on random values, replay by replay. Prints one JSON.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "../examples/kernels/kernels.h"
#include "assembler/assembler.h"
#include "backends/backend.h"
#include "driver/device.h"
#include "ir/kernel.h"
#include "lapidary/simulate.h"
#include "worker/arena.h"

namespace lapidary {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// One that computes the product: a launch on the operands a, b, d of an arena.
struct Contender {
  std::string name;
  std::function<Status(const worker::Arena&)> launch;
  std::unique_ptr<driver::Replay> replay;
  std::vector<double> times_us = {};
  std::string facts = {};  // of a kernel of ours, as JSON members
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

const examples::GemmMmaConfig kConfigs[] = {
    {},
    {.stages = 3},
    {.tile_k = 64, .stages = 3},
    {.tile_n = 256, .stages = 3, .warps_n = 4},
    {.tile_m = 256, .stages = 3, .warps_m = 4},
    {.tile_n = 256, .stages = 4, .warps_n = 4},
    {.tile_n = 256, .tile_k = 64, .stages = 3, .warps_n = 4},
};

std::string text(const examples::GemmMmaConfig& c) {
  return fmt::format("{}x{}x{}, {} stages, {}x{} warps", c.tile_m, c.tile_n, c.tile_k, c.stages,
                     c.warps_m, c.warps_n);
}

Result<Contender> ours(const examples::GemmMmaConfig& c, const GemmProblem& p,
                       driver::Device& device) {
  const Arch arch = arch_for(device.info().sm).value_or(Arch::sm_80);
  std::vector<double> build_ms;
  std::string ptx, entry;
  std::int64_t shared_bytes = 0;
  int threads = 0;
  for (int i = 0; i < 11; ++i) {
    const Clock::time_point start = Clock::now();
    LAPIDARY_TRY(const Kernel kernel, examples::gemm_mma(c));
    LAPIDARY_TRY(ptx, ptx_text(kernel, arch));
    build_ms.push_back(seconds_since(start) * 1e3);
    entry = kernel.ir().name;
    shared_bytes = kernel.ir().shared_bytes();
    threads = kernel.ir().threads;
  }
  const Clock::time_point start = Clock::now();
  LAPIDARY_TRY(const assembler::Cubin cubin,
               assembler::assemble(ptx, {.target = std::string(name(arch)), .cache = false}));
  const double assemble_s = seconds_since(start);
  if (const auto why = assembler::refusal(cubin))
    return fail(ErrorCode::unsupported, "{}: {}", text(c), *why);
  LAPIDARY_TRY(std::shared_ptr<driver::LoadedKernel> kernel,
               device.load(cubin.image, entry, shared_bytes));
  const driver::LaunchShape shape{.grid = {static_cast<int>((p.m + c.tile_m - 1) / c.tile_m),
                                           static_cast<int>((p.n + c.tile_n - 1) / c.tile_n), 1},
                                  .threads = threads,
                                  .shared_bytes = shared_bytes};
  const auto launch = [kernel, shape, m = static_cast<int>(p.m), n = static_cast<int>(p.n),
                       k = static_cast<int>(p.k)](const worker::Arena& arena) {
    void* const* const operands = arena.pointers().data();
    const void* arguments[] = {&m, &n, &k, &operands[0], &operands[1], &operands[2]};
    return kernel->launch(shape, arguments);
  };
  return Contender{
      .name = "ours " + text(c),
      .launch = launch,
      .replay = nullptr,
      .facts =
          fmt::format(", \"build_and_print_ms\": {:.2f}, \"assemble_s\": {:.3f}, \"registers\": {}",
                      median(build_ms), assemble_s, cubin.log.functions.front().registers)};
}

Status run(const GemmProblem& described) {
  LAPIDARY_TRY(const GemmProblem p, checked(described));
  LAPIDARY_TRY(const std::unique_ptr<driver::Device> device, driver::open_device("cuda:0"));
  std::vector<worker::Arena> copies;
  LAPIDARY_TRY(worker::Arena first, worker::Arena::make(p, *device));
  LAPIDARY_TRY_STATUS(first.fill_inputs(worker::Fill::integers, 1));
  copies.push_back(std::move(first));

  std::vector<Contender> contenders;
  std::vector<driver::Memory> workspaces;
  std::vector<std::shared_ptr<backends::Executable>> executables;
  for (const backends::Backend* backend : backends::all()) {
    if (backend->name() != "cublaslt") continue;
    for (const Offer& offer : backend->candidates(p, device->info())) {
      if (!offer.refused.empty())
        return fail(ErrorCode::unsupported, "cublaslt: {}", offer.refused);
      LAPIDARY_TRY(std::shared_ptr<backends::Executable> executable,
                   backend->compile(p, offer.candidate.config, device->info()));
      LAPIDARY_TRY(driver::Memory workspace,
                   driver::Memory::make(*device, executable->workspace_bytes()));
      void* const space = workspace.data();
      workspaces.push_back(std::move(workspace));
      contenders.push_back(
          {.name = text(offer.candidate),
           .launch =
               [executable, space, stream = device->stream()](const worker::Arena& arena) {
                 return executable->run({.operands = arena.pointers(),
                                         .workspace = space,
                                         .packed = nullptr,
                                         .stream = stream});
               },
           .replay = nullptr});
    }
  }
  const std::size_t theirs = contenders.size();
  for (const examples::GemmMmaConfig& c : kConfigs) {
    Result<Contender> mine = ours(c, p, *device);
    if (mine) {
      contenders.push_back(*std::move(mine));
    } else {
      std::fprintf(stderr, "%s\n", mine.error().message.c_str());
    }
  }

  if (theirs == 0 || theirs == contenders.size())
    return fail(ErrorCode::unsupported, "nothing to compare: {} of cuBLASLt, {} of ours", theirs,
                contenders.size() - theirs);

  // The same bits on integers, whose sums are exact.
  std::uint64_t expected = 0;
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    LAPIDARY_TRY_STATUS(copies[0].fill_outputs());
    LAPIDARY_TRY_STATUS(contenders[i].launch(copies[0]));
    LAPIDARY_TRY_STATUS(device->synchronize());
    LAPIDARY_TRY(const std::uint64_t hash, copies[0].hash_outputs());
    if (i == 0) expected = hash;
    if (hash != expected)
      return fail(ErrorCode::wrong_result, "{} differs from {}", contenders[i].name,
                  contenders[0].name);
  }

  LAPIDARY_TRY_STATUS(copies[0].fill_inputs(worker::Fill::uniform, 1));
  while (static_cast<std::int64_t>(copies.size()) * copies[0].bytes() <
         3 * device->info().cache_bytes) {
    LAPIDARY_TRY(worker::Arena copy, copies[0].clone());
    copies.push_back(std::move(copy));
  }
  const std::int64_t repeats = std::max<std::int64_t>(std::ssize(copies), 4);
  for (Contender& c : contenders) {
    LAPIDARY_TRY(c.replay,
                 device->record(
                     [&](std::int64_t i) {
                       return c.launch(copies[static_cast<std::size_t>(i) % copies.size()]);
                     },
                     repeats));
  }
  for (int round = 0; round < 11; ++round) {
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      Contender& c = contenders[round % 2 == 0 ? i : contenders.size() - 1 - i];
      LAPIDARY_TRY(const double us, c.replay->run());
      c.times_us.push_back(us);
    }
  }
  double best_theirs = 1e30, best_ours = 1e30;
  std::string rows;
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const double us = median(contenders[i].times_us);
    double& best = i < theirs ? best_theirs : best_ours;
    best = std::min(best, us);
    std::string name = contenders[i].name;
    std::ranges::replace(name, '"', '\'');
    rows += fmt::format("{}\n    {{\"name\": \"{}\", \"time_us\": {:.2f}{}}}", i == 0 ? "" : ",",
                        name, us, contenders[i].facts);
  }
  std::printf(
      "{\"device\": \"%s\", \"m\": %d, \"n\": %d, \"k\": %d, \"ratio\": %.4f, \"tflops\": %.1f,\n  "
      "\"contenders\": [%s\n  ]}\n",
      device->info().name.c_str(), static_cast<int>(p.m), static_cast<int>(p.n),
      static_cast<int>(p.k), best_theirs / best_ours,
      2.0 * static_cast<double>(p.m * p.n * p.k) / best_ours * 1e-6, rows.c_str());
  return {};
}

}  // namespace
}  // namespace lapidary

int main(int argc, char** argv) {
  lapidary::GemmProblem p{.m = 4096,
                          .n = 4096,
                          .k = 4096,
                          .a = lapidary::DType::bf16,
                          .b = lapidary::DType::bf16,
                          .d = lapidary::DType::bf16};
  if (argc == 4) {
    p.m = std::atoi(argv[1]);
    p.n = std::atoi(argv[2]);
    p.k = std::atoi(argv[3]);
  }
  const lapidary::Status done = lapidary::run(p);
  if (!done) std::fprintf(stderr, "gpu-kernels-bench: %s\n", done.error().message.c_str());
  return done ? 0 : 1;
}
