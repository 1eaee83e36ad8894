#include "backends/cpu_common.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

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

namespace {

Lanes lanes(DType type, std::int64_t count, std::int64_t k, std::int64_t pitch, bool across) {
  if (!across) return {type, count, pitch, 1};
  // A pitch of 1 leaves one lane (or none): it is contiguous, and its pitch as a row is k.
  if (pitch == 1) return {type, count, std::max<std::int64_t>(1, k), 1};
  return {type, count, 1, pitch};
}

}  // namespace

Lanes lanes_of_a(const GemmProblem& p) {
  const bool stored_km = p.layout == GemmLayout::tn || p.layout == GemmLayout::tt;
  return lanes(p.a, p.m, p.k, p.lda, stored_km);
}

Lanes lanes_of_b(const GemmProblem& p) {
  const bool stored_kn = p.layout == GemmLayout::nn || p.layout == GemmLayout::tn;
  return lanes(p.b, p.n, p.k, p.ldb, stored_kn);
}

double roofline_us(const DeviceInfo& device, double flops, double efficiency, double bytes) {
  // Two FMA units of the widest vector at 2.5 GHz, and 8 GB/s of memory a thread up to 40: typical
  // of servers.
  const double lanes = 2.0 * isa_kernels().columns / 2;
  const double flops_per_us = device.threads * 2.0 * lanes * 2500.0;
  const double bytes_per_us = std::min(40e3, 8e3 * device.threads);
  return std::max(flops / (flops_per_us * efficiency), bytes / bytes_per_us) + 1.0;
}

std::int64_t worthwhile_grain(double flops, double bytes) {
  const double us = std::max(flops, bytes) / 10e3;
  return us >= 10.0 ? 1 : static_cast<std::int64_t>(std::ceil(10.0 / std::max(us, 1e-6)));
}

float* scratch(std::int64_t floats) {
  struct Block {
    float* data = nullptr;
    std::int64_t floats = 0;
    ~Block() { std::free(data); }
  };
  thread_local Block block;
  if (block.floats < floats) {
    std::free(block.data);
    const std::int64_t rounded = (floats + 1023) / 1024 * 1024;
    block.data = static_cast<float*>(std::aligned_alloc(64, static_cast<std::size_t>(rounded) * 4));
    block.floats = block.data == nullptr ? 0 : rounded;
  }
  return block.data;
}

Status out_of_memory() {
  // Short enough for the string's own buffer.
  return Error{ErrorCode::resource_limit, "out of memory"};
}

std::int64_t bounded_product(std::initializer_list<std::int64_t> counts) {
  std::int64_t product = 1;
  for (const std::int64_t count : counts) {
    if (count == 0) return 0;
    product = product > kManyBytes / count ? kManyBytes : product * count;
  }
  return product;
}

std::string size_refusal(std::int64_t bytes) {
  return bytes < kManyBytes ? "" : fmt::format("needs {} bytes or more", bytes);
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
