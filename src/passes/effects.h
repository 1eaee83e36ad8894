#pragma once

#include "ir/kernel.h"

namespace lapidary::passes {

/// The result depends on the operands and attributes alone, wherever the operation stands: it may
/// be shared, or left out when nobody uses it.
bool is_pure(ir::Opcode code);

/// All of a kernel but its operations: its regions are there, empty.
ir::Kernel without_operations(const ir::Kernel& kernel);

}  // namespace lapidary::passes
