#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lapidary/problem.h"
#include "support/result.h"

namespace lapidary::worker {

/// What an operand's contents are for a pass.
enum class Fill {
  uniform,   ///< [-1, 1) rounded to the type; scales, scalars and divisors positive, in [0.5, 2)
  integers,  ///< {-1, 0, 1} at a density that keeps sums exact in the accumulator and in D;
             ///< operands of the program integers up to 3, scales, scalars and divisors powers of
             ///< two
};

/// Host buffers for every operand of a problem, in the order of operands(problem), each with 4 KiB
/// of patterned guard on both sides, the base 256-byte aligned before the operand's offset is
/// added. Guards, and the gaps between the rows of an operand, hold NaNs of its type, so that a
/// kernel that computes with them shows it.
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
  int index(std::string_view operand) const;  ///< its place in specs(), -1 when there is none

  /// Fills every input (the elements, not the gaps between rows), in parallel; the same seed gives
  /// the same bits, whatever the number of threads.
  void fill_inputs(Fill fill, std::uint64_t seed);
  /// Fills every output with the NaN pattern of its type, and the gaps between its rows with a
  /// guard pattern.
  void fill_outputs();
  /// Fills every element of one operand with the NaN pattern of its type, or with zeros.
  void fill_nan(int operand);
  void fill_zero(int operand);

  /// "write 12 bytes past the end of d" when a guard or a gap between the rows of an operand has
  /// changed.
  std::optional<std::string> damage() const;
  std::uint64_t hash(int operand) const;  ///< its elements, as the others
  std::uint64_t hash_inputs() const;
  std::uint64_t hash_outputs() const;  ///< elements alone

 private:
  struct State;
  explicit Arena(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// The share of elements of A and of B that are not zero with Fill::integers: sqrt(q), where q is
/// the share of products that are not, such that a sum of k of them, whose standard deviation is
/// sqrt(k * q), stays within every limit by seven of these: integers exact in D (and in D's type
/// between GEMM and epilogue), 16 times less under block scales. A program with functions gets
/// |acc| <= 14, where activations still bend. The accumulator of f16_acc (2048) and fast_fp8 (4096)
/// must hold the sum of magnitudes, k * q, itself. At most 0.7, to keep zeros.
double integer_density(const GemmProblem& problem);

/// A buffer between two 4 KiB guards, 256-byte aligned: workspaces and packed operands of kernels
/// under test.
class GuardedBuffer {
 public:
  static Result<GuardedBuffer> make(std::string name, std::int64_t bytes);
  GuardedBuffer(GuardedBuffer&&) noexcept;
  GuardedBuffer& operator=(GuardedBuffer&&) noexcept;
  ~GuardedBuffer();

  void* data() const;  ///< null when it holds no bytes
  std::int64_t bytes() const;
  /// Overwrites the contents with bits that depend on `seed`; among them are NaNs of every type.
  void fill_garbage(std::uint64_t seed);
  std::optional<std::string> damage() const;

 private:
  struct State;
  explicit GuardedBuffer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lapidary::worker
