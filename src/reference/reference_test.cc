#include "reference/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <string>

#include "reference/integer.h"
#include "reference/testing_data.h"

namespace lapidary::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Everything that `evaluate` says of a request, by output name.
struct Block {
  std::map<std::string, std::vector<double>> value;
  std::map<std::string, std::vector<Stored>> stored;
  std::map<std::string, bool> known;
};

Block block(const Data& data, Request request) {
  Block out;
  std::vector<std::string> names;
  for (const OperandSpec& spec : data.specs) {
    if (spec.output) names.push_back(spec.name);
  }
  std::mutex mutex;
  const std::size_t width = request.cols.size(), size = request.rows.size() * width;
  const auto lines = evaluate(data.problem, data.pointers, request, [&](const Piece& piece) {
    const std::lock_guard lock(mutex);
    auto& value = out.value[names[std::size_t(piece.output)]];
    auto& stored = out.stored[names[std::size_t(piece.output)]];
    value.resize(size);
    stored.resize(size);
    for (std::size_t i = 0; i < piece.value.size(); ++i) {
      value[std::size_t(piece.row) * width + std::size_t(piece.col) + i] = piece.value[i];
      stored[std::size_t(piece.row) * width + std::size_t(piece.col) + i] = piece.stored[i];
    }
  });
  for (const Line& line : lines) {
    out.value[names[std::size_t(line.output)]] = line.value;
    out.stored[names[std::size_t(line.output)]] = line.stored;
    out.known[names[std::size_t(line.output)]] = line.known;
  }
  return out;
}

Block whole(const Data& data, std::int64_t entry = 0, bool integers = false) {
  const auto rows = all(data.problem.m), cols = all(columns(data.problem));
  Request request;
  request.entry = entry;
  request.rows = rows;
  request.cols = cols;
  request.integers = integers;
  return block(data, request);
}

struct Case {
  const char* why;
  GemmProblem problem;
};

const Case kShapes[] = {
    {"one element", {.m = 1, .n = 1, .k = 1}},
    {"a row", {.m = 1, .n = 77, .k = 130, .a = DType::bf16, .b = DType::bf16}},
    {"more than a tile each way", {.m = 70, .n = 130, .k = 300, .a = DType::f16, .b = DType::bf16}},
    {"nn", {.m = 33, .n = 65, .k = 37, .layout = GemmLayout::nn}},
    {"tn, pitches",
     {.m = 33, .n = 65, .k = 37, .layout = GemmLayout::tn, .lda = 40, .ldb = 70, .ldd = 71}},
    {"tt, fp8",
     {.m = 66, .n = 9, .k = 257, .layout = GemmLayout::tt, .a = DType::e4m3, .b = DType::e5m2}},
    {"batch, b shared", {.m = 5, .n = 6, .k = 7, .batch = 3, .strides = {{"b", 0}}}},
    {"batches a row apart", {.m = 5, .n = 6, .k = 7, .batch = 3, .lda = 21, .strides = {{"a", 7}}}},
    {"tensor scales",
     {.m = 5, .n = 6, .k = 300, .a = DType::e4m3, .b = DType::e4m3, .scales = ScaleMode::tensor}},
    {"row scales, tn",
     {.m = 65,
      .n = 66,
      .k = 20,
      .layout = GemmLayout::tn,
      .a = DType::e4m3,
      .b = DType::e4m3,
      .scales = ScaleMode::row}},
    {"block scales, short last block",
     {.m = 67, .n = 140, .k = 300, .a = DType::e4m3, .b = DType::e4m3, .scales = ScaleMode::block}},
    {"block scales, nn",
     {.m = 3,
      .n = 130,
      .k = 128,
      .layout = GemmLayout::nn,
      .a = DType::e4m3,
      .b = DType::e4m3,
      .scales = ScaleMode::block}},
    {"offsets",
     {.m = 3, .n = 4, .k = 5, .a = DType::bf16, .b = DType::bf16, .offsets = {{"a", 2}, {"b", 6}}}},
};

TEST(Reference, ProductAgreesWithThePlainLoop) {
  for (const auto& [why, shape] : kShapes) {
    SCOPED_TRACE(why);
    GemmProblem p = shape;
    p.d = DType::f32;
    Data data(problem_of(p));
    data.fill_uniform(7);
    for (std::int64_t e = 0; e < p.batch; ++e) {
      const Block got = whole(data, e);
      for (std::int64_t i = 0; i < p.m; ++i) {
        for (std::int64_t j = 0; j < p.n; ++j) {
          const auto [sum, magnitudes] = data.acc(e, i, j);
          const std::size_t at = std::size_t(i * p.n + j);
          ASSERT_NEAR(got.value.at("d")[at], double(sum),
                      1e-15 * double(p.k + 8) * double(magnitudes))
              << i << "," << j;
          // The bound itself: g_(k+2), and 2^-13 for each addend of fp8's narrow sums, up to the
          // slack of float arithmetic, and rounding of the ends to f32.
          const Stored s = got.stored.at("d")[at];
          const bool fp8 = size_bytes(p.a) == 1;
          const double addends = std::min(double(p.k), 128.0) * (1 + 1 / 32.0),
                       narrow = fp8 ? std::expm1(std::ceil(addends) * std::log1p(0x1p-13)) : 0,
                       bound = ((double(p.k) + 2) * 0x1p-24 + narrow) * double(magnitudes),
                       half_ulp = std::fabs(double(sum)) * 0x1p-24;
          ASSERT_LE(double(s.hi) - double(sum), 1.01 * bound + half_ulp + 1e-30);
          ASSERT_GE(double(s.hi) - double(sum), 0.99 * bound - half_ulp);
          ASSERT_LE(double(sum) - double(s.lo), 1.01 * bound + half_ulp + 1e-30);
        }
      }
    }
  }
}

TEST(Reference, F32SumsInAnyOrderAreAccepted) {
  Data data(problem_of({.m = 8, .n = 8, .k = 999, .d = DType::f32}));
  data.fill_uniform(3);
  const Block right = whole(data);
  std::vector<std::int64_t> order(999);
  std::iota(order.begin(), order.end(), 0);
  for (int round = 0; round < 6; ++round) {
    std::sort(order.begin(), order.end(), [&](std::int64_t x, std::int64_t y) {
      return mix(std::uint64_t(round), std::uint64_t(x)) <
             mix(std::uint64_t(round), std::uint64_t(y));
    });
    for (std::int64_t i = 0; i < 8; ++i) {
      for (std::int64_t j = 0; j < 8; ++j) {
        float sum = 0;
        for (const std::int64_t k : order) {
          const auto x = float(data.a(0, i, k)), y = float(data.b(0, j, k));
          sum = round % 2 ? std::fma(x, y, sum) : sum + x * y;
        }
        EXPECT_TRUE(accepts(right.stored.at("d")[std::size_t(i * 8 + j)], sum)) << round;
      }
    }
  }
}

TEST(Reference, PartialSumsInBf16AreRefused) {
  Data data(
      problem_of({.m = 8, .n = 8, .k = 64, .a = DType::bf16, .b = DType::bf16, .d = DType::f32}));
  data.fill_uniform(3);
  const Block right = whole(data);
  int refused = 0;
  for (std::int64_t i = 0; i < 8; ++i) {
    for (std::int64_t j = 0; j < 8; ++j) {
      float sum = 0;
      for (std::int64_t k = 0; k < 64; ++k) {
        sum += float(data.a(0, i, k)) * float(data.b(0, j, k));
        sum = numeric::to_f32(DType::bf16,
                              numeric::from_f32(DType::bf16, sum, numeric::Overflow::infinity));
      }
      refused += !accepts(right.stored.at("d")[std::size_t(i * 8 + j)], sum);
    }
  }
  EXPECT_GT(refused, 60);
}

TEST(Reference, NumericsWidenTheBound) {
  const auto width = [](GemmProblem p) {
    p.m = p.n = 4;
    p.k = 256;
    p.d = DType::f32;
    Data data(problem_of(p));
    data.fill_uniform(5);
    const Block b = whole(data);
    double widest = 0;
    for (const Stored& s : b.stored.at("d")) widest = std::max(widest, double(s.hi) - double(s.lo));
    return widest;
  };
  const double plain = width({.a = DType::f32, .b = DType::f32});
  EXPECT_GT(width({.a = DType::f32, .b = DType::f32, .numerics = {.tf32 = true}}), 50 * plain);
  EXPECT_GT(width({.a = DType::f16, .b = DType::f16, .numerics = {.f16_acc = true}}), 1000 * plain);
  // Sums of fp8 are narrow up to a promotion every 128 products, and to the end without.
  const double fp8 = width({.a = DType::e4m3, .b = DType::e4m3});
  EXPECT_GT(fp8, 500 * plain);
  EXPECT_GT(width({.a = DType::e4m3, .b = DType::e4m3, .numerics = {.fast_fp8 = true}}), 1.9 * fp8);
  // tf32 over types that are not f32 changes nothing.
  EXPECT_LT(width({.a = DType::bf16, .b = DType::bf16, .numerics = {.tf32 = true}}), 2 * plain);
}

TEST(Reference, RoundedAllowsDsTypeInBetween) {
  Data strict(problem_of(
      {.m = 1, .n = 1, .k = 1, .a = DType::f32, .b = DType::f32, .d = DType::bf16}, "d = acc * 3"));
  Data loose(problem_of({.m = 1,
                         .n = 1,
                         .k = 1,
                         .a = DType::f32,
                         .b = DType::f32,
                         .d = DType::bf16,
                         .numerics = {.rounded = true}},
                        "d = acc * 3"));
  for (Data* data : {&strict, &loose}) {
    data->set("a", 0, 0, 0, 1.0);
    data->set("b", 0, 0, 0,
              1 + 0x1p-8 + 0x1p-20);  // bf16: 1 + 2^-7; times 3 and rounded 3.03125, else 3.015625
  }
  EXPECT_FALSE(accepts(whole(strict).stored.at("d")[0], 3.03125f));
  EXPECT_TRUE(accepts(whole(strict).stored.at("d")[0], 3.015625f));
  EXPECT_TRUE(accepts(whole(loose).stored.at("d")[0], 3.03125f));
  EXPECT_TRUE(accepts(whole(loose).stored.at("d")[0], 3.015625f));
}

TEST(Reference, RoundedMayHappenBeforeTheScales) {
  GemmProblem p{.m = 1, .n = 1, .k = 1, .a = DType::e4m3, .b = DType::e4m3, .d = DType::e4m3};
  p.scales = ScaleMode::row;
  Data strict(problem_of(p));
  p.numerics.rounded = true;
  Data loose(problem_of(p));
  for (Data* data : {&strict, &loose}) {
    data->set("a", 0, 0, 0, 1.125);
    data->set("b", 0, 0, 0, 1.125);  // 1.265625; e4m3: 1.25
    data->set("scale_a", 0, 0, 0, 3.0);
    data->set("scale_b", 0, 0, 0, 5.0);  // 18.984 gives 18 or 20, 18.75 gives 18
  }
  EXPECT_TRUE(accepts(whole(strict).stored.at("d")[0], 18));
  EXPECT_FALSE(accepts(whole(strict).stored.at("d")[0], 20));
  EXPECT_TRUE(accepts(whole(loose).stored.at("d")[0], 18));
  for (Data* data : {&strict, &loose})
    data->set("scale_b", 0, 0, 0, 5.02);  // 19.06 gives 20, 18.825 gives 18
  EXPECT_FALSE(accepts(whole(strict).stored.at("d")[0], 18));
  EXPECT_TRUE(accepts(whole(strict).stored.at("d")[0], 20));
  EXPECT_TRUE(accepts(whole(loose).stored.at("d")[0], 18));
  EXPECT_TRUE(accepts(whole(loose).stored.at("d")[0], 20));
  EXPECT_FALSE(accepts(whole(loose).stored.at("d")[0], 16));
}

TEST(Reference, SmallIntegersAreExact) {
  for (const auto& [why, shape] : kShapes) {
    SCOPED_TRACE(why);
    Data data(problem_of(shape));
    data.fill_integers(11);
    for (std::int64_t e = 0; e < shape.batch; ++e) {
      const Block got = whole(data, e, true);
      for (std::int64_t i = 0; i < shape.m; ++i) {
        for (std::int64_t j = 0; j < shape.n; ++j) {
          const Stored s = got.stored.at("d")[std::size_t(i * shape.n + j)];
          const DType type = data.specs.back().type;
          const auto want =
              numeric::to_f32(type, numeric::from_f64(type, double(data.acc(e, i, j).first),
                                                      numeric::store_overflow(type)));
          ASSERT_EQ(s.lo, want);
          ASSERT_EQ(s.hi, want);
        }
      }
    }
  }
}

TEST(Reference, IntegersTooLargeForTheAccumulatorAreNotExact) {
  Data data(problem_of({.m = 1,
                        .n = 1,
                        .k = 3000,
                        .a = DType::f16,
                        .b = DType::f16,
                        .d = DType::f32,
                        .numerics = {.f16_acc = true}}));
  data.fill(1, [](const OperandSpec&, std::uint64_t) { return 1.0; });
  const Stored wide = whole(data, 0, true).stored.at("d")[0];
  EXPECT_LT(wide.lo, 3000);
  EXPECT_GT(wide.hi, 3000);
  Data fits(problem_of({.m = 1,
                        .n = 1,
                        .k = 2000,
                        .a = DType::f16,
                        .b = DType::f16,
                        .d = DType::f32,
                        .numerics = {.f16_acc = true}}));
  fits.fill(1, [](const OperandSpec&, std::uint64_t) { return 1.0; });
  EXPECT_EQ(whole(fits, 0, true).stored.at("d")[0].lo, 2000);
  EXPECT_EQ(whole(fits, 0, true).stored.at("d")[0].hi, 2000);
}

// Programs against formulas written again in long double.
struct ProgramCase {
  const char* program;
  long double (*d)(const Data&, std::int64_t i, std::int64_t j, long double acc, long double up);
};
long double phi(long double x) { return (1 + std::erf(x / std::sqrt(2.0L))) / 2; }
const ProgramCase kPrograms[] = {
    {"d = gelu(acc + bias[n])",
     [](const Data& v, std::int64_t, std::int64_t j, long double acc, long double) {
       const long double x = acc + v.get("bias", 0, 0, j);
       return x * phi(x);
     }},
    {"d = alpha * acc + beta * c[m,n]",
     [](const Data& v, std::int64_t i, std::int64_t j, long double acc, long double) {
       return v.get("alpha", 0, 0, 0) * acc +
              v.get("beta", 0, 0, 0) * (long double)v.get("c", 0, i, j);
     }},
    {"d = silu(gate) * up", [](const Data&, std::int64_t, std::int64_t, long double acc,
                               long double up) { return acc / (1 + std::exp(-acc)) * up; }},
    {"h = acc * scale_a[m] * scale_b[n]; d = h / scale_d",
     [](const Data& v, std::int64_t i, std::int64_t j, long double acc, long double) {
       return acc * v.get("scale_a", 0, 0, i) * v.get("scale_b", 0, 0, j) /
              v.get("scale_d", 0, 0, 0);
     }},
    {"d = sigmoid(acc) * c[m,n]",
     [](const Data& v, std::int64_t i, std::int64_t j, long double acc, long double) {
       return v.get("c", 0, i, j) / (1 + std::exp(-acc));
     }},
    {"d = clamp(acc + bias[n], -1, 0.5)",
     [](const Data& v, std::int64_t, std::int64_t j, long double acc, long double) {
       return std::min(std::max(acc + v.get("bias", 0, 0, j), -1.0L), 0.5L);
     }},
    {"d = select(acc > r[m], exp(acc - 3), -abs(acc))",
     [](const Data& v, std::int64_t i, std::int64_t, long double acc, long double) {
       return acc > v.get("r", 0, 0, i) ? std::exp(acc - 3) : -std::fabs(acc);
     }},
    {"d = leaky_relu(acc, 0.125) * drelu(acc + 1) - 2",
     [](const Data&, std::int64_t, std::int64_t, long double acc, long double) {
       return (acc >= 0 ? acc : 0.125L * acc) * (acc + 1 > 0 ? 1 : 0) - 2;
     }},
    {"d = log(1 + acc * acc) * rsqrt(2 + acc * acc) + tanh(acc) * erf(acc)",
     [](const Data&, std::int64_t, std::int64_t, long double x, long double) {
       return std::log(1 + x * x) / std::sqrt(2 + x * x) + std::tanh(x) * std::erf(x);
     }},
};

TEST(Reference, ProgramsAgreeWithLongDouble) {
  for (const auto& [program, want] : kPrograms) {
    SCOPED_TRACE(program);
    const bool gated = std::string_view(program).find("gate") != std::string_view::npos;
    GemmProblem p{
        .m = 66, .n = 70, .k = 40, .a = DType::bf16, .b = DType::bf16, .d = DType::f32, .ldd = 80};
    const GemmProblem done = problem_of(p, program);
    Data data(done);
    data.fill_uniform(21);
    const Block got = whole(data);
    const std::int64_t cols = columns(done);
    for (std::int64_t i = 0; i < 66; ++i) {
      for (std::int64_t j = 0; j < cols; ++j) {
        const long double acc = data.acc(0, i, j).first,
                          up = gated ? data.acc(0, i, j + cols).first : 0;
        const long double value = want(data, i, j, acc, up);
        ASSERT_NEAR(got.value.at("d")[std::size_t(i * cols + j)], double(value),
                    1e-12 * (1 + std::fabs(double(value))))
            << i << "," << j;
        ASSERT_TRUE(accepts(got.stored.at("d")[std::size_t(i * cols + j)], float(value)))
            << i << "," << j;
        ASSERT_FALSE(accepts(got.stored.at("d")[std::size_t(i * cols + j)], float(value) + 0.01f))
            << i << "," << j;
      }
    }
  }
}

TEST(Reference, ReductionsOverRowsColumnsAndBoth) {
  const GemmProblem p = problem_of(
      {.m = 70, .n = 90, .k = 33, .batch = 2, .a = DType::bf16, .b = DType::bf16, .d = DType::bf16},
      "h = acc + c[m,n]; d = h; sumsq[m] = sum(h * h, n); low[n] = min(h, m); amax = max(abs(h)); "
      "e[m,n] = -h");
  Data data(p);
  data.fill_uniform(4);
  for (std::int64_t e = 0; e < 2; ++e) {
    const Block got = whole(data, e);
    std::vector<long double> sumsq(70), low(90, 1e30L);
    long double amax = 0;
    for (std::int64_t i = 0; i < 70; ++i) {
      for (std::int64_t j = 0; j < 90; ++j) {
        const long double h = data.acc(e, i, j).first + data.get("c", e, i, j);
        sumsq[std::size_t(i)] += h * h;
        low[std::size_t(j)] = std::min(low[std::size_t(j)], h);
        amax = std::max(amax, std::fabs(h));
        ASSERT_NEAR(got.value.at("e")[std::size_t(i * 90 + j)], -double(h), 1e-13);
      }
    }
    const auto near = [&](const std::string& name, std::size_t at, long double want, double error) {
      EXPECT_TRUE(got.known.at(name));
      EXPECT_NEAR(got.value.at(name)[at], double(want), 1e-13 * std::fabs(double(want)) + 1e-13);
      const Stored s = got.stored.at(name)[at];
      EXPECT_TRUE(accepts(s, float(want)));
      EXPECT_LT(double(s.hi) - double(s.lo), error) << name;
    };
    for (std::size_t i = 0; i < 70; ++i) near("sumsq", i, sumsq[i], 1e-4 * double(sumsq[i]));
    for (std::size_t j = 0; j < 90; ++j) near("low", j, low[j], 1e-4);
    near("amax", 0, amax, 1e-4);
  }
}

TEST(Reference, ReductionsOfIntegersAreExact) {
  const GemmProblem p = problem_of({.m = 70, .n = 90, .k = 33, .a = DType::bf16, .b = DType::bf16},
                                   "d = acc; s[m] = sum(acc * acc, n); t = sum(acc)");
  Data data(p);
  data.fill_integers(4);
  const Block got = whole(data, 0, true);
  double total = 0;
  for (std::int64_t i = 0; i < 70; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < 90; ++j) {
      const auto x = double(data.acc(0, i, j).first);
      sum += x * x;
      total += x;
    }
    EXPECT_EQ(got.stored.at("s")[std::size_t(i)].lo, sum);
    EXPECT_EQ(got.stored.at("s")[std::size_t(i)].hi, sum);
  }
  EXPECT_EQ(got.stored.at("t")[0].lo, total);
  EXPECT_EQ(got.stored.at("t")[0].hi, total);
}

TEST(Reference, PartsKnowWhichReductionsTheyHold) {
  const GemmProblem p =
      problem_of({.m = 200, .n = 300, .k = 5},
                 "d = acc; r[m] = sum(acc, n); c[n] = max(acc, m); t = sum(acc); v[n] = w[n] * 2");
  Data data(p);
  data.fill_uniform(4);
  const Block everything = whole(data);
  for (const char* name : {"r", "c", "t", "v"}) EXPECT_TRUE(everything.known.at(name)) << name;
  const std::vector<std::int64_t> rows = {0, 3, 64, 150, 199}, cols = {1, 63, 64, 299};
  const auto all_rows = all(200), all_cols = all(300);
  Request request;
  request.rows = rows;
  request.cols = all_cols;
  const Block some_rows = block(data, request);
  EXPECT_TRUE(some_rows.known.at("r"));
  EXPECT_FALSE(some_rows.known.at("c"));
  EXPECT_FALSE(some_rows.known.at("t"));
  EXPECT_TRUE(some_rows.known.at("v"));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(some_rows.value.at("r")[i], everything.value.at("r")[std::size_t(rows[i])]);
    EXPECT_EQ(some_rows.value.at("d")[i * 300 + 7],
              everything.value.at("d")[std::size_t(rows[i] * 300 + 7)]);
  }
  request.rows = all_rows;
  request.cols = cols;
  const Block some_cols = block(data, request);
  EXPECT_FALSE(some_cols.known.at("r"));
  EXPECT_TRUE(some_cols.known.at("c"));
  for (std::size_t j = 0; j < cols.size(); ++j) {
    EXPECT_EQ(some_cols.value.at("c")[j], everything.value.at("c")[std::size_t(cols[j])]);
    EXPECT_EQ(some_cols.value.at("d")[5 * 4 + j],
              everything.value.at("d")[std::size_t(5 * 300 + cols[j])]);
    EXPECT_EQ(some_cols.value.at("v")[j], 2 * data.get("w", 0, 0, cols[j]));
  }
}

TEST(Reference, EmptyExtents) {
  {
    Data data(problem_of({.m = 3, .n = 4, .k = 0}, "d = acc + bias[n]"));
    data.fill_uniform(1);
    const Block got = whole(data);
    for (std::size_t j = 0; j < 4; ++j)
      EXPECT_EQ(got.stored.at("d")[4 + j].lo, float(data.get("bias", 0, 0, std::int64_t(j))));
  }
  const char* program =
      "d = acc; s[m] = sum(acc, n); x[m] = max(acc, n); y[n] = min(acc, m); t = sum(acc)";
  {
    Data data(problem_of({.m = 3, .n = 0, .k = 5}, program));
    data.fill_uniform(1);
    const Block got = whole(data);
    EXPECT_EQ(got.stored.at("s").at(2).lo, 0);
    EXPECT_EQ(got.stored.at("x").at(2).hi, -kInf);
    EXPECT_TRUE(got.known.at("x"));
    EXPECT_TRUE(got.stored.at("y").empty());
    EXPECT_EQ(got.stored.at("t").at(0).hi, 0);
  }
  {
    Data data(problem_of({.m = 0, .n = 2, .k = 5}, program));
    data.fill_uniform(1);
    const Block got = whole(data);
    EXPECT_TRUE(got.stored.at("s").empty());
    EXPECT_EQ(got.stored.at("y").at(1).lo, kInf);
  }
}

TEST(Reference, ZeroFactorsAreNotRead) {
  Data data(problem_of({.m = 3, .n = 4, .k = 5}, "d = acc + beta * c[m,n]"));
  data.fill_uniform(1);
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t j = 0; j < 4; ++j) data.set("c", 0, i, j, kNaN);
  }
  EXPECT_EQ(whole(data).stored.at("d")[0].nan, NaN::always);
  data.set("beta", 0, 0, 0, 0);
  const Block got = whole(data);
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(got.stored.at("d")[i].nan, NaN::never);
  EXPECT_NEAR(got.value.at("d")[5], double(data.acc(0, 1, 1).first), 1e-14);
}

TEST(Reference, NaNAndInfinityGoWhereTheyMust) {
  Data data(problem_of({.m = 4, .n = 5, .k = 6}));
  data.fill_uniform(1);
  data.set("a", 0, 1, 2, kNaN);
  data.set("a", 0, 2, 3, kInf);
  data.set("b", 0, 4, 3, 0);
  const Block got = whole(data);
  for (std::size_t j = 0; j < 5; ++j) {
    EXPECT_EQ(got.stored.at("d")[j].nan, NaN::never);
    EXPECT_EQ(got.stored.at("d")[5 + j].nan, NaN::always);
    const Stored s = got.stored.at("d")[10 + j];
    if (j == 4) {
      EXPECT_EQ(s.nan, NaN::always) << "infinity times zero";
    } else {
      EXPECT_EQ(s.nan, NaN::never);
      EXPECT_EQ(s.lo, float(std::copysign(kInf, data.get("b", 0, std::int64_t(j), 3))));
      EXPECT_EQ(s.hi, s.lo);
    }
  }
}

TEST(Reference, SumsThatMayOverflowAcceptAnything) {
  Data data(problem_of({.m = 1, .n = 1, .k = 2}));
  data.set("a", 0, 0, 0, 3e38);
  data.set("a", 0, 0, 1, -3e38);
  data.set("b", 0, 0, 0, 3);
  data.set("b", 0, 0, 1, 3);
  const Stored s = whole(data).stored.at("d")[0];
  EXPECT_TRUE(accepts(s, float(kNaN)) && accepts(s, 0) && accepts(s, float(kInf)));
}

TEST(Reference, ProgressIsCalled) {
  Data data(problem_of({.m = 700, .n = 700, .k = 1}));
  data.fill_uniform(1);
  const auto rows = all(700);
  Request request;
  request.rows = rows;
  request.cols = rows;
  int calls = 0;
  request.progress = [&] { ++calls; };
  evaluate(data.problem, data.pointers, request, [](const Piece&) {});
  EXPECT_GE(calls, 1);
}

// ---------------------------------------------------------------------------------------------------------
// integer.h

TEST(Ternary, AgreesWithThePlainLoop) {
  for (const auto& [why, shape] : kShapes) {
    SCOPED_TRACE(why);
    Data data(problem_of(shape));
    data.fill_integers(13);
    for (std::int64_t e = 0; e < shape.batch; ++e) {
      const auto product = TernaryProduct::make(data.problem, data.pointers, e);
      ASSERT_TRUE(product) << product.error();
      const auto rows = all(std::min<std::int64_t>(64, shape.m)),
                 cols = all(std::min<std::int64_t>(64, shape.n));
      std::vector<double> out(64 * 64);
      product->tile(rows, cols, out.data());
      for (const std::int64_t i : rows) {
        for (const std::int64_t j : cols)
          ASSERT_EQ(out[std::size_t(i * 64 + j)], double(data.acc(e, i, j).first)) << i << "," << j;
      }
      const std::vector<std::int64_t> last_row = {shape.m - 1}, last_col = {shape.n - 1};
      product->tile(last_row, last_col, out.data());
      EXPECT_EQ(out[0], double(data.acc(e, shape.m - 1, shape.n - 1).first));
    }
  }
}

TEST(Ternary, OtherNumbersAreRefused) {
  Data data(problem_of({.m = 4, .n = 5, .k = 6, .scales = ScaleMode::tensor}));
  data.fill_integers(1);
  data.set("b", 0, 4, 5, 2);
  EXPECT_EQ(
      TernaryProduct::make(data.problem, data.pointers, 0).error().message,
      "reference: an element of b is none of -1, 0 and 1; exact products need small integers");
  EXPECT_FALSE(Freivalds::make(data.problem, data.pointers, 0, 1));
  data.set("b", 0, 4, 5, 1);
  data.set("a", 0, 0, 0, kNaN);
  EXPECT_FALSE(TernaryProduct::make(data.problem, data.pointers, 0));
  EXPECT_FALSE(Freivalds::make(data.problem, data.pointers, 0, 1));
  data.set("a", 0, 0, 0, 0);
  data.set("scale_a", 0, 0, 0, 3);
  EXPECT_EQ(TernaryProduct::make(data.problem, data.pointers, 0).error().message,
            "reference: the scale 3 of a is no power of two from 2^-4 to 2^4");
}

TEST(Freivalds, AcceptsTheProductAndNothingElse) {
  for (const auto& [why, shape] : kShapes) {
    SCOPED_TRACE(why);
    GemmProblem p = shape;
    p.d = DType::f32;
    Data data(problem_of(p));
    data.fill_integers(17);
    const std::int64_t m = p.m, n = p.n;
    for (std::int64_t e = 0; e < p.batch; ++e) {
      std::vector<float> product(std::size_t(m * (n + 3)), float(kNaN));
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < n; ++j)
          product[std::size_t(i * (n + 3) + j)] = float(data.acc(e, i, j).first);
      }
      const auto check = Freivalds::make(data.problem, data.pointers, e, 99);
      ASSERT_TRUE(check) << check.error();
      EXPECT_TRUE(check->wrong_rows(DType::f32, product.data(), n + 3).empty());
      for (const float wrong : {1.0f, -1.0f, 64.0f, 0.125f, float(kNaN), float(kInf), 1e20f}) {
        const std::size_t at = std::size_t((m - 1) * (n + 3) + (n / 2));
        const float kept = product[at];
        product[at] += wrong;
        EXPECT_EQ(check->wrong_rows(DType::f32, product.data(), n + 3),
                  std::vector<std::int64_t>{m - 1})
            << wrong;
        product[at] = kept;
      }
    }
  }
}

TEST(Freivalds, TilesGiveTheSameAnswer) {
  Data data(problem_of({.m = 70,
                        .n = 150,
                        .k = 200,
                        .a = DType::e4m3,
                        .b = DType::e4m3,
                        .scales = ScaleMode::block}));
  data.fill_integers(19);
  const auto product = TernaryProduct::make(data.problem, data.pointers, 0);
  const auto check = Freivalds::make(data.problem, data.pointers, 0, 7);
  ASSERT_TRUE(product && check);
  const auto rows = all(70), cols = all(150);
  for (const bool spoil : {false, true}) {
    std::vector<std::uint64_t> sums(70);
    std::vector<double> tile(64 * 64);
    for (std::size_t i = 0; i < 70; i += 64) {
      for (std::size_t j = 0; j < 150; j += 64) {
        const auto r = std::span(rows).subspan(i, std::min<std::size_t>(64, 70 - i)),
                   c = std::span(cols).subspan(j, std::min<std::size_t>(64, 150 - j));
        product->tile(r, c, tile.data());
        if (spoil && i == 64 && j == 128) tile[3 * 64 + 5] += 1;
        check->add_tile(r, c, tile.data(), sums);
      }
    }
    EXPECT_EQ(check->wrong_rows(sums),
              spoil ? std::vector<std::int64_t>{67} : std::vector<std::int64_t>{});
  }
}

TEST(Reference, TakesExactSumsFromElsewhere) {
  for (const char* program : {"d = gelu(acc + bias[n])", "d = silu(gate) * up"}) {
    Data data(
        problem_of({.m = 70, .n = 140, .k = 50, .a = DType::bf16, .b = DType::bf16}, program));
    data.fill_integers(23);
    const auto product = TernaryProduct::make(data.problem, data.pointers, 0);
    ASSERT_TRUE(product);
    const auto rows = all(70), cols = all(columns(data.problem));
    Request request;
    request.rows = rows;
    request.cols = cols;
    request.exact_sums = [&](std::span<const std::int64_t> r, std::span<const std::int64_t> c,
                             double* out) { product->tile(r, c, out); };
    const Block other = block(data, request), own = whole(data, 0, true);
    EXPECT_EQ(own.value.at("d"), other.value.at("d"));
    for (std::size_t i = 0; i < own.stored.at("d").size(); ++i) {
      ASSERT_EQ(own.stored.at("d")[i].lo, other.stored.at("d")[i].lo);
      ASSERT_EQ(own.stored.at("d")[i].hi, other.stored.at("d")[i].hi);
    }
  }
}

}  // namespace
}  // namespace lapidary::reference
