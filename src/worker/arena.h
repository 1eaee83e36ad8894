#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lapidary/problem.h"
#include "support/result.h"

namespace lapidary::worker {

/// What an operand's contents are for a pass.
enum class Fill {
  uniform,   ///< [-1, 1) rounded to the type; scales and scalars positive, in [0.5, 2)
  integers,  ///< {-1, 0, 1} at a density that keeps sums exact in the accumulator and in D; scales powers of two
};

/// Host buffers for every operand of a problem, in the order of operands(problem), each with 4 KiB of patterned
/// guard on both sides, the base 256-byte aligned before the operand's offset is added.
class Arena {
 public:
  /// `resource_limit` names the bytes when memory does not suffice.
  static Result<Arena> make(const GemmProblem& problem);
  Arena(Arena&&) noexcept;
  Arena& operator=(Arena&&) noexcept;
  ~Arena();

  const std::vector<OperandSpec>& specs() const;
  std::span<void* const> pointers() const;  ///< element (0,0) of each operand, offsets applied
  std::int64_t bytes() const;

  /// Fills every input (the elements, not the gaps between rows), in parallel; the same seed gives the same bits.
  void fill_inputs(Fill fill, std::uint64_t seed);
  /// Fills every output with the NaN pattern of its type, and the gaps between its rows with a guard pattern.
  void fill_outputs();

  /// "write 12 bytes past the end of d" when a guard or a gap between rows of an output has changed.
  std::optional<std::string> damage() const;
  std::uint64_t hash_inputs() const;
  std::uint64_t hash_outputs() const;  ///< elements alone

 private:
  struct State;
  explicit Arena(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lapidary::worker
