#pragma once

#include <optional>
#include <string>

#include "ir/kernel.h"

namespace lapidary::ptx {

struct Options {
  /// What it is assembled for: the kernel's arch or a later one; default: the kernel's.
  std::optional<Arch> target = {};
  bool lines = false;  ///< .loc lines, so that profilers show the C++ line of a kernel
};

/// A verified kernel as PTX text, one entry named as the kernel. Its shared memory is dynamic: a
/// launch asks for `kernel.shared_bytes()`.
std::string print(const ir::Kernel& kernel, const Options& options = {});

}  // namespace lapidary::ptx
