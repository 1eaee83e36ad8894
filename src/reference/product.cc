#include "reference/product.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "numeric/numeric.h"

namespace lapidary::reference {
namespace {

constexpr std::int64_t kDepth = 256;  // of k at a time: both panels stay in the second-level cache
constexpr std::int64_t kStep = 8;     // of k at a time in registers
constexpr std::int64_t kChunk = 64;   // of k widened at a time: stays in the first-level cache

/// sums (rows x width) += a (rows x depth, pitch kDepth) * b (depth x kTile); depth is a multiple
/// of kStep. Eight rows of b make eight multiply-adds per load and store of a sum, and stay in the
/// first-level cache. Each sum adds up in the order of k, and products are exact in float64, so the
/// fused form gives the same bits.
template <bool fused, class T>
[[gnu::always_inline]] inline void accumulate(const T* a, const T* b, std::int64_t rows,
                                              std::int64_t width, std::int64_t depth, T* sums) {
  const auto mac = [](T x, T y, T z) { return fused ? std::fma(x, y, z) : x * y + z; };
  for (std::int64_t k = 0; k < depth; k += kStep) {
    const T* b0 = b + k * kTile;
    for (std::int64_t i = 0; i < rows; ++i) {
      const T* x = a + i * kDepth + k;
      const T x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3], x4 = x[4], x5 = x[5], x6 = x[6],
              x7 = x[7];
      T* sum = sums + i * kTile;
      for (std::int64_t j = 0; j < width; ++j) {
        T s = sum[j];
        s = mac(x0, b0[j], s);
        s = mac(x1, b0[j + kTile], s);
        s = mac(x2, b0[j + 2 * kTile], s);
        s = mac(x3, b0[j + 3 * kTile], s);
        s = mac(x4, b0[j + 4 * kTile], s);
        s = mac(x5, b0[j + 5 * kTile], s);
        s = mac(x6, b0[j + 6 * kTile], s);
        s = mac(x7, b0[j + 7 * kTile], s);
        sum[j] = s;
      }
    }
  }
}

#if defined(__x86_64__)
template <class T>
[[gnu::target("avx2,fma")]] void accumulate_avx2(const T* a, const T* b, std::int64_t rows,
                                                 std::int64_t width, std::int64_t depth, T* sums) {
  accumulate<true>(a, b, rows, width, depth, sums);
}
#endif

template <class T>
void accumulate_best(const T* a, const T* b, std::int64_t rows, std::int64_t width,
                     std::int64_t depth, T* sums) {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_avx2) return accumulate_avx2(a, b, rows, width, depth, sums);
#endif
  accumulate<false>(a, b, rows, width, depth, sums);
}

std::int64_t round_up(std::int64_t x, std::int64_t to) { return (x + to - 1) / to * to; }

/// The exponent of the lowest set bit: x is an odd multiple of 2^that. Not for 0; f32 numbers are
/// normal here.
int lowest_bit(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const auto mantissa = (bits & ((std::uint64_t(1) << 52) - 1)) | std::uint64_t(1) << 52;
  return int(bits >> 52 & 0x7ff) - 1075 + std::countr_zero(mantissa);
}

/// Is every finite element an integer below 2^22? Adding 1.5 * 2^23 leaves no room for a fraction.
bool all_integers(const float* values, std::int64_t count) {
  constexpr float kMagic = 0x1.8p23f;
  int other = 0;
  for (std::int64_t i = 0; i < count; ++i)
    other |= int((values[i] + kMagic) - kMagic != values[i]) & int(values[i] - values[i] == 0);
  return other == 0;
}

/// Tensor cores align the products of a step and what is added to the largest of them and keep 14
/// bits (DeepSeek-V3 technical report, sec. 3.5.2): each addend is off by less than 2^-13 of it.
constexpr double kNarrowUnit = 0x1p-13;
constexpr double kPromotion = 128;  // products after which a sum goes into an f32 register

}  // namespace

AccumulatorModel::AccumulatorModel(const GemmProblem& p) {
  const double k = double(p.k);
  // A tensor core's step adds 32 products and what it has so far.
  const auto narrow = [](double products) {
    return std::expm1((products + std::ceil(products / 32)) * std::log1p(kNarrowUnit));
  };
  double narrow_error = 0;
  if (size_bytes(p.a) == 1 || size_bytes(p.b) == 1) {
    most_narrow = 4096;
    narrow_products = p.numerics.fast_fp8 ? k : std::min(k, kPromotion);
    narrow_error = narrow(narrow_products);
  }
  double smallest = kTiny;
  if (p.numerics.f16_acc) {
    unit = 0x1p-11;
    most_exact = 2048;
    overflow = 65504;
    smallest = 0x1p-14;
  }
  relative = std::expm1((k + 2) * std::log1p(unit)) + (k + 8) * 0x1p-52;
  relative += narrow_error * (1 + relative);
  if (p.numerics.tf32 && p.a == DType::f32 && p.b == DType::f32) {
    cuts_inputs = true;
    relative += (2 * 0x1p-10 + 0x1p-20) * (1 + relative);
  }
  relative *= 1 + (k + 8) * 0x1p-22;  // the sum of magnitudes is itself an f32 sum
  flushed = k * smallest;
  rounds = p.numerics.rounded;
  type = p.d.value_or(DType::f32);
}

ProductTile::ProductTile(const Entry& entry, const AccumulatorModel& model, bool integers)
    : entry_(entry),
      model_(model),
      integers_(integers),
      a_(std::make_unique_for_overwrite<double[]>(kTile * kDepth)),
      b_(std::make_unique_for_overwrite<double[]>(kDepth * kTile)),
      sums_(std::make_unique_for_overwrite<double[]>(kTile * kTile)),
      abs_a_(std::make_unique_for_overwrite<float[]>(kTile * kDepth)),
      abs_b_(std::make_unique_for_overwrite<float[]>(kDepth * kTile)),
      magnitudes_(std::make_unique_for_overwrite<float[]>(kTile * kTile)),
      widened_(std::make_unique_for_overwrite<float[]>(kTile * kChunk)),
      rows_(kTile),
      cols_(kTile) {}

/// Widens rows `indices` of A or B over [k0, k0 + depth) to float64, scaled. A's panel is (row, k),
/// B's (k, row).
void ProductTile::pack(bool b, std::span<const std::int64_t> indices, std::int64_t k0,
                       std::int64_t depth) {
  const Entry::Matrix& matrix = b ? entry_.b : entry_.a;
  const bool k_contiguous = b ? entry_.b_transposed : !entry_.a_transposed;
  double* panel = (b ? b_ : a_).get();
  float* magnitudes = (b ? abs_b_ : abs_a_).get();
  std::vector<Line>& lines = b ? cols_ : rows_;
  const std::int64_t padded = round_up(depth, kStep);
  const auto count = std::int64_t(indices.size());
  const std::int64_t width = b ? width_ : count;
  const std::int64_t of_k = b ? kTile : 1, of_line = b ? 1 : kDepth;
  const bool run = count > 0 && indices.back() - indices.front() == count - 1;  // they ascend

  for (std::int64_t from = 0; from < depth; from += kChunk) {
    const std::int64_t length = std::min(depth - from, kChunk);
    // Chunks do not straddle the 128 of k that share a block's scale.
    std::array<double, kTile> factors{};
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t index = indices[std::size_t(i)], kb = (k0 + from) / 128;
      factors[std::size_t(i)] = b ? entry_.factor_b(index, kb) : entry_.factor_a(index, kb);
      const double factor = factors[std::size_t(i)];
      if (std::isinf(factor)) lines[std::size_t(i)].wild = true;
      if (entry_.scales != ScaleMode::block) lines[std::size_t(i)].factor = factor;
      if (factor != 0 && std::isfinite(factor))
        lines[std::size_t(i)].grain = std::min(lines[std::size_t(i)].grain, lowest_bit(factor));
    }
    // Widened as stored: (line, k) or (k, line).
    float* wide = widened_.get();
    const auto address = [&](std::int64_t row, std::int64_t col) {
      return matrix.base + (row * matrix.pitch + col) * size_bytes(matrix.type);
    };
    if (k_contiguous) {
      for (std::int64_t i = 0; i < count; ++i) {
        numeric::widen(matrix.type, address(indices[std::size_t(i)], k0 + from), length,
                       wide + i * kChunk);
      }
    } else {
      for (std::int64_t k = 0; k < length; ++k) {
        if (run) {
          numeric::widen(matrix.type, address(k0 + from + k, indices.front()), count,
                         wide + k * kTile);
          continue;
        }
        for (std::int64_t i = 0; i < count; ++i) {
          wide[k * kTile + i] =
              numeric::load(matrix.type, address(k0 + from + k, indices[std::size_t(i)]), 0);
        }
      }
    }
    if (integers_ && !(b ? cols_fractional_ : rows_fractional_)) {
      bool integral = true;
      for (std::int64_t i = 0; i < (k_contiguous ? count : length); ++i) {
        integral = integral && (k_contiguous ? all_integers(wide + i * kChunk, length)
                                             : all_integers(wide + i * kTile, count));
      }
      (b ? cols_fractional_ : rows_fractional_) = !integral;
    }
    const std::int64_t wide_line = k_contiguous ? kChunk : 1, wide_k = k_contiguous ? 1 : kTile;
    const auto put = [&](std::int64_t i, std::int64_t k) {
      const double value = double(wide[i * wide_line + k * wide_k]) * factors[std::size_t(i)];
      const std::int64_t to = i * of_line + (from + k) * of_k;
      panel[to] = value;
      magnitudes[to] = float(std::fabs(value));
    };
    if (b) {
      for (std::int64_t k = 0; k < length; ++k) {
        for (std::int64_t i = 0; i < count; ++i) put(i, k);
      }
    } else {
      for (std::int64_t i = 0; i < count; ++i) {
        for (std::int64_t k = 0; k < length; ++k) put(i, k);
      }
    }
  }
  // Zeros up to whole steps and vectors.
  for (std::int64_t k = 0; k < padded; ++k) {
    for (std::int64_t i = k < depth ? count : 0; i < width; ++i)
      panel[i * of_line + k * of_k] = magnitudes[i * of_line + k * of_k] = 0;
  }
  if (b) {
    for (std::int64_t k = 0; k < depth; ++k) {
      for (std::int64_t i = 0; i < count; ++i) {
        lines[std::size_t(i)].most =
            std::max(lines[std::size_t(i)].most, magnitudes[k * kTile + i]);
      }
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      float most = lines[std::size_t(i)].most;
      for (std::int64_t k = 0; k < depth; ++k) most = std::max(most, magnitudes[i * kDepth + k]);
      lines[std::size_t(i)].most = most;
    }
  }
}

void ProductTile::compute(std::span<const std::int64_t> rows, std::span<const std::int64_t> cols) {
  const auto height = std::int64_t(rows.size());
  width_ = round_up(std::int64_t(cols.size()), 8);
  std::fill_n(sums_.get(), height * kTile, 0.0);
  std::fill_n(magnitudes_.get(), height * kTile, 0.0f);
  std::fill(rows_.begin(), rows_.end(), Line{});
  std::fill(cols_.begin(), cols_.end(), Line{});
  rows_fractional_ = cols_fractional_ = false;
  for (std::int64_t k0 = 0; k0 < entry_.k; k0 += kDepth) {
    const std::int64_t depth = std::min(kDepth, entry_.k - k0);
    pack(false, rows, k0, depth);
    pack(true, cols, k0, depth);
    const std::int64_t padded = round_up(depth, kStep);
    accumulate_best(a_.get(), b_.get(), height, width_, padded, sums_.get());
    accumulate_best(abs_a_.get(), abs_b_.get(), height, width_, padded, magnitudes_.get());
  }
}

/// The sum, or what is left of it when D's type held it before it was scaled by `factor`, or after.
Bounded ProductTile::through_type(const Bounded& sum, double factor) const {
  const auto held = [&](const Bounded& x) {
    return apply(EpilogueOp::cast, {x, {}, {}}, false, model_.type);
  };
  Bounded out = hull(sum, held(sum));
  if (factor == 1 || factor == 0) return out;
  // Dividing by a power of two is exact; else the quotients are off by float64's rounding.
  int exponent = 0;
  const double slack = std::fabs(std::frexp(factor, &exponent)) == 0.5 ? 0 : 0x1p-50;
  const double low = sum.lo / factor, high = sum.hi / factor;
  Bounded unscaled{sum.value / factor, std::min(low, high), std::max(low, high), sum.nan};
  unscaled.lo -= slack * std::fabs(std::isfinite(unscaled.lo) ? unscaled.lo : 0);
  unscaled.hi += slack * std::fabs(std::isfinite(unscaled.hi) ? unscaled.hi : 0);
  const Bounded scaled = apply(EpilogueOp::mul, {held(unscaled), point(factor), {}});
  // Two scales are two roundings more.
  return hull(
      out, scaled.is_point() ? scaled : rounded(scaled.value, scaled.lo, scaled.hi, scaled.nan, 2));
}

Bounded ProductTile::at(std::int64_t row, std::int64_t col) const {
  const double value = sums_[std::size_t(row * kTile + col)];
  const double magnitudes = double(magnitudes_[std::size_t(row * kTile + col)]);
  const Line &a = rows_[std::size_t(row)], &b = cols_[std::size_t(col)];
  if (a.wild || b.wild)
    return anything();  // when the scale meets a sum and when its parts is not ours to say
  if (std::isnan(value)) return point(value);
  if (std::isfinite(value) && magnitudes * (1 + model_.relative) > model_.overflow)
    return anything();
  Bounded out{value, value, value, NaN::never};
  bool exact = std::isinf(value) || (magnitudes == 0 && (a.most == 0 || b.most == 0));
  if (integers_ && !exact && !rows_fractional_ && !cols_fractional_) {
    const int grain = a.grain + b.grain;
    const auto below = [&](double sum, double most) {
      return sum <= std::ldexp(most, std::min(grain, 100));
    };
    // What a narrow accumulator holds between two promotions.
    const double narrow =
        std::min(magnitudes, model_.narrow_products * double(a.most) * double(b.most));
    exact =
        grain > -100 && below(magnitudes, model_.most_exact) && below(narrow, model_.most_narrow);
    if (model_.cuts_inputs)
      exact = exact && double(a.most) <= std::ldexp(1024, a.grain) &&
              double(b.most) <= std::ldexp(1024, b.grain);
  }
  if (!exact) {
    const double error =
        magnitudes * model_.relative + model_.flushed * (1 + double(a.most) + double(b.most));
    out.lo -= error;
    out.hi += error;
    if (out.hi > kMaxF32 || out.lo < -kMaxF32) return anything();
  }
  return model_.rounds ? through_type(out, a.factor * b.factor) : out;
}

}  // namespace lapidary::reference
