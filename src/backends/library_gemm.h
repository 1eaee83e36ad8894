#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "backends/backend.h"

// A library's plain product, made to serve any problem: operands that it cannot read are widened
// first, the epilogue runs as a separate pass behind it, both timed with it. Works through D in
// chunks, so that the f32 intermediate and the widened operands fit a workspace.
namespace lapidary::backends {

/// c (m, n) = a * b in f32, c row-major with pitch ldc. `a_km`: A is stored (k, m); `b_kn`: B is
/// stored (k, n); else (m, k) and (n, k). No extent is 0, and every pitch is at least the number of
/// columns of what is stored. Elements are of the type that the library was asked for.
struct Product {
  std::int64_t m, n, k;
  std::int64_t lda;
  bool a_km;
  std::int64_t ldb;
  bool b_kn;
  std::int64_t ldc;
  bool operator==(const Product&) const = default;
};
/// Runs one product; `scratchpad` is 64-byte aligned.
using Multiply = std::function<Status(const void* a, const void* b, float* c, void* scratchpad)>;

/// What a library says of one shape of product, before anything runs.
struct Products {
  /// Of the scratchpad that it needs, or why it has no such product.
  std::function<Result<std::int64_t>(const Product&)> scratchpad_bytes;
  std::function<Result<Multiply>(const Product&)> prepare;
};

/// How the problem is cut and what is made ready ahead of runs.
struct Chunks {
  std::int64_t m = 0, n = 0;  ///< rows and columns of D at a time; 0: all, whatever the extent
  bool pack = false;          ///< B is widened ahead, as the problem says that it is constant
  DType input = DType::f32;   ///< what the library multiplies: f32 or bf16
  bool operator==(const Chunks&) const = default;
};
Config config_of(const Chunks& chunks);

/// Every way of cutting a problem for a library that multiplies `input`, refused ones with their
/// reason. `efficiency`: of the f32 peak, for ranking.
std::vector<Offer> library_offers(const GemmProblem& problem, const DeviceInfo& device,
                                  std::string_view backend, DType input, double efficiency,
                                  const Products& products);

/// The executable of one such config; `invalid_argument` when it is none.
Result<std::unique_ptr<Executable>> library_gemm(const GemmProblem& problem,
                                                 std::string_view backend, const Config& config,
                                                 const Products& products);

/// Is every value of `type` a value of `input` too?
bool widens_exactly(DType type, DType input);

/// d = acc and nothing else.
bool is_plain(const Epilogue& epilogue);

}  // namespace lapidary::backends
