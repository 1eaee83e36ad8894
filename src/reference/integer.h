#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lapidary/problem.h"
#include "support/result.h"

// Exact products of A and B with elements in {-1, 0, 1} and scales that are small powers of two.
namespace lapidary::reference {

/// The product by bit planes: an element is a bit that says "not zero" and one that says
/// "negative", and 64 multiply-adds are two population counts. Independent of every kernel and of
/// the float64 product.
class TernaryProduct {
 public:
  /// Packs A and B of one batch entry: 2 bits an element. `invalid_argument` names an element that
  /// is none of the three, or a scale that is no power of two.
  static Result<TernaryProduct> make(const GemmProblem& problem, std::span<void* const> operands,
                                     std::int64_t entry,
                                     const std::function<void()>& progress = {});
  TernaryProduct(TernaryProduct&&) noexcept;
  ~TernaryProduct();

  /// out[i * 64 + j] = the scaled sum over k for up to 64 rows of A and of B (as (n, k)). From any
  /// thread.
  void tile(std::span<const std::int64_t> rows, std::span<const std::int64_t> cols,
            double* out) const;

 private:
  struct State;
  explicit TernaryProduct(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Freivalds' check (Freivalds 1979, "Fast probabilistic algorithms") of a whole product C = A *
/// B^T in O(mn + mk + nk): C x == A (B^T x) for a random x. Exact: x is integer, uniform in [0,
/// 2^31), scales are made integers, and sums are taken modulo 2^64. A row of C with a wrong element
/// whose error e is below 2^33 in magnitude passes with a probability of at most 2^-31: whatever
/// the other terms are, e * x_j = r (mod 2^64) has at most one solution below 2^31, since two would
/// differ by d with e * d = 0 (mod 2^64), but 0 < |e * d| < 2^64.
class Freivalds {
 public:
  /// Draws x and computes A (B^T x) for one batch entry. Errors as TernaryProduct::make.
  static Result<Freivalds> make(const GemmProblem& problem, std::span<void* const> operands,
                                std::int64_t entry, std::uint64_t seed,
                                const std::function<void()>& progress = {});

  /// Rows of a matrix of f32, bf16, ... (m, n) with this pitch that are not the product's,
  /// ascending. A row with an element that is no integer in units of the scales, or of 2^31 units
  /// and more, is wrong.
  std::vector<std::int64_t> wrong_rows(DType type, const void* matrix, std::int64_t pitch) const;

  /// The same for a matrix that exists only tile by tile: adds a tile's part of C x to `sums` (one
  /// a row, zero at first; safe from several threads), then compares.
  void add_tile(std::span<const std::int64_t> rows, std::span<const std::int64_t> cols,
                const double* tile, std::span<std::uint64_t> sums) const;
  std::vector<std::int64_t> wrong_rows(std::span<const std::uint64_t> sums) const;

 private:
  std::int64_t n_ = 0;
  double units_ = 1;                     ///< per 1: what makes scaled values integers
  std::vector<std::uint64_t> x_;         ///< [n]
  std::vector<std::uint64_t> expected_;  ///< [m]
};

}  // namespace lapidary::reference
