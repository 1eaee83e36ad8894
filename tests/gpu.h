#pragma once

#include <gtest/gtest.h>

#include <filesystem>

#include "driver/cuda.h"

namespace lapidary {

/// Why tests of a GPU are skipped here; empty where there is one.
inline std::string no_gpu() {
  const Result<int> gpus = driver::cuda_devices();
  if (!gpus) return gpus.error().message;
  return *gpus > 0 ? "" : "no GPU";
}

/// A program of ours: beside this test, as in a build, or in the bin folder beside its own, as in a
/// bundle.
inline std::filesystem::path program(const char* name) {
  const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  return std::filesystem::exists(here / name) ? here / name : here.parent_path() / "bin" / name;
}

}  // namespace lapidary
