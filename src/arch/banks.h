#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lapidary::arch {

/// Banks of shared memory: consecutive 4-byte words lie in consecutive banks. CUDA C++ Programming
/// Guide, "Shared Memory" of each compute capability from 5.x on: 32 banks, one word each per
/// cycle, threads that read the same word share it.
inline constexpr int kBanks = 32, kBankBytes = 4;

/// What one access of a warp to shared memory costs.
struct BankReport {
  int bytes_per_thread = 0;
  int phases = 0;  ///< groups of threads served one after the other: 1, 2 (8 bytes), 4 (16 bytes)
  int wavefronts = 0;  ///< passes over the banks, all phases together
  int ideal = 0;       ///< passes that these bytes need at least
  int worst_bank = 0;  ///< of the phase that needs the most passes
  std::vector<int> passes_of_phase{};
  bool operator==(const BankReport&) const = default;
};

/// The cost of an access in which thread i touches `bytes` bytes (1, 2, 4, 8 or 16) from byte
/// `addresses[i]` on. Wide accesses are served by half or quarter warps, 128 bytes at a time.
BankReport bank_conflicts(std::span<const std::int64_t> addresses, int bytes);

/// "4 phases of 8 threads, 4 wavefronts: no bank conflicts".
std::string summary(const BankReport& report, int threads);

}  // namespace lapidary::arch
