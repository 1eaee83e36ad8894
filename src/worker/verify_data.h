#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lapidary/problem.h"
#include "worker/arena.h"
#include "worker/verify_expect.h"

namespace lapidary::worker {

/// Rows (or columns) to compare of `extent`: all when there are few, else `random` ones drawn with
/// `seed`, the first, and those on both sides of the last edge of tiles of 16 to 256. Ascending.
std::vector<std::int64_t> sampled(std::int64_t extent, std::int64_t random, std::uint64_t seed);

/// Samples of a problem: everything when its products are at most 2^27, else rows and columns as
/// `sampled` has them, of all batch entries or of four.
std::vector<Sample> samples_of(const GemmProblem& problem, std::int64_t random, std::uint64_t seed);

/// NaN or an infinity to be put into an element of an input.
struct Plant {
  int operand = 0;
  std::int64_t entry = 0, row = 0, col = 0;
  float value = 0;
};

/// One run with planted values: what goes where, and the rows and columns of D that may show it.
struct PositionRound {
  std::string name;
  std::vector<Plant> plants;
  std::vector<std::int64_t> rows, cols;  // ascending
  std::vector<Sample>
      samples;  // those, their neighbours and the corners; everything of a small problem
};

/// Round one has values in A, in operands of rows and in [m,n] operands; round two in B and
/// operands of columns.
std::vector<PositionRound> position_rounds(const GemmProblem& problem,
                                           const std::vector<OperandSpec>& specs,
                                           std::uint64_t seed);

/// A scalar that is a factor of a term somewhere, and the operands that nobody reads when it is 0.
struct ZeroFactor {
  int operand = 0;
  std::string name;
  std::vector<int> unread;
};
std::vector<ZeroFactor> zero_factors(const GemmProblem& problem,
                                     const std::vector<OperandSpec>& specs);

/// Does an output depend on the accumulator?
bool reads_acc(const Epilogue& epilogue);
/// Is the program `d = acc` and nothing else?
bool is_identity(const Epilogue& epilogue);

/// Where (entry, row, col) of an operand lies, in elements from its first.
std::int64_t element_of(const OperandSpec& spec, std::int64_t entry, std::int64_t row,
                        std::int64_t col);

}  // namespace lapidary::worker
