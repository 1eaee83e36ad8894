#pragma once

#include "ir/kernel.h"

namespace lapidary::passes {

/// The result depends on the operands and attributes alone, wherever the operation stands: it may
/// be shared, or left out when nobody uses it.
bool is_pure(ir::Opcode code);

}  // namespace lapidary::passes
