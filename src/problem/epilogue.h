#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "lapidary/problem.h"

namespace lapidary::problem {

/// Arity and text of an operation, from epilogue_ops.inc.
int arity(EpilogueOp op);
std::string_view text(EpilogueOp op);

/// The rule of zero factors, made a rewrite: in the top-level sum of every assignment, a product
/// with a scalar operand whose value is 0 is replaced by 0, and what only it reads is no longer
/// read. `scalar(i)` gives the value of inputs[i], called for scalar inputs alone. Inputs keep
/// their places: use `reads` to see which are still read.
Epilogue drop_zero_terms(const Epilogue& epilogue, const std::function<double(int input)>& scalar);

/// Per node: does an output depend on it?
std::vector<bool> live_nodes(const Epilogue& epilogue);

/// Per input: is it read by any assignment?
std::vector<bool> reads(const Epilogue& epilogue);

}  // namespace lapidary::problem
