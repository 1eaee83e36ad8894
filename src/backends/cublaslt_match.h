#pragma once

#include <cstdint>
#include <string>

#include "lapidary/problem.h"
#include "support/result.h"

// What cuBLASLt can compute behind a product, read out of an epilogue program.
namespace lapidary::backends::cublaslt_match {

/// A program in cuBLASLt's words, (m, n) being ours:
///   v = alpha * acc + beta * c[m,n] + bias[n]
///   d = scale_d * f(v),  f: nothing, relu, gelu_tanh or dgelu_tanh(aux[m,n]) * v
/// and, with some f, one more output. Operands are named as in operands(problem); "" is none.
struct Fused {
  std::int32_t epilogue = 1;  ///< cublasLtEpilogue_t
  /// Factors; each is 1 where a scalar operand stands for it.
  float alpha = 1, beta = 0;
  std::string alpha_operand{}, beta_operand{}, scale_d{};
  std::string c{};
  std::string bias{};  ///< read; with dgelu_tanh written: the sum of D over m
  std::string aux{};   ///< read by dgelu_tanh; with gelu_tanh written: v
  std::string amax{};  ///< written: the largest |f(v)|
  /// A scalar operand multiplies all that d has of acc. Where it is 0 a program means 0 even if acc
  /// is NaN or infinite, and the library multiplies.
  bool multiplies_at_zero = false;
  bool operator==(const Fused&) const = default;
};

/// A type of 8 bits, which the library treats apart.
inline bool narrow(DType type) { return size_bytes(type) == 1; }

/// The program of a checked problem, or `unsupported` with the reason that it is none of
/// cuBLASLt's. A reason has no sizes and no names of operands in it: equal ones can be counted. The
/// types of what the epilogue adds are looked at here, as the library would say no more than
/// "invalid value"; other types and all extents are left to it.
Result<Fused> match(const GemmProblem& problem);

}  // namespace lapidary::backends::cublaslt_match
