#include "worker/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "worker/testing_device.h"
#include "worker/testing_planted.h"
#include "worker/verify_data.h"
#include "worker/verify_memory.h"

namespace lapidary::worker {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

GemmProblem problem(GemmProblem p, std::string_view program = "d = acc") {
  auto epilogue = parse_epilogue(program, p.scales != ScaleMode::none);
  EXPECT_TRUE(epilogue) << epilogue.error();
  p.epilogue = *epilogue;
  auto done = checked(std::move(p));
  EXPECT_TRUE(done) << done.error();
  return *done;
}

Verdict verdict_of(const GemmProblem& p, const backends::Executable& executable,
                   std::uint32_t checks = kAllChecks) {
  VerifyOptions options;
  options.checks = checks;
  auto verifier = Verifier::make(p, device(), options);
  EXPECT_TRUE(verifier) << verifier.error();
  const auto verdict = verifier->verify(executable);
  EXPECT_TRUE(verdict) << verdict.error();
  return verdict ? *verdict : Verdict{};
}

struct Case {
  const char* why;
  GemmProblem problem;
  const char* program = "d = acc";
};

constexpr DType kF32 = DType::f32, kBf16 = DType::bf16, kF16 = DType::f16, kE4m3 = DType::e4m3,
                kE5m2 = DType::e5m2;

const Case kRight[] = {
    {"one element", {.m = 1, .n = 1, .k = 1, .a = kBf16, .b = kBf16}},
    {"a row", {.m = 1, .n = 8, .k = 16, .a = kBf16, .b = kBf16}},
    {"a column", {.m = 70, .n = 1, .k = 16, .a = kF16, .b = kF16}},
    {"primes", {.m = 17, .n = 31, .k = 127, .a = kBf16, .b = kBf16}},
    {"f32", {.m = 33, .n = 65, .k = 100}},
    {"f16 to f32", {.m = 33, .n = 65, .k = 100, .a = kF16, .b = kF16, .d = kF32}},
    {"mixed types", {.m = 20, .n = 30, .k = 40, .a = kBf16, .b = kF16, .d = kF32}},
    {"e4m3 to e4m3", {.m = 33, .n = 65, .k = 300, .a = kE4m3, .b = kE4m3, .d = kE4m3}},
    {"e5m2 to bf16", {.m = 33, .n = 65, .k = 300, .a = kE5m2, .b = kE5m2}},
    {"e5m2 to e5m2", {.m = 9, .n = 10, .k = 30, .a = kE5m2, .b = kE5m2, .d = kE5m2}},
    {"nn", {.m = 33, .n = 65, .k = 100, .layout = GemmLayout::nn, .a = kBf16, .b = kBf16}},
    {"tn", {.m = 33, .n = 65, .k = 100, .layout = GemmLayout::tn, .a = kBf16, .b = kBf16}},
    {"tt", {.m = 33, .n = 65, .k = 100, .layout = GemmLayout::tt, .a = kBf16, .b = kBf16}},
    {"pitches",
     {.m = 33, .n = 65, .k = 100, .a = kBf16, .b = kBf16, .lda = 104, .ldb = 101, .ldd = 80}},
    {"offsets",
     {.m = 5, .n = 6, .k = 7, .a = kBf16, .b = kBf16, .offsets = {{"a", 2}, {"b", 4}, {"d", 6}}}},
    {"batch", {.m = 9, .n = 17, .k = 33, .batch = 5, .a = kBf16, .b = kBf16}},
    {"batch of one B",
     {.m = 9, .n = 17, .k = 33, .batch = 3, .a = kBf16, .b = kBf16, .strides = {{"b", 0}}}},
    {"batches interleaved",
     {.m = 9,
      .n = 17,
      .k = 33,
      .batch = 3,
      .a = kBf16,
      .b = kBf16,
      .lda = 99,
      .strides = {{"a", 33}}}},
    {"batches overlap",
     {.m = 9, .n = 17, .k = 33, .batch = 3, .a = kBf16, .b = kBf16, .strides = {{"a", 33}}}},
    {"k = 0", {.m = 8, .n = 9, .k = 0, .a = kBf16, .b = kBf16}, "d = acc + bias[n]"},
    {"m = 0",
     {.m = 0, .n = 9, .k = 4, .a = kBf16, .b = kBf16},
     "d = acc; s[n] = max(acc, m); t = sum(acc)"},
    {"n = 0", {.m = 8, .n = 0, .k = 4, .a = kBf16, .b = kBf16}, "d = acc; s[m] = sum(acc, n)"},
    {"tensor scales",
     {.m = 33, .n = 65, .k = 100, .a = kE4m3, .b = kE4m3, .scales = ScaleMode::tensor}},
    {"row scales",
     {.m = 33, .n = 65, .k = 100, .a = kE4m3, .b = kE4m3, .scales = ScaleMode::row},
     "d = acc + c[m,n]"},
    {"block scales",
     {.m = 33, .n = 140, .k = 300, .a = kE4m3, .b = kE4m3, .scales = ScaleMode::block}},
    {"block scales, batch",
     {.m = 3, .n = 14, .k = 130, .batch = 2, .a = kE4m3, .b = kE4m3, .scales = ScaleMode::block},
     "d = relu(acc)"},
    {"tf32", {.m = 33, .n = 65, .k = 100, .numerics = {.tf32 = true}}},
    {"f16_acc", {.m = 33, .n = 65, .k = 3000, .a = kF16, .b = kF16, .numerics = {.f16_acc = true}}},
    {"fast_fp8",
     {.m = 33, .n = 65, .k = 3000, .a = kE4m3, .b = kE4m3, .numerics = {.fast_fp8 = true}}},
    {"rounded",
     {.m = 33, .n = 65, .k = 100, .a = kBf16, .b = kBf16, .numerics = {.rounded = true}},
     "d = gelu(acc + bias[n])"},
    {"nondeterministic",
     {.m = 33, .n = 65, .k = 100, .a = kBf16, .b = kBf16, .numerics = {.nondeterministic = true}}},
    {"gelu", {.m = 33, .n = 65, .k = 100, .a = kBf16, .b = kBf16}, "d = gelu(acc + bias[n])"},
    {"gelu_tanh", {.m = 33, .n = 65, .k = 100, .d = kF32}, "d = gelu_tanh(acc + bias[n])"},
    {"alpha, beta",
     {.m = 33, .n = 65, .k = 100, .a = kBf16, .b = kBf16},
     "d = alpha * acc + beta * c[m,n]"},
    {"alias",
     {.m = 33, .n = 65, .k = 100, .a = kBf16, .b = kBf16, .ldc = 70, .ldd = 70, .alias = {"c=d"}},
     "d = acc + bias[n] + c[m,n]"},
    {"swiglu", {.m = 33, .n = 130, .k = 100, .a = kBf16, .b = kBf16}, "d = silu(gate) * up"},
    {"fp8 out",
     {.m = 33, .n = 65, .k = 100, .a = kBf16, .b = kBf16, .d = kE4m3},
     "d = gelu(acc + bias[n]) / scale_d"},
    {"row sums",
     {.m = 33, .n = 65, .k = 100, .a = kBf16, .b = kBf16},
     "h = acc + c[m,n]; d = h; sumsq[m] = sum(h * h, n)"},
    {"amax",
     {.m = 33, .n = 65, .k = 100, .batch = 2, .a = kBf16, .b = kBf16, .d = kE4m3},
     "h = acc * scale_a[m] * scale_b[n]; d = h / scale_d; amax = max(abs(h))"},
    {"column extremes",
     {.m = 33, .n = 65, .k = 100},
     "d = acc; low[n] = min(acc, m); high[n] = max(acc, m)"},
    {"sigmoid, C",
     {.m = 33, .n = 65, .k = 100, .a = kBf16, .b = kBf16, .c = kF32},
     "d = sigmoid(acc) * c[m,n]"},
    {"clamp",
     {.m = 33, .n = 65, .k = 100, .a = kBf16, .b = kBf16},
     "d = clamp(acc + bias[n], -7, 7)"},
    {"select, log",
     {.m = 33, .n = 65, .k = 100},
     "d = select(acc > 1, log(acc), leaky_relu(acc, slope)); e[m,n] = cast(acc, e4m3)"},
    {"softplus and derivatives",
     {.m = 33, .n = 65, .k = 100},
     "d = softplus(acc) + dgelu(acc) * dsilu(acc) - dgelu_tanh(acc) * drelu(acc)"},
    {"no product", {.m = 33, .n = 65, .k = 100}, "d = bias[n] * r[m]"},
    {"constant B", {.m = 33, .n = 65, .k = 100, .a = kBf16, .b = kBf16, .constant = {"b"}}},
};

TEST(Verify, TheRightKernelPasses) {
  for (const auto& [why, shape, program] : kRight) {
    SCOPED_TRACE(why);
    const GemmProblem p = problem(shape, program);
    const Verdict verdict = verdict_of(p, *right_executable(p));
    EXPECT_TRUE(verdict.passed) << verdict.check << ": " << verdict.reason;
  }
}

TEST(Verify, PackedOperandsFollowTheData) {
  // The plant that packs B once is wrong because contents change; here a right one packs.
  const GemmProblem p = problem({.m = 9, .n = 10, .k = 11, .constant = {"b"}});
  const Verdict verdict = verdict_of(p, *find_planted("stale_pack")->make(p));
  EXPECT_FALSE(verdict.passed);
}

/// Ten shapes for a plant: extents that its fault needs, in a problem that has what it spoils.
struct Extents {
  std::int64_t m, n, k;
};
constexpr Extents kExtents[] = {{17, 31, 127}, {7, 34, 100},  {2, 8, 36},   {64, 64, 64},
                                {33, 130, 65}, {65, 40, 257}, {16, 16, 48}, {100, 6, 300},
                                {5, 258, 33},  {128, 128, 32}};

GemmProblem base_for(std::string_view plant, Extents e) {
  GemmProblem p{.m = e.m, .n = e.n, .k = e.k, .a = kBf16, .b = kBf16};
  if (plant == "swapped_scales" || plant == "next_scale") {
    p.a = p.b = kE4m3;
    p.scales = e.m % 2 ? ScaleMode::row : ScaleMode::block;
    return problem(p);
  }
  if (plant == "swapped_gate")
    return problem({.m = e.m, .n = e.n + e.n % 2, .k = e.k, .a = kBf16, .b = kBf16},
                   "d = silu(gate) * up");
  if (plant == "first_entry") p.batch = 3;
  if (plant == "sum_misses_column") return problem(p, "d = acc; s[m] = sum(acc, n)");
  if (plant == "clears_d_first") {
    p.alias = {"c=d"};
    return problem(p, "d = acc + c[m,n]");
  }
  if (plant == "stale_pack") p.constant = {"b"};
  if (plant == "flickers") p.d = kF32;
  if (plant == "reads_zero_terms") return problem(p, "d = acc + beta * c[m,n]");
  if (plant == "writes_gap") p.ldd = e.n + 3;
  if (plant == "rounds_a") {
    p.a = p.b = kF32;
    p.numerics.tf32 = true;
  }
  if (plant == "skips_zero_results" || plant == "truncates") {
    p.m = std::max<std::int64_t>(e.m, 40);
    p.n = std::max<std::int64_t>(e.n, 40);
  }
  return problem(p);
}

TEST(Verify, EveryPlantIsCaughtAtTenShapes) {
  int plants = 0;
  for (const Planted& plant : planted()) {
    if (plant.caught_by == "process" || plant.caught_by.empty() || plant.name == "unsampled")
      continue;
    if (kSanitized && plant.name == "leaks") continue;
    ++plants;
    int shapes = 0;
    for (const Extents& extents : kExtents) {
      const GemmProblem p = base_for(plant.name, extents);
      SCOPED_TRACE(std::string(plant.name) + " on " + summary(p));
      ASSERT_TRUE(plant.applies(p));
      const Verdict verdict = verdict_of(p, *plant.make(p));
      EXPECT_FALSE(verdict.passed);
      EXPECT_EQ(verdict.check, plant.caught_by) << verdict.reason;
      EXPECT_NE(verdict.reason.find("--verify-seed 1"), std::string::npos) << verdict.reason;
      EXPECT_EQ(verdict.reason.find('\n'), std::string::npos);
      ++shapes;
    }
    EXPECT_EQ(shapes, 10);
  }
  EXPECT_GE(plants, 20);
}

/// More than 2^27 products, so that rows and columns are sampled; the plant spoils one of two
/// million elements.
GemmProblem large(std::int64_t m = 1500, std::int64_t n = 1400, std::int64_t k = 80,
                  const char* program = "d = acc") {
  return problem({.m = m, .n = n, .k = k, .a = kBf16, .b = kBf16}, program);
}

/// For each check a plant that passes without it and fails with it.
struct Needed {
  Check check;
  std::string_view plant;
  GemmProblem problem;
};

TEST(Verify, NoCheckIsIdle) {
  const Needed needed[] = {
      {Check::guards, "writes_past_d", problem({.m = 17, .n = 31, .k = 20})},
      {Check::guards, "writes_before_d", problem({.m = 17, .n = 31, .k = 20})},
      {Check::guards, "writes_gap", problem({.m = 17, .n = 31, .k = 20, .ldd = 40})},
      {Check::guards, "overruns_workspace", problem({.m = 17, .n = 31, .k = 20})},
      {Check::fill, "skips_zero_results", problem({.m = 40, .n = 50, .k = 20})},
      {Check::fill, "adds_to_d", problem({.m = 17, .n = 31, .k = 20})},
      {Check::inputs, "rounds_a", problem({.m = 17, .n = 31, .k = 20, .numerics = {.tf32 = true}})},
      {Check::exact, "sum_misses_column",
       problem({.m = 4, .n = 4096, .k = 1024}, "d = acc; s[m] = sum(acc, n)")},
      {Check::whole, "unsampled", large()},
      {Check::numeric, "bf16_sums", problem({.m = 17, .n = 31, .k = 100, .a = kBf16, .b = kBf16})},
      {Check::numeric, "truncates", problem({.m = 17, .n = 31, .k = 100, .a = kBf16, .b = kBf16})},
      {Check::position, "skips_zeros", problem({.m = 17, .n = 31, .k = 20})},
      {Check::position, "nan_to_zero", problem({.m = 17, .n = 31, .k = 20})},
      {Check::repeat, "flickers", problem({.m = 17, .n = 31, .k = 20})},
      {Check::zero_factor, "reads_zero_terms",
       problem({.m = 17, .n = 31, .k = 20}, "d = acc + beta * c[m,n]")},
      {Check::leak, "keeps_files", problem({.m = 17, .n = 31, .k = 20})},
      {Check::leak, "leaks", problem({.m = 17, .n = 31, .k = 20})},
  };
  std::uint32_t seen = 0;
  for (const auto& [check, name, p] : needed) {
    SCOPED_TRACE(std::string(worker::name(check)) + ": " + std::string(name));
    if (kSanitized && name == "leaks") continue;
    const Planted& plant = *find_planted(name);
    const Verdict with = verdict_of(p, *plant.make(p));
    EXPECT_FALSE(with.passed);
    const Verdict without = verdict_of(p, *plant.make(p), kAllChecks & ~std::uint32_t(check));
    EXPECT_TRUE(without.passed) << without.check << ": " << without.reason;
    seen |= std::uint32_t(check);
  }
  EXPECT_EQ(seen, kAllChecks);
}

TEST(Verify, OneWrongElementOfALargeResultIsNamed) {
  const GemmProblem p = large();
  const Verdict verdict = verdict_of(p, *find_planted("unsampled")->make(p));
  EXPECT_EQ(verdict.check, "whole");
  EXPECT_EQ(verdict.reason.rfind("d[642,622] is ", 0), 0u) << verdict.reason;
  EXPECT_NE(
      verdict.reason.find(
          "(1 of 1400 elements compared are wrong), with small integers; seed 1; "
          "lapidary tune --m 1500 --n 1400 --k 80 --a bf16 --b bf16 --retune --verify-seed 1"),
      std::string::npos)
      << verdict.reason;
}

TEST(Verify, LargeResultsOfInexactProgramsAreComparedWithAProvedPair) {
  for (const char* program : {"d = gelu(acc + bias[n])", "d = silu(gate) * up",
                              "d = relu(acc) + c[m,n]; s[n] = sum(acc, m)"}) {
    SCOPED_TRACE(program);
    const GemmProblem p = large(900, 1250, 130, program);
    auto verifier = Verifier::make(p, device(), {});
    ASSERT_TRUE(verifier) << verifier.error();
    // The right one twice: what was made for the first serves the second.
    for (int i = 0; i < 2; ++i) {
      const auto verdict = verifier->verify(*right_executable(p));
      ASSERT_TRUE(verdict) << verdict.error();
      EXPECT_TRUE(verdict->passed) << verdict->check << ": " << verdict->reason;
    }
    const auto verdict = verifier->verify(*find_planted("unsampled")->make(p));
    ASSERT_TRUE(verdict) << verdict.error();
    EXPECT_EQ(verdict->check, "whole") << verdict->reason;
    EXPECT_TRUE(verifier->verify(*right_executable(p))->passed) << "after a wrong one";
  }
}

TEST(Verify, AFailingRunIsTheCandidatesError) {
  const GemmProblem p = problem({.m = 3, .n = 4, .k = 5});
  auto verifier = Verifier::make(p, device(), {});
  ASSERT_TRUE(verifier);
  const auto verdict = verifier->verify(*find_planted("fails")->make(p));
  ASSERT_FALSE(verdict);
  EXPECT_EQ(verdict.error().message, "planted: this kernel always fails");
}

TEST(Verify, BeatsNameTheSteps) {
  const GemmProblem p = problem({.m = 3, .n = 4, .k = 5}, "d = acc + beta * c[m,n]");
  std::set<std::string> steps;
  auto verifier = Verifier::make(
      p, device(), {.seed = 1, .beat = [&](std::string_view step) { steps.emplace(step); }});
  ASSERT_TRUE(verifier);
  EXPECT_TRUE(verifier->verify(*right_executable(p))->passed);
  for (const char* step : {"filling inputs", "pack", "run with small integers",
                           "run with random numbers", "random numbers: reference rows"}) {
    EXPECT_TRUE(steps.contains(step)) << step;
  }
}

TEST(Verify, SeedsChangeTheData) {
  const GemmProblem p = problem({.m = 17, .n = 31, .k = 20});
  for (std::uint64_t seed = 2; seed < 12; ++seed) {
    auto verifier = Verifier::make(p, device(), {.seed = seed});
    ASSERT_TRUE(verifier);
    EXPECT_TRUE(verifier->verify(*right_executable(p))->passed) << seed;
    const auto wrong = verifier->verify(*find_planted("drops_last_k")->make(p));
    EXPECT_FALSE(wrong->passed) << seed;
    EXPECT_NE(wrong->reason.find("seed " + std::to_string(seed)), std::string::npos);
  }
}

TEST(Verify, TinyProblemsTakeMilliseconds) {
  const GemmProblem p = problem({.m = 1, .n = 8, .k = 16, .a = kBf16, .b = kBf16});
  auto verifier = Verifier::make(p, device(), {});
  ASSERT_TRUE(verifier);
  const auto right = right_executable(p);
  (void)verifier->verify(*right);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(verifier->verify(*right)->passed);
  const double each =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / 10;
  EXPECT_LT(each, kSanitized ? 1.0 : 0.1);
}

TEST(Reproduction, IsACommandLine) {
  EXPECT_EQ(reproduction(problem({.m = 4, .n = 8, .k = 16}), 7),
            "lapidary tune --m 4 --n 8 --k 16 --a f32 --b f32 --retune --verify-seed 7");
  const GemmProblem p = problem({.m = 4,
                                 .n = 8,
                                 .k = 16,
                                 .batch = 2,
                                 .layout = GemmLayout::tn,
                                 .a = kBf16,
                                 .b = kBf16,
                                 .d = kF32,
                                 .types = {{"bias", kF16}, {"s", kBf16}},
                                 .ldd = 9,
                                 .numerics = {.rounded = true, .f16_acc = true},
                                 .constant = {"b", "bias"}},
                                "d = relu(acc + bias[n]); s[m] = max(acc, n)");
  EXPECT_EQ(reproduction(p, 1),
            "lapidary tune --m 4 --n 8 --k 16 --batch 2 --layout tn --a bf16 --b bf16 --d f32 "
            "--type bias=f16,s=bf16 --ldd 9 "
            "--numerics f16_acc,rounded --epilogue 'd = relu(acc + bias[n]); s[m] = max(acc, n)' "
            "--constant b,bias --retune "
            "--verify-seed 1");
}

TEST(Samples, HoldTheEdgesOfTiles) {
  const std::vector<std::int64_t> rows = sampled(1000, 64, 5);
  for (const std::int64_t row : {0, 999, 992, 991, 960, 959, 896, 895, 768, 767}) {
    EXPECT_TRUE(std::ranges::binary_search(rows, row)) << row;
  }
  EXPECT_GE(rows.size(), 60u);
  EXPECT_TRUE(std::ranges::is_sorted(rows));
  EXPECT_EQ(sampled(64, 64, 5).size(), 64u);
  EXPECT_NE(sampled(1000, 64, 6), rows);
  EXPECT_EQ(samples_of(problem({.m = 100, .n = 100, .k = 100}), 64, 1).size(), 1u);
  EXPECT_EQ(samples_of(large(), 64, 1).size(), 2u);
  EXPECT_EQ(samples_of(problem({.m = 64, .n = 9000, .k = 9000}), 64, 1).size(), 1u)
      << "few rows are everything";
}

TEST(ZeroFactors, NameWhatIsNotRead) {
  const auto factors_of = [](const GemmProblem& p) { return zero_factors(p, operands(p)); };
  const auto ab = factors_of(problem({.m = 3, .n = 4, .k = 5}, "d = alpha * acc + beta * c[m,n]"));
  ASSERT_EQ(ab.size(), 2u);
  EXPECT_EQ(ab[0].name, "alpha");
  EXPECT_EQ(ab[0].unread, (std::vector<int>{0, 1}));
  EXPECT_EQ(ab[1].name, "beta");
  EXPECT_EQ(ab[1].unread, (std::vector<int>{4}));
  EXPECT_TRUE(factors_of(problem({.m = 3, .n = 4, .k = 5}, "d = acc / s")).empty());
}

TEST(LeakWatch, TellsGrowthFromCaches) {
  LeakWatch watch;
  Holdings small, large;
  large.heap_bytes = 6000;
  for (int i = 0; i < 11; ++i) watch.note(small, large);
  EXPECT_TRUE(watch.suspicious(11));
  EXPECT_FALSE(watch.suspicious(12));
  EXPECT_FALSE(watch.certain());
  watch.note(small, large);
  EXPECT_TRUE(watch.certain());
  EXPECT_EQ(watch.text(), "each of the last 12 runs kept memory: 6000 bytes in the last");
  watch.note(large, large);
  EXPECT_FALSE(watch.suspicious(1));
  EXPECT_FALSE(watch.certain());
  // Small growth may be a cache of the allocator that fills up.
  large.heap_bytes = 16;
  for (int i = 0; i < 499; ++i) watch.note(small, large);
  EXPECT_FALSE(watch.certain());
  watch.note(small, large);
  EXPECT_TRUE(watch.certain());
  Holdings files;
  files.files = 2;
  for (int i = 0; i < 12; ++i) watch.note(small, files);
  EXPECT_TRUE(watch.certain());
  EXPECT_EQ(watch.text(), "each of the last 12 runs kept files open: 2 in the last");
}

// ---------------------------------------------------------------------------------------------------------

TEST(SlowVerify, UnsampledElementsAreCaughtAtTenShapes) {
  const Extents extents[] = {{300, 700, 700},  {513, 600, 450}, {1000, 1000, 140}, {257, 2000, 300},
                             {2000, 257, 300}, {400, 400, 900}, {1025, 513, 300},  {350, 390, 1024},
                             {700, 700, 300},  {264, 1040, 500}};
  for (const char* program : {"d = acc", "d = gelu(acc + bias[n])"}) {
    for (const Extents& e : extents) {
      const GemmProblem p = large(e.m, e.n, e.k, program);
      SCOPED_TRACE(summary(p));
      const Planted& plant = *find_planted("unsampled");
      ASSERT_TRUE(plant.applies(p));
      auto verifier = Verifier::make(p, device(), {});
      ASSERT_TRUE(verifier) << verifier.error();
      EXPECT_TRUE(verifier->verify(*right_executable(p))->passed);
      const std::string check = verifier->verify(*plant.make(p))->check;
      EXPECT_TRUE(check == "whole" || check == "exact") << check;  // the element may be sampled
    }
  }
}

TEST(SlowVerify, TheRightKernelPassesEverywhere) {
  const char* programs[] = {
      "d = acc", "d = gelu(acc + bias[n])", "d = alpha * acc + beta * c[m,n]",
      "d = silu(gate) * up",
      "h = acc + c[m,n]; d = h; sumsq[m] = sum(h * h, n); amax = max(abs(h)); low[n] = min(h, m)"};
  const std::pair<DType, DType> types[] = {{kF32, kF32},   {kBf16, kBf16}, {kF16, kF32},
                                           {kE4m3, kBf16}, {kE5m2, kE4m3}, {kBf16, kE5m2}};
  const GemmLayout layouts[] = {GemmLayout::nt, GemmLayout::nn, GemmLayout::tn, GemmLayout::tt};
  const ScaleMode scales[] = {ScaleMode::none, ScaleMode::tensor, ScaleMode::row, ScaleMode::block};
  int count = 0;
  for (const auto& [in, out] : types) {
    for (const GemmLayout layout : layouts) {
      for (const ScaleMode scale : scales) {
        for (const char* program : programs) {
          GemmProblem p{.m = 19 + count % 50,
                        .n = 2 * (count % 41) + 2,
                        .k = count * 7 % 300,
                        .batch = 1 + count % 3,
                        .layout = layout,
                        .a = in,
                        .b = in,
                        .d = out,
                        .scales = scale};
          p = problem(p, program);
          SCOPED_TRACE(text(p));
          auto verifier = Verifier::make(p, device(), {.seed = std::uint64_t(++count)});
          ASSERT_TRUE(verifier) << verifier.error();
          const auto verdict = verifier->verify(*right_executable(p));
          ASSERT_TRUE(verdict) << verdict.error();
          EXPECT_TRUE(verdict->passed) << verdict->check << ": " << verdict->reason;
        }
      }
    }
  }
}

TEST(SlowVerify, EveryPlantIsCaughtOnLargeProblems) {
  for (const Planted& plant : planted()) {
    if (plant.caught_by == "process" || plant.caught_by.empty()) continue;
    if (kSanitized && plant.name == "leaks") continue;
    // A sum over columns drowns in its bound on random numbers, and rows are sampled.
    const GemmProblem p = base_for(plant.name, {300, 700, 700});
    SCOPED_TRACE(std::string(plant.name) + " on " + summary(p));
    const Verdict verdict = verdict_of(p, *plant.make(p));
    EXPECT_FALSE(verdict.passed);
  }
}

}  // namespace
}  // namespace lapidary::worker
