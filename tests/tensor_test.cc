// Tensors: what the arithmetic in a kernel makes of a coordinate is what the layout says, for
// coordinates that are values and for those that are numbers.
#include "lapidary/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "sim/sim.h"
#include "support/result.h"

namespace lapidary {
namespace {

using ::testing::HasSubstr;

constexpr int kThreads = 256;

/// What a kernel of one block writes to out[0 .. count), where it reads from an array that holds
/// its own indices.
std::vector<std::int32_t> outcome(const Kernel& kernel, std::int64_t indices, std::int64_t count) {
  sim::Memory memory;
  std::vector<std::int32_t> x(static_cast<std::size_t>(indices));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::int32_t>(i);
  const std::uint64_t in = memory.add("x", std::as_bytes(std::span(x)));
  const std::uint64_t out = memory.add_undefined("out", 4 * count);
  const auto report = sim::run(kernel.ir(), {.arguments = {in, out}}, memory);
  EXPECT_TRUE(report) << report.error();
  for (const sim::Finding& f : report->findings) ADD_FAILURE() << f.where << ": " << f.message;
  std::vector<std::int32_t> got(static_cast<std::size_t>(count));
  std::memcpy(got.data(), memory.contents(out).data(), 4 * got.size());
  return got;
}

struct Arrays {
  Array x, out;
};
Arrays arrays(KernelBuilder& k) {
  Array x = k.array_param("x", Scalar::s32), out = k.array_param("out", Scalar::s32);
  return {x, out};
}

constexpr const char* kLayouts[] = {
    "16:1",
    "(4,8):(8,1)",
    "(4,(2,3)):(6,(3,1))",
    "((2,2),(3,5)):((1,30),(2,6))",
    "(3,7,2):(14,2,1)",
    "(5,6):(0,3)",
    "S<2,0,3> o 0 o (8,8):(8,1)",
    "S<3,3,3> o 0 o (8,64):(64,1)",
    "S<2,0,-3> o 5 o (8,4):(4,1)",
};

TEST(Tensor, AValueAsACoordinateGivesTheLayoutsOffset) {
  for (const char* const written : kLayouts) {
    SCOPED_TRACE(written);
    const Layout layout = *layout_from_text(written);
    KernelBuilder k({.name = "all", .threads = kThreads});
    auto [x, out] = arrays(k);
    Tensor t(x, layout);
    k.for_range(k.thread(), layout.size(), kThreads, [&](Value i) { out[i] = t(i); });
    const auto kernel = k.finish();
    ASSERT_TRUE(kernel) << kernel.error();
    const auto got = outcome(*kernel, cosize(layout), layout.size());
    for (std::int64_t i = 0; i < layout.size(); ++i)
      EXPECT_EQ(got[static_cast<std::size_t>(i)], layout(i)) << "at " << i;
  }
}

TEST(Tensor, OneCoordinateAModeValuesAndNumbersMixed) {
  for (const char* const written : kLayouts) {
    SCOPED_TRACE(written);
    const Layout layout = *layout_from_text(written);
    if (layout.rank() != 2) continue;
    const std::int64_t rows = layout[0].size(), cols = layout[1].size();
    KernelBuilder k({.name = "pairs", .threads = kThreads});
    auto [x, out] = arrays(k);
    Tensor t(x, layout);
    // Threads count the rows, the C++ loop counts the columns; every second one as a value.
    k.if_(k.thread() < rows, [&] {
      for (std::int64_t j = 0; j < cols; ++j) {
        Value value = j % 2 == 0 ? t(k.thread(), j) : t(k.thread(), k.constant(Scalar::s32, j));
        out[k.thread() * cols + j] = value;
      }
    });
    k.if_(k.thread() == 0, [&] { out[rows * cols] = t(rows - 1, cols - 1); });
    const auto kernel = k.finish();
    ASSERT_TRUE(kernel) << kernel.error();
    const auto got = outcome(*kernel, cosize(layout), rows * cols + 1);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < cols; ++j)
        EXPECT_EQ(got[static_cast<std::size_t>(i * cols + j)], layout(i, j)) << i << ", " << j;
    }
    EXPECT_EQ(got.back(), layout(rows - 1, cols - 1));
  }
}

TEST(Tensor, PartsOfThreadsAreTheComposition) {
  constexpr struct {
    const char *tensor, *tv;
  } kCases[] = {
      {"(8,16):(16,1)", "((4,8),4):((32,1),8)"},
      {"(16,8):(1,16)", "(32,4):(4,1)"},
      {"S<3,3,3> o 0 o (8,64):(64,1)", "(64,8):(8,1)"},
      {"S<3,3,3> o 0 o (8,64):(64,1)", "((8,8),8):((8,64),1)"},
      // C of mma.sync m16n8 (PTX ISA): rows 8 apart in the second mode of the values.
      {"(16,8):(8,1)", "((4,8),(2,2)):((32,1),(16,8))"},
  };
  for (const auto& [tensor, tv] : kCases) {
    SCOPED_TRACE(std::string(tensor) + " by " + tv);
    const Layout layout = *layout_from_text(tensor), parts = *layout_from_text(tv);
    const std::int64_t threads = parts[0].size(), values = parts[1].size();
    KernelBuilder k({.name = "parts", .threads = kThreads});
    auto [x, out] = arrays(k);
    Tensor part = Tensor(x, layout).partition(parts, k.thread());
    ASSERT_EQ(part.layout().size(), values);
    k.if_(k.thread() < threads, [&] {
      for (std::int64_t v = 0; v < values; ++v) out[k.thread() * values + v] = part(v);
    });
    const auto kernel = k.finish();
    ASSERT_TRUE(kernel) << kernel.error();
    const auto got = outcome(*kernel, cosize(layout), threads * values);
    for (std::int64_t t = 0; t < threads; ++t) {
      for (std::int64_t v = 0; v < values; ++v)
        EXPECT_EQ(got[static_cast<std::size_t>(t * values + v)], layout(parts(t, v)))
            << t << ", " << v;
    }
  }
}

TEST(Tensor, MisuseIsReportedWithItsLine) {
  KernelBuilder k({.name = "wrong", .threads = 32});
  auto [x, out] = arrays(k);
  const int line = __LINE__;
  Tensor unreadable(x, "(4,8:(8,1)");
  Tensor t(x, "(4,8):(8,1)");
  out[0] = t(4, 0);
  out[0] = t(k.thread(), 1, 2);
  Tensor(x, "4:1@0")(1) = 0;
  t.partition("32:1", k.thread());
  const auto kernel = k.finish();
  ASSERT_FALSE(kernel);
  const std::string& all = kernel.error().message;
  const auto at = [&](int behind) { return fmt::format("tensor_test.cc:{}: ", line + behind); };
  EXPECT_THAT(all, HasSubstr(at(1) + "tensor: "));
  EXPECT_THAT(
      all,
      HasSubstr(at(3) + "tensor: expected coordinate 0 below 4, the extent in (4,8):(8,1), got 4"));
  EXPECT_THAT(all,
              HasSubstr(at(4) + "tensor: expected at most 2 coordinates of (4,8):(8,1), got 3"));
  EXPECT_THAT(all, HasSubstr(at(5) + "tensor: 4:1@0 gives coordinates, not offsets"));
  EXPECT_THAT(all, HasSubstr(at(6) + "partition: expected (threads, values), got 32:1"));
}

}  // namespace
}  // namespace lapidary
