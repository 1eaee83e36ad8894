#include "reference/functions.h"

#include <cmath>
#include <numbers>

namespace lapidary::reference {
namespace {

/// Twice the argument of gelu_tanh's tanh, so that (1 + tanh(u)) / 2 = sigmoid(2u) has no
/// cancellation.
double gelu_tanh_argument(double x) {
  return 2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
}

}  // namespace

double sigmoid(double x) {
  if (x >= 0) return 1 / (1 + std::exp(-x));
  const double e = std::exp(x);  // no overflow in the negative tail
  return e / (1 + e);
}

double softplus(double x) {
  return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))) + (std::isnan(x) ? x : 0);
}

double silu(double x) {
  if (std::isinf(x)) return x > 0 ? x : 0;
  return x * sigmoid(x);
}

double gelu(double x) {
  if (std::isinf(x)) return x > 0 ? x : 0;
  return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
}

double gelu_tanh(double x) {
  if (std::isinf(x)) return x > 0 ? x : 0;
  return x * sigmoid(gelu_tanh_argument(x));
}

double dsilu(double x) {
  if (std::isinf(x)) return x > 0 ? 1 : 0;
  return sigmoid(x) * (1 + x * sigmoid(-x));
}

double dgelu(double x) {
  if (std::isinf(x)) return x > 0 ? 1 : 0;
  const double density = std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi);
  return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * density;
}

double dgelu_tanh(double x) {
  // Far out the product below is infinity times zero.
  if (std::fabs(x) > 1e4) return x > 0 ? 1 : 0;
  const double v = gelu_tanh_argument(x);
  const double slope = 2 * std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
  return sigmoid(v) * (1 + x * sigmoid(-v) * slope);
}

}  // namespace lapidary::reference
