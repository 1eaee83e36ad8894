#include "worker/arena.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "numeric/numeric.h"
#include "support/parallel.h"
#include "worker/testing_device.h"

namespace lapidary::worker {
namespace {

GemmProblem problem(GemmProblem p, std::string_view program = "d = acc") {
  auto epilogue = parse_epilogue(program, p.scales != ScaleMode::none);
  EXPECT_TRUE(epilogue) << epilogue.error();
  p.epilogue = *epilogue;
  auto done = checked(std::move(p));
  EXPECT_TRUE(done) << done.error();
  return *done;
}

Arena arena(const GemmProblem& p) {
  auto made = Arena::make(p, device());
  EXPECT_TRUE(made) << made.error();
  return std::move(*made);
}

std::byte* bytes_of(const Arena& a, std::string_view operand) {
  return static_cast<std::byte*>(a.pointers()[std::size_t(a.index(operand))]);
}

double value(const Arena& a, std::string_view operand, std::int64_t element) {
  const int i = a.index(operand);
  return numeric::load(a.specs()[std::size_t(i)].type, a.pointers()[std::size_t(i)], element);
}

TEST(Arena, BasesAreAlignedAndOffsetsApplied) {
  const Arena a = arena(problem({.m = 3,
                                 .n = 5,
                                 .k = 7,
                                 .a = DType::bf16,
                                 .b = DType::f16,
                                 .offsets = {{"b", 6}, {"d", 130}}},
                                "d = acc + c[m,n] + bias[n]"));
  for (std::size_t i = 0; i < a.specs().size(); ++i) {
    const auto address = reinterpret_cast<std::uintptr_t>(a.pointers()[i]);
    EXPECT_EQ(address % 256, std::uintptr_t(a.specs()[i].offset_bytes)) << a.specs()[i].name;
  }
  EXPECT_EQ(a.index("c"), 2);
  EXPECT_EQ(a.index("nobody"), -1);
}

TEST(Arena, UniformFillsAreInRangeAndReproducible) {
  const GemmProblem p = problem(
      {.m = 70, .n = 90, .k = 300, .a = DType::f32, .b = DType::e4m3, .d = DType::bf16, .lda = 311},
      "d = alpha * acc / s[n] + bias[n]");
  Arena a = arena(p), b = arena(p);
  ASSERT_TRUE(a.fill_inputs(Fill::uniform, 5));
  ASSERT_TRUE(b.fill_inputs(Fill::uniform, 5));
  EXPECT_EQ(*a.hash_inputs(), *b.hash_inputs());
  ASSERT_TRUE(b.fill_inputs(Fill::uniform, 6));
  EXPECT_NE(*a.hash_inputs(), *b.hash_inputs());
  double sum = 0, squares = 0, least = 1, most = -1;
  for (std::int64_t r = 0; r < 70; ++r) {
    for (std::int64_t c = 0; c < 300; ++c) {
      const double x = value(a, "a", r * 311 + c);
      sum += x;
      squares += x * x;
      least = std::min(least, x);
      most = std::max(most, x);
    }
  }
  // 21000 values of [-1, 1): mean 0 and mean square 1/3, each within six standard deviations.
  EXPECT_NEAR(sum / 21000, 0, 6 * std::sqrt(1.0 / 3 / 21000));
  EXPECT_NEAR(squares / 21000, 1.0 / 3, 6 * std::sqrt(4.0 / 45 / 21000));
  EXPECT_LT(least, -0.999);
  EXPECT_GT(most, 0.999);
  EXPECT_GE(least, -1);
  EXPECT_LT(most, 1);
  for (std::int64_t c = 0; c < 90; ++c) {
    EXPECT_GE(value(a, "s", c), 0.5);
    EXPECT_LT(value(a, "s", c), 2);
  }
  EXPECT_GE(value(a, "alpha", 0), 0.5);
  EXPECT_TRUE(std::isnan(value(a, "a", 300))) << "the gap between rows of A must not be filled";
}

TEST(Arena, IntegerFillsKeepSumsExact) {
  for (const DType d : kDTypes) {
    for (const std::int64_t k : {std::int64_t(16), std::int64_t(1000)}) {
      SCOPED_TRACE(std::string(name(d)) + " k " + std::to_string(k));
      const GemmProblem p =
          problem({.m = 64, .n = 64, .k = k, .a = DType::bf16, .b = DType::bf16, .d = d},
                  "d = acc + c[m,n]");
      Arena a = arena(p);
      ASSERT_TRUE(a.fill_inputs(Fill::integers, 9));
      std::int64_t zeros = 0;
      for (std::int64_t i = 0; i < 64; ++i) {
        for (std::int64_t j = 0; j < 64; ++j) {
          double sum = 0;
          for (std::int64_t l = 0; l < k; ++l)
            sum += value(a, "a", i * k + l) * value(a, "b", j * k + l);
          ASSERT_LE(std::abs(sum), double(numeric::max_exact_integer(d)));
          zeros += value(a, "a", i * k + j % k) == 0;
        }
      }
      EXPECT_GT(zeros, 64 * 64 / 10);
      for (std::int64_t i = 0; i < 64 * k; ++i) ASSERT_LE(std::abs(value(a, "a", i)), 1);
    }
  }
}

TEST(Arena, DensityFollowsTheNarrowestPlaceOfASum) {
  const auto density = [](GemmProblem p, std::string_view program = "d = acc") {
    return integer_density(problem(std::move(p), program));
  };
  EXPECT_DOUBLE_EQ(density({.m = 1, .n = 1, .k = 16, .a = DType::bf16, .b = DType::bf16}), 0.7);
  EXPECT_DOUBLE_EQ(density({.m = 1, .n = 1, .k = 4096, .a = DType::bf16, .b = DType::bf16}),
                   std::sqrt(65536.0 / (49 * 4096)));
  EXPECT_DOUBLE_EQ(
      density({.m = 1, .n = 1, .k = 4096, .a = DType::bf16, .b = DType::bf16, .d = DType::e4m3}),
      std::sqrt(256.0 / (49 * 4096)));
  EXPECT_DOUBLE_EQ(density({.m = 1,
                            .n = 1,
                            .k = 4096,
                            .a = DType::f16,
                            .b = DType::f16,
                            .d = DType::f32,
                            .numerics = {.f16_acc = true}}),
                   std::sqrt(0.6 * 2048 / 4096));
  EXPECT_DOUBLE_EQ(
      density({.m = 1, .n = 1, .k = 4096, .a = DType::f32, .b = DType::f32}, "d = gelu(acc)"),
      std::sqrt(196.0 / (49 * 4096)));
}

TEST(Arena, DamageIsNamed) {
  const GemmProblem p = problem({.m = 4,
                                 .n = 6,
                                 .k = 8,
                                 .batch = 2,
                                 .a = DType::bf16,
                                 .b = DType::bf16,
                                 .d = DType::f32,
                                 .ldd = 9});
  Arena a = arena(p);
  ASSERT_TRUE(a.fill_inputs(Fill::uniform, 1));
  ASSERT_TRUE(a.fill_outputs());
  EXPECT_EQ(*a.damage(), std::nullopt);
  const auto damaged = [&](std::string_view operand, std::int64_t byte) {
    std::byte* at = bytes_of(a, operand) + byte;
    const std::byte kept = *at;
    *at = ~kept;
    const auto found = *a.damage();
    *at = kept;
    EXPECT_EQ(*a.damage(), std::nullopt);
    return found.value_or("none");
  };
  const std::int64_t span = 4 * a.specs()[2].span_elems();
  EXPECT_EQ(damaged("d", span + 11), "write 12 bytes past the end of d");
  EXPECT_EQ(damaged("d", span + 4095), "write 4096 bytes past the end of d");
  EXPECT_EQ(damaged("d", -4), "write 4 bytes before the beginning of d");
  EXPECT_EQ(damaged("d", -4096), "write 4096 bytes before the beginning of d");
  EXPECT_EQ(damaged("d", 4 * (9 + 6)),
            "write between the rows of d, 15 elements after its first (row pitch 9, 6 columns)");
  EXPECT_EQ(damaged("a", -1), "write 1 bytes before the beginning of a");
  EXPECT_EQ(damaged("b", 2 * 2 * 6 * 8), "write 1 bytes past the end of b");
  for (std::int64_t i = 0; i < 4 * 9 * 2 - 3; ++i) {
    const bool gap = i % 9 >= 6;
    EXPECT_EQ(damaged("d", 4 * i) != "none", gap) << i;
  }
}

TEST(Arena, GuardsHoldNaNOfTheType) {
  for (const DType type : kDTypes) {
    const Arena a = arena(problem({.m = 2, .n = 3, .k = 4, .a = type, .b = type, .lda = 12}));
    for (std::int64_t i = 4; i < 12; ++i) EXPECT_TRUE(std::isnan(value(a, "a", i))) << name(type);
    for (std::int64_t i = 1; i < 64; ++i) EXPECT_TRUE(std::isnan(value(a, "a", -i))) << name(type);
  }
}

TEST(Arena, OutputsHoldNaNAfterAFill) {
  for (const DType type : kDTypes) {
    Arena a = arena(
        problem({.m = 5, .n = 7, .k = 4, .a = DType::bf16, .b = DType::bf16, .d = type, .ldd = 8},
                "d = acc; s[m] = sum(acc, n)"));
    ASSERT_TRUE(a.fill_zero(a.index("d")));
    ASSERT_TRUE(a.fill_zero(a.index("s")));
    EXPECT_EQ(value(a, "d", 8), 0);
    EXPECT_EQ(*a.damage(), std::nullopt);
    ASSERT_TRUE(a.fill_outputs());
    for (std::int64_t i = 0; i < 39; ++i) EXPECT_TRUE(std::isnan(value(a, "d", i))) << name(type);
    EXPECT_TRUE(std::isnan(value(a, "s", 4)));
    EXPECT_EQ(*a.damage(), std::nullopt);
  }
}

TEST(Arena, HashesSeeElementsAndNotGaps) {
  Arena a = arena(problem({.m = 4, .n = 6, .k = 8, .lda = 10, .ldd = 9}));
  ASSERT_TRUE(a.fill_inputs(Fill::uniform, 1));
  ASSERT_TRUE(a.fill_outputs());
  const std::uint64_t in = *a.hash_inputs(), out = *a.hash_outputs();
  bytes_of(a, "a")[4 * 8] ^= std::byte{1};
  bytes_of(a, "d")[4 * 6] ^= std::byte{1};
  EXPECT_EQ(*a.hash_inputs(), in);
  EXPECT_EQ(*a.hash_outputs(), out);
  bytes_of(a, "a")[4 * 7] ^= std::byte{1};
  bytes_of(a, "d")[4 * 5] ^= std::byte{1};
  EXPECT_NE(*a.hash_inputs(), in);
  EXPECT_NE(*a.hash_outputs(), out);
}

TEST(Arena, InterleavedAndOverlappingBatches) {
  // Rows of two entries interleave: pitch 16, stride 8; no gap is left.
  Arena interleaved =
      arena(problem({.m = 4, .n = 2, .k = 8, .batch = 2, .lda = 16, .strides = {{"a", 8}}}));
  ASSERT_TRUE(interleaved.fill_inputs(Fill::uniform, 1));
  for (std::int64_t i = 0; i < 64; ++i) EXPECT_FALSE(std::isnan(value(interleaved, "a", i))) << i;
  // Each entry begins one row after the one before.
  const GemmProblem sliding = problem({.m = 4, .n = 2, .k = 8, .batch = 3, .strides = {{"a", 8}}});
  Arena a = arena(sliding), b = arena(sliding);
  ASSERT_TRUE(a.fill_inputs(Fill::uniform, 1));
  ASSERT_TRUE(b.fill_inputs(Fill::uniform, 1));
  EXPECT_EQ(*a.hash_inputs(), *b.hash_inputs());
  EXPECT_EQ(*a.damage(), std::nullopt);
}

TEST(Arena, EmptyOperands) {
  Arena a = arena(problem({.m = 0, .n = 6, .k = 0}));
  ASSERT_TRUE(a.fill_inputs(Fill::integers, 1));
  ASSERT_TRUE(a.fill_outputs());
  EXPECT_EQ(*a.damage(), std::nullopt);
  *bytes_of(a, "d") = std::byte{1};
  EXPECT_EQ(*a.damage(), "write 1 bytes past the end of d");
}

TEST(Arena, TooLargeIsAnError) {
  const auto made =
      Arena::make(problem({.m = std::int64_t(1) << 30, .n = 1 << 20, .k = 1}), device());
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::resource_limit);
  EXPECT_NE(made.error().message.find("4503"), std::string::npos)
      << made.error();  // 2^52 bytes of D and a little
}

TEST(Arena, ADamagedBufferDoesNotHideAnother) {
  Arena a = arena(problem({.m = 4, .n = 5, .k = 6}, "d = acc + c[m,n]; e[m] = sum(acc, n)"));
  ASSERT_TRUE(a.fill_inputs(Fill::uniform, 1));
  ASSERT_TRUE(a.fill_outputs());
  for (const char* output : {"d", "e"}) *(bytes_of(a, output) - 1) = std::byte{0};
  EXPECT_EQ(*a.damage(), "write 1 bytes before the beginning of d");
  // Whoever is next finds none of it.
  ASSERT_TRUE(a.mend_outputs());
  EXPECT_EQ(*a.damage(), std::nullopt);
}

TEST(GuardedBuffer, SeesWritesOutside) {
  auto made = GuardedBuffer::make("workspace", 100, device());
  ASSERT_TRUE(made) << made.error();
  ASSERT_TRUE(made->fill_garbage(1));
  EXPECT_EQ(*made->damage(), std::nullopt);
  auto* data = static_cast<std::byte*>(made->data());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 256, device().is_host() ? 64u : 0u);
  data[102] ^= std::byte{1};
  EXPECT_EQ(*made->damage(), "write 3 bytes past the end of the workspace");
  data[102] ^= std::byte{1};
  data[-8] ^= std::byte{1};
  EXPECT_EQ(*made->damage(), "write 8 bytes before the beginning of the workspace");
  const auto empty = GuardedBuffer::make("workspace", 0, device());
  ASSERT_TRUE(empty);
  EXPECT_EQ(empty->data(), nullptr);
}

}  // namespace
}  // namespace lapidary::worker
