#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ir/kernel.h"
#include "lapidary/simulate.h"
#include "sim/memory.h"
#include "support/result.h"

// Runs a kernel's IR on the CPU, a whole grid: the meaning of the IR in executable form. Warps run
// in lock step and are interleaved by a seeded scheduler; the values are those of a GPU, bit for
// bit, but for the approximations of the hardware (exp2, log2, rsqrt), which are computed exactly
// and rounded, and for the payloads of NaNs in f64.
namespace lapidary::sim {

struct Launch {
  std::array<int, 3> grid{1, 1, 1};
  /// One for each of the kernel's parameters: an address of `Memory`, or a number's bits.
  std::vector<std::uint64_t> arguments;
};

struct Options {
  std::uint64_t seed = 0;                          ///< of the schedule
  int sms = 4;                                     ///< blocks that run at a time, one on each
  std::int64_t max_steps = std::int64_t{1} << 32;  ///< operations of warps
};

using Finding = lapidary::Finding;
using Report = SimulateReport;

/// `invalid_argument` for a launch that does not fit the kernel. Deadlocks, bad accesses and failed
/// checks are findings.
Result<Report> run(const ir::Kernel& kernel, const Launch& launch, Memory& memory,
                   const Options& options = {});

}  // namespace lapidary::sim
