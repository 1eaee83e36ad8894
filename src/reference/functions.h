#pragma once

// The functions of epilogue programs in float64. Each is written for small relative error
// everywhere, tails included; infinities give the limit.
namespace lapidary::reference {

double sigmoid(double x);    ///< 1 / (1 + exp(-x))
double softplus(double x);   ///< log(1 + exp(x))
double silu(double x);       ///< x * sigmoid(x)
double gelu(double x);       ///< x * Phi(x), Phi the normal distribution function
double gelu_tanh(double x);  ///< x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
double dsilu(double x);      ///< derivatives at x
double dgelu(double x);
double dgelu_tanh(double x);

}  // namespace lapidary::reference
