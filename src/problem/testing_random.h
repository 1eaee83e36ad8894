#pragma once

#include <cstdint>
#include <string>

#include "lapidary/problem.h"

// Random legal programs and problems for property tests: the same seed gives the same one on every
// machine.
namespace lapidary::problem {

/// A program as a careless writer would put it: superfluous parentheses and spaces, neg(x) for -x.
std::string random_program(std::uint64_t seed);

/// A checked problem with some of everything: layouts, batches, pitches, strides, offsets, scales,
/// lists.
GemmProblem random_problem(std::uint64_t seed);

}  // namespace lapidary::problem
