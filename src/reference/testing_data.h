#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string_view>
#include <vector>

#include "lapidary/problem.h"
#include "numeric/numeric.h"
#include "support/random.h"
#include "support/result.h"

namespace lapidary::reference {

inline GemmProblem problem_of(GemmProblem p, std::string_view program = "d = acc") {
  auto epilogue = parse_epilogue(program, p.scales != ScaleMode::none);
  EXPECT_TRUE(epilogue) << epilogue.error();
  p.epilogue = *epilogue;
  auto done = checked(std::move(p));
  EXPECT_TRUE(done) << done.error();
  return *done;
}

/// Operands of a problem in memory of their own. Elements that no operand has hold NaNs.
struct Data {
  explicit Data(const GemmProblem& p) : problem(p), specs(operands(p)) {
    for (const OperandSpec& spec : specs) {
      bytes.emplace_back(std::size_t(spec.bytes()), std::byte{0xff});
      pointers.push_back(bytes.back().data() + spec.offset_bytes);
    }
  }
  int index(std::string_view name) const {
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].name == name) return int(i);
    }
    ADD_FAILURE() << "no operand " << name;
    return 0;
  }
  std::int64_t place(const OperandSpec& s, std::int64_t entry, std::int64_t row,
                     std::int64_t col) const {
    return (s.batch > 1 ? entry : 0) * s.batch_stride + row * s.pitch + col;
  }
  double get(std::string_view name, std::int64_t entry, std::int64_t row, std::int64_t col) const {
    const int i = index(name);
    return double(numeric::load(specs[std::size_t(i)].type, pointers[std::size_t(i)],
                                place(specs[std::size_t(i)], entry, row, col)));
  }
  void set(std::string_view name, std::int64_t entry, std::int64_t row, std::int64_t col,
           double value) {
    const int i = index(name);
    numeric::store_f64(specs[std::size_t(i)].type, pointers[std::size_t(i)],
                       place(specs[std::size_t(i)], entry, row, col), value);
  }
  /// value(operand, r) for every element, r random bits.
  template <class Value>
  void fill(std::uint64_t seed, const Value& value) {
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const OperandSpec& s = specs[i];
      if (s.output) continue;
      for (std::int64_t e = 0; e < s.batch; ++e) {
        for (std::int64_t r = 0; r < s.rows; ++r) {
          for (std::int64_t c = 0; c < s.cols; ++c) {
            const std::int64_t at = place(s, e, r, c);
            numeric::store_f64(s.type, pointers[i], at,
                               value(s, mix(mix(seed, i), std::uint64_t(at))));
          }
        }
      }
    }
  }
  void fill_uniform(std::uint64_t seed) {
    fill(seed, [](const OperandSpec& s, std::uint64_t r) {
      const double x = double(uniform(r));
      return s.axes == Axes::none || s.name.starts_with("scale") ? 1.25 + 0.75 * x : x;
    });
  }
  /// {-1, 0, 1}; scales 0.5, 1 and 2; other operands up to 3.
  void fill_integers(std::uint64_t seed) {
    fill(seed, [](const OperandSpec& s, std::uint64_t r) -> double {
      if (s.name == "a" || s.name == "b") return double(r % 3) - 1;
      if (s.axes == Axes::none || s.name.starts_with("scale"))
        return std::ldexp(1.0, int(r % 3) - 1);
      return double(r % 7) - 3;
    });
  }
  /// a_ik and b_jk, scaled, in long double; A and B as (m, k) and (n, k).
  long double a(std::int64_t e, std::int64_t i, std::int64_t k) const {
    const bool transposed = problem.layout == GemmLayout::tn || problem.layout == GemmLayout::tt;
    return (long double)get("a", e, transposed ? k : i, transposed ? i : k) *
           scale("scale_a", Axes::m, e, i, k);
  }
  long double b(std::int64_t e, std::int64_t j, std::int64_t k) const {
    const bool as_nk = problem.layout == GemmLayout::nt || problem.layout == GemmLayout::tt;
    return (long double)get("b", e, as_nk ? j : k, as_nk ? k : j) *
           scale("scale_b", Axes::n, e, j, k);
  }
  long double scale(std::string_view name, Axes axes, std::int64_t e, std::int64_t line,
                    std::int64_t k) const {
    switch (problem.scales) {
      case ScaleMode::none:
        return 1;
      case ScaleMode::tensor:
        return get(name, e, 0, 0);
      case ScaleMode::row:
        return get(name, e, 0, line);
      case ScaleMode::block:
        return axes == Axes::m ? get(name, e, k / 128, line) : get(name, e, line / 128, k / 128);
    }
    return 1;
  }
  /// sum of a_ik b_jk and of their magnitudes.
  std::pair<long double, long double> acc(std::int64_t e, std::int64_t i, std::int64_t j) const {
    long double sum = 0, magnitudes = 0;
    for (std::int64_t k = 0; k < problem.k; ++k) {
      const long double term = a(e, i, k) * b(e, j, k);
      sum += term;
      magnitudes += std::fabs(term);
    }
    return {sum, magnitudes};
  }

  GemmProblem problem;
  std::vector<OperandSpec> specs;
  std::vector<std::vector<std::byte>> bytes;
  std::vector<void*> pointers;
};

}  // namespace lapidary::reference
