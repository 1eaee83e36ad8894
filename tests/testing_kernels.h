#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lapidary/kernel.h"
#include "sim/sim.h"

// The example kernels with inputs and what must come out, for the tests that run them in the
// simulator and on a GPU.
namespace lapidary::testing_kernels {

/// One array of a launch; `expected` is empty for one that is only read.
struct Buffer {
  std::string name;
  Scalar type = Scalar::f32;
  std::vector<std::byte> contents;
  std::vector<double> expected;
  /// Largest |value - expected| allowed; 0: the same value.
  std::vector<double> bound;
  bool updated = false;  ///< what it holds at first is read
};
/// A launch: arguments in the order of the kernel's parameters, either a buffer (index) or a
/// number's bits.
struct Launching {
  std::string what;  ///< "n = 1000"
  std::array<int, 3> grid{1, 1, 1};
  std::vector<Buffer> buffers;
  struct Argument {
    int buffer = -1;
    std::uint64_t bits = 0;
  };
  std::vector<Argument> arguments;
};
struct Example {
  std::string name;
  std::function<Result<Kernel>()> build;
  std::function<std::vector<Launching>()> runs;  ///< small and large, even and odd
  bool exact = true;                             ///< uses none of the hardware's approximations
};
const std::vector<Example>& examples();

/// A run in the simulator: what it reports, and what each buffer holds afterwards. Buffers that are
/// only written are undefined before.
struct Simulated {
  sim::Report report;
  std::vector<std::vector<std::byte>> buffers;
};
Result<Simulated> simulated(const ir::Kernel& kernel, const Launching& run,
                            const sim::Options& options = {});

double value(Scalar type, const std::byte* element);

}  // namespace lapidary::testing_kernels
