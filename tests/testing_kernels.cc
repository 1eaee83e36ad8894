#include "testing_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../examples/kernels/kernels.h"
#include "numeric/numeric.h"
#include "support/result.h"

namespace lapidary::testing_kernels {
namespace {

/// Integers in [-8, 8], exact in every type.
double small_integer(std::size_t i) { return static_cast<double>((i * 2654435761u >> 8) % 17) - 8; }

std::vector<std::byte> f32_bytes(const std::vector<double>& values) {
  std::vector<std::byte> bytes(values.size() * 4);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto x = static_cast<float>(values[i]);
    std::memcpy(bytes.data() + 4 * i, &x, 4);
  }
  return bytes;
}
std::vector<double> numbers(std::size_t count, std::size_t seed) {
  std::vector<double> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = small_integer(i + seed * 7919);
  return all;
}

std::vector<Launching> vector_add_runs() {
  std::vector<Launching> runs;
  for (const int n : {1, 3, 4, 1023, 1024, 1025, 5000}) {
    const auto size = static_cast<std::size_t>(n);
    const std::vector<double> x = numbers(size, 1), y = numbers(size, 2);
    std::vector<double> z(size);
    for (std::size_t i = 0; i < size; ++i) z[i] = x[i] + y[i];
    runs.push_back({.what = fmt::format("n = {}", n),
                    .grid = {(n + 1023) / 1024, 1, 1},
                    .buffers = {{"x", Scalar::f32, f32_bytes(x), {}, {}},
                                {"y", Scalar::f32, f32_bytes(y), {}, {}},
                                {"z", Scalar::f32, std::vector<std::byte>(4 * size), z, {}}},
                    .arguments = {{.bits = static_cast<std::uint64_t>(n)},
                                  {.buffer = 0},
                                  {.buffer = 1},
                                  {.buffer = 2}}});
  }
  return runs;
}

std::uint64_t bits(int n) { return static_cast<std::uint64_t>(n); }

std::vector<Launching> reduction_runs() {
  std::vector<Launching> runs;
  for (const auto& [n, blocks] :
       {std::pair(1, 1), std::pair(255, 1), std::pair(256, 2), std::pair(10007, 5)}) {
    const std::vector<double> x = numbers(static_cast<std::size_t>(n), 3);
    std::vector<std::byte> in(x.size() * 4);
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto value = static_cast<std::int32_t>(x[i]);
      std::memcpy(in.data() + 4 * i, &value, 4);
      sum += x[i];
    }
    runs.push_back({.what = fmt::format("n = {}, {} blocks", n, blocks),
                    .grid = {blocks, 1, 1},
                    .buffers = {{"x", Scalar::s32, in, {}, {}},
                                {.name = "sum",
                                 .type = Scalar::s32,
                                 .contents = std::vector<std::byte>(4),
                                 .expected = {sum},
                                 .updated = true}},
                    .arguments = {{.bits = bits(n)}, {.buffer = 0}, {.buffer = 1}}});
  }
  return runs;
}

std::vector<Launching> transpose_runs() {
  std::vector<Launching> runs;
  for (const auto& [rows, cols] : {std::pair(1, 1), std::pair(32, 32), std::pair(33, 7),
                                   std::pair(64, 96), std::pair(45, 77)}) {
    const std::size_t m = static_cast<std::size_t>(rows), n = static_cast<std::size_t>(cols);
    const std::vector<double> a = numbers(m * n, 4);
    std::vector<double> b(m * n);
    std::vector<std::byte> in(2 * m * n);
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        b[j * m + i] = a[i * n + j];
        numeric::store_f64(DType::bf16, in.data(), static_cast<std::int64_t>(i * n + j),
                           a[i * n + j]);
      }
    }
    runs.push_back(
        {.what = fmt::format("{} x {}", rows, cols),
         .grid = {(cols + 31) / 32, (rows + 31) / 32, 1},
         .buffers = {{"a", Scalar::bf16, in, {}, {}},
                     {"b", Scalar::bf16, std::vector<std::byte>(2 * m * n), b, {}}},
         .arguments = {{.bits = bits(rows)}, {.bits = bits(cols)}, {.buffer = 0}, {.buffer = 1}}});
  }
  return runs;
}

std::vector<Launching> softmax_runs() {
  std::vector<Launching> runs;
  for (const auto& [rows, cols] :
       {std::pair(1, 1), std::pair(3, 31), std::pair(4, 64), std::pair(9, 257)}) {
    const std::size_t m = static_cast<std::size_t>(rows), n = static_cast<std::size_t>(cols);
    std::vector<double> x = numbers(m * n, 5), y(m * n), bound(m * n);
    x[0] = 88;  // exp of it alone is beyond f32
    for (std::size_t i = 0; i < m; ++i) {
      double most = -INFINITY, sum = 0;
      for (std::size_t j = 0; j < n; ++j) most = std::max(most, x[i * n + j]);
      for (std::size_t j = 0; j < n; ++j) sum += std::exp(x[i * n + j] - most);
      for (std::size_t j = 0; j < n; ++j) {
        y[i * n + j] = std::exp(x[i * n + j] - most) / sum;
        // The argument t of exp2 is rounded once, by |t| 2^-24 (t up to 97 * 1.45), and so is the
        // constant in it: exp2 then is off by ln 2 times both, and by 2^-22 of its own. So is each
        // term of the sum, which is rounded up to n + 5 times; the division once. All relative, u =
        // 2^-24.
        const double u = std::ldexp(1.0, -24), t = 97 * 1.45;
        const double term = 0.7 * t * 2 * u + 4 * u;
        bound[i * n + j] = (2 * term + static_cast<double>(n + 6) * u) * 1.01 * y[i * n + j] +
                           std::ldexp(1.0, -126);
      }
    }
    runs.push_back(
        {.what = fmt::format("{} x {}", rows, cols),
         .grid = {(rows + 3) / 4, 1, 1},
         .buffers = {{"x", Scalar::f32, f32_bytes(x), {}, {}},
                     {"y", Scalar::f32, std::vector<std::byte>(4 * m * n), y, bound}},
         .arguments = {{.bits = bits(rows)}, {.bits = bits(cols)}, {.buffer = 0}, {.buffer = 1}}});
  }
  return runs;
}

std::vector<Launching> gemm_runs(const lapidary::examples::GemmMmaConfig& c) {
  std::vector<Launching> runs;
  // One tile; tails everywhere; several tiles and more of k than the ring holds.
  for (const auto& [m, n, k] : {std::array{128, 128, 32}, std::array{1, 2, 8},
                                std::array{131, 70, 200}, std::array{256, 136, 320}}) {
    const auto rows = static_cast<std::size_t>(m), cols = static_cast<std::size_t>(n),
               depth = static_cast<std::size_t>(k);
    // Sums are exact in f32, and D in bf16 up to 256: few of the products are not zero.
    std::vector<double> a = numbers(rows * depth, 6), b = numbers(cols * depth, 7), d(rows * cols);
    std::vector<std::byte> in_a(2 * a.size()), in_b(2 * b.size());
    for (double& x : a) x = std::abs(x) > 6 ? (x > 0 ? 1 : -1) : 0;
    for (double& x : b) x = std::abs(x) > 5 ? (x > 0 ? 1 : -1) : 0;
    for (std::size_t i = 0; i < a.size(); ++i)
      numeric::store_f64(DType::bf16, in_a.data(), static_cast<std::int64_t>(i), a[i]);
    for (std::size_t i = 0; i < b.size(); ++i)
      numeric::store_f64(DType::bf16, in_b.data(), static_cast<std::int64_t>(i), b[i]);
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < cols; ++j) {
        for (std::size_t l = 0; l < depth; ++l)
          d[i * cols + j] += a[i * depth + l] * b[j * depth + l];
      }
    }
    runs.push_back(
        {.what = fmt::format("{} x {} x {}", m, n, k),
         .grid = {(m + c.tile_m - 1) / c.tile_m, (n + c.tile_n - 1) / c.tile_n, 1},
         .buffers = {{"a", Scalar::bf16, in_a, {}, {}},
                     {"b", Scalar::bf16, in_b, {}, {}},
                     {"d", Scalar::bf16, std::vector<std::byte>(2 * rows * cols), d, {}}},
         .arguments = {{.bits = bits(m)},
                       {.bits = bits(n)},
                       {.bits = bits(k)},
                       {.buffer = 0},
                       {.buffer = 1},
                       {.buffer = 2}}});
  }
  return runs;
}

}  // namespace

const std::vector<Example>& examples() {
  static const std::vector<Example> all = {
      {"vector_add", lapidary::examples::vector_add, vector_add_runs},
      {"reduction", lapidary::examples::reduction, reduction_runs},
      {"transpose", lapidary::examples::transpose, transpose_runs},
      {"gemm_mma", [] { return lapidary::examples::gemm_mma(); }, [] { return gemm_runs({}); }},
      {.name = "gemm_mma_64_deep",
       .build =
           [] { return lapidary::examples::gemm_mma({.tile_m = 64, .tile_k = 64, .stages = 3}); },
       .runs = [] { return gemm_runs({.tile_m = 64, .tile_k = 64, .stages = 3}); }},
      {.name = "softmax",
       .build = lapidary::examples::softmax,
       .runs = softmax_runs,
       .exact = false},
  };
  return all;
}

Result<Simulated> simulated(const ir::Kernel& kernel, const Launching& run,
                            const sim::Options& options) {
  sim::Memory memory;
  std::vector<std::uint64_t> addresses;
  for (const Buffer& b : run.buffers) {
    addresses.push_back(b.expected.empty() || b.updated
                            ? memory.add(b.name, b.contents)
                            : memory.add_undefined(b.name, std::ssize(b.contents)));
  }
  sim::Launch launch{.grid = run.grid, .arguments = {}};
  for (const auto& [buffer, bits] : run.arguments)
    launch.arguments.push_back(buffer < 0 ? bits : addresses[static_cast<std::size_t>(buffer)]);
  LAPIDARY_TRY(sim::Report report, sim::run(kernel, launch, memory, options));
  Simulated done{.report = std::move(report), .buffers = {}};
  for (const std::uint64_t address : addresses) {
    const auto contents = memory.contents(address);
    done.buffers.emplace_back(contents.begin(), contents.end());
  }
  return done;
}

double value(Scalar type, const std::byte* element) {
  switch (type) {
    case Scalar::f32: {
      float x = 0;
      std::memcpy(&x, element, 4);
      return x;
    }
    case Scalar::s32: {
      std::int32_t x = 0;
      std::memcpy(&x, element, 4);
      return x;
    }
    case Scalar::f16:
    case Scalar::bf16: {
      std::uint16_t x = 0;
      std::memcpy(&x, element, 2);
      return numeric::to_f32(type == Scalar::f16 ? DType::f16 : DType::bf16, x);
    }
    default:
      return 0;
  }
}

}  // namespace lapidary::testing_kernels
