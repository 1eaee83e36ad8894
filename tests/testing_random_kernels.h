#pragma once

#include <cstdint>

#include "lapidary/kernel.h"
#include "testing_kernels.h"

// Random kernels, to hold the simulator, the printer and a GPU against each other.
namespace lapidary::testing_kernels {

struct RandomKernel {
  Kernel kernel;
  Launching run;  ///< every buffer has contents, and none is `expected` to hold anything
};

/// A well-typed kernel over every operation but exp2, log2 and rsqrt, whose bits are a GPU's own.
/// The same seed gives the same kernel. What it writes depends neither on the order of its threads
/// nor on the bits of a NaN: threads write to slots of their own, meet in shared memory between
/// barriers, and add to common elements in atomic steps of which they do not use the results.
Result<RandomKernel> random_kernel(std::uint64_t seed);

}  // namespace lapidary::testing_kernels
