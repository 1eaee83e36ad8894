#pragma once

#include <gtest/gtest.h>

#include <string>

#include "lapidary/device.h"
#include "lapidary/problem.h"
#include "support/result.h"

namespace lapidary::backends {

/// A CPU of two threads and a small cache, whatever this machine is.
inline const DeviceInfo kDevice{.id = "cpu",
                                .name = "test",
                                .key = "test",
                                .threads = 2,
                                .cache_bytes = 1 << 20,
                                .memory_bytes = 1 << 30};

/// A checked problem from its JSON keys.
inline GemmProblem problem_of(const std::string& json) {
  auto problem = problem_from_json(json);
  EXPECT_TRUE(problem) << problem.error() << json;
  problem = checked(*problem);
  EXPECT_TRUE(problem) << problem.error() << json;
  return *problem;
}

}  // namespace lapidary::backends
