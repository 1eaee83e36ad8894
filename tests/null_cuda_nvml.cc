// NVML: a card that draws 100 W at 1980 MHz whatever it does.
#include <fmt/format.h>

#include <chrono>
#include <cstring>

#include "null_cuda_core.h"

namespace lapidary::driver {
namespace {

using namespace null_cuda;  // NOLINT: this is its face

constexpr int kUninitialised = 1, kInvalidArgument = 2, kNotFound = 6, kInsufficientSize = 7;
constexpr unsigned kMilliwatts = 100'000, kLimitMilliwatts = 700'000, kMhz = 1980;
constexpr unsigned kClockTypes = 4;

std::atomic<bool> g_initialised{false};

NvmlDevice handle_of(int ordinal) {
  return reinterpret_cast<NvmlDevice>((std::uintptr_t{0x4e56} << 48) +
                                      16 * (static_cast<std::uintptr_t>(ordinal) + 1));
}

std::string uuid_text(int ordinal) {
  const CuUuid id = uuid(ordinal);
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", id.bytes[i]);
  }
  return text;
}

/// 0 when an entry may look at its arguments.
template <int Symbol>
int begin() {
  static_assert(Symbol >= 0, "not an entry of NVML");
  if (const std::optional<int> fault = enter(Symbol)) return *fault;
  return g_initialised ? 0 : kUninitialised;
}

bool is_handle(NvmlDevice device) {
  for (int i = 0; i < settings().devices; ++i) {
    if (device == handle_of(i)) return true;
  }
  misuse("NVML: no such device");
  return false;
}

#define BEGIN(symbol, arguments)                                                        \
  if (const int refused = begin<symbol_index(#symbol)>(); refused != 0) return refused; \
  if (!(arguments)) return kInvalidArgument

}  // namespace

int nvmlInit_v2() {
  if (const std::optional<int> fault = enter(symbol_index("nvmlInit_v2"))) return *fault;
  g_initialised = true;
  return 0;
}

int nvmlSystemGetDriverVersion(char* text, unsigned bytes) {
  BEGIN(nvmlSystemGetDriverVersion, text != nullptr);
  constexpr std::string_view kVersion = "580.0.null";
  if (bytes <= kVersion.size()) return kInsufficientSize;
  text[kVersion.copy(text, kVersion.size())] = '\0';
  return 0;
}

int nvmlDeviceGetHandleByUUID(const char* wanted, NvmlDevice* device) {
  BEGIN(nvmlDeviceGetHandleByUUID, wanted != nullptr && device != nullptr);
  for (int i = 0; i < settings().devices; ++i) {
    if (uuid_text(i) == wanted) {
      *device = handle_of(i);
      return 0;
    }
  }
  return kNotFound;
}

int nvmlDeviceGetClockInfo(NvmlDevice device, unsigned type, unsigned* mhz) {
  BEGIN(nvmlDeviceGetClockInfo, is_handle(device) && type < kClockTypes && mhz != nullptr);
  *mhz = kMhz;
  return 0;
}

int nvmlDeviceGetEnforcedPowerLimit(NvmlDevice device, unsigned* milliwatts) {
  BEGIN(nvmlDeviceGetEnforcedPowerLimit, is_handle(device) && milliwatts != nullptr);
  *milliwatts = kLimitMilliwatts;
  return 0;
}

int nvmlDeviceGetTotalEnergyConsumption(NvmlDevice device, unsigned long long* millijoules) {
  BEGIN(nvmlDeviceGetTotalEnergyConsumption, is_handle(device) && millijoules != nullptr);
  const std::chrono::duration<double> on = std::chrono::steady_clock::now().time_since_epoch();
  *millijoules = static_cast<unsigned long long>(on.count() * kMilliwatts);
  return 0;
}

}  // namespace lapidary::driver
