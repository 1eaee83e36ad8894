#include "sim/sim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <set>

#include "lapidary/dsl.h"

namespace lapidary::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A machine: memory, and launches of kernels whose words are those of dsl.h.

template <class T>
constexpr Scalar scalar_of();
template <>
constexpr Scalar scalar_of<std::int32_t>() {
  return Scalar::s32;
}
template <>
constexpr Scalar scalar_of<std::uint32_t>() {
  return Scalar::u32;
}
template <>
constexpr Scalar scalar_of<std::int64_t>() {
  return Scalar::s64;
}
template <>
constexpr Scalar scalar_of<std::uint64_t>() {
  return Scalar::u64;
}
template <>
constexpr Scalar scalar_of<float>() {
  return Scalar::f32;
}
template <>
constexpr Scalar scalar_of<double>() {
  return Scalar::f64;
}
/// The bits of an f16 or bf16, told apart by their C++ types alone.
enum class Half : std::uint16_t {};
enum class Brain : std::uint16_t {};
template <>
constexpr Scalar scalar_of<Half>() {
  return Scalar::f16;
}
template <>
constexpr Scalar scalar_of<Brain>() {
  return Scalar::bf16;
}

struct Machine {
  template <class T>
  std::uint64_t add(const std::string& name, const std::vector<T>& values) {
    return memory.add(name, std::as_bytes(std::span(values)));
  }
  template <class T>
  std::vector<T> read(std::uint64_t address) const {
    const auto bytes = memory.contents(address);
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  /// Runs the kernel; a kernel or launch that is refused fails the test.
  Report run(KernelBuilder& k, const Launch& launch, const Options& options = {}) {
    const Result<Kernel> kernel = k.finish();
    if (!kernel) {
      ADD_FAILURE() << kernel.error().message;
      return {};
    }
    return run(*kernel, launch, options);
  }
  Report run(const Kernel& kernel, const Launch& launch, const Options& options = {}) {
    const Result<Report> report = sim::run(kernel.ir(), launch, memory, options);
    if (!report) {
      ADD_FAILURE() << report.error().message;
      return {};
    }
    return *report;
  }
  Memory memory;
};

/// "sim_test.cc:12: message (3)".
std::vector<std::string> findings(const Report& report) {
  std::vector<std::string> all;
  for (const Finding& f : report.findings)
    all.push_back(fmt::format("{}: {} ({})", f.where, f.message, f.count));
  return all;
}
std::string at(int line, const std::string& what) {
  return fmt::format("sim_test.cc:{}: {}", line, what);
}

// Arithmetic: a table of operands and results for each operation and type. The results are written
// out, or made of other operations than the one that is tested.

template <class T>
std::string shown(const T& x) {
  if constexpr (std::is_enum_v<T>) {
    return fmt::format("{:#x}", static_cast<std::uint16_t>(x));
  } else if constexpr (std::is_floating_point_v<T>) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    return fmt::format("{} ({:#x})", x, std::bit_cast<Bits>(x));
  } else {
    return fmt::format("{}", x);
  }
}
template <class T>
bool same_bits(const T& x, const T& y) {
  // The payload of a NaN of f64 is not specified.
  if constexpr (std::is_same_v<T, double>) {
    if (std::isnan(x) && std::isnan(y)) return true;
  }
  return std::memcmp(&x, &y, sizeof x) == 0;
}

template <class In, class Out>
struct Row {
  In x{}, y{}, z{};
  Out expected{};
};

/// Computes `f` of each row in a thread of its own; the last lanes of the warp take no part.
template <class In, class Out>
void expect_rows(const std::string& what, const std::function<Value(Value, Value, Value)>& f,
                 const std::vector<Row<In, Out>>& rows) {
  SCOPED_TRACE(fmt::format("{} of {}", what, name(scalar_of<In>())));
  const auto count = static_cast<std::int32_t>(rows.size());
  KernelBuilder k({.name = "row", .threads = 32});
  Array x = k.array_param("x", scalar_of<In>()), y = k.array_param("y", scalar_of<In>()),
        z = k.array_param("z", scalar_of<In>()), out = k.array_param("out", scalar_of<Out>());
  Value i = k.block() * 32 + k.thread();
  k.if_(i < count, [&] { out[i] = f(x[i], y[i], z[i]); });
  Machine machine;
  std::vector<In> xs, ys, zs;
  for (const auto& row : rows) {
    xs.push_back(row.x);
    ys.push_back(row.y);
    zs.push_back(row.z);
  }
  const std::uint64_t result =
      machine.memory.add_undefined("out", static_cast<std::int64_t>(sizeof(Out)) * count);
  const Report report = machine.run(
      k, {.grid = {(count + 31) / 32, 1, 1},
          .arguments = {machine.add("x", xs), machine.add("y", ys), machine.add("z", zs), result}});
  EXPECT_THAT(findings(report), IsEmpty());
  const std::vector<Out> got = machine.read<Out>(result);
  ASSERT_EQ(got.size(), rows.size());
  for (std::size_t r = 0; r < rows.size(); ++r) {
    EXPECT_TRUE(same_bits(got[r], rows[r].expected))
        << shown(rows[r].x) << ", " << shown(rows[r].y) << ", " << shown(rows[r].z) << " gives "
        << shown(got[r]) << ", expected " << shown(rows[r].expected);
  }
}
template <class T>
struct Two {
  T x, y, expected;
};
template <class T>
void binary(const std::string& what, Value (*f)(Value, Operand), const std::vector<Two<T>>& rows) {
  std::vector<Row<T, T>> all;
  for (const auto& [x, y, expected] : rows) all.push_back({x, y, T{}, expected});
  expect_rows<T, T>(what, [&](Value x, Value y, Value) { return f(x, y); }, all);
}
template <class T>
void binary(const std::string& what, Value (*f)(Operand, Operand),
            const std::vector<Two<T>>& rows) {
  std::vector<Row<T, T>> all;
  for (const auto& [x, y, expected] : rows) all.push_back({x, y, T{}, expected});
  expect_rows<T, T>(what, [&](Value x, Value y, Value) { return f(x, y); }, all);
}
template <class In, class Out>
struct One {
  In x;
  Out expected;
};
template <class T>
void unary(const std::string& what, Value (*f)(Operand), const std::vector<One<T, T>>& rows) {
  std::vector<Row<T, T>> all;
  for (const auto& [x, expected] : rows) all.push_back({x, T{}, T{}, expected});
  expect_rows<T, T>(what, [&](Value x, Value, Value) { return f(x); }, all);
}

constexpr std::int32_t kMin32 = std::numeric_limits<std::int32_t>::min(),
                       kMax32 = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMin64 = std::numeric_limits<std::int64_t>::min(),
                       kMax64 = std::numeric_limits<std::int64_t>::max();
constexpr std::uint32_t kAll32 = 0xffffffffu;
constexpr std::uint64_t kAll64 = 0xffffffffffffffffu;
constexpr std::uint64_t kTop64 = std::uint64_t{1} << 63;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr double kInf64 = std::numeric_limits<double>::infinity();
constexpr double kNaN64 = std::numeric_limits<double>::quiet_NaN();
const float kNaN = std::bit_cast<float>(0x7fffffffu);  // the one that f32 arithmetic makes
const float kOtherNaN = std::bit_cast<float>(0xffc01234u);

TEST(Arithmetic, OfIntegersWraps) {
  binary<std::int32_t>("add", operator+,
                       {{2, 3, 5}, {kMax32, 1, kMin32}, {kMin32, -1, kMax32}, {-1, 1, 0}});
  binary<std::uint32_t>("add", operator+,
                        {{2, 3, 5}, {kAll32, 1, 0}, {kAll32, kAll32, kAll32 - 1}});
  binary<std::int64_t>("add", operator+,
                       {{kMax64, 1, kMin64}, {kMin64, -1, kMax64}, {kAll32, 1, 0x100000000}});
  binary<std::uint64_t>("add", operator+, {{kAll64, 1, 0}, {kAll32, 1, 0x100000000}});
  binary<std::int32_t>("sub", operator-, {{2, 3, -1}, {kMin32, 1, kMax32}, {0, kMin32, kMin32}});
  binary<std::uint32_t>("sub", operator-, {{2, 3, kAll32}, {0, kAll32, 1}});
  binary<std::int64_t>("sub", operator-, {{kMin64, 1, kMax64}, {0, kMin64, kMin64}, {2, 3, -1}});
  binary<std::uint64_t>("sub", operator-, {{2, 3, kAll64}, {0x100000000, 1, kAll32}});
  binary<std::int32_t>(
      "mul", operator*,
      {{-7, 6, -42}, {kMin32, -1, kMin32}, {65536, 65536, 0}, {46341, 46341, -2147479015}});
  binary<std::uint32_t>("mul", operator*, {{kAll32, kAll32, 1}, {65537, 65537, 131073}});
  binary<std::int64_t>("mul", operator*,
                       {{kMin64, -1, kMin64},
                        {kMax32, 4, 8589934588},
                        {std::int64_t{1} << 32, std::int64_t{1} << 32, 0}});
  binary<std::uint64_t>("mul", operator*,
                        {{kAll64, kAll64, 1}, {kAll32, kAll32, 18446744065119617025u}});
}

TEST(Arithmetic, DivisionGoesTowardZero) {
  binary<std::int32_t>("div", operator/,
                       {{7, 2, 3},
                        {-7, 2, -3},
                        {7, -2, -3},
                        {-7, -2, 3},
                        {kMin32, 1, kMin32},
                        {7, -1, -7},
                        {kMin32, -1, kMin32},
                        {kMax32, kMin32, 0}});
  binary<std::uint32_t>("div", operator/, {{7, 2, 3}, {kAll32, 2, 0x7fffffff}, {1, kAll32, 0}});
  binary<std::int64_t>("div", operator/,
                       {{-7, -1, 7}, {-7, 2, -3}, {kMin64, -1, kMin64}, {kMin64, 2, kMin64 / 2}});
  binary<std::uint64_t>("div", operator/, {{kAll64, 2, kAll64 >> 1}, {kTop64, kAll32, 0x80000000}});
  binary<std::int32_t>(
      "rem", operator%,
      {{7, 2, 1}, {-7, 2, -1}, {7, -2, 1}, {-7, -2, -1}, {kMin32, -1, 0}, {5, kMin32, 5}});
  binary<std::uint32_t>("rem", operator%, {{7, 2, 1}, {kAll32, 10, 5}, {3, kAll32, 3}});
  binary<std::int64_t>("rem", operator%, {{-7, 4, -3}, {kMin64, -1, 0}, {kMin64, 10, -8}});
  binary<std::uint64_t>("rem", operator%, {{kAll64, 10, 5}, {kTop64, 3, 2}});
}

TEST(Arithmetic, OfOneIntegerAndSmallerAndLarger) {
  unary<std::int32_t>("neg", negate, {{5, -5}, {0, 0}, {kMin32, kMin32}, {kMax32, kMin32 + 1}});
  unary<std::uint32_t>("neg", negate, {{5, kAll32 - 4}, {0, 0}, {kAll32, 1}});
  unary<std::int64_t>("neg", negate, {{5, -5}, {kMin64, kMin64}});
  unary<std::uint64_t>("neg", negate, {{1, kAll64}, {kTop64, kTop64}});
  binary<std::int32_t>("min", min, {{-1, 1, -1}, {kMin32, kMax32, kMin32}, {3, 3, 3}});
  binary<std::uint32_t>("min", min, {{kAll32, 1, 1}, {0x80000000u, 0x7fffffffu, 0x7fffffffu}});
  binary<std::int64_t>("min", min, {{-1, 1, -1}, {kMax64, kMin64, kMin64}});
  binary<std::uint64_t>("min", min, {{kAll64, 1, 1}, {kTop64, 3, 3}});
  binary<std::int32_t>("max", max, {{-1, 1, 1}, {kMin32, kMax32, kMax32}, {3, 3, 3}});
  binary<std::uint32_t>("max", max, {{kAll32, 1, kAll32}, {0x80000000u, 1, 0x80000000u}});
  binary<std::int64_t>("max", max, {{-1, 1, 1}, {kMax64, kMin64, kMax64}});
  binary<std::uint64_t>("max", max, {{kAll64, 1, kAll64}, {kTop64, 3, kTop64}});
}

TEST(Arithmetic, OfBits) {
  binary<std::int32_t>("and", operator&, {{-1, 12, 12}, {12, 10, 8}, {kMin32, -1, kMin32}});
  binary<std::uint64_t>("and", operator&, {{kAll64, kTop64 | 5, kTop64 | 5}});
  binary<std::uint32_t>("or", operator|, {{12, 10, 14}, {0x80000000u, 1, 0x80000001u}});
  binary<std::int64_t>("or", operator|, {{kMin64, 1, kMin64 + 1}, {12, 10, 14}});
  binary<std::int32_t>("xor", operator^, {{12, 10, 6}, {-1, 1, -2}});
  binary<std::uint64_t>("xor", operator^, {{kAll64, 1, kAll64 - 1}});
  unary<std::int32_t>("not", invert, {{0, -1}, {kMax32, kMin32}});
  unary<std::uint32_t>("not", invert, {{0, kAll32}, {5, kAll32 - 5}});
  unary<std::int64_t>("not", invert, {{0, -1}, {kMax64, kMin64}});
  unary<std::uint64_t>("not", invert, {{0, kAll64}, {kTop64, kTop64 - 1}});
}

template <class T>
void shifts(const std::string& what, Value (*f)(Value, Operand),
            const std::vector<std::pair<T, std::pair<std::int32_t, T>>>& rows) {
  std::vector<Row<T, T>> all;
  // The count travels as a T, and is cast to s32: -1 stays -1.
  for (const auto& [x, rest] : rows)
    all.push_back({x, static_cast<T>(rest.first), T{}, rest.second});
  expect_rows<T, T>(what, [&](Value x, Value y, Value) { return f(x, cast(y, Scalar::s32)); }, all);
}

TEST(Arithmetic, ShiftsByAnyCount) {
  shifts<std::int32_t>("shl", operator<<,
                       {{1, {0, 1}},
                        {1, {31, kMin32}},
                        {1, {32, 0}},
                        {-1, {33, 0}},
                        {-1, {-1, 0}},
                        {-1, {4, -16}},
                        {5, {kMin32, 0}}});
  shifts<std::uint32_t>(
      "shl", operator<<,
      {{1, {31, 0x80000000u}}, {kAll32, {32, 0}}, {3, {31, 0x80000000u}}, {7, {-1, 0}}});
  shifts<std::int64_t>("shl", operator<<,
                       {{1, {32, 0x100000000}}, {1, {63, kMin64}}, {-1, {64, 0}}, {1, {-1, 0}}});
  shifts<std::uint64_t>("shl", operator<<, {{1, {63, kTop64}}, {3, {64, 0}}, {3, {63, kTop64}}});
  shifts<std::int32_t>("shr", operator>>,
                       {{-8, {1, -4}},
                        {-8, {31, -1}},
                        {-8, {32, -1}},
                        {-8, {-1, -1}},
                        {8, {1, 4}},
                        {8, {32, 0}},
                        {8, {-1, 0}},
                        {kMin32, {31, -1}},
                        {-1, {0, -1}}});
  shifts<std::uint32_t>(
      "shr", operator>>,
      {{kAll32, {31, 1}}, {kAll32, {32, 0}}, {kAll32, {-1, 0}}, {0x80000000u, {4, 0x08000000u}}});
  shifts<std::int64_t>("shr", operator>>,
                       {{kMin64, {63, -1}},
                        {kMin64, {64, -1}},
                        {kMin64, {-1, -1}},
                        {kMax64, {62, 1}},
                        {-8, {1, -4}}});
  shifts<std::uint64_t>("shr", operator>>,
                        {{kAll64, {63, 1}}, {kAll64, {64, 0}}, {kAll64, {32, kAll32}}});
}

TEST(Arithmetic, OfF32RoundsToNearestEvenAndKeepsSubnormals) {
  const float tiny = std::bit_cast<float>(1u), half_step = 0x1p-24f;
  binary<float>("add", operator+,
                {{1, half_step, 1},
                 {1, 3 * half_step, 1 + 0x1p-22f},
                 {tiny, tiny, std::bit_cast<float>(2u)},
                 {-0.0f, 0.0f, 0.0f},
                 {-0.0f, -0.0f, -0.0f},
                 {kInf, -kInf, kNaN},
                 {kInf, 1, kInf},
                 {kOtherNaN, 1, kNaN},
                 {0x1.fffffep127f, 0x1p103f, kInf},
                 {0x1.fffffep127f, 0x1p102f, 0x1.fffffep127f}});
  binary<float>("sub", operator-,
                {{1, 1, 0.0f},
                 {kInf, kInf, kNaN},
                 {-0.0f, 0.0f, -0.0f},
                 {0x1.000002p-126f, 0x1p-126f, tiny},
                 {1, kOtherNaN, kNaN}});
  binary<float>("mul", operator*,
                {{0x1p-100f, 0x1p-40f, 0x1p-140f},
                 {0x1p-75f, 0x1p-75f, 0.0f},
                 {0x1.8p-75f, 0x1p-75f, tiny},
                 {0, kInf, kNaN},
                 {-1, 0, -0.0f},
                 {0x1p127f, 2, kInf},
                 {0.1f, 0.1f, std::bit_cast<float>(0x3c23d70bu)}});
  binary<float>("div", operator/,
                {{1, 3, std::bit_cast<float>(0x3eaaaaabu)},
                 {1, 0, kInf},
                 {-1, 0, -kInf},
                 {1, -0.0f, -kInf},
                 {0, 0, kNaN},
                 {kInf, kInf, kNaN},
                 {0x1p-126f, 4, 0x1p-128f},
                 {1, kInf, 0}});
  expect_rows<float, float>("fma", [](Value x, Value y, Value z) { return fma(x, y, z); },
                            {{1 + 0x1p-12f, 1 + 0x1p-12f, -(1 + 0x1p-11f), 0x1p-24f},
                             {0x1p100f, 0x1p100f, -kInf, -kInf},
                             {kInf, 0, 1, kNaN},
                             {2, 3, 4, 10}});
  // Without a contraction the product is rounded first: what fma keeps is lost.
  expect_rows<float, float>("mul and add", [](Value x, Value y, Value z) { return x * y + z; },
                            {{1 + 0x1p-12f, 1 + 0x1p-12f, -(1 + 0x1p-11f), 0}});
  unary<float>("neg", negate, {{1, -1}, {0, -0.0f}, {-0.0f, 0}, {kInf, -kInf}});
  unary<float>("abs", abs, {{-1, 1}, {-0.0f, 0}, {-kInf, kInf}, {-tiny, tiny}});
  unary<float>("sqrt", sqrt,
               {{2, std::bit_cast<float>(0x3fb504f3u)},
                {4, 2},
                {-0.0f, -0.0f},
                {-1, kNaN},
                {kInf, kInf},
                {0x1p-148f, 0x1p-74f}});
  binary<float>("min", min,
                {{1, 2, 1},
                 {-0.0f, 0, -0.0f},
                 {0, -0.0f, -0.0f},
                 {kOtherNaN, 1, kNaN},
                 {1, kOtherNaN, kNaN},
                 {-kInf, 1, -kInf}});
  binary<float>("max", max,
                {{1, 2, 2},
                 {-0.0f, 0, 0},
                 {0, -0.0f, 0},
                 {kOtherNaN, 1, kNaN},
                 {1, kOtherNaN, kNaN},
                 {-kInf, 1, 1}});
  unary<float>("exp2", exp2,
               {{0, 1},
                {1, 2},
                {-1, 0.5f},
                {-kInf, 0},
                {kInf, kInf},
                {128, kInf},
                {-149, tiny},
                {kOtherNaN, kNaN}});
  unary<float>("log2", log2, {{8, 3}, {1, 0}, {0, -kInf}, {-1, kNaN}, {tiny, -149}, {kInf, kInf}});
  unary<float>("rsqrt", rsqrt,
               {{4, 0.5f}, {0, kInf}, {-0.0f, -kInf}, {-1, kNaN}, {kInf, 0}, {0x1p-148f, 0x1p74f}});
}

TEST(Arithmetic, OfF64) {
  const double tiny = std::bit_cast<double>(std::uint64_t{1});
  binary<double>("add", operator+,
                 {{0.1, 0.2, 0.30000000000000004},
                  {1, 0x1p-53, 1},
                  {tiny, tiny, 2 * tiny},
                  {kInf64, -kInf64, kNaN64}});
  binary<double>("sub", operator-, {{0.3, 0.1, 0.19999999999999998}, {1, 1, 0}});
  binary<double>(
      "mul", operator*,
      {{0.1, 0.1, 0.010000000000000002}, {0x1p-1000, 0x1p-74, tiny}, {0x1p1023, 2, kInf64}});
  binary<double>("div", operator/, {{1, 3, 0x1.5555555555555p-2}, {1, 0, kInf64}, {0, 0, kNaN64}});
  expect_rows<double, double>("fma", [](Value x, Value y, Value z) { return fma(x, y, z); },
                              {{1 + 0x1p-27, 1 + 0x1p-27, -(1 + 0x1p-26), 0x1p-54}});
  unary<double>("neg", negate, {{1.5, -1.5}, {0, -0.0}});
  unary<double>("abs", abs, {{-1.5, 1.5}, {-0.0, 0}});
  unary<double>("sqrt", sqrt, {{2, 0x1.6a09e667f3bcdp+0}, {-1, kNaN64}});
}

/// Which of < <= == != > >= hold, as bits 0 to 5.
Value relations(Value x, Value y) {
  const Value bits[] = {x < y, x <= y, x == y, x != y, x > y, x >= y};
  Value all = select(bits[0], cast(x, Scalar::s32) * 0 + 1, 0);
  for (int i = 1; i < 6; ++i) all = all | select(bits[i], 1 << i, cast(x, Scalar::s32) * 0);
  return all;
}
template <class T>
void compare(const std::vector<Row<T, std::int32_t>>& rows) {
  expect_rows<T, std::int32_t>(
      "relations", [](Value x, Value y, Value) { return relations(x, y); }, rows);
}

TEST(Arithmetic, Compares) {
  constexpr std::int32_t kLess = 1 | 2 | 8, kEqual = 2 | 4 | 32, kMore = 8 | 16 | 32, kNone = 8;
  compare<std::int32_t>(
      {{1, 2, 0, kLess}, {2, 2, 0, kEqual}, {-1, 1, 0, kLess}, {kMax32, kMin32, 0, kMore}});
  compare<std::uint32_t>({{1, 2, 0, kLess}, {kAll32, 1, 0, kMore}, {kAll32, kAll32, 0, kEqual}});
  compare<std::int64_t>(
      {{kMin64, kMax64, 0, kLess}, {0x100000000, 1, 0, kMore}, {-1, -1, 0, kEqual}});
  compare<std::uint64_t>({{kTop64, 1, 0, kMore}, {kTop64, kTop64, 0, kEqual}, {0, 1, 0, kLess}});
  compare<float>({{1, 2, 0, kLess},
                  {-0.0f, 0, 0, kEqual},
                  {kNaN, 1, 0, kNone},
                  {1, kNaN, 0, kNone},
                  {kNaN, kNaN, 0, kNone},
                  {kInf, -kInf, 0, kMore}});
  compare<double>({{1, 2, 0, kLess},
                   {-0.0, 0, 0, kEqual},
                   {kNaN64, 1, 0, kNone},
                   {kNaN64, kNaN64, 0, kNone},
                   {kInf64, 1, 0, kMore}});
}

TEST(Arithmetic, OfPredicatesIsLogic) {
  // Bits 0 to 5: and, or, xor, not x, x == y by select, && and || as one.
  expect_rows<std::int32_t, std::int32_t>(
      "logic",
      [](Value x, Value y, Value) {
        Value p = x != 0, q = y != 0;
        const Value all[] = {
            p & q, p | q, p ^ q, invert(p), select(p, q, invert(q)), (p && q) || invert(q)};
        Value bits = x * 0;
        for (int i = 0; i < 6; ++i) bits = bits | select(all[i], x * 0 + (1 << i), 0);
        return bits;
      },
      {{0, 0, 0, 8 | 16 | 32},
       {0, 1, 0, 2 | 4 | 8},
       {1, 0, 0, 2 | 4 | 32},
       {1, 1, 0, 1 | 2 | 16 | 32}});
}

template <class T>
void choose(T x, T y) {
  expect_rows<T, T>(
      "select", [](Value a, Value b, Value c) { return select(bitcast(c, c.type()) == c, a, b); },
      {{x, y, T{}, x}});
  expect_rows<T, T>("select", [](Value a, Value b, Value c) { return select(c != c, a, b); },
                    {{x, y, T{}, y}});
}

TEST(Arithmetic, SelectsBits) {
  choose<std::int32_t>(-5, 7);
  choose<std::uint32_t>(kAll32, 7);
  choose<std::int64_t>(kMin64, 7);
  choose<std::uint64_t>(kAll64, 7);
  choose<float>(kOtherNaN, -0.0f);
  choose<double>(-0.0, 7);
}

template <class In, class Out>
void casts(const std::vector<One<In, Out>>& rows) {
  std::vector<Row<In, Out>> all;
  for (const auto& [x, expected] : rows) all.push_back({x, In{}, In{}, expected});
  expect_rows<In, Out>(
      fmt::format("cast to {}", name(scalar_of<Out>())),
      [](Value x, Value, Value) { return cast(x, scalar_of<Out>()); }, all);
}

TEST(Cast, ToIntegersGoesTowardZeroAndSaturates) {
  casts<float, std::int32_t>({{1.99f, 1},
                              {-1.99f, -1},
                              {-0.5f, 0},
                              {0x1p31f, kMax32},
                              {kInf, kMax32},
                              {-0x1p31f, kMin32},
                              {-kInf, kMin32},
                              {2147483520.0f, 2147483520},
                              {kNaN, 0},
                              {kOtherNaN, 0}});
  casts<float, std::uint32_t>({{-1, 0},
                               {-kInf, 0},
                               {-0.9f, 0},
                               {0x1p32f, kAll32},
                               {4294967040.0f, 4294967040u},
                               {kNaN, 0},
                               {0x1p31f, 0x80000000u}});
  casts<float, std::int64_t>({{0x1p62f, std::int64_t{1} << 62},
                              {0x1p63f, kMax64},
                              {-kInf, kMin64},
                              {-2.5f, -2},
                              {kNaN, kMin64}});
  casts<float, std::uint64_t>({{0x1p63f, kTop64}, {kInf, kAll64}, {-3, 0}, {kNaN, kTop64}});
  casts<double, std::int32_t>({{2147483647.5, kMax32},
                               {2147483648.0, kMax32},
                               {-2147483648.9, kMin32},
                               {-1e300, kMin32},
                               {-1.5, -1},
                               {kNaN64, kMin32}});
  casts<double, std::uint32_t>(
      {{4294967295.5, kAll32}, {1e10, kAll32}, {-0.1, 0}, {kNaN64, 0x80000000u}});
  casts<double, std::int64_t>({{0x1.fffffffffffffp62, 9223372036854774784},
                               {0x1p63, kMax64},
                               {-0x1p63, kMin64},
                               {kNaN64, kMin64}});
  casts<double, std::uint64_t>({{0x1p63, kTop64}, {0x1p64, kAll64}, {-1, 0}, {kNaN64, kTop64}});
}

TEST(Cast, ToFloatsRoundsToNearestEven) {
  casts<std::int32_t, float>(
      {{16777217, 16777216}, {16777219, 16777220}, {kMin32, -0x1p31f}, {kMax32, 0x1p31f}});
  casts<std::uint32_t, float>({{kAll32, 0x1p32f}, {16777217, 16777216}});
  casts<std::int64_t, float>(
      {{kMax64, 0x1p63f}, {kMin64, -0x1p63f}, {(std::int64_t{1} << 40) + 1, 0x1p40f}});
  casts<std::uint64_t, float>({{kAll64, 0x1p64f},
                               {kTop64 + (std::uint64_t{1} << 39), 0x1p63f},
                               {kTop64 + (std::uint64_t{1} << 39) + 1, 0x1.000002p63f}});
  casts<std::int32_t, double>({{kMin32, -0x1p31}, {kMax32, 2147483647.0}});
  casts<std::uint32_t, double>({{kAll32, 4294967295.0}});
  casts<std::int64_t, double>(
      {{(std::int64_t{1} << 53) + 1, 0x1p53}, {(std::int64_t{1} << 53) + 3, 0x1p53 + 4}});
  casts<std::uint64_t, double>({{kAll64, 0x1p64}, {kTop64, 0x1p63}});
  casts<double, float>({{1 + 0x1p-24, 1},
                        {1 + 0x1.8p-23, 1 + 0x1p-22f},
                        {1e300, kInf},
                        {-1e300, -kInf},
                        {0x1p-149, 0x1p-149f},
                        {0x1p-150, 0},
                        {-0.0, -0.0f},
                        {kNaN64, kNaN}});
  casts<float, double>({{0x1p-149f, 0x1p-149},
                        {0.1f, 0x1.99999ap-4},
                        {kInf, kInf64},
                        {kNaN, kNaN64},
                        {-0.0f, -0.0}});
}

TEST(Cast, BetweenIntegersKeepsTheLowBits) {
  casts<std::int32_t, std::int64_t>({{-1, -1}, {kMin32, kMin32}});
  casts<std::int32_t, std::uint64_t>({{-1, kAll64}});
  casts<std::uint32_t, std::int64_t>({{kAll32, kAll32}});
  casts<std::uint32_t, std::uint64_t>({{kAll32, kAll32}});
  casts<std::int64_t, std::int32_t>({{0x1ffffffff, -1}, {kMin64, 0}});
  casts<std::int64_t, std::uint32_t>({{-1, kAll32}, {0x123456789, 0x23456789}});
  casts<std::uint64_t, std::int32_t>({{0x80000000u, kMin32}});
  casts<std::uint64_t, std::uint32_t>({{kAll64, kAll32}});
  casts<std::int32_t, std::uint32_t>({{-1, kAll32}});
  casts<std::uint32_t, std::int32_t>({{kAll32, -1}});
  casts<std::int64_t, std::uint64_t>({{-1, kAll64}});
  casts<std::uint64_t, std::int64_t>({{kAll64, -1}});
}

TEST(Cast, ToAndFrom16BitFloats) {
  casts<float, Half>({{1, Half{0x3c00}},
                      {65504, Half{0x7bff}},
                      {65519.996f, Half{0x7bff}},
                      {65520, Half{0x7c00}},
                      {-kInf, Half{0xfc00}},
                      {0x1p-24f, Half{1}},
                      {0x1p-25f, Half{0}},
                      {0x1.8p-25f, Half{1}},
                      {-0.0f, Half{0x8000}},
                      {1 + 0x1p-11f, Half{0x3c00}},
                      {1 + 0x1.8p-10f, Half{0x3c02}},
                      {kNaN, Half{0x7fff}},
                      {kOtherNaN, Half{0x7fff}}});
  casts<float, Brain>({{1, Brain{0x3f80}},
                       {1 + 0x1p-8f, Brain{0x3f80}},
                       {1 + 0x1.8p-7f, Brain{0x3f82}},
                       {0x1.fffffep127f, Brain{0x7f80}},
                       {-kInf, Brain{0xff80}},
                       {0x1p-133f, Brain{1}},
                       {0x1p-134f, Brain{0}},
                       {kNaN, Brain{0x7fff}},
                       {kOtherNaN, Brain{0x7fff}}});
  casts<Half, float>({{Half{0x3c00}, 1},
                      {Half{1}, 0x1p-24f},
                      {Half{0x83ff}, -0x1.ff8p-15f},
                      {Half{0x7c00}, kInf},
                      {Half{0x8000}, -0.0f},
                      {Half{0x7bff}, 65504}});
  casts<Brain, float>({{Brain{0x3f80}, 1},
                       {Brain{1}, 0x1p-133f},
                       {Brain{0x7f80}, kInf},
                       {Brain{0x8000}, -0.0f},
                       {Brain{0x7f7f}, 0x1.fep127f}});
}

TEST(Cast, OfBitsKeepsThem) {
  expect_rows<float, std::int32_t>("bitcast",
                                   [](Value x, Value, Value) { return bitcast(x, Scalar::s32); },
                                   {{1, 0, 0, 0x3f800000},
                                    {-0.0f, 0, 0, kMin32},
                                    {kOtherNaN, 0, 0, static_cast<std::int32_t>(0xffc01234u)}});
  expect_rows<std::uint64_t, double>("bitcast",
                                     [](Value x, Value, Value) { return bitcast(x, Scalar::f64); },
                                     {{0x3ff0000000000000, 0, 0, 1.0}});
  expect_rows<Half, Brain>("bitcast",
                           [](Value x, Value, Value) { return bitcast(x, Scalar::bf16); },
                           {{Half{0x1234}, {}, {}, Brain{0x1234}}});
}

TEST(Values, ArgumentsAreCutToTheirType) {
  KernelBuilder k({.name = "cut", .threads = 32});
  Value n = k.param("n", Scalar::u32);
  Array x = k.array_param("x", Scalar::s32), out = k.array_param("out", Scalar::s32);
  k.if_(k.thread() == 0, [&] { out[0] = x.at(n)[0]; });
  Machine machine;
  const std::uint64_t to = machine.add<std::int32_t>("out", {0});
  // What lies above the 32 bits of n is not n's.
  const Report report =
      machine.run(k, {.arguments = {(std::uint64_t{7} << 32) + 2,
                                    machine.add<std::int32_t>("x", {10, 11, 12}), to}});
  EXPECT_THAT(findings(report), IsEmpty());
  EXPECT_THAT(machine.read<std::int32_t>(to), ElementsAre(12));
}

TEST(Values, PointersAdvanceByEveryTypeOfIndex) {
  for (const Scalar type : {Scalar::s32, Scalar::u32, Scalar::s64, Scalar::u64}) {
    SCOPED_TRACE(name(type));
    KernelBuilder k({.name = "advance", .threads = 32});
    Array out = k.array_param("out", Scalar::s32);
    Array shared = k.shared("s", Scalar::s32, 64);
    Value i = cast(k.thread(), type);
    shared[i] = k.thread();
    shared[i + 32] = k.thread() * 2;
    Array back = shared.at(i + 32);
    // Back again: by a negative index, or by one that wraps around.
    const Value by = is_signed(type) ? i * 0 - 32 : negate(i * 0 + 32);
    const bool wide = type != Scalar::u32;  // a u32 of 2^32 - 32 goes forward that far in 64 bits
    out[i] = back[0] + back.at(by)[0];
    if (wide) {
      out.at(i + 32).at(by).at(i * 0 + 32)[0] = back[0];
    } else {
      out[i + 32] = back[0];
    }
    Machine machine;
    const std::uint64_t to = machine.memory.add_undefined("out", 256);
    EXPECT_THAT(findings(machine.run(k, {.arguments = {to}})), IsEmpty());
    const auto got = machine.read<std::int32_t>(to);
    for (int t = 0; t < 32; ++t) {
      EXPECT_EQ(got[std::size_t(t)], 3 * t);
      EXPECT_EQ(got[std::size_t(t) + 32], 2 * t);
    }
  }
}

TEST(Places, OfBlocksInThreeDimensionsMoreThanSms) {
  KernelBuilder k({.name = "places", .threads = 64});
  Array out = k.array_param("out", Scalar::s32);  // (9, threads of the grid)
  Value blocks = k.grid(0) * k.grid(1) * k.grid(2);
  Value block = (k.block(2) * k.grid(1) + k.block(1)) * k.grid(0) + k.block(0);
  const Value places[] = {k.thread(), k.lane(),  k.warp(),  k.block(0), k.block(1),
                          k.block(2), k.grid(0), k.grid(1), k.grid(2)};
  for (int p = 0; p < 9; ++p) out[(blocks * p + block) * 64 + k.thread()] = places[p];
  const Result<Kernel> kernel = k.finish();
  ASSERT_TRUE(kernel) << kernel.error().message;
  for (const int sms : {1, 3, 100}) {
    SCOPED_TRACE(sms);
    Machine machine;
    const std::uint64_t to = machine.memory.add_undefined("out", 9 * 4 * 3 * 2 * 64 * 4);
    const Report report =
        machine.run(*kernel, {.grid = {4, 3, 2}, .arguments = {to}}, {.sms = sms});
    EXPECT_THAT(findings(report), IsEmpty());
    EXPECT_TRUE(report.finished);
    const auto got = machine.read<std::int32_t>(to);
    std::size_t i = 0;
    for (int p = 0; p < 9; ++p) {
      for (int z = 0; z < 2; ++z) {
        for (int y = 0; y < 3; ++y) {
          for (int x = 0; x < 4; ++x) {
            for (int t = 0; t < 64; ++t) {
              const int expected[] = {t, t % 32, t / 32, x, y, z, 4, 3, 2};
              ASSERT_EQ(got[i++], expected[p]) << "place " << p;
            }
          }
        }
      }
    }
  }
}

// Findings

/// Runs a kernel of up to 3 warps over `x`, 4 s32 with the values 0 to 3, and `out`, 32 s32 that
/// nobody has written.
Report run_small(const std::function<void(KernelBuilder&, Array x, Array out)>& body,
                 int threads = 32, const Options& options = {}, std::array<int, 3> grid = {1, 1, 1},
                 std::uint64_t x_offset = 0) {
  KernelBuilder k({.name = "small", .threads = threads});
  Array x = k.array_param("x", Scalar::s32), out = k.array_param("out", Scalar::s32);
  body(k, x, out);
  Machine machine;
  return machine.run(k,
                     {.grid = grid,
                      .arguments = {machine.add<std::int32_t>("x", {0, 1, 2, 3}) + x_offset,
                                    machine.memory.add_undefined("out", 128)}},
                     options);
}

TEST(Findings, OutOfBoundsInGlobalMemory) {
  int line = 0;
  Report report = run_small([&](KernelBuilder& k, Array x, Array) {
    k.if_(k.thread() < 6, [&] {
      line = __LINE__ + 1;
      Value over = x[k.thread()];
      k.check(over == over, "a value comes of it");
    });
  });
  EXPECT_THAT(findings(report), ElementsAre(at(line,
                                               "load: out of bounds: byte 16 of x, which has 16; "
                                               "block (0, 0, 0), thread 4 (2)")));
  EXPECT_TRUE(report.finished);
  report = run_small([&](KernelBuilder& k, Array x, Array) {
    line = __LINE__ + 1;
    x[k.thread() - 1] = 7;
  });
  EXPECT_THAT(findings(report), ElementsAre(at(line,
                                               "store: out of bounds: byte -4 of x, which has 16; "
                                               "block (0, 0, 0), thread 0 (28)")));
  report = run_small([&](KernelBuilder& k, Array x, Array) {
    line = __LINE__ + 1;
    k.if_(k.thread() == 9, [&] { x[100].atomic_add(1); });
  });
  EXPECT_THAT(findings(report),
              ElementsAre(at(line,
                             "atomic_add: out of bounds: byte 400 of x, which has 16; "
                             "block (0, 0, 0), thread 9 (1)")));
  report = run_small([&](KernelBuilder& k, Array x, Array) {
    Tile four = k.tile(Scalar::s32, 4);
    line = __LINE__ + 1;
    k.if_(k.thread() == 0, [&] { four.load(x.at(4)); });
  });
  // An access of many elements is one finding.
  EXPECT_THAT(findings(report),
              ElementsAre(at(line,
                             "load_tile: out of bounds: byte 16 of x, which has 16; "
                             "block (0, 0, 0), thread 0 (1)")));
  report = run_small(
      [&](KernelBuilder& k, Array x, Array) {
        line = __LINE__ + 1;
        k.if_(k.thread() == 0, [&] { x[0] = 1; });
      },
      32, {}, {1, 1, 1}, std::uint64_t{1} << 60);
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].message,
            "store: out of bounds: address 0x1000010000000000, where there is no array; "
            "block (0, 0, 0), thread 0");
}

TEST(Findings, OutOfBoundsInSharedMemoryAlsoInAnotherArray) {
  int line = 0;
  for (const auto& [index, message] : std::vector<std::pair<int, std::string>>{
           {4, "byte 16 of shared middle, which has 16"},
           {-1, "byte -4 of shared middle, which has 16"},
           {5000, "byte 20000 of shared middle, which has 16"},
           {1 << 20, "an address far from the block's shared arrays"},
           {-(1 << 20), "an address far from the block's shared arrays"}}) {
    const Report report = run_small([&, index = index](KernelBuilder& k, Array, Array) {
      k.shared("before", Scalar::s32, 4);
      Array middle = k.shared("middle", Scalar::s32, 4);
      k.shared("after", Scalar::s32, 4);
      line = __LINE__ + 1;
      k.if_(k.thread() == 0, [&] { middle[index] = 1; });
    });
    EXPECT_THAT(findings(report), ElementsAre(at(line, fmt::format("store: out of bounds: {}; "
                                                                   "block (0, 0, 0), thread 0 (1)",
                                                                   message))));
  }
}

TEST(Findings, Misaligned) {
  int line = 0;
  Report report = run_small([&](KernelBuilder& k, Array x, Array) {
    Tile two = k.tile(Scalar::s32, 2);
    line = __LINE__ + 1;
    k.if_(k.thread() < 2, [&] { two.load(x.at(k.thread())); });
  });
  EXPECT_THAT(findings(report),
              ElementsAre(at(line,
                             "load_tile: 8 bytes at an address that is no multiple of it: "
                             "byte 4 of x, which has 16; block (0, 0, 0), thread 1 (1)")));
  report = run_small(
      [&](KernelBuilder& k, Array x, Array) {
        line = __LINE__ + 1;
        x[k.thread() * 0] = 1;
      },
      32, {}, {1, 1, 1}, 2);
  EXPECT_THAT(findings(report),
              ElementsAre(at(line,
                             "store: 4 bytes at an address that is no multiple of it: "
                             "byte 2 of x, which has 16; block (0, 0, 0), thread 0 (32)")));
}

TEST(Findings, WhatNobodyHasWritten) {
  int line = 0;
  Report report = run_small([&](KernelBuilder& k, Array, Array out) {
    k.if_(k.thread() != 3, [&] { out[k.thread()] = 1; });
    line = __LINE__ + 1;
    out[k.thread()].atomic_max(5);
  });
  EXPECT_THAT(findings(report),
              ElementsAre(at(line,
                             "atomic_max: nothing was written there: byte 12 of out, which "
                             "has 128; block (0, 0, 0), thread 3 (1)")));
  report = run_small([&](KernelBuilder& k, Array, Array out) {
    Array shared = k.shared("s", Scalar::u64, 32);
    line = __LINE__ + 1;
    out[k.thread()] = cast(shared[k.thread()], Scalar::s32);
  });
  EXPECT_THAT(findings(report),
              ElementsAre(at(line,
                             "load: nothing was written there: byte 0 of shared s, which has "
                             "256; block (0, 0, 0), thread 0 (32)")));
  // A block's shared memory does not outlive it.
  report = run_small(
      [&](KernelBuilder& k, Array, Array out) {
        Array shared = k.shared("s", Scalar::s32, 32);
        k.if_(k.block() == 0, [&] { shared[k.thread()] = 1; });
        line = __LINE__ + 1;
        out[k.thread()] = shared[k.thread()];
      },
      32, {.sms = 1}, {2, 1, 1});
  EXPECT_THAT(findings(report),
              ElementsAre(at(line,
                             "load: nothing was written there: byte 0 of shared s, which has "
                             "128; block (1, 0, 0), thread 0 (32)")));
}

TEST(Findings, ElementsOfTilesThatNobodyHasWritten) {
  int line = 0;
  Report report = run_small([&](KernelBuilder& k, Array, Array out) {
    Tile tile = k.tile(Scalar::s32, 4);
    tile[0] = 1;
    k.if_(k.thread() < 5, [&] { tile[1] = 2; });
    line = __LINE__ + 1;
    out[k.thread()] = tile[0] + tile[1];
  });
  EXPECT_THAT(findings(report), ElementsAre(at(line,
                                               "get: element 1 of the tile was not written; "
                                               "block (0, 0, 0), thread 5 (27)")));
  report = run_small([&](KernelBuilder& k, Array, Array out) {
    Tile tile = k.tile(Scalar::s32, 4);
    for (const int i : {0, 1, 3}) tile[i] = i;
    line = __LINE__ + 1;
    k.if_(k.thread() == 0, [&] { tile.store(out); });
  });
  EXPECT_THAT(findings(report), ElementsAre(at(line,
                                               "store_tile: element 2 of the tile was not written; "
                                               "block (0, 0, 0), thread 0 (1)")));
  // A tile that is made in a loop is a new one in each turn.
  report = run_small([&](KernelBuilder& k, Array, Array out) {
    k.for_range(0, 2, 1, [&](Value i) {
      Tile tile = k.tile(Scalar::s32, 1);
      k.if_(i == 0, [&] { tile[0] = 2; });
      line = __LINE__ + 1;
      out[k.thread()] = tile[0];
    });
  });
  EXPECT_THAT(findings(report), ElementsAre(at(line,
                                               "get: element 0 of the tile was not written; "
                                               "block (0, 0, 0), thread 0 (32)")));
}

TEST(Findings, DivisionByZero) {
  int line = 0;
  // What is divided varies, and is one finding all the same.
  Report report = run_small([&](KernelBuilder& k, Array, Array out) {
    line = __LINE__ + 1;
    out[k.thread()] = k.thread() / (k.thread() & 1);
  });
  EXPECT_THAT(findings(report),
              ElementsAre(at(line, "div: division by 0: of 0; block (0, 0, 0), thread 0 (16)")));
  report = run_small([&](KernelBuilder& k, Array, Array out) {
    line = __LINE__ + 1;
    Value x = cast(k.thread() + 7, Scalar::u64) % cast(k.block(), Scalar::u64);
    out[k.thread()] = cast(x, Scalar::s32);
  });
  EXPECT_THAT(findings(report),
              ElementsAre(at(line, "rem: division by 0: of 7; block (0, 0, 0), thread 0 (32)")));
  // Lanes that take no part divide nothing.
  report = run_small([&](KernelBuilder& k, Array, Array out) {
    out[k.thread()] = 0;
    k.if_(k.thread() != 0, [&] { out[k.thread()] = 100 + k.thread() / k.thread(); });
  });
  EXPECT_THAT(findings(report), IsEmpty());
}

TEST(Findings, AnOperationOfTheWholeWarpInADivergedOne) {
  int line = 0;
  Report report = run_small([&](KernelBuilder& k, Array, Array out) {
    k.if_(k.thread() > 1, [&] {
      line = __LINE__ + 1;
      out[k.thread()] = shuffle_xor(k.thread(), 1);
      out[k.thread()] = shuffle(k.thread(), 0);
      out[k.thread()] = cast(ballot(k.thread() > 3), Scalar::s32);
      k.barrier();
    });
  });
  const std::string rest =
      ": not the whole warp: 30 of its 32 lanes take part; "
      "block (0, 0, 0), thread 2 (1)";
  EXPECT_THAT(findings(report),
              ElementsAre(at(line, "shuffle_xor" + rest), at(line + 1, "shuffle" + rest),
                          at(line + 2, "ballot" + rest), at(line + 3, "barrier" + rest)));
  EXPECT_TRUE(report.finished);
}

TEST(Findings, DeadlockSaysWhoWaitsForWhom) {
  int line = 0, other = 0;
  Report report = run_small(
      [&](KernelBuilder& k, Array, Array) {
        line = __LINE__ + 1;
        k.if_(k.warp() == 0, [&] { k.barrier(); });
      },
      96);
  EXPECT_THAT(findings(report),
              ElementsAre(at(line,
                             "deadlock: 32 of 96 threads wait at barrier 0; warp 1 has "
                             "ended; warp 2 has ended; block (0, 0, 0), thread 0 (1)")));
  EXPECT_FALSE(report.finished);
  report = run_small(
      [&](KernelBuilder& k, Array, Array) {
        k.if_(
            k.warp() == 0,
            [&] {
              line = __LINE__ + 1;
              k.barrier(3, 64);
            },
            [&] {
              other = __LINE__ + 1;
              k.barrier(5, 64);
            });
      },
      64);
  EXPECT_THAT(
      findings(report),
      ElementsAre(
          at(line, fmt::format("deadlock: 32 of 64 threads wait at barrier 3; warp 1 waits "
                               "at sim_test.cc:{}; block (0, 0, 0), thread 0 (1)",
                               other)),
          at(other, fmt::format("deadlock: 32 of 64 threads wait at barrier 5; warp 0 waits "
                                "at sim_test.cc:{}; block (0, 0, 0), thread 32 (1)",
                                line))));
}

TEST(Findings, ThreadsThatCountABarrierDifferently) {
  int line = 0;
  const Report report = run_small(
      [&](KernelBuilder& k, Array, Array) {
        k.if_(
            k.warp() == 0, [&] { k.barrier(2, 64); },
            [&] {
              // Long enough that the others are there first.
              Var turns = k.var(Scalar::s32, 0);
              k.for_range(0, 2000, 1, [&](Value) { turns += 1; });
              line = __LINE__ + 1;
              k.if_(k.warp() == 1, [&] { k.barrier(2, 96); });
            });
      },
      96);
  ASSERT_GE(report.findings.size(), 1u);
  EXPECT_EQ(findings(report)[0], at(line,
                                    "barrier: 96 threads asked for where 64 were before, at "
                                    "barrier 2; block (0, 0, 0), thread 32 (1)"));
}

TEST(Findings, AFailedCheckStopsTheRun) {
  int line = 0;
  const Report report = run_small([&](KernelBuilder& k, Array, Array out) {
    line = __LINE__ + 1;
    k.check(k.thread() < 30, "few: threads");
    k.check(k.thread() < 3, "never seen");
    out[k.thread()] = out[k.thread()];
  });
  EXPECT_THAT(findings(report),
              ElementsAre(at(line, "few: threads; block (0, 0, 0), thread 30 (2)")));
  EXPECT_FALSE(report.finished);
}

TEST(Findings, ARunThatDoesNotEnd) {
  int line = 0;
  Report report = run_small(
      [&](KernelBuilder& k, Array, Array) {
        Var turns = k.var(Scalar::s32, 0);
        k.for_range(0, 1 << 30, 1, [&](Value) {
          line = __LINE__ + 1;
          turns += 1;
        });
      },
      32, {.max_steps = 1003});
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].message, "still running after 1003 operations");
  EXPECT_FALSE(report.finished);
  // A step that is known only when it runs.
  report = run_small([&](KernelBuilder& k, Array, Array) {
    line = __LINE__ + 1;
    k.for_range(0, 8, k.thread() - 2, [&](Value) {});
  });
  EXPECT_THAT(
      findings(report),
      ElementsAre(at(line, "for: the step is not above 0: -2; block (0, 0, 0), thread 0 (3)")));
  EXPECT_FALSE(report.finished);
}

TEST(Findings, OneForEachPlaceAndKind) {
  int line = 0;
  const Report report = run_small(
      [&](KernelBuilder& k, Array, Array out) {
        line = __LINE__ + 1;
        Value some = out[k.thread() * 3 - 3];
        k.check(some == some, "a value");
      },
      64, {.sms = 1}, {2, 1, 1});
  std::int64_t below = 0, above = 0, unwritten = 0;
  for (int t = 0; t < 64; ++t) ((t == 0 ? below : 3 * t - 3 < 32 ? unwritten : above) += 2);
  ASSERT_EQ(report.findings.size(), 2u);
  for (const Finding& f : report.findings) {
    EXPECT_EQ(f.where, fmt::format("sim_test.cc:{}", line));
    const bool bounds = f.message.starts_with("load: out of bounds: ");
    EXPECT_TRUE(bounds || f.message.starts_with("load: nothing was written there: ")) << f.message;
    EXPECT_EQ(f.count, bounds ? below + above : unwritten);
  }
}

TEST(Findings, CopiesThatNobodyHasWaitedFor) {
  int line = 0;
  const auto copied = [&](bool wait) {
    return run_small([&](KernelBuilder& k, Array x, Array out) {
      Array shared = k.shared("s", Scalar::s32, 4);
      k.if_(k.thread() == 0, [&] { k.copy_async(shared, x, 16, k.thread() == 0); });
      k.commit_copies();
      if (wait) k.wait_copies(0);
      k.barrier();
      line = __LINE__ + 1;
      out[k.thread()] = shared[k.thread() & 3];
    });
  };
  EXPECT_THAT(findings(copied(true)), IsEmpty());
  EXPECT_THAT(findings(copied(false)),
              ElementsAre(at(line,
                             "load: nothing was written there: byte 0 of shared s, which has "
                             "16; block (0, 0, 0), thread 0 (32)")));
}

// Divergence

std::int32_t nested(std::int32_t n) {
  std::int32_t sum = 0;
  for (std::int32_t j = n & 3; j < n; j += (n & 1) + 1) {
    if ((j & 1) == 0) {
      for (std::int32_t m = 0; m < j; m += 3) {
        sum += m * n;
        if (m > 5) sum ^= j;
      }
    } else if (sum > 100) {
      sum -= 77;
    } else {
      for (std::int32_t m = j; m < n; m += 2) sum += m;
    }
    sum += 1;
  }
  return sum;
}

TEST(Divergence, NestedLoopsAndBranchesAsAScalarLoop) {
  KernelBuilder k({.name = "nested", .threads = 64});
  Array in = k.array_param("in", Scalar::s32), out = k.array_param("out", Scalar::s32);
  Value i = k.block() * 64 + k.thread();
  Value n = in[i];
  Var sum = k.var(Scalar::s32, 0);
  k.for_range(n & 3, n, (n & 1) + 1, [&](Value j) {
    k.if_((j & 1) == 0,
          [&] {
            k.for_range(0, j, 3, [&](Value m) {
              sum += m * n;
              k.if_(m > 5, [&] { sum = sum ^ j; });
            });
          },
          [&] {
            k.if_(
                sum > 100, [&] { sum = sum - 77; },
                [&] { k.for_range(j, n, 2, [&](Value m) { sum += m; }); });
          });
    sum += 1;
  });
  out[i] = sum;
  std::vector<std::int32_t> numbers, expected;
  for (std::int32_t t = 0; t < 256; ++t) {
    numbers.push_back(t * 37 % 41 - 3);
    expected.push_back(nested(numbers.back()));
  }
  ASSERT_GT(std::set<std::int32_t>(expected.begin(), expected.end()).size(), 20u);
  Machine machine;
  const std::uint64_t to = machine.memory.add_undefined("out", 1024);
  const Report report =
      machine.run(k, {.grid = {4, 1, 1}, .arguments = {machine.add("in", numbers), to}});
  EXPECT_THAT(findings(report), IsEmpty());
  EXPECT_EQ(machine.read<std::int32_t>(to), expected);
}

template <class T>
void expect_turns(T first, T end, T step, const std::vector<T>& turns) {
  SCOPED_TRACE(fmt::format("{} from {} to {} by {}", name(scalar_of<T>()), first, end, step));
  KernelBuilder k({.name = "turns", .threads = 32});
  Value from = k.param("from", scalar_of<T>()), to = k.param("to", scalar_of<T>()),
        by = k.param("by", scalar_of<T>());
  Array out = k.array_param("out", scalar_of<T>());
  Var at = k.var(Scalar::s32, 0);
  k.for_range(from, to, by, [&](Value i) {
    k.if_(k.thread() == 0, [&] { out[at] = i; });
    at += 1;
  });
  k.check(at == static_cast<int>(turns.size()), "as many turns");
  Machine machine;
  const std::uint64_t written = machine.memory.add_undefined("out", 8 * sizeof(T));
  const auto bits = [](T x) { return static_cast<std::uint64_t>(x); };
  const Report report =
      machine.run(k, {.arguments = {bits(first), bits(end), bits(step), written}});
  EXPECT_THAT(findings(report), IsEmpty());
  auto got = machine.read<T>(written);
  got.resize(turns.size());
  EXPECT_EQ(got, turns);
}

TEST(Divergence, LoopsCountInEveryType) {
  expect_turns<std::int32_t>(-3, 4, 3, {-3, 0, 3});
  expect_turns<std::int32_t>(5, 5, 1, {});
  expect_turns<std::int32_t>(6, 5, 1, {});
  expect_turns<std::uint32_t>(0x7ffffffe, 0x80000002, 2, {0x7ffffffe, 0x80000000});
  expect_turns<std::uint32_t>(kAll32, 5, 1, {});
  expect_turns<std::int64_t>(-1, std::int64_t{1} << 40, std::int64_t{1} << 39,
                             {-1, (std::int64_t{1} << 39) - 1, (std::int64_t{1} << 40) - 1});
  expect_turns<std::uint64_t>(kTop64 - 1, kTop64 + 1, 1, {kTop64 - 1, kTop64});
}

// Threads together

TEST(Together, ShufflesAndBallots) {
  KernelBuilder k({.name = "shuffles", .threads = 64});
  Array out = k.array_param("out", Scalar::s32);
  Value thread = k.thread();
  const Value all[] = {shuffle_xor(thread, 5), shuffle(thread, thread + 1), shuffle(thread, -1),
                       cast(ballot((thread & 1) == 0 && thread < 40), Scalar::s32),
                       cast(shuffle(cast(thread, Scalar::f32), 3), Scalar::s32)};
  for (int i = 0; i < 5; ++i) out[thread * 5 + i] = all[i];
  Machine machine;
  const std::uint64_t to = machine.memory.add_undefined("out", 64 * 5 * 4);
  EXPECT_THAT(findings(machine.run(k, {.arguments = {to}})), IsEmpty());
  const auto got = machine.read<std::int32_t>(to);
  for (int t = 0; t < 64; ++t) {
    const int base = t / 32 * 32;
    const std::int32_t expected[] = {t ^ 5, base + (t + 1) % 32, base + 31,
                                     t < 32 ? 0x55555555 : 0x55, base + 3};
    for (int i = 0; i < 5; ++i)
      EXPECT_EQ(got[std::size_t(5 * t + i)], expected[i]) << "thread " << t << ", " << i;
  }
}

TEST(Together, NamedBarriersOfSomeWarps) {
  // Warps 0 and 1 meet at barrier 1, 2 and 3 at barrier 2: each pair exchanges through shared
  // memory, in twenty schedules.
  KernelBuilder k({.name = "pairs", .threads = 128});
  Array out = k.array_param("out", Scalar::s32);
  Array shared = k.shared("s", Scalar::s32, 128);
  shared[k.thread()] = k.thread() * 3;
  k.if_(k.warp() < 2, [&] { k.barrier(1, 64); }, [&] { k.barrier(2, 64); });
  out[k.thread()] = shared[k.thread() ^ 32];
  const Result<Kernel> kernel = k.finish();
  ASSERT_TRUE(kernel) << kernel.error().message;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Machine machine;
    const std::uint64_t to = machine.memory.add_undefined("out", 512);
    EXPECT_THAT(findings(machine.run(*kernel, {.arguments = {to}}, {.seed = seed})), IsEmpty());
    const auto got = machine.read<std::int32_t>(to);
    for (int t = 0; t < 128; ++t) ASSERT_EQ(got[std::size_t(t)], (t ^ 32) * 3);
  }
}

TEST(Together, AtomicsGiveWhatWasThere) {
  KernelBuilder k({.name = "atomics", .threads = 32});
  Array sum = k.array_param("sum", Scalar::u32), most = k.array_param("most", Scalar::s64),
        least = k.array_param("unsigned", Scalar::u32), old = k.array_param("old", Scalar::u32);
  old[k.thread()] = sum[0].atomic_add(cast(k.thread(), Scalar::u32));
  most[0].atomic_max(cast(k.thread(), Scalar::s64) - 100);
  least[0].atomic_max(cast(k.thread(), Scalar::u32) - 1u);
  Machine machine;
  const std::uint64_t sums = machine.add<std::uint32_t>("sum", {kAll32}),
                      largest = machine.add<std::int64_t>("most", {kMin64}),
                      top = machine.add<std::uint32_t>("unsigned", {7}),
                      before = machine.memory.add_undefined("old", 128);
  EXPECT_THAT(findings(machine.run(k, {.arguments = {sums, largest, top, before}})), IsEmpty());
  EXPECT_THAT(machine.read<std::uint32_t>(sums), ElementsAre(31u * 32 / 2 - 1));
  EXPECT_THAT(machine.read<std::int64_t>(largest), ElementsAre(-69));
  EXPECT_THAT(machine.read<std::uint32_t>(top), ElementsAre(kAll32));
  std::uint32_t running = kAll32;
  const auto got = machine.read<std::uint32_t>(before);
  for (std::uint32_t t = 0; t < 32; ++t) {
    EXPECT_EQ(got[t], running);
    running += t;
  }
}

TEST(Together, AtomicsOfF32FlushSubnormalsInGlobalMemoryAlone) {
  KernelBuilder k({.name = "flush", .threads = 32});
  Array global = k.array_param("global", Scalar::f32), out = k.array_param("out", Scalar::f32);
  Array shared = k.shared("s", Scalar::f32, 1);
  k.if_(k.thread() == 0, [&] {
    shared[0] = 0x1p-140f;
    shared[0].atomic_add(0x1p-140f);
    out[0] = shared[0];
    global[0].atomic_add(-0x1p-140f);
    global[1].atomic_add(1.0f);
    global[2].atomic_add(-0x1p-126f);
  });
  Machine machine;
  const std::uint64_t to = machine.add<float>("global", {-0x1p-140f, 0x1p-140f, 0x1.8p-126f}),
                      result = machine.add<float>("out", {0});
  EXPECT_THAT(findings(machine.run(k, {.arguments = {to, result}})), IsEmpty());
  EXPECT_THAT(machine.read<float>(result), ElementsAre(0x1p-139f));
  const auto got = machine.read<float>(to);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(got[0]), 0x80000000u);
  EXPECT_EQ(got[1], 1.0f);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(got[2]), 0u);  // 2^-127: flushed
}

// Schedules

/// Each warp adds 1 to one counter, many times; what it holds after, by seed.
std::vector<std::int32_t> counted(bool atomic, int blocks) {
  KernelBuilder k({.name = "count", .threads = 128});
  Array counter = k.array_param("counter", Scalar::s32);
  k.for_range(0, 16, 1, [&](Value) {
    k.if_(k.lane() == 0, [&] {
      if (atomic) {
        counter[0].atomic_add(1);
      } else {
        counter[0] = counter[0] + 1;
      }
    });
  });
  const Result<Kernel> kernel = k.finish();
  EXPECT_TRUE(kernel) << kernel.error().message;
  std::vector<std::int32_t> results;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Machine machine;
    const std::uint64_t at = machine.add<std::int32_t>("counter", {0});
    const Report report =
        machine.run(*kernel, {.grid = {blocks, 1, 1}, .arguments = {at}}, {.seed = seed});
    EXPECT_THAT(findings(report), IsEmpty());
    results.push_back(machine.read<std::int32_t>(at)[0]);
  }
  return results;
}

TEST(Schedules, ShowThatOrderMatters) {
  for (const int blocks : {1, 3}) {
    const std::vector<std::int32_t> racing = counted(false, blocks), atomic = counted(true, blocks);
    const std::int32_t all = 16 * 4 * blocks;
    EXPECT_GT(std::set<std::int32_t>(racing.begin(), racing.end()).size(), 5u);
    EXPECT_THAT(racing, ::testing::Each(::testing::AllOf(::testing::Ge(16), ::testing::Lt(all))));
    EXPECT_THAT(atomic, ::testing::Each(all));
    EXPECT_EQ(counted(false, blocks), racing) << "a seed does not give the same schedule again";
  }
}

TEST(Schedules, BlocksOfOneSmFollowEachOther) {
  // The k-th block sees what all before it have written, and no other.
  KernelBuilder k({.name = "follow", .threads = 32});
  Array counter = k.array_param("counter", Scalar::s32), out = k.array_param("out", Scalar::s32);
  k.if_(k.thread() == 0, [&] { out[k.block()] = counter[0].atomic_add(1); });
  Machine machine;
  const std::uint64_t to = machine.memory.add_undefined("out", 20);
  EXPECT_THAT(findings(machine.run(
                  k, {.grid = {5, 1, 1}, .arguments = {machine.add<std::int32_t>("c", {0}), to}},
                  {.sms = 1})),
              IsEmpty());
  EXPECT_THAT(machine.read<std::int32_t>(to), ElementsAre(0, 1, 2, 3, 4));
}

// Print, launches, memory

TEST(Print, WritesATextForEachLane) {
  KernelBuilder k({.name = "say", .threads = 32});
  Value t = k.thread();
  k.if_(t >= 30, [&] {
    k.print("values", {t, cast(t, Scalar::u64) << 40, cast(t, Scalar::f32) / 4, t > 30,
                       cast(t, Scalar::f64) / 3});
    k.print("nothing more", {});
  });
  Machine machine;
  const Report report = machine.run(k, {});
  EXPECT_THAT(report.printed, ElementsAre("values 30 32985348833280 7.5 false 10",
                                          "values 31 34084860461056 7.75 true 10.333333333333334",
                                          "nothing more", "nothing more"));
  EXPECT_GT(report.steps, 0);
}

TEST(Launches, ThatDoNotFitAreRefused) {
  KernelBuilder k({.name = "fit", .threads = 32});
  k.param("n", Scalar::s32);
  const Result<Kernel> kernel = k.finish();
  ASSERT_TRUE(kernel) << kernel.error().message;
  Memory memory;
  const struct {
    Launch launch;
    Options options;
    std::string message;
  } cases[] = {
      {{.grid = {0, 1, 1}, .arguments = {1}},
       {},
       "simulate: fit: expected 1 to 2147483647 blocks along axis 0, got 0"},
      {{.grid = {1, -2, 1}, .arguments = {1}},
       {},
       "simulate: fit: expected 1 to 65535 blocks along axis 1, got -2"},
      {{.grid = {1, 1, 65536}, .arguments = {1}},
       {},
       "simulate: fit: expected 1 to 65535 blocks along axis 2, got 65536"},
      {{.grid = {1, 1, 1}, .arguments = {}}, {}, "simulate: fit: expected 1 arguments, got 0"},
      {{.grid = {1, 1, 1}, .arguments = {1, 2}}, {}, "simulate: fit: expected 1 arguments, got 2"},
      {{.grid = {1, 1, 1}, .arguments = {1}}, {.sms = 0}, "simulate: expected 1 SM or more, got 0"},
  };
  for (const auto& [launch, options, message] : cases) {
    const Result<Report> report = sim::run(kernel->ir(), launch, memory, options);
    ASSERT_FALSE(report) << message;
    EXPECT_EQ(report.error().code, ErrorCode::invalid_argument);
    EXPECT_EQ(report.error().message, message);
  }
  EXPECT_TRUE(sim::run(kernel->ir(), {.arguments = {1}}, memory));
}

TEST(MemoryOfADevice, KeepsArraysApart) {
  Memory memory;
  const std::byte bytes[] = {std::byte{1}, std::byte{2}};
  const std::uint64_t first = memory.add("first", bytes),
                      second = memory.add_undefined("second", 8);
  EXPECT_NE(first, 0u);
  EXPECT_EQ(first % 256, 0u);
  EXPECT_EQ(second % 256, 0u);
  EXPECT_THAT(memory.contents(first), ElementsAre(std::byte{1}, std::byte{2}));
  EXPECT_EQ(memory.contents(second).size(), 8u);
  EXPECT_TRUE(memory.contents(first + 1).empty());
  ASSERT_NE(memory.find(second + 4, 4), nullptr);
  EXPECT_EQ(memory.find(second + 4, 4)->name, "second");
  EXPECT_EQ(memory.find(second + 4, 5), nullptr);
  EXPECT_EQ(memory.find(first - 1, 1), nullptr);
  EXPECT_EQ(memory.find(7, 1), nullptr);
  EXPECT_EQ(memory.describe(second - 3), "byte -3 of second, which has 8");
  EXPECT_EQ(memory.describe(7), "address 0x7, where there is no array");
}

}  // namespace
}  // namespace lapidary::sim
