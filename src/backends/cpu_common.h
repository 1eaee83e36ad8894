#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <new>
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
/// is 1. A matrix that is stored (k, lanes) with one lane and pitch 1 is one contiguous lane, and
/// told as such: k_stride == 1, lane_stride == k.
struct Lanes {
  DType type;
  std::int64_t count;  ///< lanes: m or n
  std::int64_t lane_stride, k_stride;
  bool along_k() const { return k_stride == 1; }
  /// Elements from one stored row to the next: at least k when along_k(), else at least `count`.
  std::int64_t pitch() const { return along_k() ? lane_stride : k_stride; }
  const char* at(const void* base, std::int64_t lane, std::int64_t k) const {
    return static_cast<const char*>(base) + (lane * lane_stride + k * k_stride) * size_bytes(type);
  }
};
Lanes lanes_of_a(const GemmProblem& problem);
Lanes lanes_of_b(const GemmProblem& problem);

/// Microseconds that a product and its passes take at best, for ranking before anything is
/// measured: arithmetic at `efficiency` of a rough f32 peak, or `bytes` moved at a rough memory
/// speed, whichever is longer.
double roofline_us(const DeviceInfo& device, double flops, double efficiency, double bytes);

/// The error of a run that could not allocate; making it allocates nothing.
Status out_of_memory();

/// What `body` returns, or out_of_memory(): a run must not throw.
template <class Body>
Status without_throwing(const Body& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

/// Calls body(begin, end) over pieces of [0, count) on the shared pool, in pieces of `grain`; in
/// fewer and larger ones when the problem has a limit of SMs, which are threads here.
template <class Body>
void each_within(const GemmProblem& problem, std::int64_t count, std::int64_t grain,
                 const Body& body) {
  if (problem.sms) grain = std::max<std::int64_t>(grain, (count + *problem.sms - 1) / *problem.sms);
  shared_pool().each(count, grain, body);
}

/// How many pieces of work of that size are worth handing to another thread: about 10 us at 10
/// GFLOP/s and 10 GB/s, a few times what waking a thread costs.
std::int64_t worthwhile_grain(double flops, double bytes);

/// A thread's own scratch of 64-byte aligned floats, grown as needed and kept, so that a run
/// allocates nothing once the threads are warm. The next call may move it. Null when memory is out.
float* scratch(std::int64_t floats);

/// each_within, where the body also gets `floats` of its thread's scratch: body(begin, end,
/// floats). `resource_limit` when a thread had no memory for it; pieces are missing then.
template <class Body>
Status each_with_scratch(const GemmProblem& problem, std::int64_t count, std::int64_t grain,
                         std::int64_t floats, const Body& body) {
  std::atomic<bool> failed = false;
  each_within(problem, count, grain, [&](std::int64_t begin, std::int64_t end) {
    float* own = scratch(floats);
    if (own == nullptr)
      failed.store(true, std::memory_order_relaxed);
    else
      body(begin, end, own);
  });
  if (failed) return out_of_memory();
  return {};
}

/// The product of counts, but at most kManyBytes: sizes of workspaces are checked sums of a few of
/// them and cannot overflow.
inline constexpr std::int64_t kManyBytes = std::int64_t{1} << 59;
std::int64_t bounded_product(std::initializer_list<std::int64_t> counts);

/// "needs ... bytes" when that many cannot be had on any machine, else "".
std::string size_refusal(std::int64_t bytes);

/// Why a library that has threads of its own cannot serve a limit of SMs; "" when there is none to
/// keep.
std::string thread_refusal(const GemmProblem& problem, const DeviceInfo& device);

/// Bytes of all operands of the problem, each once.
double operand_bytes(const GemmProblem& problem);

}  // namespace lapidary::backends
