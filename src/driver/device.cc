#include "driver/device.h"

#include <charconv>

#include "driver/cpu.h"
#include "driver/cuda.h"
#include "driver/cuda_api.h"
#include "support/env.h"

namespace lapidary::driver {
namespace {

/// N of "cuda:N".
Result<int> ordinal_of(std::string_view id) {
  constexpr std::string_view kPrefix = "cuda:";
  int ordinal = -1;
  if (id.starts_with(kPrefix)) {
    const std::string_view digits = id.substr(kPrefix.size());
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), ordinal);
    if (error == std::errc() && end == digits.data() + digits.size() && ordinal >= 0)
      return ordinal;
  }
  return fail(ErrorCode::invalid_argument, "'{}' is no device; use cpu or cuda:0", id);
}

}  // namespace

Result<Current> Current::make(std::string_view id) {
  Current current;
  if (id == "cpu") return current;
  LAPIDARY_TRY(const int ordinal, ordinal_of(id));
  LAPIDARY_TRY(const CudaApi* cu, cuda_api());
  const auto check = [&](CuResult result, const char* what) {
    return cuda_status(*cu, result, fmt::format("{}: {}", id, what));
  };
  CuDevice device = 0;
  CuContext before = nullptr, context = nullptr;
  LAPIDARY_TRY_STATUS(check(cu->device_get(&device, ordinal), "cuDeviceGet"));
  LAPIDARY_TRY_STATUS(check(cu->context_get(&before), "cuCtxGetCurrent"));
  LAPIDARY_TRY_STATUS(check(cu->context_retain(&context, device), "cuDevicePrimaryCtxRetain"));
  LAPIDARY_TRY_STATUS(check(cu->context_set(context), "cuCtxSetCurrent"));
  current.before_ = before;
  current.restore_ = true;
  return current;
}

Current::~Current() {
  if (!restore_) return;
  if (const auto cu = cuda_api()) (void)(*cu)->context_set(static_cast<CuContext>(before_));
}

Result<DeviceInfo> describe_device(std::string_view id) {
  if (id == "cpu") return cpu_info();
  LAPIDARY_TRY(const int ordinal, ordinal_of(id));
  return describe_cuda(ordinal);
}

Result<std::unique_ptr<Device>> open_device(std::string_view id) {
  if (id == "cpu") return open_cpu();
  LAPIDARY_TRY(const int ordinal, ordinal_of(id));
  return open_cuda(ordinal);
}

std::string default_device() {
  const Result<int> gpus = cuda_devices();
  return gpus && *gpus > 0 ? "cuda:0" : "cpu";
}

std::string chosen_device(const std::string& flag) {
  if (!flag.empty()) return flag;
  const std::optional<std::string> set = env("LAPIDARY_DEVICE");
  return set ? *set : default_device();
}

}  // namespace lapidary::driver
