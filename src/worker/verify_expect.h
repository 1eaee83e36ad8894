#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lapidary/problem.h"
#include "reference/reference.h"

namespace lapidary::worker {

/// One element of an output that is not right.
struct Mismatch {
  int output = 0;  // 0 is d, then the others in program order
  std::int64_t entry = 0, row = 0,
               col = 0;  // as the output is indexed; -1 for an axis that it lacks
  float got = 0;
  reference::Stored right;
  bool operator<(const Mismatch& other) const;
};

/// Collects what comparing finds; used from several threads.
class Findings {
 public:
  void add(const Mismatch& mismatch, std::int64_t wrong = 1);
  void count(std::int64_t elements) { compared_ += elements; }
  const std::optional<Mismatch>& first() const { return first_; }
  std::int64_t wrong() const { return wrong_; }
  std::int64_t compared() const { return compared_; }
  /// "d[3,17] is 5.5, right is 5.25 to 5.26 (2 of 4096 elements compared are wrong)"
  std::string text(std::span<const OperandSpec> outputs) const;

 private:
  std::mutex mutex_;
  std::optional<Mismatch> first_;
  std::atomic<std::int64_t> wrong_{0}, compared_{0};
};

/// Rows and columns of one batch entry whose product is compared.
struct Sample {
  std::int64_t entry = 0;
  std::vector<std::int64_t> rows, cols;
};

/// Which lines (results of reductions) are somebody else's to compare: per entry and output their
/// indices, sorted; empty when none are known there.
using KnownLines = std::map<std::pair<std::int64_t, int>, std::vector<std::int64_t>>;

/// The results that are right for a list of samples. Evaluated at the first comparison, when the
/// operands hold what they are to be right for, and kept for later candidates as far as `budget`
/// bytes go.
class Expectation {
 public:
  struct Source {
    bool integers = false;
    /// Exact accumulators of an entry, or nothing to use the float64 product.
    std::function<decltype(reference::Request::exact_sums)(std::int64_t entry)> exact_sums;
  };

  Expectation(const GemmProblem& problem, std::vector<Sample> samples, Source source,
              std::int64_t* budget);

  /// Compares the outputs at `outputs` with what is right for the inputs at `inputs` (both in the
  /// order of operands(problem)); lines in `skipped` are not looked at.
  void compare(std::span<void* const> inputs, std::span<void* const> outputs,
               const std::function<void()>& progress, Findings& findings,
               const KnownLines* skipped = nullptr);

  const std::vector<Sample>& samples() const { return samples_; }
  /// The lines that these samples hold whole.
  KnownLines lines() const;

 private:
  /// What is kept of one [m,n] output of a sample, in the output's type.
  struct Kept {
    std::vector<std::byte> lo, hi;
    std::vector<reference::NaN> nan;
  };
  struct State {
    bool ready = false, keeps = false;
    std::vector<Kept> outputs;
    std::vector<reference::Line> lines;
  };
  void evaluate(std::size_t sample, std::span<void* const> inputs, std::span<void* const> outputs,
                const std::function<void()>& progress, Findings& findings);
  void compare_kept(std::size_t sample, std::span<void* const> outputs, Findings& findings);
  void compare_lines(std::size_t sample, std::span<void* const> outputs, Findings& findings,
                     const KnownLines* skipped);
  void compare_row(std::int64_t entry, int output, std::int64_t row,
                   std::span<const std::int64_t> cols, std::span<const reference::Stored> right,
                   std::span<void* const> outputs, Findings& findings) const;
  /// The output's first element of this entry.
  const std::byte* base(int output, std::int64_t entry, std::span<void* const> outputs) const;

  const GemmProblem& problem_;
  std::vector<OperandSpec> outputs_;
  std::size_t first_output_ = 0;  // its place among the operands
  std::vector<Sample> samples_;
  std::vector<State> states_;
  Source source_;
  std::int64_t* budget_;
};

}  // namespace lapidary::worker
