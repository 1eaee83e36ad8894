#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "driver/device.h"
#include "support/result.h"

namespace lapidary::driver {

/// Instruction sets that CPU kernels of ours are compiled for, in order of width.
enum class Isa { base, avx2, avx512 };
std::string_view name(Isa isa);

/// The widest set that this processor and its operating system offer.
Isa cpu_isa();

/// What identifies the CPU: "Intel(R) Xeon(R) Processor", caches and memory in bytes.
struct CpuFacts {
  std::string model;
  std::string features;  ///< of those that change winners: "avx2 avx512f avx512_bf16 amx_bf16"
  std::int64_t cache_bytes = 0;  ///< last level; 32 MiB when the system does not say
  std::int64_t memory_bytes = 0;
};
CpuFacts cpu_facts();

/// This host's CPU as a device.
DeviceInfo cpu_info();
std::unique_ptr<Device> open_cpu();

}  // namespace lapidary::driver
