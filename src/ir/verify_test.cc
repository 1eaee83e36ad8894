#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "ir/kernel.h"
#include "support/result.h"

namespace lapidary::ir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// A kernel made by hand. Operation i stands on line i + 1 of hand.cc, the kernel itself on line 0.
struct Hand {
  Kernel k;
  std::uint32_t into = 0;  ///< the region that `add` adds to

  Id add(Op op) {
    const Id id = static_cast<Id>(k.ops.size());
    op.location = id + 1;
    k.locations.push_back({"/somewhere/hand.cc", static_cast<int>(id + 1)});
    k.ops.push_back(op);
    k.regions[into].ops.push_back(id);
    return id;
  }
  std::uint32_t region() {
    k.regions.emplace_back();
    return static_cast<std::uint32_t>(k.regions.size() - 1);
  }
  Id constant(Scalar type, std::int64_t bits) {
    return add({.code = Opcode::constant, .type = Type::of(type), .attributes = {bits}});
  }
};

/// Operations of the sound kernel below.
enum : Id {
  kI,
  kU,
  kWide,
  kF,
  kD,
  kX,
  kHalves,
  kP,
  kS,
  kSHalves,
  kT,
  kTHalves,
  kHalf,
  kInner,
  kIf,
  kTurn,
  kFor
};

/// A sound kernel with a value of each kind, an if and a loop.
Hand sound() {
  Hand h;
  h.k.name = "sound";
  h.k.threads = 64;
  h.k.params = {{"i", Type::of(Scalar::s32)},
                {"u", Type::of(Scalar::u32)},
                {"wide", Type::of(Scalar::s64)},
                {"f", Type::of(Scalar::f32)},
                {"d", Type::of(Scalar::f64)},
                {"x", Type::pointer(Scalar::f32, Space::global)},
                {"halves", Type::pointer(Scalar::f16, Space::global)}};
  h.k.shared = {{"s", Scalar::f32, 64, 0}, {"s_halves", Scalar::f16, 64, 256}};
  h.k.strings = {"message"};
  h.k.locations = {{"/somewhere/hand.cc", 0}};
  h.region();
  for (std::int64_t i = 0; i < std::ssize(h.k.params); ++i)
    h.add({.code = Opcode::param, .type = h.k.params[std::size_t(i)].type, .attributes = {i}});
  h.constant(Scalar::pred, 1);
  h.add({.code = Opcode::shared,
         .type = Type::pointer(Scalar::f32, Space::shared),
         .attributes = {0}});
  h.add({.code = Opcode::shared,
         .type = Type::pointer(Scalar::f16, Space::shared),
         .attributes = {1}});
  h.add({.code = Opcode::tile, .type = Type::tile(Scalar::f32, 8), .attributes = {8}});
  h.add({.code = Opcode::tile, .type = Type::tile(Scalar::f16, 16), .attributes = {16}});
  h.add({.code = Opcode::load, .type = Type::of(Scalar::f16), .args = {kHalves}});
  const std::uint32_t then = h.region(), otherwise = h.region(), body = h.region();
  h.into = then;
  h.add({.code = Opcode::add, .type = Type::of(Scalar::s32), .args = {kI, kI}});
  h.into = 0;
  h.add({.code = Opcode::if_, .args = {kP}, .regions = {then, otherwise}});
  h.into = body;
  h.add({.code = Opcode::turn, .type = Type::of(Scalar::s32)});
  h.into = 0;
  h.add({.code = Opcode::for_, .args = {kI, kI, kI}, .regions = {body}});
  return h;
}

/// "line: message" of each rule that is broken.
std::vector<std::string> broken(const Kernel& kernel) {
  std::vector<std::string> all;
  for (const Violation& v : verify(kernel)) {
    const int line = v.location < kernel.locations.size() ? kernel.locations[v.location].line : -1;
    all.push_back(fmt::format("{}: {}", line, v.message));
  }
  return all;
}

TEST(Verify, PassesASoundKernel) {
  const Hand h = sound();
  EXPECT_EQ(h.k.ops.size(), kFor + 1u);
  EXPECT_THAT(broken(h.k), IsEmpty());
}

// Rules of one operation: each row adds one to the sound kernel.
struct WrongOp {
  const char* why;
  Op op;
  const char* message;
};
const Type kS32 = Type::of(Scalar::s32), kF32 = Type::of(Scalar::f32), kNothing{};

const WrongOp kWrongOps[] = {
    // The count of operands, attributes and regions
    {"an operand is missing",
     {.code = Opcode::add, .type = kS32, .args = {kI}},
     "add: expected 2 operands, got 1"},
    {"an operand is too many",
     {.code = Opcode::neg, .type = kS32, .args = {kI, kI}},
     "neg: expected 1 operands, got 2"},
    {"no attribute",
     {.code = Opcode::barrier, .attributes = {0}},
     "barrier: expected 2 attributes, got 1"},
    {"attributes are too many",
     {.code = Opcode::constant, .type = kS32, .attributes = {0, 0, 0}},
     "constant: expected 1 attributes, got 3"},
    {"no regions", {.code = Opcode::if_, .args = {kP}}, "if: expected 2 regions, got 0"},
    // Operands
    {"not the scalar",
     {.code = Opcode::shl, .type = kS32, .args = {kI, kWide}},
     "shl: expected count: s32, got s64"},
    {"no pointer",
     {.code = Opcode::load, .type = kF32, .args = {kF}},
     "load: expected p: a pointer, got f32"},
    {"no tile",
     {.code = Opcode::get, .type = kF32, .args = {kX}, .attributes = {0}},
     "get: expected t: a tile, got ptr global f32"},
    {"not the element's type",
     {.code = Opcode::store, .args = {kX, kI}},
     "store: expected value: f32, the element type of p, got s32"},
    {"two types",
     {.code = Opcode::add, .type = kS32, .args = {kI, kU}},
     "add: expected y: s32 as x is, got u32"},
    {"not of the class",
     {.code = Opcode::fma, .type = kS32, .args = {kI, kI, kI}},
     "fma: expected x: one of f32 f64, got s32"},
    {"no value at all",
     {.code = Opcode::neg, .type = kS32, .args = {kFor}},
     "neg: expected x: one of s32 u32 s64 u64 f32 f64, got none"},
    {"no scalar",
     {.code = Opcode::select, .type = Type::tile(Scalar::f32, 8), .args = {kP, kT, kT}},
     "select: expected x: a scalar, got tile 8 x f32"},
    {"no scalar among any number",
     {.code = Opcode::print, .args = {kI, kX}, .attributes = {0}},
     "print: expected scalars, got ptr global f32 as operand 2"},
    // Results
    {"not of the result's class",
     {.code = Opcode::cast, .type = Type::of(Scalar::pred), .args = {kI}},
     "cast: expected a result of s32 u32 s64 u64 f16 bf16 f32 f64, got pred"},
    {"no scalar as the result",
     {.code = Opcode::cast, .type = Type::tile(Scalar::f32, 8), .args = {kI}},
     "cast: expected a result of s32 u32 s64 u64 f16 bf16 f32 f64, got tile 8 x f32"},
    {"nothing as the result",
     {.code = Opcode::bitcast, .type = kNothing, .args = {kI}},
     "bitcast: expected a result of s32 u32 s64 u64 f16 bf16 f32 f64, got none"},
    {"another result",
     {.code = Opcode::add, .type = kF32, .args = {kI, kI}},
     "add: expected a result of s32, got f32"},
    {"a result where there is none",
     {.code = Opcode::store, .type = kF32, .args = {kX, kF}},
     "store: expected a result of none, got f32"},
    {"another pointer as the result",
     {.code = Opcode::advance, .type = Type::pointer(Scalar::f32, Space::shared), .args = {kX, kI}},
     "advance: expected a result of ptr global f32, got ptr shared f32"},
    {"a wide place",
     {.code = Opcode::special, .type = Type::of(Scalar::s64), .attributes = {0}},
     "special: expected a result of s32, got s64"},
    // Values
    {"a constant pointer",
     {.code = Opcode::constant,
      .type = Type::pointer(Scalar::f32, Space::global),
      .attributes = {0}},
     "constant: expected a scalar, got ptr global f32"},
    {"2 as pred",
     {.code = Opcode::constant, .type = Type::of(Scalar::pred), .attributes = {2}},
     "constant: expected 0 or 1 as pred, got 2"},
    {"-1 as pred",
     {.code = Opcode::constant, .type = Type::of(Scalar::pred), .attributes = {-1}},
     "constant: expected 0 or 1 as pred, got -1"},
    {"33 bits",
     {.code = Opcode::constant, .type = kF32, .attributes = {std::int64_t{1} << 32}},
     "constant: expected 32 bits as of f32, got 4294967296"},
    {"17 bits",
     {.code = Opcode::constant, .type = Type::of(Scalar::bf16), .attributes = {-32769}},
     "constant: expected 16 bits as of bf16, got -32769"},
    {"a parameter too far",
     {.code = Opcode::param, .type = kS32, .attributes = {7}},
     "param: expected an index below 7, the kernel's parameters, got 7"},
    {"a parameter below",
     {.code = Opcode::param, .type = kS32, .attributes = {-1}},
     "param: expected an index below 7, the kernel's parameters, got -1"},
    {"a parameter of another type",
     {.code = Opcode::param, .type = kF32, .attributes = {0}},
     "param: expected s32 as declared, got f32"},
    {"no place",
     {.code = Opcode::special, .type = kS32, .attributes = {9}},
     "special: expected a place of a thread, 0 to 8, got 9"},
    // Conversions and choices
    {"cast to itself",
     {.code = Opcode::cast, .type = kS32, .args = {kI}},
     "cast: expected another type than s32, which x has"},
    {"f16 from f64",
     {.code = Opcode::cast, .type = Type::of(Scalar::f16), .args = {kD}},
     "cast: expected f32 on the other side of f16, got f64"},
    {"s32 from f16",
     {.code = Opcode::cast, .type = kS32, .args = {kHalf}},
     "cast: expected f32 on the other side of f16, got s32"},
    {"bf16 from f16",
     {.code = Opcode::cast, .type = Type::of(Scalar::bf16), .args = {kHalf}},
     "cast: expected f32 on the other side of bf16, got f16"},
    {"bits of another size",
     {.code = Opcode::bitcast, .type = Type::of(Scalar::f64), .args = {kF}},
     "bitcast: expected a type of 4 bytes as f32 has, got f64"},
    {"min of f64",
     {.code = Opcode::min, .type = Type::of(Scalar::f64), .args = {kD, kD}},
     "min: expected one of s32 u32 s64 u64 f32, got f64"},
    {"max of f64",
     {.code = Opcode::max, .type = Type::of(Scalar::f64), .args = {kD, kD}},
     "max: expected one of s32 u32 s64 u64 f32, got f64"},
    // Memory
    {"a shared array too far",
     {.code = Opcode::shared, .type = Type::pointer(Scalar::f32, Space::shared), .attributes = {2}},
     "shared: expected an index below 2, the kernel's shared arrays, got 2"},
    {"a shared array of another type",
     {.code = Opcode::shared, .type = Type::pointer(Scalar::f32, Space::global), .attributes = {0}},
     "shared: expected ptr shared f32, got ptr global f32"},
    {"a tile of other elements",
     {.code = Opcode::load_tile, .args = {kX, kTHalves}, .attributes = {0, 4}},
     "load_tile: expected t: a tile of f32 as p points to, got tile 16 x f16"},
    {"elements behind the tile",
     {.code = Opcode::load_tile, .args = {kX, kT}, .attributes = {5, 4}},
     "load_tile: expected elements within the tile's 8, got 4 from 5"},
    {"elements before the tile",
     {.code = Opcode::store_tile, .args = {kX, kT}, .attributes = {-1, 1}},
     "store_tile: expected elements within the tile's 8, got 1 from -1"},
    {"no elements",
     {.code = Opcode::store_tile, .args = {kX, kT}, .attributes = {0, 0}},
     "store_tile: expected elements within the tile's 8, got 0 from 0"},
    {"elements far away",
     {.code = Opcode::store_tile, .args = {kX, kT}, .attributes = {INT64_MAX, INT64_MAX}},
     "store_tile: expected elements within the tile's 8, got 9223372036854775807 from "
     "9223372036854775807"},
    {"12 bytes",
     {.code = Opcode::load_tile, .args = {kX, kT}, .attributes = {0, 3}},
     "load_tile: expected 4, 8 or 16 bytes in one access, got 12"},
    {"32 bytes",
     {.code = Opcode::store_tile, .args = {kX, kT}, .attributes = {0, 8}},
     "store_tile: expected 4, 8 or 16 bytes in one access, got 32"},
    {"an odd half",
     {.code = Opcode::load_tile, .args = {kHalves, kTHalves}, .attributes = {1, 2}},
     "load_tile: expected an even first element of f16, got 1"},
    {"s64 added",
     {.code = Opcode::atomic_add, .type = Type::of(Scalar::f16), .args = {kHalves, kHalf}},
     "atomic_add: expected value: one of s32 u32 u64 f32 f64, got f16"},
    {"the larger float",
     {.code = Opcode::atomic_max, .type = kF32, .args = {kX, kF}},
     "atomic_max: expected value: one of s32 u32 s64 u64, got f32"},
    // Tiles
    {"a tile of another count",
     {.code = Opcode::tile, .type = Type::tile(Scalar::f32, 4), .attributes = {5}},
     "tile: expected a tile of 5 elements, got tile 4 x f32"},
    {"no tile as a tile",
     {.code = Opcode::tile, .type = kF32, .attributes = {1}},
     "tile: expected a tile of 1 elements, got f32"},
    {"a tile of predicates",
     {.code = Opcode::tile, .type = Type::tile(Scalar::pred, 4), .attributes = {4}},
     "tile: expected elements with bits, got pred"},
    {"an empty tile",
     {.code = Opcode::tile, .type = Type::tile(Scalar::f32, 0), .attributes = {0}},
     "tile: expected 1 to 256 elements, got 0"},
    {"a large tile",
     {.code = Opcode::tile, .type = Type::tile(Scalar::f32, 257), .attributes = {257}},
     "tile: expected 1 to 256 elements, got 257"},
    {"an element behind",
     {.code = Opcode::get, .type = kF32, .args = {kT}, .attributes = {8}},
     "get: expected an index below 8, the tile's elements, got 8"},
    {"an element before",
     {.code = Opcode::set, .args = {kT, kF}, .attributes = {-1}},
     "set: expected an index below 8, the tile's elements, got -1"},
    // Threads together
    {"barrier 16",
     {.code = Opcode::barrier, .attributes = {16, 64}},
     "barrier: expected a barrier from 0 to 15, got 16"},
    {"half a warp",
     {.code = Opcode::barrier, .attributes = {0, 16}},
     "barrier: expected a multiple of 32 up to 64, the block's threads, got 16"},
    {"a warp and a half",
     {.code = Opcode::barrier, .attributes = {0, 48}},
     "barrier: expected a multiple of 32 up to 64, the block's threads, got 48"},
    {"more than the block",
     {.code = Opcode::barrier, .attributes = {0, 96}},
     "barrier: expected a multiple of 32 up to 64, the block's threads, got 96"},
    {"a mask of 32",
     {.code = Opcode::shuffle_xor, .type = kS32, .args = {kI}, .attributes = {32}},
     "shuffle_xor: expected a mask from 0 to 31, got 32"},
    // Copies and matrices
    {"a copy to global memory",
     {.code = Opcode::copy_async, .args = {kX, kX, kP}, .attributes = {4}},
     "copy_async: expected to: shared and from: global memory of one type, got ptr global f32 and "
     "ptr global f32"},
    {"a copy from shared memory",
     {.code = Opcode::copy_async, .args = {kS, kS, kP}, .attributes = {4}},
     "copy_async: expected to: shared and from: global memory of one type, got ptr shared f32 and "
     "ptr shared f32"},
    {"a copy of two types",
     {.code = Opcode::copy_async, .args = {kS, kHalves, kP}, .attributes = {4}},
     "copy_async: expected to: shared and from: global memory of one type, got ptr shared f32 and "
     "ptr global f16"},
    {"a copy of 12 bytes",
     {.code = Opcode::copy_async, .args = {kS, kX, kP}, .attributes = {12}},
     "copy_async: expected 4, 8 or 16 bytes, got 12"},
    {"8 groups left",
     {.code = Opcode::wait_copies, .attributes = {8}},
     "wait_copies: expected 0 to 7 groups left, got 8"},
    {"a matrix from global memory",
     {.code = Opcode::load_matrix, .args = {kHalves, kTHalves}, .attributes = {0, 1, 0}},
     "load_matrix: expected shared memory and a tile of f16 or bf16, got ptr global f16 and tile "
     "16 x f16"},
    {"a matrix of f32",
     {.code = Opcode::load_matrix, .args = {kS, kT}, .attributes = {0, 1, 0}},
     "load_matrix: expected shared memory and a tile of f16 or bf16, got ptr shared f32 and tile 8 "
     "x f32"},
    {"3 matrices",
     {.code = Opcode::load_matrix, .args = {kSHalves, kTHalves}, .attributes = {0, 3, 0}},
     "load_matrix: expected 1, 2 or 4 matrices, got 3"},
    {"an odd first",
     {.code = Opcode::load_matrix, .args = {kSHalves, kTHalves}, .attributes = {1, 1, 0}},
     "load_matrix: expected an even first of 2 elements within the tile's 16, got 1"},
    {"matrices behind the tile",
     {.code = Opcode::load_matrix, .args = {kSHalves, kTHalves}, .attributes = {10, 4, 0}},
     "load_matrix: expected an even first of 8 elements within the tile's 16, got 10"},
    {"an mma into f16",
     {.code = Opcode::mma, .args = {kTHalves, kTHalves, kTHalves}, .attributes = {0, 0, 0}},
     "mma: expected d of f32, a and b both of f16, bf16 or f32, got tile 16 x f16, tile 16 x f16 "
     "and tile 16 x f16"},
    {"an mma of two types",
     {.code = Opcode::mma, .args = {kT, kTHalves, kT}, .attributes = {0, 0, 0}},
     "mma: expected d of f32, a and b both of f16, bf16 or f32, got tile 8 x f32, tile 16 x f16 "
     "and tile 8 x f32"},
    {"an mma into too few",
     {.code = Opcode::mma, .args = {kT, kTHalves, kTHalves}, .attributes = {5, 0, 0}},
     "mma: expected 4 elements within d's 8, got them from 5"},
    {"an mma of an odd a",
     {.code = Opcode::mma, .args = {kT, kTHalves, kTHalves}, .attributes = {0, 1, 0}},
     "mma: expected 8 elements within a's 16, an even first, got them from 1"},
    {"an mma of too few of b",
     {.code = Opcode::mma, .args = {kT, kTHalves, kTHalves}, .attributes = {0, 0, 14}},
     "mma: expected 4 elements within b's 16, an even first, got them from 14"},
    {"an mma of too few of a tf32",
     {.code = Opcode::mma, .args = {kT, kT, kT}, .attributes = {0, 5, 0}},
     "mma: expected 4 elements within a's 8, got them from 5"},
    // Control
    {"a message too far",
     {.code = Opcode::check, .args = {kP}, .attributes = {1}},
     "check: expected an index below 1, the kernel's messages, got 1"},
    {"a message below",
     {.code = Opcode::print, .args = {kI}, .attributes = {-1}},
     "print: expected an index below 1, the kernel's messages, got -1"},
    {"f16 printed",
     {.code = Opcode::print, .args = {kI, kHalf}, .attributes = {0}},
     "print: expected a cast to f32, got f16 as operand 2"},
    {"a turn in no loop",
     {.code = Opcode::turn, .type = kS32},
     "turn: expected as the first operation of a loop's body"},
    {"a value of another block",
     {.code = Opcode::neg, .type = kS32, .args = {kInner}},
     "neg: %13 is not there yet, or no longer: it was made in another block"},
    {"a turn after its loop",
     {.code = Opcode::neg, .type = kS32, .args = {kTurn}},
     "neg: %15 is not there yet, or no longer: it was made in another block"},
    {"itself",
     {.code = Opcode::neg, .type = kS32, .args = {kFor + 1}},
     "neg: %17 is not there yet, or no longer: it was made in another block"},
    {"an operand that no operation makes",
     {.code = Opcode::neg, .type = kS32, .args = {kNone}},
     "neg: %4294967295 is not there yet, or no longer: it was made in another block"},
};

TEST(Verify, EachRuleOfAnOperation) {
  for (const auto& [why, op, message] : kWrongOps) {
    SCOPED_TRACE(why);
    Hand h = sound();
    const Id id = h.add(op);
    EXPECT_THAT(broken(h.k), ElementsAre(fmt::format("{}: {}", id + 1, message)));
  }
}

// Rules of the kernel and its structure.
struct Wrong {
  const char* why;
  std::function<void(Hand&)> make;
  std::vector<std::string> messages;
};

const Wrong kWrong[] = {
    {"no name",
     [](Hand& h) { h.k.name = ""; },
     {"0: kernel: expected a name of letters, digits and _ that begins with a letter, got ''"}},
    {"a name of _ alone",
     [](Hand& h) { h.k.name = "_"; },
     {"0: kernel: expected a name of letters, digits and _ that begins with a letter, got '_'"}},
    {"PTX's function",
     [](Hand& h) { h.k.name = "vprintf"; },
     {"0: kernel: expected a name that is not PTX's own, got 'vprintf'"}},
    {"PTX's constant",
     [](Hand& h) { h.k.name = "WARP_SZ"; },
     {"0: kernel: expected a name that is not PTX's own, got 'WARP_SZ'"}},
    {"a parameter without a name",
     [](Hand& h) { h.k.params[1].name = "a\nb"; },
     {"0: kernel: expected a parameter's name of letters, digits and _ that begins with a letter, "
      "got 'a\nb'"}},
    {"a predicate as a parameter",
     [](Hand& h) { h.k.params.push_back({"b", Type::of(Scalar::pred)}); },
     {"0: kernel: expected parameter b to be an integer, f32, f64 or a global array of elements "
      "with bits, got pred"}},
    {"a shared array as a parameter",
     [](Hand& h) { h.k.params.push_back({"b", Type::pointer(Scalar::f32, Space::shared)}); },
     {"0: kernel: expected parameter b to be an integer, f32, f64 or a global array of elements "
      "with bits, got ptr shared f32"}},
    {"an array of predicates",
     [](Hand& h) { h.k.params.push_back({"b", Type::pointer(Scalar::pred, Space::global)}); },
     {"0: kernel: expected parameter b to be an integer, f32, f64 or a global array of elements "
      "with bits, got ptr global pred"}},
    {"a tile as a parameter",
     [](Hand& h) { h.k.params.push_back({"b", Type::tile(Scalar::f32, 4)}); },
     {"0: kernel: expected parameter b to be an integer, f32, f64 or a global array of elements "
      "with bits, got tile 4 x f32"}},
    {"no threads",
     [](Hand& h) { h.k.threads = 0; },
     {"0: kernel: expected a multiple of 32 threads up to 1024, got 0"}},
    {"40 threads",
     [](Hand& h) { h.k.threads = 40; },
     {"0: kernel: expected a multiple of 32 threads up to 1024, got 40"}},
    {"2048 threads",
     [](Hand& h) { h.k.threads = 2048; },
     {"0: kernel: expected a multiple of 32 threads up to 1024, got 2048"}},
    {"a shared array of nothing",
     [](Hand& h) { h.k.shared[1].count = 0; },
     {"0: kernel: expected shared s_halves to have 1 to 2^20 elements with bits, got 0 x f16"}},
    {"a shared array of predicates",
     [](Hand& h) { h.k.shared.push_back({"b", Scalar::pred, 8, 384}); },
     {"0: kernel: expected shared b to have 1 to 2^20 elements with bits, got 8 x pred"}},
    {"a shared array between",
     [](Hand& h) { h.k.shared[1].offset_bytes = 264; },
     {"0: kernel: expected shared s_halves at a multiple of 16 bytes, got 264"}},
    {"a shared array before",
     [](Hand& h) { h.k.shared[1].offset_bytes = -16; },
     {"0: kernel: expected shared s_halves at a multiple of 16 bytes, got -16"}},
    {"too much on sm_80",
     [](Hand& h) { h.k.shared[1].offset_bytes = (163 << 10) - 112; },
     {"0: kernel: expected at most 166912 bytes of shared memory on sm_80, got 166928"}},
    {"too much on sm_89",
     [](Hand& h) {
       h.k.arch = Arch::sm_89;
       h.k.shared[1].offset_bytes = (99 << 10) - 112;
     },
     {"0: kernel: expected at most 101376 bytes of shared memory on sm_89, got 101392"}},
    {"too much on sm_90a",
     [](Hand& h) {
       h.k.arch = Arch::sm_90a;
       h.k.shared[1].offset_bytes = (227 << 10) - 112;
     },
     {"0: kernel: expected at most 232448 bytes of shared memory on sm_90a, got 232464"}},
    {"no body",
     [](Hand& h) { h.k.regions.clear(); },
     {"0: kernel: expected a body, got no region"}},
    {"a region too far",
     [](Hand& h) { h.k.ops[kIf].regions[1] = 9; },
     {"15: if: expected a region below 4, got 9"}},
    {"a region twice",
     [](Hand& h) { h.k.ops[kIf].regions[1] = 1; },
     {"15: if: region 1 is run by another operation"}},
    {"the body in itself",
     [](Hand& h) { h.k.ops[kIf].regions[1] = 0; },
     {"15: if: region 0 is run by another operation"}},
    {"an operation too far",
     [](Hand& h) { h.k.regions[2].ops.push_back(99); },
     {"15: region 2: expected operations below 17, got 99"}},
    {"an operation twice",
     [](Hand& h) { h.k.regions[0].ops.push_back(kI); },
     {"1: %0: expected once, got again"}},
    {"a location too far",
     [](Hand& h) { h.k.ops[kP].location = 99; },
     {"0: %7: expected a location below 18, got 99"}},
    {"a loop without its turn",
     [](Hand& h) { h.k.regions[3].ops.clear(); },
     {"17: for: expected turn first in its body"}},
    {"a turn of another type",
     [](Hand& h) { h.k.ops[kTurn].type = Type::of(Scalar::s64); },
     {"17: for: expected turn to have the type of first"}},
    {"a turn behind another",
     [](Hand& h) {
       h.into = 3;
       h.add({.code = Opcode::turn, .type = kS32});
     },
     {"18: turn: expected as the first operation of a loop's body"}},
};

TEST(Verify, EachRuleOfTheKernel) {
  for (const auto& [why, make, messages] : kWrong) {
    SCOPED_TRACE(why);
    Hand h = sound();
    make(h);
    EXPECT_EQ(broken(h.k), messages);
  }
}

TEST(Verify, AValueThatIsNotThereIsToldOnceForEachUse) {
  Hand h = sound();
  // The parameter i comes last: all that uses it before is told, and nothing that follows from it.
  std::vector<Id>& body = h.k.regions[0].ops;
  body.erase(body.begin());
  body.push_back(kI);
  const std::string rest = ": %0 is not there yet, or no longer: it was made in another block";
  EXPECT_THAT(broken(h.k), ElementsAre("14: add" + rest, "17: for" + rest));
}

TEST(Verify, StepsThatAreKnownAreAboveZero) {
  const struct {
    Scalar type;
    std::int64_t bits;
    std::string message;
  } cases[] = {
      {Scalar::s32, 0, "for: expected a step above 0, got 0"},
      {Scalar::s32, -1, "for: expected a step above 0, got -1"},
      {Scalar::s32, 0xffffffff, "for: expected a step above 0, got -1"},
      {Scalar::u32, 0, "for: expected a step above 0, got 0"},
      {Scalar::s64, -5, "for: expected a step above 0, got -5"},
      {Scalar::u64, 0, "for: expected a step above 0, got 0"},
      {Scalar::s32, 1, ""},
      {Scalar::u32, -1, ""},
      {Scalar::u64, -1, ""},
  };
  for (const auto& [type, bits, message] : cases) {
    SCOPED_TRACE(fmt::format("{} {}", name(type), bits));
    Hand h = sound();
    const Id step = h.constant(type, bits);
    const std::uint32_t body = h.region();
    h.into = body;
    h.add({.code = Opcode::turn, .type = Type::of(type)});
    h.into = 0;
    const Id loop = h.add({.code = Opcode::for_, .args = {step, step, step}, .regions = {body}});
    if (message.empty()) {
      EXPECT_THAT(broken(h.k), IsEmpty());
    } else {
      EXPECT_THAT(broken(h.k), ElementsAre(fmt::format("{}: {}", loop + 1, message)));
    }
  }
}

TEST(Verify, TellsAllRulesInOrder) {
  Hand h = sound();
  h.k.threads = 48;
  h.add({.code = Opcode::shuffle_xor, .type = kS32, .args = {kI}, .attributes = {40}});
  h.add({.code = Opcode::add, .type = kS32, .args = {kI, kF}});
  EXPECT_THAT(broken(h.k),
              ElementsAre("0: kernel: expected a multiple of 32 threads up to 1024, got 48",
                          "18: shuffle_xor: expected a mask from 0 to 31, got 40",
                          "19: add: expected y: s32 as x is, got f32"));
}

TEST(ResultType, FollowsFromTheOperands) {
  const Hand h = sound();
  const struct {
    Op op;
    Type expected;
  } cases[] = {
      {{.code = Opcode::add, .args = {kD, kD}}, Type::of(Scalar::f64)},
      {{.code = Opcode::lt, .args = {kD, kD}}, Type::of(Scalar::pred)},
      {{.code = Opcode::load, .args = {kHalves}}, Type::of(Scalar::f16)},
      {{.code = Opcode::get, .args = {kT}, .attributes = {0}}, kF32},
      {{.code = Opcode::advance, .args = {kS, kWide}}, Type::pointer(Scalar::f32, Space::shared)},
      {{.code = Opcode::select, .args = {kP, kHalf, kHalf}}, Type::of(Scalar::f16)},
      {{.code = Opcode::ballot, .args = {kP}}, Type::of(Scalar::u32)},
      {{.code = Opcode::store, .args = {kX, kF}}, kNothing},
      {{.code = Opcode::cast, .type = kF32, .args = {kI}}, kF32},
      {{.code = Opcode::constant, .type = kF32, .attributes = {0}}, kF32},
  };
  for (const auto& [op, expected] : cases) {
    SCOPED_TRACE(info(op.code).name);
    const Result<Type> type = result_type(h.k, op);
    ASSERT_TRUE(type) << type.error();
    EXPECT_EQ(text(*type), text(expected));
  }
  const Result<Type> wrong = result_type(h.k, {.code = Opcode::add, .args = {kI, kF}});
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(wrong.error().message, "add: expected y: s32 as x is, got f32");
}

}  // namespace
}  // namespace lapidary::ir
