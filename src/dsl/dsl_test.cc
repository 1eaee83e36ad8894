#include "lapidary/dsl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "ir/kernel.h"
#include "support/result.h"

namespace lapidary {
namespace {

using ::testing::HasSubstr;
using Where = std::source_location;

/// The line of the call; after a comma, that of the expression before it.
int line(Where where = Where::current()) { return static_cast<int>(where.line()); }

std::string at(int line, const std::string& message) {
  return fmt::format("dsl_test.cc:{}: {}", line, message);
}
/// All that `finish` says; empty for a sound kernel.
std::string error_of(KernelBuilder& k) {
  const Result<Kernel> kernel = k.finish();
  return kernel ? "" : kernel.error().message;
}

/// A builder with a value of each kind that rows of the tables use.
struct Words {
  KernelBuilder k{{.name = "words", .threads = 64}};
  Value i = k.param("i", Scalar::s32), u = k.param("u", Scalar::u32),
        wide = k.param("wide", Scalar::s64), f = k.param("f", Scalar::f32),
        d = k.param("d", Scalar::f64);
  Value p = i < 3;
  Array x = k.array_param("x", Scalar::f32), h = k.array_param("h", Scalar::f16),
        n = k.array_param("n", Scalar::s32), n64 = k.array_param("n64", Scalar::s64);
  Array s = k.shared("s", Scalar::f32, 64);
  Value half = h[0];
  Tile t = k.tile(Scalar::f32, 4), th = k.tile(Scalar::f16, 4);
  Var v = k.var(Scalar::s32, 0);
};

struct Misuse {
  const char* why;
  int (*make)(Words& w);  ///< gives the line of the misuse
  const char* message;
};

const Misuse kMisuses[] = {
    // Types
    {"f32 added to s32", [](Words& w) { return w.i + w.f, line(); },
     "add: expected y: s32 as x is, got f32"},
    {"s32 times u32", [](Words& w) { return w.i * w.u, line(); },
     "mul: expected y: s32 as x is, got u32"},
    {"s64 below s32", [](Words& w) { return w.wide < w.i, line(); },
     "lt: expected y: s64 as x is, got s32"},
    {"turned comparisons say it of the other side", [](Words& w) { return w.wide > w.i, line(); },
     "lt: expected y: s32 as x is, got s64"},
    {"arithmetic of f16", [](Words& w) { return w.half + w.half, line(); },
     "add: expected x: one of s32 u32 s64 u64 f32 f64, got f16"},
    {"f16 compared", [](Words& w) { return w.half == w.half, line(); },
     "eq: expected x: one of s32 u32 s64 u64 f32 f64, got f16"},
    {"remainder of floats", [](Words& w) { return w.f % w.f, line(); },
     "rem: expected x: one of s32 u32 s64 u64, got f32"},
    {"bits of floats", [](Words& w) { return w.f & w.f, line(); },
     "and: expected x: one of pred s32 u32 s64 u64, got f32"},
    {"logic of numbers and predicates", [](Words& w) { return w.p && w.i, line(); },
     "and: expected y: pred as x is, got s32"},
    {"predicates added", [](Words& w) { return w.p + w.p, line(); },
     "add: expected x: one of s32 u32 s64 u64 f32 f64, got pred"},
    {"shift of a float", [](Words& w) { return w.f << 1, line(); },
     "shl: expected x: one of s32 u32 s64 u64, got f32"},
    {"shift by a wide count", [](Words& w) { return w.i >> w.wide, line(); },
     "shr: expected count: s32, got s64"},
    {"fma of integers", [](Words& w) { return fma(w.i, w.i, w.i), line(); },
     "fma: expected x: one of f32 f64, got s32"},
    {"fma of two types", [](Words& w) { return fma(w.f, w.f, w.d), line(); },
     "fma: expected z: f32 as x is, got f64"},
    {"min of f64", [](Words& w) { return min(w.d, w.d), line(); },
     "min: expected one of s32 u32 s64 u64 f32, got f64"},
    {"max of f64", [](Words& w) { return max(w.d, 1), line(); },
     "max: expected one of s32 u32 s64 u64 f32, got f64"},
    {"exp2 of f64", [](Words& w) { return exp2(w.d), line(); }, "exp2: expected x: f32, got f64"},
    {"log2 of an integer", [](Words& w) { return log2(w.i), line(); },
     "log2: expected x: f32, got s32"},
    {"rsqrt of f64", [](Words& w) { return rsqrt(w.d), line(); },
     "rsqrt: expected x: f32, got f64"},
    {"sqrt of an integer", [](Words& w) { return sqrt(w.i), line(); },
     "sqrt: expected x: one of f32 f64, got s32"},
    {"magnitude of an integer", [](Words& w) { return abs(w.i), line(); },
     "abs: expected x: one of f32 f64, got s32"},
    {"complement of a float", [](Words& w) { return invert(w.f), line(); },
     "not: expected x: one of pred s32 u32 s64 u64, got f32"},
    {"minus a predicate", [](Words& w) { return negate(w.p), line(); },
     "neg: expected x: one of s32 u32 s64 u64 f32 f64, got pred"},
    {"select by a number", [](Words& w) { return select(w.i, w.f, w.f), line(); },
     "select: expected p: pred, got s32"},
    {"select of two types", [](Words& w) { return select(w.p, w.f, w.i), line(); },
     "select: expected y: f32 as x is, got s32"},
    {"cast of a predicate", [](Words& w) { return cast(w.p, Scalar::s32), line(); },
     "cast: expected x: one of s32 u32 s64 u64 f16 bf16 f32 f64, got pred"},
    {"cast to a predicate", [](Words& w) { return cast(w.i, Scalar::pred), line(); },
     "cast: expected a result of s32 u32 s64 u64 f16 bf16 f32 f64, got pred"},
    {"cast from an integer to f16", [](Words& w) { return cast(w.i, Scalar::f16), line(); },
     "cast: expected f32 on the other side of f16, got s32"},
    {"cast from f16 to f64", [](Words& w) { return cast(w.half, Scalar::f64), line(); },
     "cast: expected f32 on the other side of f16, got f64"},
    {"bits in a type of another size", [](Words& w) { return bitcast(w.f, Scalar::u64), line(); },
     "bitcast: expected a type of 4 bytes as f32 has, got u64"},
    {"shuffle of a wide value", [](Words& w) { return shuffle(w.wide, 0), line(); },
     "shuffle: expected x: one of s32 u32 f32, got s64"},
    {"shuffle from an unsigned lane", [](Words& w) { return shuffle(w.f, w.u), line(); },
     "shuffle: expected lane: s32, got u32"},
    {"ballot of a number", [](Words& w) { return ballot(w.i), line(); },
     "ballot: expected p: pred, got s32"},
    {"shuffle with a mask of 32", [](Words& w) { return shuffle_xor(w.f, 32), line(); },
     "shuffle_xor: expected a mask from 0 to 31, got 32"},
    {"shuffle with a mask below 0", [](Words& w) { return shuffle_xor(w.f, -1), line(); },
     "shuffle_xor: expected a mask from 0 to 31, got -1"},

    // Constants
    {"1.5 for an integer", [](Words& w) { return w.i + 1.5, line(); },
     "constant: 1.5 is no s32; use an integer or cast"},
    {"1.5 on the left", [](Words& w) { return 1.5 * w.i, line(); },
     "constant: 1.5 is no s32; use an integer or cast"},
    {"2^31 for s32", [](Words& w) { return w.i + 2147483648u, line(); },
     "constant: 2147483648 does not fit in s32"},
    {"-1 for u32", [](Words& w) { return w.u - (-1), line(); }, "constant: -1 does not fit in u32"},
    {"2^32 for u32", [](Words& w) { return w.u - 0x100000000, line(); },
     "constant: 4294967296 does not fit in u32"},
    {"-1 for u64", [](Words& w) { return w.k.constant(Scalar::u64, -1), line(); },
     "constant: -1 does not fit in u64"},
    {"2^63 for s64", [](Words& w) { return w.wide * 0x8000000000000000u, line(); },
     "constant: 9223372036854775808 does not fit in s64"},
    {"2^63 for s32", [](Words& w) { return w.i * 0x8000000000000000u, line(); },
     "constant: 9223372036854775808 does not fit in s32"},
    {"2 for a predicate", [](Words& w) { return w.p && 2, line(); },
     "constant: 2 does not fit in pred"},
    {"1e39 for f32", [](Words& w) { return w.f + 1e39, line(); },
     "constant: 1e+39 does not fit in f32"},
    {"a number for f16", [](Words& w) { return w.k.constant(Scalar::f16, 1.5), line(); },
     "constant: 1.5 as f16: make it f32 and cast it"},
    {"a number for an element of f16", [](Words& w) { return w.h[3] = 0, line(); },
     "constant: 0 as f16: make it f32 and cast it"},

    // Memory
    {"a float index", [](Words& w) { return w.x[w.f] = w.f, line(); },
     "advance: expected by: one of s32 u32 s64 u64, got f32"},
    {"a number as an index", [](Words& w) { return w.x[0.5] = w.f, line(); },
     "constant: 0.5 is no s64; use an integer or cast"},
    {"s32 stored in f32", [](Words& w) { return w.x[0] = w.i, line(); },
     "store: expected value: f32, the element type of p, got s32"},
    {"f64 stored in shared f32", [](Words& w) { return w.s[0] = w.d, line(); },
     "store: expected value: f32, the element type of p, got f64"},
    {"s64 added in one step", [](Words& w) { return w.n64[0].atomic_add(1), line(); },
     "atomic_add: expected value: one of s32 u32 u64 f32 f64, got s64"},
    {"f16 added in one step", [](Words& w) { return w.h[0].atomic_add(w.half), line(); },
     "atomic_add: expected value: one of s32 u32 u64 f32 f64, got f16"},
    {"the larger f32 in one step", [](Words& w) { return w.x[0].atomic_max(w.f), line(); },
     "atomic_max: expected value: one of s32 u32 s64 u64, got f32"},
    {"s32 added to f32 in one step", [](Words& w) { return w.x[0].atomic_add(w.i), line(); },
     "atomic_add: expected value: f32, the element type of p, got s32"},

    // Tiles and variables
    {"an element behind a tile", [](Words& w) { return w.t[4] + 1, line(); },
     "get: expected an index below 4, the tile's elements, got 4"},
    {"an element before a tile", [](Words& w) { return w.t[-1] = w.f, line(); },
     "set: expected an index below 4, the tile's elements, got -1"},
    {"s32 in a tile of f32", [](Words& w) { return w.t[0] = w.i, line(); },
     "set: expected value: f32, the element type of t, got s32"},
    {"a tile of f32 from s32", [](Words& w) { return w.t.load(w.n), line(); },
     "load_tile: expected t: a tile of s32 as p points to, got tile 4 x f32"},
    {"a tile of f16 into f32", [](Words& w) { return w.th.store(w.x), line(); },
     "store_tile: expected t: a tile of f32 as p points to, got tile 4 x f16"},
    {"an access of 2 bytes", [](Words& w) { return w.k.tile(Scalar::f16, 1).load(w.h), line(); },
     "load_tile: expected 4, 8 or 16 bytes in one access, got 2"},
    {"a tile of no elements", [](Words& w) { return w.k.tile(Scalar::f32, 0), line(); },
     "tile: expected 1 to 256 elements, got 0"},
    {"a tile of -3 elements", [](Words& w) { return w.k.tile(Scalar::f32, -3).load(w.x), line(); },
     "tile: expected 1 to 256 elements, got -3"},
    {"a tile of 257 elements", [](Words& w) { return w.k.tile(Scalar::f32, 257), line(); },
     "tile: expected 1 to 256 elements, got 257"},
    {"a tile of predicates", [](Words& w) { return w.k.tile(Scalar::pred, 4).load(w.x), line(); },
     "tile: expected elements with bits, got pred"},
    {"a variable predicate", [](Words& w) { return w.k.var(Scalar::pred, w.p), line(); },
     "tile: expected elements with bits, got pred"},
    {"f32 in a variable of s32", [](Words& w) { return w.v = w.f, line(); },
     "set: expected value: s32, the element type of t, got f32"},
    {"f32 added to a variable of s32", [](Words& w) { return w.v += w.f, line(); },
     "add: expected y: s32 as x is, got f32"},
    {"1.5 added to a variable of s32", [](Words& w) { return w.v += 1.5, line(); },
     "constant: 1.5 is no s32; use an integer or cast"},

    // What a launch gives
    {"a predicate as a parameter", [](Words& w) { return w.k.param("b", Scalar::pred), line(); },
     "param: expected an integer, f32 or f64, got pred"},
    {"bf16 as a parameter", [](Words& w) { return w.k.param("b", Scalar::bf16), line(); },
     "param: expected an integer, f32 or f64, got bf16"},
    {"an array of predicates",
     [](Words& w) { return w.k.array_param("b", Scalar::pred)[0] = w.p, line(); },
     "array_param: expected elements with bits, got pred"},
    {"a fourth axis of blocks", [](Words& w) { return w.k.block(3), line(); },
     "block: expected an axis from 0 to 2, got 3"},
    {"an axis below 0", [](Words& w) { return w.k.grid(-1), line(); },
     "grid: expected an axis from 0 to 2, got -1"},
    {"a shared array of no elements",
     [](Words& w) { return w.k.shared("b", Scalar::f32, 0)[0] = w.f, line(); },
     "shared: expected 1 to 2^20 elements with bits, got 0 of f32"},
    {"a shared array of -1 elements",
     [](Words& w) { return w.k.shared("b", Scalar::f32, -1), line(); },
     "shared: expected 1 to 2^20 elements with bits, got -1 of f32"},
    {"a shared array of predicates",
     [](Words& w) { return w.k.shared("b", Scalar::pred, 8), line(); },
     "shared: expected 1 to 2^20 elements with bits, got 8 of pred"},

    // Threads together
    {"barrier 0 by hand", [](Words& w) { return w.k.barrier(0, 64), line(); },
     "barrier: expected a barrier from 1 to 15, got 0, that of all threads"},
    {"barrier 16", [](Words& w) { return w.k.barrier(16, 64), line(); },
     "barrier: expected a barrier from 0 to 15, got 16"},
    {"a barrier of 48 threads", [](Words& w) { return w.k.barrier(1, 48), line(); },
     "barrier: expected a multiple of 32 up to 64, the block's threads, got 48"},
    {"a barrier of more than there are", [](Words& w) { return w.k.barrier(1, 96), line(); },
     "barrier: expected a multiple of 32 up to 64, the block's threads, got 96"},
    {"a barrier of no thread", [](Words& w) { return w.k.barrier(1, 0), line(); },
     "barrier: expected a multiple of 32 up to 64, the block's threads, got 0"},

    // Control
    {"a number as a condition", [](Words& w) { return w.k.if_(w.i, [] {}), line(); },
     "if: expected p: pred, got s32"},
    {"a number to check", [](Words& w) { return w.k.check(w.f, "never"), line(); },
     "check: expected p: pred, got f32"},
    {"a loop of floats",
     [](Words& w) { return w.k.for_range(w.f, w.f, w.f, [](Value) {}), line(); },
     "for: expected first: one of s32 u32 s64 u64, got f32"},
    {"a loop to a wide end",
     [](Words& w) { return w.k.for_range(w.i, w.wide, 1, [](Value) {}), line(); },
     "for: expected end: s32 as first is, got s64"},
    {"a loop by a wide step",
     [](Words& w) { return w.k.for_range(0, w.i, w.wide, [](Value) {}), line(); },
     "for: expected step: s32 as first is, got s64"},
    {"a loop that stands", [](Words& w) { return w.k.for_range(0, 8, 0, [](Value) {}), line(); },
     "for: expected a step above 0, got 0"},
    {"a loop that goes back",
     [](Words& w) { return w.k.for_range(0, w.wide, -2, [](Value) {}), line(); },
     "for: expected a step above 0, got -2"},
    {"f16 printed", [](Words& w) { return w.k.print("h", {w.i, w.half}), line(); },
     "print: expected a cast to f32, got f16 as operand 2"},

    // Values of nobody, and of others
    {"an empty value", [](Words& w) { return w.i + Value(), line(); },
     "value: expected one of this kernel, got an empty one"},
    {"an empty value on the left", [](Words& w) { return Value() + w.i, line(); },
     "value: expected one of this kernel, got an empty one"},
    {"an empty value stored", [](Words& w) { return w.x[0] = Value(), line(); },
     "value: expected one of this kernel, got an empty one"},
    {"a function of numbers alone", [](Words& w) { return w.v = max(1, 2), line(); },
     "value: expected one of this kernel, got an empty one"},
    {"an empty condition", [](Words& w) { return w.k.if_(Value(), [] {}), line(); },
     "value: expected one of this kernel, got an empty one"},
    {"an empty value printed", [](Words& w) { return w.k.print("x", {Value()}), line(); },
     "value: expected one of this kernel, got an empty one"},
    {"an element of an empty array", [](Words& w) { return Array()[w.i] = w.f, line(); },
     "array: expected one of this kernel, got an empty one"},
    {"a value in an empty array", [](Words& w) { return Array()[0] = w.f, line(); },
     "array: expected one of this kernel, got an empty one"},
    {"a tile from an empty array", [](Words& w) { return w.t.load(Array()), line(); },
     "array: expected one of this kernel, got an empty one"},
    {"a copy to an empty array", [](Words& w) { return w.k.copy_async({}, w.x, 4, w.p), line(); },
     "array: expected one of this kernel, got an empty one"},
};

TEST(Misuse, IsToldWithTheLineOfTheCall) {
  for (const auto& [why, make, message] : kMisuses) {
    SCOPED_TRACE(why);
    Words words;
    const int line = make(words);
    EXPECT_EQ(error_of(words.k), at(line, message));
  }
  EXPECT_GE(std::size(kMisuses), 30u);
}

TEST(Misuse, OfWordsOfAnotherBuilder) {
  const struct {
    const char* why;
    int (*make)(Words& mine, Words& other);
    const char* message;
  } cases[] = {
      {"on the right", [](Words& a, Words& b) { return a.i + b.i, line(); }, "value"},
      {"compared", [](Words& a, Words& b) { return a.i > b.i, line(); }, "value"},
      {"selected", [](Words& a, Words& b) { return select(a.p, a.f, b.f), line(); }, "value"},
      {"as an index", [](Words& a, Words& b) { return a.x[b.i] = a.f, line(); }, "value"},
      {"stored", [](Words& a, Words& b) { return a.x[0] = b.f, line(); }, "value"},
      {"an element stored", [](Words& a, Words& b) { return a.x[0] = b.x[0], line(); }, "value"},
      {"in a tile", [](Words& a, Words& b) { return a.t[0] = b.f, line(); }, "value"},
      {"in a variable", [](Words& a, Words& b) { return a.v = b.i, line(); }, "value"},
      {"added to a variable", [](Words& a, Words& b) { return a.v += b.v, line(); }, "value"},
      {"a condition", [](Words& a, Words& b) { return a.k.if_(b.p, [] {}), line(); }, "value"},
      {"an end", [](Words& a, Words& b) { return a.k.for_range(0, b.i, 1, [](Value) {}), line(); },
       "value"},
      {"checked", [](Words& a, Words& b) { return a.k.check(b.p, ""), line(); }, "value"},
      {"printed", [](Words& a, Words& b) { return a.k.print("", {b.i}), line(); }, "value"},
      {"an array loaded", [](Words& a, Words& b) { return a.t.load(b.x), line(); }, "array"},
      {"an array stored to", [](Words& a, Words& b) { return a.t.store(b.x), line(); }, "array"},
      {"an array copied",
       [](Words& a, Words& b) { return a.k.copy_async(a.s, b.x, 4, a.p), line(); }, "array"},
      {"a matrix", [](Words& a, Words& b) { return a.th.load_matrix(b.h, 0, 1), line(); }, "array"},
      {"a tile of an mma",
       [](Words& a, Words& b) { return a.k.mma(a.t, 0, a.t, 0, b.t, 0), line(); }, "tile"},
  };
  for (const auto& [why, make, message] : cases) {
    SCOPED_TRACE(why);
    Words mine, other;
    const int line = make(mine, other);
    EXPECT_EQ(
        error_of(mine.k),
        at(line, fmt::format("{}: expected one of this kernel, got another kernel's", message)));
    EXPECT_EQ(error_of(other.k), "") << "the other kernel is as sound as before";
  }
}

TEST(Misuse, OfTheKernelAsAWhole) {
  const struct {
    KernelSpec spec;
    std::string message;
  } cases[] = {
      {{.name = ""},
       "kernel: expected a name of letters, digits and _ that begins with a letter, got ''"},
      {{.name = "9lives"},
       "kernel: expected a name of letters, digits and _ that begins with a letter, got '9lives'"},
      {{.name = "a b"},
       "kernel: expected a name of letters, digits and _ that begins with a letter, got 'a b'"},
      {{.name = "k", .threads = 0}, "kernel: expected a multiple of 32 threads up to 1024, got 0"},
      {{.name = "k", .threads = 100},
       "kernel: expected a multiple of 32 threads up to 1024, got 100"},
      {{.name = "k", .threads = 1056},
       "kernel: expected a multiple of 32 threads up to 1024, got 1056"},
      {{.name = "k", .threads = -32},
       "kernel: expected a multiple of 32 threads up to 1024, got -32"},
  };
  for (const auto& [spec, message] : cases) {
    SCOPED_TRACE(message);
    KernelBuilder k(spec);
    const int made = line() - 1;
    k.thread();
    EXPECT_EQ(error_of(k), at(made, message));
  }
  const struct {
    Arch arch;
    std::int64_t most;
  } limits[] = {{Arch::sm_80, 163 << 10}, {Arch::sm_89, 99 << 10}, {Arch::sm_90a, 227 << 10}};
  for (const auto& [arch, most] : limits) {
    SCOPED_TRACE(name(arch));
    KernelBuilder fits({.name = "k", .arch = arch}), over({.name = "k", .arch = arch});
    const int made = line() - 1;
    fits.shared("s", Scalar::u64, most / 8);
    over.shared("s", Scalar::u64, most / 8);
    over.shared("more", Scalar::f16, 1);
    EXPECT_EQ(error_of(fits), "");
    EXPECT_EQ(
        error_of(over),
        at(made, fmt::format("kernel: expected at most {} bytes of shared memory on {}, got {}",
                             most, name(arch), most + 2)));
  }
  KernelBuilder k({.name = "k"});
  const int made = line() - 1;
  k.param("two words", Scalar::s32);
  EXPECT_EQ(error_of(k), at(made,
                            "kernel: expected a parameter's name of letters, digits and _ "
                            "that begins with a letter, got 'two words'"));
}

// A value is there from its call to the end of the block of the kernel in which it was made.
TEST(Misuse, OfValuesOutsideTheirBlock) {
  {
    Words w;
    Value inner;
    w.k.if_(w.p, [&] { inner = w.i + 1; });
    const int used = (w.n[0] = inner, line());
    EXPECT_THAT(error_of(w.k), HasSubstr(fmt::format("dsl_test.cc:{}: store: %", used)));
  }
  {
    Words w;
    Value inner;
    int used = 0;
    w.k.if_(w.p, [&] { inner = w.i + 1; }, [&] { used = (w.n[0] = inner, line()); });
    EXPECT_THAT(error_of(w.k), HasSubstr(fmt::format("dsl_test.cc:{}: store: %", used)));
  }
  {
    Words w;
    Value turn;
    w.k.for_range(0, 3, 1, [&](Value i) { turn = i; });
    const int used = (turn + 1, line());
    const std::string error = error_of(w.k);
    EXPECT_THAT(error, HasSubstr(fmt::format("dsl_test.cc:{}: add: %", used)));
    EXPECT_THAT(error, HasSubstr("is not there yet, or no longer: it was made in another block"));
  }
  {
    Words w;
    Array inner;
    w.k.if_(w.p, [&] { inner = w.x.at(w.i); });
    const int used = (inner[0] = w.f, line());
    EXPECT_THAT(error_of(w.k), HasSubstr(fmt::format("dsl_test.cc:{}: advance: %", used)));
  }
  {
    Words w;
    std::optional<Tile> inner;
    w.k.if_(w.p, [&] { inner = w.k.tile(Scalar::f32, 4); });
    const int used = ((*inner)[0] = w.f, line());
    EXPECT_THAT(error_of(w.k), HasSubstr(fmt::format("dsl_test.cc:{}: set: %", used)));
  }
  {
    // Reading a variable has no place of its own, and is told at the call around it.
    Words w;
    std::optional<Var> inner;
    w.k.if_(w.p, [&] { inner = w.k.var(Scalar::s32, 0); });
    w.k.thread();
    const int used = (w.n[0] = *inner + 1, line());
    w.k.thread();
    EXPECT_THAT(error_of(w.k), HasSubstr(fmt::format("dsl_test.cc:{}: get: %", used)));
  }
}

TEST(Misuse, AllOfItIsToldInTheOrderOfTheCalls) {
  Words w;
  Value inner;
  w.k.if_(w.p, [&] { inner = w.i + 1; });
  const int first = (w.i + w.f, line());
  Value poisoned = w.i + 1.5;
  const int second = line() - 1;
  // What comes of a poisoned value says nothing more.
  w.x[0] = cast(poisoned * 3 - w.i, Scalar::f32);
  const int third = (w.n[1] = inner, line());
  int fourth = 0;
  w.k.for_range(0, w.i, 1, [&](Value i) { fourth = (w.x[i] = w.d, line()); });
  const int fifth = (w.k.barrier(17, 32), line());
  const std::string error = error_of(w.k);
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin <= error.size();) {
    const std::size_t end = std::min(error.find('\n', begin), error.size());
    lines.push_back(error.substr(begin, end - begin));
    begin = end + 1;
  }
  ASSERT_EQ(lines.size(), 5u) << error;
  EXPECT_EQ(lines[0], at(first, "add: expected y: s32 as x is, got f32"));
  EXPECT_EQ(lines[1], at(second, "constant: 1.5 is no s32; use an integer or cast"));
  EXPECT_THAT(lines[2], ::testing::MatchesRegex(at(third,
                                                   "store: %[0-9]+ is not there yet, or no "
                                                   "longer: it was made in another block")));
  EXPECT_EQ(lines[3], at(fourth, "store: expected value: f32, the element type of p, got f64"));
  EXPECT_EQ(lines[4], at(fifth, "barrier: expected a barrier from 0 to 15, got 17"));
}

TEST(Misuse, OfFinish) {
  Words w;
  w.n[0] = w.i;
  const Result<Kernel> kernel = w.k.finish();
  ASSERT_TRUE(kernel) << kernel.error();
  const std::string before = kernel->text();
  // The builder has given its kernel away, and words that follow change nothing.
  w.n[1] = w.i + w.v;
  w.k.if_(w.p, [&] { w.k.for_range(0, 2, 1, [&](Value i) { w.n[i] = i; }); });
  w.k.shared("late", Scalar::f32, 4)[0] = 1;
  w.k.param("late", Scalar::s32);
  w.t.load(w.x);
  EXPECT_EQ(kernel->text(), before);
  EXPECT_EQ(error_of(w.k), "kernel words: finish was called before");

  Words inside;
  std::string error;
  inside.k.if_(inside.p, [&] { error = error_of(inside.k); });
  EXPECT_EQ(error, "kernel words: finish was called in an if or a loop");
  EXPECT_EQ(error_of(inside.k), "");

  Words wrong;
  wrong.i + wrong.f;
  EXPECT_NE(error_of(wrong.k), "");
  EXPECT_EQ(error_of(wrong.k), "kernel words: finish was called before");
}

// Places: an operation stands on the line of its own word.

struct Word {
  ir::Opcode code;
  int (*make)(Words& w);
};

const Word kWords[] = {
    {ir::Opcode::add, [](Words& w) { return w.i + 1, line(); }},
    {ir::Opcode::add, [](Words& w) { return 1 + w.i, line(); }},
    {ir::Opcode::sub, [](Words& w) { return w.i - w.i, line(); }},
    {ir::Opcode::sub, [](Words& w) { return 1.5 - w.f, line(); }},
    {ir::Opcode::mul, [](Words& w) { return w.f * 0.5, line(); }},
    {ir::Opcode::mul, [](Words& w) { return 2 * w.f, line(); }},
    {ir::Opcode::div, [](Words& w) { return w.i / 3, line(); }},
    {ir::Opcode::rem, [](Words& w) { return w.i % 3, line(); }},
    {ir::Opcode::and_, [](Words& w) { return w.i & 7, line(); }},
    {ir::Opcode::or_, [](Words& w) { return w.i | 7, line(); }},
    {ir::Opcode::xor_, [](Words& w) { return w.i ^ 7, line(); }},
    {ir::Opcode::and_, [](Words& w) { return w.p && w.p, line(); }},
    {ir::Opcode::or_, [](Words& w) { return w.p || w.p, line(); }},
    {ir::Opcode::shl, [](Words& w) { return w.i << 7, line(); }},
    {ir::Opcode::shr, [](Words& w) { return w.i >> w.i, line(); }},
    {ir::Opcode::lt, [](Words& w) { return w.i < 7, line(); }},
    {ir::Opcode::le, [](Words& w) { return w.i <= w.i, line(); }},
    {ir::Opcode::lt, [](Words& w) { return w.i > 7, line(); }},
    {ir::Opcode::le, [](Words& w) { return w.i >= w.i, line(); }},
    {ir::Opcode::eq, [](Words& w) { return w.i == 7, line(); }},
    {ir::Opcode::ne, [](Words& w) { return w.i != w.i, line(); }},
    {ir::Opcode::neg, [](Words& w) { return negate(w.i), line(); }},
    {ir::Opcode::not_, [](Words& w) { return invert(w.p), line(); }},
    {ir::Opcode::fma, [](Words& w) { return fma(w.f, 2, w.f), line(); }},
    {ir::Opcode::min, [](Words& w) { return min(w.f, 2), line(); }},
    {ir::Opcode::max, [](Words& w) { return max(2, w.f), line(); }},
    {ir::Opcode::abs, [](Words& w) { return abs(w.f), line(); }},
    {ir::Opcode::exp2, [](Words& w) { return exp2(w.f), line(); }},
    {ir::Opcode::log2, [](Words& w) { return log2(w.f), line(); }},
    {ir::Opcode::sqrt, [](Words& w) { return sqrt(w.f), line(); }},
    {ir::Opcode::rsqrt, [](Words& w) { return rsqrt(w.f), line(); }},
    {ir::Opcode::select, [](Words& w) { return select(w.p, 0, w.f), line(); }},
    {ir::Opcode::cast, [](Words& w) { return cast(w.i, Scalar::f32), line(); }},
    {ir::Opcode::bitcast, [](Words& w) { return bitcast(w.i, Scalar::f32), line(); }},
    {ir::Opcode::shuffle_xor, [](Words& w) { return shuffle_xor(w.i, 1), line(); }},
    {ir::Opcode::shuffle, [](Words& w) { return shuffle(w.i, 1), line(); }},
    {ir::Opcode::ballot, [](Words& w) { return ballot(w.p), line(); }},
    {ir::Opcode::advance, [](Words& w) { return w.x.at(w.i), line(); }},
    {ir::Opcode::advance, [](Words& w) { return w.x[3] = 0, line(); }},
    {ir::Opcode::load, [](Words& w) { return w.f + w.x[3], line(); }},
    {ir::Opcode::load, [](Words& w) { return w.x[3] + w.f, line(); }},
    {ir::Opcode::load, [](Words& w) { return w.x[4] = w.x[3], line(); }},
    {ir::Opcode::store, [](Words& w) { return w.x[3] = w.f, line(); }},
    {ir::Opcode::store, [](Words& w) { return w.x[3] = w.x[w.i], line(); }},
    {ir::Opcode::atomic_add, [](Words& w) { return w.x[3].atomic_add(1), line(); }},
    {ir::Opcode::atomic_max, [](Words& w) { return w.n[3].atomic_max(1), line(); }},
    {ir::Opcode::tile, [](Words& w) { return w.k.tile(Scalar::f32, 2), line(); }},
    {ir::Opcode::tile, [](Words& w) { return w.k.var(Scalar::f32, 2), line(); }},
    {ir::Opcode::set, [](Words& w) { return w.k.var(Scalar::f32, 2), line(); }},
    {ir::Opcode::get, [](Words& w) { return w.t[0] + 1, line(); }},
    {ir::Opcode::get, [](Words& w) { return w.f + w.t[0], line(); }},
    {ir::Opcode::set, [](Words& w) { return w.t[0] = 1, line(); }},
    {ir::Opcode::set, [](Words& w) { return w.t[0] = w.t[1], line(); }},
    {ir::Opcode::get, [](Words& w) { return w.v + 1, line(); }},
    {ir::Opcode::get, [](Words& w) { return w.i * w.v, line(); }},
    {ir::Opcode::get, [](Words& w) { return w.x[w.v] = 1, line(); }},
    {ir::Opcode::set, [](Words& w) { return w.v = 1, line(); }},
    {ir::Opcode::set, [](Words& w) { return w.v += 1, line(); }},
    {ir::Opcode::add, [](Words& w) { return w.v += 1, line(); }},
    {ir::Opcode::constant, [](Words& w) { return w.v += 1, line(); }},
    {ir::Opcode::constant, [](Words& w) { return 1 + w.i, line(); }},
    {ir::Opcode::constant, [](Words& w) { return w.i > 1, line(); }},
    {ir::Opcode::constant, [](Words& w) { return w.k.constant(Scalar::s32, 1), line(); }},
    {ir::Opcode::load_tile, [](Words& w) { return w.t.load(w.x), line(); }},
    {ir::Opcode::store_tile, [](Words& w) { return w.t.store(w.x), line(); }},
    {ir::Opcode::special, [](Words& w) { return w.k.thread(), line(); }},
    {ir::Opcode::special, [](Words& w) { return w.k.lane(), line(); }},
    {ir::Opcode::special, [](Words& w) { return w.k.warp(), line(); }},
    {ir::Opcode::special, [](Words& w) { return w.k.block(), line(); }},
    {ir::Opcode::special, [](Words& w) { return w.k.grid(2), line(); }},
    {ir::Opcode::param, [](Words& w) { return w.k.param("a", Scalar::s32), line(); }},
    {ir::Opcode::param, [](Words& w) { return w.k.array_param("a", Scalar::s32), line(); }},
    {ir::Opcode::shared, [](Words& w) { return w.k.shared("a", Scalar::s32, 4), line(); }},
    {ir::Opcode::barrier, [](Words& w) { return w.k.barrier(), line(); }},
    {ir::Opcode::barrier, [](Words& w) { return w.k.barrier(1, 32), line(); }},
    {ir::Opcode::check, [](Words& w) { return w.k.check(w.p, "p"), line(); }},
    {ir::Opcode::print, [](Words& w) { return w.k.print("p", {w.p, w.v}), line(); }},
    {ir::Opcode::if_, [](Words& w) { return w.k.if_(w.p, [] {}), line(); }},
    {ir::Opcode::if_, [](Words& w) { return w.k.if_(w.p, [] {}, [] {}), line(); }},
    {ir::Opcode::for_, [](Words& w) { return w.k.for_range(0, 9, 1, [](Value) {}), line(); }},
    {ir::Opcode::turn, [](Words& w) { return w.k.for_range(0, 9, 1, [](Value) {}), line(); }},
    {ir::Opcode::copy_async, [](Words& w) { return w.k.copy_async(w.s, w.x, 16, w.p), line(); }},
    {ir::Opcode::commit_copies, [](Words& w) { return w.k.commit_copies(), line(); }},
    {ir::Opcode::wait_copies, [](Words& w) { return w.k.wait_copies(0), line(); }},
};

TEST(Places, OfEveryWordAreItsOwnLine) {
  for (std::size_t row = 0; row < std::size(kWords); ++row) {
    const auto& [code, make] = kWords[row];
    SCOPED_TRACE(fmt::format("row {}: {}", row, ir::info(code).name));
    Words w;
    w.k.barrier();  // a place before, and one after
    const int line = make(w);
    w.k.barrier();
    const Result<Kernel> kernel = w.k.finish();
    ASSERT_TRUE(kernel) << kernel.error();
    const ir::Kernel& ir = kernel->ir();
    int found = 0;
    for (const ir::Op& op : ir.ops) {
      const ir::Location& place = ir.locations.at(op.location);
      EXPECT_TRUE(place.file.ends_with("src/dsl/dsl_test.cc")) << place.file;
      found += op.code == code && place.line == line ? 1 : 0;
    }
    EXPECT_GE(found, 1) << "nothing of it stands on line " << line;
  }
}

TEST(Places, OfCallsOfManyLinesAreThoseOfTheirParts) {
  Words w;
  const int first = line() + 1;
  w.n[0] =   // the comments keep
      w.i *  // these lines
          3 +
      w.u %  // u32, by mistake
          2;
  // The line of the right side: where it begins or ends, as the compiler has it.
  const char* const message = "add: expected y: s32 as x is, got u32";
  EXPECT_THAT(error_of(w.k), ::testing::AnyOf(at(first + 3, message), at(first + 4, message)));
  Words again;
  const int next = line() + 1;
  again.n[0] =   //
      again.i *  //
      3;
  const Result<Kernel> kernel = again.k.finish();
  ASSERT_TRUE(kernel) << kernel.error();
  std::vector<std::pair<std::string_view, int>> places;
  for (const ir::Op& op : kernel->ir().ops) {
    const int place = kernel->ir().locations[op.location].line;
    if (place >= next) places.emplace_back(ir::info(op.code).name, place - next);
  }
  EXPECT_THAT(places, ::testing::ElementsAre(std::pair("constant", 2), std::pair("mul", 2),
                                             std::pair("constant", 0), std::pair("advance", 0),
                                             std::pair("store", 0)));
}

TEST(Variables, TakeTheValueThatAnotherHasThere) {
  Words w;
  Var other = w.k.var(Scalar::s32, w.i);
  const std::size_t before = 2;  // a set for each of the two variables
  w.v = other;
  w.n[0] = w.v;
  const Result<Kernel> kernel = w.k.finish();
  ASSERT_TRUE(kernel) << kernel.error();
  std::vector<const ir::Op*> sets, gets;
  for (const ir::Op& op : kernel->ir().ops) {
    if (op.code == ir::Opcode::set) sets.push_back(&op);
    if (op.code == ir::Opcode::get) gets.push_back(&op);
  }
  ASSERT_EQ(sets.size(), before + 1);
  ASSERT_EQ(gets.size(), 2u);
  EXPECT_EQ(sets[2]->args[0], sets[0]->args[0]);
  EXPECT_EQ(gets[0]->args[0], sets[1]->args[0]);
  EXPECT_EQ(&kernel->ir().op(sets[2]->args[1]), gets[0]);
  EXPECT_EQ(gets[1]->args[0], sets[0]->args[0]);
}

// Constants take the type of the other side, with their exact bits.
TEST(Constants, HaveTheTypeOfTheOtherSide) {
  Words w;
  Value wide_unsigned = w.k.param("wu", Scalar::u64);
  w.i + -1;
  w.u + 4294967295u;
  w.wide + -5;
  wide_unsigned + 0xffffffffffffffffu;
  w.f + 1;
  w.f + 0.1;
  w.d + 0.1;
  w.f + std::numeric_limits<double>::infinity();
  w.d + 0x8000000000000000u;
  w.f + 3.4028235e38;
  w.p && true;
  const Result<Kernel> kernel = w.k.finish();
  ASSERT_TRUE(kernel) << kernel.error();
  std::vector<std::string> constants;
  for (const ir::Op& op : kernel->ir().ops) {
    if (op.code == ir::Opcode::constant)
      constants.push_back(fmt::format("{} {:#x}", name(op.type.scalar), op.attributes[0]));
  }
  // The first three are of `Words`.
  constants.erase(constants.begin(), constants.begin() + 3);
  EXPECT_THAT(constants, ::testing::ElementsAre(
                             "s32 -0x1", "u32 0xffffffff", "s64 -0x5", "u64 -0x1", "f32 0x3f800000",
                             "f32 0x3dcccccd", "f64 0x3fb999999999999a", "f32 0x7f800000",
                             "f64 0x43e0000000000000", "f32 0x7f7fffff", "pred 0x1"));
}

TEST(Tiles, AreLoadedAndStoredInPiecesOfUpTo16Bytes) {
  const struct {
    Scalar type;
    int count;
    std::vector<std::pair<int, int>> pieces;  ///< first, count
  } cases[] = {
      {Scalar::f32, 1, {{0, 1}}},
      {Scalar::f32, 3, {{0, 2}, {2, 1}}},
      {Scalar::f32, 7, {{0, 4}, {4, 2}, {6, 1}}},
      {Scalar::f16, 16, {{0, 8}, {8, 8}}},
      {Scalar::bf16, 6, {{0, 4}, {4, 2}}},
      {Scalar::f64, 3, {{0, 2}, {2, 1}}},
      {Scalar::u64, 4, {{0, 2}, {2, 2}}},
  };
  for (const auto& [type, count, pieces] : cases) {
    SCOPED_TRACE(fmt::format("{} x {}", count, name(type)));
    KernelBuilder k({.name = "pieces"});
    Array x = k.array_param("x", type);
    Tile tile = k.tile(type, count);
    tile.load(x);
    tile.store(x);
    const Result<Kernel> kernel = k.finish();
    ASSERT_TRUE(kernel) << kernel.error();
    for (const ir::Opcode code : {ir::Opcode::load_tile, ir::Opcode::store_tile}) {
      std::vector<std::pair<int, int>> got;
      for (const ir::Op& op : kernel->ir().ops) {
        if (op.code == code)
          got.emplace_back(static_cast<int>(op.attributes[0]), static_cast<int>(op.attributes[1]));
      }
      EXPECT_EQ(got, pieces);
    }
  }
}

TEST(Cast, ToTheTypeThatItHasAddsNothing) {
  Words w;
  const std::size_t sums = 1;
  Value same = cast(w.f, Scalar::f32);
  w.x[0] = same + same;
  const Result<Kernel> kernel = w.k.finish();
  ASSERT_TRUE(kernel) << kernel.error();
  std::size_t adds = 0;
  for (const ir::Op& op : kernel->ir().ops) {
    EXPECT_NE(op.code, ir::Opcode::cast);
    adds += op.code == ir::Opcode::add ? 1 : 0;
  }
  EXPECT_EQ(adds, sums);
}

}  // namespace
}  // namespace lapidary
