#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "lapidary/problem.h"
#include "reference/bound.h"

// A checked problem in float64, with the results that are right.
namespace lapidary::reference {

/// What to evaluate of one batch entry.
struct Request {
  std::int64_t entry = 0;
  /// Rows and columns of D, ascending. Their product is evaluated.
  std::span<const std::int64_t> rows, cols;
  /// Look for exact sums: worth it when A and B are small integers and scales powers of two.
  bool integers = false;
  /// Where given, accumulators come from here instead of from the float64 product, and are taken as
  /// exact: fills out[i * 64 + j] for up to 64 rows of A and of B (as (n, k)). Called from several
  /// threads.
  std::function<void(std::span<const std::int64_t> rows, std::span<const std::int64_t> cols,
                     double* out)>
      exact_sums;
  /// Called between pieces of work of about a quarter of a second.
  std::function<void()> progress;
};

/// Part of a row of an output that is [m,n]: columns [col, col + count) of the request's list.
struct Piece {
  int output = 0;                  ///< 0 is d, then the others in program order
  std::int64_t row = 0, col = 0;   ///< places in the request's lists
  std::span<const double> value;   ///< float64, not rounded
  std::span<const Stored> stored;  ///< what a right kernel leaves
};
using Sink = std::function<void(const Piece&)>;

/// An output that is not [m,n]: a line of results, one per row, per column or only one.
struct Line {
  int output = 0;
  Axes axes = Axes::none;
  bool known = false;  ///< false when what it reduces was not evaluated whole
  std::vector<double> value;
  std::vector<Stored> stored;
};

/// Evaluates a request on the shared pool. `operands` are the pointers of operands(problem), read
/// as they are now; scalars that are 0 drop their terms. [m,n] outputs go to `sink`, called from
/// several threads, each element once; the others are returned. A reduction is known where its
/// whole line was requested: over n with all columns, over m with all rows.
std::vector<Line> evaluate(const GemmProblem& problem, std::span<void* const> operands,
                           const Request& request, const Sink& sink);

/// 0, 1, ... count - 1.
std::vector<std::int64_t> all(std::int64_t count);

}  // namespace lapidary::reference
