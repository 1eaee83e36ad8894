#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "driver/cpu.h"
#include "driver/device.h"

namespace lapidary::worker {

/// The CPU, or the device that LAPIDARY_TEST_DEVICE names. With the null driver in the place of
/// CUDA's, tests and planted kernels may touch "device memory" as their own, and what checks it is
/// what checks a GPU's.
inline driver::Device& device() {
  static const std::unique_ptr<driver::Device> opened = [] {
    const char* id = std::getenv("LAPIDARY_TEST_DEVICE");
    auto made = driver::open_device(id != nullptr ? id : "cpu");
    if (!made) ADD_FAILURE() << made.error();
    return made ? *std::move(made) : driver::open_cpu();
  }();
  return *opened;
}

}  // namespace lapidary::worker
