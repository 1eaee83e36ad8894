#include "reference/integer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>

#include "numeric/numeric.h"
#include "reference/product.h"
#include "reference/view.h"
#include "support/parallel.h"
#include "support/random.h"

namespace lapidary::reference {
namespace {

constexpr std::int64_t kBlock = 128;  // of k, in scale mode block

struct Word {
  std::uint64_t nonzero = 0, negative = 0;
};

/// Rows of A, or of B as (n, k), as bit planes.
struct Planes {
  std::int64_t lines = 0, words = 0;
  std::vector<Word> bits;  // [lines][words]
};

/// Sum of 64 * words products.
[[gnu::always_inline]] inline std::int64_t dot_words(const Word* a, const Word* b,
                                                     std::int64_t words) {
  std::int64_t products = 0, negatives = 0;
  for (std::int64_t w = 0; w < words; ++w) {
    const std::uint64_t nonzero = a[w].nonzero & b[w].nonzero;
    products += std::popcount(nonzero);
    negatives += std::popcount((a[w].negative ^ b[w].negative) & nonzero);
  }
  return products - 2 * negatives;
}

using Dot = std::int64_t (*)(const Word* a, const Word* b, std::int64_t words);

std::int64_t dot_base(const Word* a, const Word* b, std::int64_t words) {
  return dot_words(a, b, words);
}
#if defined(__x86_64__)
[[gnu::target("popcnt")]] std::int64_t dot_popcnt(const Word* a, const Word* b,
                                                  std::int64_t words) {
  return dot_words(a, b, words);
}
[[gnu::target("avx512f,avx512vl,avx512bw,avx512dq,avx512vpopcntdq")]] std::int64_t dot_avx512(
    const Word* a, const Word* b, std::int64_t words) {
  return dot_words(a, b, words);
}
#endif

Dot best_dot() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vpopcntdq")) {
    return dot_avx512;
  }
  if (__builtin_cpu_supports("popcnt")) return dot_popcnt;
#endif
  return dot_base;
}

/// Work of about 2^26 elements at a time, with a call of `progress` before each.
template <class Body>
void in_steps(std::int64_t count, std::int64_t elements_each, const std::function<void()>& progress,
              const Body& body) {
  const std::int64_t step =
      std::max<std::int64_t>(8, (std::int64_t(1) << 28) / std::max<std::int64_t>(1, elements_each));
  for (std::int64_t first = 0; first < count; first += step) {
    if (progress) progress();
    const std::int64_t here = std::min(step, count - first);
    shared_pool().each(
        here, std::max<std::int64_t>(1, here / 64),
        [&](std::int64_t begin, std::int64_t end) { body(first + begin, first + end); });
  }
}

/// 64 elements as bits; false where one is none of -1, 0, 1.
bool pack_word(const float* values, Word& word) {
  // Bytes first, which vectorises; then the lowest bits of eight bytes gather in the top byte of a
  // product.
  std::array<std::uint8_t, 64> nonzero, negative;
  int other = 0;
  for (std::size_t i = 0; i < 64; ++i) {
    const float x = values[i];
    nonzero[i] = x != 0;
    negative[i] = x < 0;
    other |= int(x * x != std::fabs(x)) | int(std::fabs(x) > 1);
  }
  const auto gather = [](const std::uint8_t* bytes) {
    std::uint64_t eight;
    std::memcpy(&eight, bytes, 8);
    return eight * 0x0102040810204080u >> 56;
  };
  word = {};
  for (std::size_t i = 0; i < 64; i += 8) {
    word.nonzero |= gather(&nonzero[i]) << i;
    word.negative |= gather(&negative[i]) << i;
  }
  return other == 0;
}

/// Packs a matrix whose rows are lines (k contiguous) or whose columns are. False where an element
/// is none of -1, 0, 1.
bool pack(const Entry::Matrix& matrix, std::int64_t lines, std::int64_t k, bool k_contiguous,
          Planes& planes, const std::function<void()>& progress) {
  planes.lines = lines;
  // Whole blocks of 128 of k, so that a block's products are two words.
  planes.words = (k + kBlock - 1) / kBlock * 2;
  planes.bits.resize(static_cast<std::size_t>(lines * planes.words));
  std::atomic<bool> good{true};
  const int size = size_bytes(matrix.type);
  if (k_contiguous) {
    in_steps(lines, k, progress, [&](std::int64_t begin, std::int64_t end) {
      std::array<float, 1024> wide;
      bool right = true;
      for (std::int64_t line = begin; line < end; ++line) {
        Word* words = planes.bits.data() + line * planes.words;
        for (std::int64_t from = 0; from < k; from += 1024) {
          const std::int64_t count = std::min<std::int64_t>(1024, k - from);
          numeric::widen(matrix.type, matrix.base + (line * matrix.pitch + from) * size, count,
                         wide.data());
          std::fill(wide.begin() + count, wide.begin() + (count + 63) / 64 * 64, 0.0f);
          for (std::int64_t i = 0; i < count; i += 64)
            right = pack_word(&wide[std::size_t(i)], words[(from + i) / 64]) && right;
        }
      }
      if (!right) good = false;
    });
  } else {
    // A word's 64 rows of k at a time, for 256 lines: their words stay in the cache.
    constexpr std::int64_t kLines = 256;
    const std::int64_t blocks = (lines + kLines - 1) / kLines;
    in_steps(blocks, k * kLines, progress, [&](std::int64_t begin, std::int64_t end) {
      std::array<float, kLines> wide;
      bool right = true;
      for (std::int64_t block = begin; block < end; ++block) {
        const std::int64_t first = block * kLines, count = std::min(kLines, lines - first);
        for (std::int64_t w = 0; w * 64 < k; ++w) {
          std::array<Word, kLines> words{};
          for (std::int64_t bit = 0; bit < std::min<std::int64_t>(64, k - w * 64); ++bit) {
            numeric::widen(matrix.type,
                           matrix.base + ((w * 64 + bit) * matrix.pitch + first) * size, count,
                           wide.data());
            int other = 0;
            for (std::int64_t i = 0; i < count; ++i) {
              const float x = wide[std::size_t(i)];
              words[std::size_t(i)].nonzero |= std::uint64_t(x != 0) << bit;
              words[std::size_t(i)].negative |= std::uint64_t(x < 0) << bit;
              other |= int(x * x != std::fabs(x)) | int(std::fabs(x) > 1);
            }
            right = right && other == 0;
          }
          for (std::int64_t i = 0; i < count; ++i)
            planes.bits[std::size_t((first + i) * planes.words + w)] = words[std::size_t(i)];
        }
      }
      if (!right) good = false;
    });
  }
  return good;
}

Error not_ternary(std::string_view name) {
  return fail(
      ErrorCode::invalid_argument,
      "reference: an element of {} is none of -1, 0 and 1; exact products need small integers",
      name);
}

/// The scales of A or B as integers: multiplied by `units`, a power of two.
struct Factors {
  std::int64_t lines = 0, blocks = 1;
  double units = 1;
  std::vector<double> values;  // [blocks][lines]
  double at(std::int64_t line, std::int64_t block) const {
    return values[std::size_t((blocks == 1 ? 0 : block) * lines + line)];
  }
};

Result<Factors> factors(const Entry& entry, bool b) {
  Factors f;
  f.lines = b ? entry.n : entry.m;
  if (entry.scales == ScaleMode::block) f.blocks = (entry.k + kBlock - 1) / kBlock;
  double least = 1;
  for (std::int64_t block = 0; block < f.blocks; ++block) {
    for (std::int64_t line = 0; line < f.lines; ++line) {
      const double factor = b ? entry.factor_b(line, block) : entry.factor_a(line, block);
      int exponent = 0;
      if (!(factor >= 0x1p-4) || factor > 0x1p4 || std::frexp(factor, &exponent) != 0.5) {
        return fail(ErrorCode::invalid_argument,
                    "reference: the scale {} of {} is no power of two from 2^-4 to 2^4", factor,
                    b ? "b" : "a");
      }
      least = std::min(least, factor);
      f.values.push_back(factor);
    }
  }
  f.units = 1 / least;
  for (double& value : f.values) value *= f.units;
  return f;
}

}  // namespace

struct TernaryProduct::State {
  Planes a, b;
  bool block = false;
  Factors scale_a, scale_b;
};

TernaryProduct::TernaryProduct(std::unique_ptr<State> state) : state_(std::move(state)) {}
TernaryProduct::TernaryProduct(TernaryProduct&&) noexcept = default;
TernaryProduct::~TernaryProduct() = default;

Result<TernaryProduct> TernaryProduct::make(const GemmProblem& problem,
                                            std::span<void* const> pointers,
                                            std::int64_t entry_index,
                                            const std::function<void()>& progress) {
  const std::vector<OperandSpec> specs = operands(problem);
  const Entry entry = entry_of(problem, specs, pointers, entry_index);
  auto state = std::make_unique<State>();
  state->block = problem.scales == ScaleMode::block;
  LAPIDARY_TRY(state->scale_a, factors(entry, false));
  LAPIDARY_TRY(state->scale_b, factors(entry, true));
  if (!pack(entry.a, entry.m, entry.k, !entry.a_transposed, state->a, progress))
    return not_ternary("a");
  if (!pack(entry.b, entry.n, entry.k, entry.b_transposed, state->b, progress))
    return not_ternary("b");
  return TernaryProduct(std::move(state));
}

void TernaryProduct::tile(std::span<const std::int64_t> rows, std::span<const std::int64_t> cols,
                          double* out) const {
  static const Dot dot = best_dot();
  const State& s = *state_;
  const double unit = 1 / (s.scale_a.units * s.scale_b.units);
  const std::int64_t words = s.a.words;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Word* a = s.a.bits.data() + rows[i] * words;
    for (std::size_t j = 0; j < cols.size(); ++j) {
      const Word* b = s.b.bits.data() + cols[j] * words;
      double sum = 0;
      if (!s.block) {
        sum = double(dot(a, b, words)) * s.scale_a.at(rows[i], 0) * s.scale_b.at(cols[j], 0);
      } else {
        for (std::int64_t block = 0; block * 2 < words; ++block) {
          sum += double(dot(a + 2 * block, b + 2 * block, 2)) * s.scale_a.at(rows[i], block) *
                 s.scale_b.at(cols[j], block);
        }
      }
      out[i * std::size_t(kTile) + j] = sum * unit;
    }
  }
}

Result<Freivalds> Freivalds::make(const GemmProblem& problem, std::span<void* const> pointers,
                                  std::int64_t entry_index, std::uint64_t seed,
                                  const std::function<void()>& progress) {
  const std::vector<OperandSpec> specs = operands(problem);
  const Entry entry = entry_of(problem, specs, pointers, entry_index);
  LAPIDARY_TRY(const Factors scale_a, factors(entry, false));
  LAPIDARY_TRY(const Factors scale_b, factors(entry, true));
  Freivalds check;
  check.n_ = entry.n;
  check.units_ = scale_a.units * scale_b.units;
  check.x_.resize(std::size_t(entry.n));
  for (std::int64_t j = 0; j < entry.n; ++j)
    check.x_[std::size_t(j)] = mix(seed, std::uint64_t(j)) >> 33;

  // y = B^T x, a piece of k at a time and alone in its thread. B's elements are -1, 0 and 1: sums
  // of fewer than 2^12 scaled x, each below 2^40, are exact in float64; the rest is modulo 2^64.
  constexpr std::int64_t kPiece = 512, kExact = 4096;
  std::vector<std::uint64_t> y(static_cast<std::size_t>(entry.k));
  const std::int64_t pieces = (entry.k + kPiece - 1) / kPiece;
  const int size_b = size_bytes(entry.b.type);
  std::atomic<bool> good_a{true}, good_b{true};
  in_steps(pieces, kPiece * entry.n, progress, [&](std::int64_t begin, std::int64_t end) {
    std::array<float, kPiece> wide;
    std::array<double, kPiece> sums;
    bool right = true;
    for (std::int64_t piece = begin; piece < end; ++piece) {
      const std::int64_t k0 = piece * kPiece, depth = std::min(kPiece, entry.k - k0);
      for (std::int64_t j0 = 0; j0 < entry.n; j0 += kExact) {
        const std::int64_t j1 = std::min(entry.n, j0 + kExact);
        sums.fill(0);
        if (entry.b_transposed) {
          for (std::int64_t j = j0; j < j1; ++j) {
            numeric::widen(entry.b.type, entry.b.base + (j * entry.b.pitch + k0) * size_b, depth,
                           wide.data());
            const auto x = double(check.x_[std::size_t(j)]);
            const bool one_block = scale_b.blocks == 1;
            for (std::int64_t from = 0; from < depth; from += one_block ? depth : kBlock) {
              const std::int64_t to = one_block ? depth : std::min(depth, from + kBlock);
              const double scaled = x * scale_b.at(j, (k0 + from) / kBlock);
              for (std::int64_t k = from; k < to; ++k)
                sums[std::size_t(k)] += double(wide[std::size_t(k)]) * scaled;
            }
            int wrong = 0;
            for (std::int64_t k = 0; k < depth; ++k) {
              const float v = wide[std::size_t(k)];
              wrong |= int(v * v != std::fabs(v)) | int(std::fabs(v) > 1);
            }
            right = right && wrong == 0;
          }
        } else {
          for (std::int64_t k = 0; k < depth; ++k) {
            for (std::int64_t j = j0; j < j1; j += kPiece) {
              const std::int64_t count = std::min(kPiece, j1 - j);
              numeric::widen(entry.b.type, entry.b.base + ((k0 + k) * entry.b.pitch + j) * size_b,
                             count, wide.data());
              double sum = 0;
              for (std::int64_t i = 0; i < count; ++i) {
                const float v = wide[std::size_t(i)];
                right = right && (v == 0 || v == 1 || v == -1);
                sum += double(v) * double(check.x_[std::size_t(j + i)]) *
                       scale_b.at(j + i, (k0 + k) / kBlock);
              }
              sums[std::size_t(k)] += sum;
            }
          }
        }
        if (!right) break;
        for (std::int64_t k = 0; k < depth; ++k)
          y[std::size_t(k0 + k)] += std::uint64_t(std::int64_t(sums[std::size_t(k)]));
      }
    }
    if (!right) good_b = false;
  });
  if (!good_b) return not_ternary("b");

  // A y, modulo 2^64.
  check.expected_.assign(std::size_t(entry.m), 0);
  const int size_a = size_bytes(entry.a.type);
  const auto term = [&](float v, std::int64_t i, std::int64_t k, bool& right) {
    right = right && (v == 0 || v == 1 || v == -1);
    const std::uint64_t scaled = y[std::size_t(k)] * std::uint64_t(scale_a.at(i, k / kBlock));
    return v == 0 ? 0 : v > 0 ? scaled : 0 - scaled;
  };
  if (!entry.a_transposed) {
    in_steps(entry.m, entry.k, progress, [&](std::int64_t begin, std::int64_t end) {
      std::array<float, 1024> wide;
      bool right = true;
      for (std::int64_t i = begin; i < end; ++i) {
        std::uint64_t sum = 0;
        for (std::int64_t k0 = 0; k0 < entry.k; k0 += 1024) {
          const std::int64_t count = std::min<std::int64_t>(1024, entry.k - k0);
          numeric::widen(entry.a.type, entry.a.base + (i * entry.a.pitch + k0) * size_a, count,
                         wide.data());
          for (std::int64_t k = 0; k < count; ++k)
            sum += term(wide[std::size_t(k)], i, k0 + k, right);
        }
        check.expected_[std::size_t(i)] = sum;
      }
      if (!right) good_a = false;
    });
  } else {
    constexpr std::int64_t kLines = 256;
    in_steps((entry.m + kLines - 1) / kLines, entry.k * kLines, progress,
             [&](std::int64_t begin, std::int64_t end) {
               std::array<float, kLines> wide;
               bool right = true;
               for (std::int64_t block = begin; block < end; ++block) {
                 const std::int64_t first = block * kLines,
                                    count = std::min(kLines, entry.m - first);
                 for (std::int64_t k = 0; k < entry.k; ++k) {
                   numeric::widen(entry.a.type, entry.a.base + (k * entry.a.pitch + first) * size_a,
                                  count, wide.data());
                   for (std::int64_t i = 0; i < count; ++i)
                     check.expected_[std::size_t(first + i)] +=
                         term(wide[std::size_t(i)], first + i, k, right);
                 }
               }
               if (!right) good_a = false;
             });
  }
  if (!good_a) return not_ternary("a");
  return check;
}

std::vector<std::int64_t> Freivalds::wrong_rows(DType type, const void* matrix,
                                                std::int64_t pitch) const {
  const auto m = std::int64_t(expected_.size());
  std::vector<char> wrong(expected_.size());
  const auto* base = static_cast<const std::byte*>(matrix);
  shared_pool().each(m, std::clamp<std::int64_t>(65536 / std::max<std::int64_t>(1, n_), 1, 64),
                     [&](std::int64_t begin, std::int64_t end) {
                       std::array<float, 1024> wide;
                       for (std::int64_t i = begin; i < end; ++i) {
                         std::uint64_t sum = 0;
                         bool right = true;
                         for (std::int64_t j0 = 0; j0 < n_; j0 += 1024) {
                           const std::int64_t count = std::min<std::int64_t>(1024, n_ - j0);
                           numeric::widen(type, base + (i * pitch + j0) * size_bytes(type), count,
                                          wide.data());
                           for (std::int64_t j = 0; j < count; ++j) {
                             const double value = double(wide[std::size_t(j)]) * units_;
                             const bool in_range = std::fabs(value) < 0x1p31;  // false for NaN
                             const auto integer = std::int64_t(in_range ? value : 0);
                             right = right && in_range && double(integer) == value;
                             sum += std::uint64_t(integer) * x_[std::size_t(j0 + j)];
                           }
                         }
                         wrong[std::size_t(i)] = !right || sum != expected_[std::size_t(i)];
                       }
                     });
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < m; ++i) {
    if (wrong[std::size_t(i)]) rows.push_back(i);
  }
  return rows;
}

void Freivalds::add_tile(std::span<const std::int64_t> rows, std::span<const std::int64_t> cols,
                         const double* tile, std::span<std::uint64_t> sums) const {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::uint64_t sum = 0;
    for (std::size_t j = 0; j < cols.size(); ++j) {
      sum += std::uint64_t(std::int64_t(tile[i * std::size_t(kTile) + j] * units_)) *
             x_[std::size_t(cols[j])];
    }
    std::atomic_ref(sums[std::size_t(rows[i])]).fetch_add(sum, std::memory_order_relaxed);
  }
}

std::vector<std::int64_t> Freivalds::wrong_rows(std::span<const std::uint64_t> sums) const {
  std::vector<std::int64_t> rows;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (sums[i] != expected_[i]) rows.push_back(std::int64_t(i));
  }
  return rows;
}

}  // namespace lapidary::reference
