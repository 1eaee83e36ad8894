#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "ir/kernel.h"

namespace lapidary::passes {

struct Pass {
  std::string_view name;
  std::string_view why;  ///< what it does, and why it stands where it does
  ir::Kernel (*run)(const ir::Kernel&);
};

/// All passes, in their order.
std::span<const Pass> pipeline();

/// The kernel after all passes. `after` sees it after each. `internal` when a pass breaks it.
Result<ir::Kernel> run(const ir::Kernel& kernel,
                       const std::function<void(const Pass&, const ir::Kernel&)>& after = {});

/// Integers that are known are computed, what changes nothing (x + 0, x * 1) is left out, and an
/// operation that was done before on the same operands is not done again.
ir::Kernel simplify(const ir::Kernel& kernel);

/// Values that nobody uses, and branches and loops that do nothing, are left out.
ir::Kernel drop_dead(const ir::Kernel& kernel);

}  // namespace lapidary::passes
