#pragma once

#include <cstdint>
#include <string>

namespace lapidary {

/// What tells one device from another in keys and reports.
struct DeviceInfo {
  std::string id{};              ///< "cpu", "cuda:0"
  std::string name{};            ///< "Intel(R) Xeon(R) ..., 2 threads", "NVIDIA H200, 132 SMs"
  std::string key{};             ///< what winners depend on: model, instruction set, threads or SMs
  std::string uuid{};            ///< "GPU-22849ea6-...": of this very card; empty for a CPU
  std::string driver{};          ///< "580.159.04, CUDA 13.0"; empty for a CPU
  int threads = 1;               ///< or SMs
  int sm = 0;                    ///< compute capability, 90 for sm_90; 0 for a CPU
  std::int64_t cache_bytes = 0;  ///< last-level cache
  std::int64_t memory_bytes = 0;
  double max_clock_mhz = 0;  ///< of SMs; 0 when unknown
  double power_limit_w = 0;  ///< 0 when unknown
  bool operator==(const DeviceInfo&) const = default;
};

}  // namespace lapidary
