#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lapidary/problem.h"
#include "reference/bound.h"
#include "reference/view.h"

// The accumulator: sum over k of a_ik * b_jk, scaled, with its bound.
//
// In float64 products of our types are exact, so the value is off by no more than g_k(2^-53) sum
// |a||b|. A kernel adds k products, each rounded or not, in any order and with any split, and
// applies the scales as up to two more multiplications of a product or of a sum: every product
// takes part in at most k + 2 roundings, so
//   |acc - value| <= ((1 + u)^(k + 2) - 1) * sum_k |a_ik| |b_jk|
// for any order (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., sec. 3.1
// and 4.2); this form holds for every k, g_n = n u / (1 - n u) only while n u < 1. u is 2^-24,
// and 2^-11 under f16_acc. Sums of fp8 are narrower in tensor cores: 2^-13 for each of the products
// between two promotions to f32, 128 of them or, with fast_fp8, all k. tf32 may
// round or cut both inputs to 11 bits: 2 * 2^-10 more of the sum. Products and inputs below 2^-126
// may be flushed: k * 2^-126 * (1 + max |a_i| + max |b_j|). A sum of magnitudes beyond the
// accumulator's largest number may overflow on its way: then anything is right.
// `rounded` lets the accumulator pass through D's type, after or before the scales of a tensor or
// of rows: a library's product leaves them to the epilogue that follows.
//
// Small integers: where every product is a multiple of g = 2^e and the sum of magnitudes is at most
// g / u, every partial sum in every order is exact, and so is the result.
namespace lapidary::reference {

inline constexpr std::int64_t kTile = 64;  ///< rows and columns of a tile

/// Bounds of an accumulator of one problem.
struct AccumulatorModel {
  explicit AccumulatorModel(const GemmProblem& problem);
  double unit = kUnit;          ///< u
  double relative = 0;          ///< of the sum of magnitudes, everything included
  double flushed = 0;           ///< per (1 + max |a_i| + max |b_j|)
  double overflow = kMaxF32;    ///< sums of magnitudes beyond may overflow
  double most_exact = 0x1p24;   ///< 1 / u
  double narrow_products = 0;   ///< that fp8's narrow accumulator adds up before it is promoted
  double most_narrow = 0x1p24;  ///< and the largest sum that it holds exactly
  bool cuts_inputs = false;     ///< tf32
  bool rounds = false;          ///< may pass through `type`
  DType type = DType::f32;      ///< D's
};

/// Computes tiles of A * B^T; keeps its buffers from one to the next. One for each thread.
class ProductTile {
 public:
  /// `integers`: look for exact sums, worth it when the data are small integers and scales powers
  /// of two.
  ProductTile(const Entry& entry, const AccumulatorModel& model, bool integers);

  /// Fills the tile for up to kTile rows of A and of B (as (n, k)).
  void compute(std::span<const std::int64_t> rows, std::span<const std::int64_t> cols);
  Bounded at(std::int64_t row, std::int64_t col) const;

 private:
  Bounded through_type(const Bounded& sum, double factor) const;
  void pack(bool b, std::span<const std::int64_t> indices, std::int64_t k0, std::int64_t depth);

  /// What is known of one row of A or B.
  struct Line {
    float most = 0;  // largest magnitude, scaled; a NaN does not count, its sums are NaN anyway
    int grain = 1 << 20;  // its scales are multiples of 2^grain, and so are its elements where they
                          // are integers
    double factor = 1;    // its scale, where it has one for all of k
    bool wild = false;    // an infinite scale
  };
  const Entry& entry_;
  const AccumulatorModel& model_;
  bool integers_, rows_fractional_ = false, cols_fractional_ = false;
  std::int64_t width_ = 0;  // columns, rounded up for vectors
  // Not initialised: most problems are small, and a tile touches only what it uses.
  std::unique_ptr<double[]> a_, b_, sums_;
  std::unique_ptr<float[]> abs_a_, abs_b_, magnitudes_, widened_;
  std::vector<Line> rows_, cols_;
};

}  // namespace lapidary::reference
