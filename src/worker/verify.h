#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "backends/backend.h"
#include "driver/device.h"
#include "lapidary/problem.h"
#include "support/result.h"

namespace lapidary::worker {

/// Called at the beginning of every step that may take a while; the words name it ("small integers:
/// whole result").
using Beat = std::function<void(std::string_view step)>;

/// The checks a finalist goes through; each can be switched off in tests, to show that none is
/// idle.
enum class Check : std::uint32_t {
  guards =
      1 << 0,  ///< nothing written before, after or between the rows of an operand or the workspace
  fill = 1 << 1,      ///< D holds NaN before every run, so that an unwritten element shows
  inputs = 1 << 2,    ///< inputs and packed operands are unchanged after a run
  exact = 1 << 3,     ///< small integers: sampled rows and columns bit for bit
  whole = 1 << 4,     ///< small integers: all of D, by Freivalds or against a proved unfused pair
  numeric = 1 << 5,   ///< random inputs: sampled rows and columns within the derived bound
  position = 1 << 6,  ///< NaN and infinity land where they should, and only there
  repeat = 1 << 7,    ///< three runs agree bit for bit (unless the problem admits nondeterminism)
  zero_factor = 1 << 8,  ///< what only a product with a zero scalar reads is not read
  leak = 1 << 9,         ///< repeated runs do not keep memory or files
};
inline constexpr std::uint32_t kAllChecks = (1u << 10) - 1;
std::string_view name(Check check);

struct VerifyOptions {
  std::uint64_t seed = 1;
  std::uint32_t checks = kAllChecks;
  Beat beat{};
};

struct Verdict {
  bool passed = false;
  std::string check{};   ///< the check that failed
  std::string reason{};  ///< first bad element, seed, a command that repeats it: one line
};

/// Proves kernels of one problem: data and expected results are made once and serve all candidates.
///
/// The runs, each on outputs full of NaN and a workspace full of garbage:
///   small integers   A and B of -1, 0, 1: sums are exact in any order, so results are known bit
///   for bit (up to the
///                    sign of zeros), or within a function's error where the program has one. Once
///                    more for each operand that may share memory with an output.
///   NaN, infinity    planted in A and what goes with its rows, then in B and what goes with its
///   columns. zero factors     each scalar in turn is 0, and what only its products read is NaN.
///   random numbers   within the bounds of reference/, three times with one outcome.
/// Results are compared whole when m * n * k * batch <= 2^27, else on 64 random rows and columns
/// and those beside the last edges of tiles; on small integers D is compared whole always.
class Verifier {
 public:
  /// `problem` is checked; `device` must outlive the verifier. The reference needs its own memory:
  /// `resource_limit` when there is none.
  static Result<Verifier> make(const GemmProblem& problem, driver::Device& device,
                               VerifyOptions options);
  Verifier(Verifier&&) noexcept;
  ~Verifier();
  /// An error is the candidate's own (its run failed); a wrong result is a Verdict.
  Result<Verdict> verify(const backends::Executable& executable);

 private:
  struct State;
  explicit Verifier(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// The command line that verifies this problem again with a seed: "lapidary tune --m 16 ...
/// --verify-seed 1".
std::string reproduction(const GemmProblem& problem, std::uint64_t seed);

}  // namespace lapidary::worker
