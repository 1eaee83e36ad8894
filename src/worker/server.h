#pragma once

#include <span>
#include <string>

#include "backends/backend.h"
#include "support/result.h"

namespace lapidary::worker {

/// The worker's life: answers requests from `in` on `out` until `in` ends. `device` is "cpu" or
/// "cuda:N"; `backends` is what it can offer, of which those are asked that serve the device; the
/// programs of the tests add planted ones. Ends the process once the device's context is lost.
Status serve(int in, int out, const std::string& device,
             std::span<const backends::Backend* const> backends);

}  // namespace lapidary::worker
