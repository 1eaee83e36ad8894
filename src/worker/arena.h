#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "driver/device.h"
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

/// Buffers of a device for every operand of a problem, in the order of operands(problem), each with
/// 4 KiB of patterned guard on both sides, the base 256-byte aligned before the operand's offset is
/// added. Guards, and the gaps between the rows of an operand, hold NaNs of its type, so that a
/// kernel that computes with them shows it.
///
/// This process has a copy of all of it, which on a CPU is the memory itself: inputs are made there
/// and sent, outputs are fetched when somebody wants to look at them. What a run leaves is checked
/// and hashed where it lies.
class Arena {
 public:
  /// `resource_limit` names the bytes when memory does not suffice. `device` must outlive the
  /// arena.
  static Result<Arena> make(const GemmProblem& problem, driver::Device& device);
  /// The same contents in other memory of the device, for runs to rotate through. On a GPU it has
  /// no copy of its own here: `host`, `fetch_outputs` and `damage` are the first one's alone.
  Result<Arena> clone() const;
  Arena(Arena&&) noexcept;
  Arena& operator=(Arena&&) noexcept;
  ~Arena();

  const std::vector<OperandSpec>& specs() const;
  /// Element (0,0) of each operand on the device, offsets applied: what kernels get.
  std::span<void* const> pointers() const;
  /// The same in this process: inputs as they are, outputs as `fetch_outputs` found them.
  std::span<void* const> host() const;
  std::int64_t bytes() const;
  int index(std::string_view operand) const;  ///< its place in specs(), -1 when there is none

  /// Fills every input (the elements, not the gaps between rows), in parallel; the same seed gives
  /// the same bits, whatever the number of threads.
  Status fill_inputs(Fill fill, std::uint64_t seed);
  /// Fills every output with the NaN pattern of its type, and the gaps between its rows with a
  /// guard pattern.
  Status fill_outputs();
  /// Fills every element of one operand with the NaN pattern of its type, or with zeros.
  Status fill_nan(int operand);
  Status fill_zero(int operand);
  /// Stores the bits of one element, counted from (0,0), of an input.
  Status poke(int operand, std::int64_t element, std::uint32_t bits);
  /// Puts the guards of outputs and the gaps between their rows right, whatever was done to them.
  Status mend_outputs();
  /// Copies the memory of one operand, from (0,0) on, to that of another with the same extents.
  Status copy_operand(int from, int to);
  /// Brings the outputs into host(). Nothing to do on a CPU.
  Status fetch_outputs();

  /// "write 12 bytes past the end of d" when a guard or a gap between the rows of an operand has
  /// changed: the first found. On a GPU all are mended at once.
  Result<std::optional<std::string>> damage();
  Result<std::uint64_t> hash(int operand) const;  ///< its elements, as the others
  Result<std::uint64_t> hash_inputs() const;
  Result<std::uint64_t> hash_outputs() const;

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
  static Result<GuardedBuffer> make(std::string name, std::int64_t bytes, driver::Device& device);
  GuardedBuffer(GuardedBuffer&&) noexcept;
  GuardedBuffer& operator=(GuardedBuffer&&) noexcept;
  ~GuardedBuffer();

  void* data() const;  ///< on the device; null when it holds no bytes
  std::int64_t bytes() const;
  /// Overwrites the contents with bits that depend on `seed`; among them are NaNs of every type.
  Status fill_garbage(std::uint64_t seed);
  Result<std::optional<std::string>> damage();
  Result<std::uint64_t> hash() const;  ///< of the contents

 private:
  struct State;
  explicit GuardedBuffer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lapidary::worker
