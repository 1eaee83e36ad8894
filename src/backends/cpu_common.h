#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "backends/backend.h"
#include "backends/isa_kernels.h"
#include "driver/cpu.h"
#include "support/parallel.h"

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

/// Calls body(begin, end) over pieces of [0, count) on the shared pool, in pieces of `grain`; in
/// fewer and larger ones when the problem has a limit of SMs, which are threads here.
template <class Body>
void each_within(const GemmProblem& problem, std::int64_t count, std::int64_t grain,
                 const Body& body) {
  if (problem.sms) grain = std::max<std::int64_t>(grain, (count + *problem.sms - 1) / *problem.sms);
  shared_pool().each(count, grain, body);
}

/// Why a library that has threads of its own cannot serve a limit of SMs; "" when there is none to
/// keep.
std::string thread_refusal(const GemmProblem& problem, const DeviceInfo& device);

/// Bytes of all operands of the problem, each once.
double operand_bytes(const GemmProblem& problem);

}  // namespace lapidary::backends
