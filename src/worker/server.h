#pragma once

#include <span>

#include "backends/backend.h"
#include "support/result.h"

namespace lapidary::worker {

/// The worker's life: answers requests from `in` on `out` until `in` ends. `backends` is what it
/// can offer; the programs of the tests add planted ones.
Status serve(int in, int out, std::span<const backends::Backend* const> backends);

/// This host's CPU as a device.
DeviceInfo cpu_device();

}  // namespace lapidary::worker
