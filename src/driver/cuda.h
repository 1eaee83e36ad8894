#pragma once

#include <memory>

#include "driver/device.h"

namespace lapidary::driver {

/// How many GPUs the driver shows; `unsupported` with what is missing when there is none to ask.
Result<int> cuda_devices();

/// What is known of a GPU without a context on it. `invalid_argument` when there is none of that
/// number.
Result<DeviceInfo> describe_cuda(int ordinal);

/// The GPU with its primary context, current in this thread.
Result<std::unique_ptr<Device>> open_cuda(int ordinal);

}  // namespace lapidary::driver
