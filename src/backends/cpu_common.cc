#include "backends/cpu_common.h"

#include <algorithm>

#include "numeric/numeric.h"

namespace lapidary::backends {

const IsaKernels& isa_kernels() {
#if defined(__x86_64__)
  static const IsaKernels& kernels = []() -> const IsaKernels& {
    switch (driver::cpu_isa()) {
      case driver::Isa::avx512:
        return kAvx512Kernels;
      case driver::Isa::avx2:
        return kAvx2Kernels;
      case driver::Isa::base:
        return kBaseKernels;
    }
    return kBaseKernels;
  }();
  return kernels;
#else
  return kBaseKernels;
#endif
}

void widen(DType type, const void* from, std::int64_t count, float* to) {
  if (type == DType::bf16)
    return isa_kernels().widen_bf16(static_cast<const std::uint16_t*>(from), count, to);
  numeric::widen(type, from, count, to);
}

Lanes lanes_of_a(const GemmProblem& p) {
  const bool stored_km = p.layout == GemmLayout::tn || p.layout == GemmLayout::tt;
  return {p.a, p.m, stored_km ? 1 : p.lda, stored_km ? p.lda : 1};
}

Lanes lanes_of_b(const GemmProblem& p) {
  const bool stored_kn = p.layout == GemmLayout::nn || p.layout == GemmLayout::tn;
  return {p.b, p.n, stored_kn ? 1 : p.ldb, stored_kn ? p.ldb : 1};
}

double roofline_us(const DeviceInfo& device, double flops, double efficiency, double bytes) {
  // Two FMA units of the widest vector at 2.5 GHz, and 8 GB/s of memory a thread up to 40: typical
  // of servers.
  const double lanes = 2.0 * isa_kernels().columns / 2;
  const double flops_per_us = device.threads * 2.0 * lanes * 2500.0;
  const double bytes_per_us = std::min(40e3, 8e3 * device.threads);
  return std::max(flops / (flops_per_us * efficiency), bytes / bytes_per_us) + 1.0;
}

std::string thread_refusal(const GemmProblem& problem, const DeviceInfo& device) {
  if (!problem.sms || *problem.sms >= device.threads) return "";
  return fmt::format("its threads cannot be limited to {} for one product alone", *problem.sms);
}

double operand_bytes(const GemmProblem& problem) {
  double bytes = 0;
  for (const OperandSpec& spec : operands(problem)) bytes += static_cast<double>(spec.bytes());
  return bytes;
}

}  // namespace lapidary::backends
