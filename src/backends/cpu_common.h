#pragma once

#include <cstdint>
#include <span>

#include "backends/backend.h"
#include "backends/isa_kernels.h"
#include "driver/cpu.h"

namespace lapidary::backends {

/// Inner loops for the widest instruction set of this processor.
const IsaKernels& isa_kernels();

/// `count` elements widened to f32 by the widest set.
void widen(DType type, const void* from, std::int64_t count, float* to);

/// A or B of a checked problem as lanes (rows of A, rows of B in `nt` terms) along k:
/// element (lane, k) lies at base + size * (lane * lane_stride + k * k_stride); one of the strides
/// is 1.
struct Lanes {
  DType type;
  std::int64_t count;  ///< lanes: m or n
  std::int64_t lane_stride, k_stride;
  const char* at(const void* base, std::int64_t lane, std::int64_t k) const {
    return static_cast<const char*>(base) + (lane * lane_stride + k * k_stride) * size_bytes(type);
  }
};
Lanes lanes_of_a(const GemmProblem& problem);
Lanes lanes_of_b(const GemmProblem& problem);

/// Seconds that a product and its passes take at best, for ranking before anything is measured:
/// arithmetic at `efficiency` of a rough f32 peak, plus `bytes` moved at a rough memory speed.
/// Microseconds.
double roofline_us(const DeviceInfo& device, double flops, double efficiency, double bytes);

/// Bytes of all operands of the problem, each once.
double operand_bytes(const GemmProblem& problem);

}  // namespace lapidary::backends
