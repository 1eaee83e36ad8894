#pragma once

#include <optional>
#include <string>

#include "support/result.h"

// NVIDIA's management library: clocks, watts and joules of a card. Without it figures are left out;
// nothing fails.
namespace lapidary::driver {

using NvmlDevice = struct NvmlDeviceHandle*;
inline constexpr unsigned kNvmlClockSm = 1;  // nvmlClockType_t

// LAPIDARY_NVML(name, symbol, parameters...); all return nvmlReturn_t, 0 is success.
#define LAPIDARY_NVML_ENTRIES(LAPIDARY_NVML)                                                     \
  LAPIDARY_NVML(init, nvmlInit_v2)                                                               \
  LAPIDARY_NVML(driver_version, nvmlSystemGetDriverVersion, char* text, unsigned bytes)          \
  LAPIDARY_NVML(device_by_uuid, nvmlDeviceGetHandleByUUID, const char* uuid, NvmlDevice* device) \
  LAPIDARY_NVML(clock, nvmlDeviceGetClockInfo, NvmlDevice device, unsigned type, unsigned* mhz)  \
  LAPIDARY_NVML(power_limit, nvmlDeviceGetEnforcedPowerLimit, NvmlDevice device,                 \
                unsigned* milliwatts)                                                            \
  LAPIDARY_NVML(energy, nvmlDeviceGetTotalEnergyConsumption, NvmlDevice device,                  \
                unsigned long long* millijoules)

struct NvmlApi {
#define LAPIDARY_NVML(name, symbol, ...) int (*name)(__VA_ARGS__) = nullptr;
  LAPIDARY_NVML_ENTRIES(LAPIDARY_NVML)
#undef LAPIDARY_NVML
  std::string path{};
};

/// The process's NVML, initialised; loaded at the first call. `unsupported` with what is missing.
Result<const NvmlApi*> nvml_api();

}  // namespace lapidary::driver
