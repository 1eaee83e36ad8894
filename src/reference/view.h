#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lapidary/problem.h"

namespace lapidary::reference {

/// The operands of one batch entry of a problem, by their roles.
struct Entry {
  struct Matrix {
    const std::byte* base = nullptr;  ///< element (0,0) of this entry
    DType type = DType::f32;
    Axes axes = Axes::mn;
    std::int64_t pitch = 0;
    std::string_view name;
    double at(std::int64_t row, std::int64_t col) const;
  };
  std::int64_t m = 0, n = 0, k = 0;
  bool a_transposed = false;  ///< A stored (k, m)
  bool b_transposed = false;  ///< B stored (n, k), as the product wants it
  ScaleMode scales = ScaleMode::none;
  Matrix a, b, scale_a, scale_b;
  std::vector<Matrix> inputs;   ///< as the program's inputs
  std::vector<Matrix> outputs;  ///< d, then the others in program order

  /// What multiplies row i of A, or row j of B (as (n, k)), within block `kb` of 128 of k.
  double factor_a(std::int64_t i, std::int64_t kb) const;
  double factor_b(std::int64_t j, std::int64_t kb) const;
};

/// `specs` is operands(problem), `pointers` go with it.
Entry entry_of(const GemmProblem& problem, std::span<const OperandSpec> specs,
               std::span<void* const> pointers, std::int64_t entry);

}  // namespace lapidary::reference
