#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lapidary/inline_vector.h"
#include "lapidary/kernel.h"

// The intermediate representation: typed SSA with structured regions. A value is named by the
// operation that makes it. The only mutable values are register tiles. `ops.inc` is the one table
// of operations behind builder, verifier, printers, simulator and manual.
namespace lapidary::ir {

using Id = std::uint32_t;
inline constexpr Id kNone = ~Id{0};

enum class Opcode : std::uint8_t {
#define LAPIDARY_OP(name, ...) name,
#include "ir/ops.inc"
#undef LAPIDARY_OP
};

/// One row of the table.
struct OpInfo {
  std::string_view name;  ///< without the underscore that C++ needs: "if"
  std::string_view signature, doc;
};
const OpInfo& info(Opcode code);
/// Rows in the order of the enumerators.
std::span<const OpInfo> op_table();

/// What a value is.
struct Type {
  enum class Kind : std::uint8_t { none, scalar, pointer, tile };
  Kind kind = Kind::none;
  Scalar scalar = Scalar::pred;  ///< of a pointer or tile: its elements'
  Space space = Space::global;   ///< of a pointer
  std::int32_t count = 0;        ///< of a tile: elements a thread
  bool operator==(const Type&) const = default;

  static Type of(Scalar scalar) { return {.kind = Kind::scalar, .scalar = scalar}; }
  static Type pointer(Scalar element, Space space) {
    return {.kind = Kind::pointer, .scalar = element, .space = space};
  }
  static Type tile(Scalar element, int count) {
    return {.kind = Kind::tile, .scalar = element, .count = count};
  }
  bool is(Scalar s) const { return kind == Kind::scalar && scalar == s; }
};
/// "f32", "ptr global f32", "tile 8 x bf16", "none".
std::string text(const Type& type);

/// Attribute `which` of `special`; grid and blocks count along three axes, threads along one.
enum class Special : std::int64_t {
  thread,
  lane,
  warp,
  block_x,
  block_y,
  block_z,
  grid_x,
  grid_y,
  grid_z
};
std::string_view name(Special which);

struct Op {
  Opcode code = Opcode::constant;
  Type type{};  ///< of its value; none when it has none
  InlineVector<Id, 3> args{};
  InlineVector<std::int64_t, 2> attributes{};  ///< in the order of the table
  InlineVector<std::uint32_t, 2> regions{};    ///< into Kernel::regions
  std::uint32_t location = 0;                  ///< into Kernel::locations
};

struct Region {
  std::vector<Id> ops;  ///< in order; a loop's body begins with `turn`
};

struct Param {
  std::string name;
  Type type;  ///< a scalar or a global pointer
};
struct SharedArray {
  std::string name;
  Scalar element = Scalar::f32;
  std::int64_t count = 0;
  std::int64_t offset_bytes = 0;  ///< in the block's shared memory; a multiple of 16 at least
};
struct Location {
  std::string file;  ///< as the compiler was given it
  int line = 0;
  bool operator==(const Location&) const = default;
};
/// "gemm.cc:42", without folders.
std::string text(const Location& location);

struct Kernel {
  std::string name;
  Arch arch = Arch::sm_80;
  int threads = 32;  ///< a block, a multiple of 32 up to 1024
  std::vector<Param> params;
  std::vector<SharedArray> shared;
  std::vector<Op> ops;          ///< Id is an index here
  std::vector<Region> regions;  ///< the first is the kernel's body
  std::vector<Location> locations;
  std::vector<std::string> strings;  ///< messages
  std::int64_t shared_bytes() const;

  const Op& op(Id id) const { return ops[id]; }
};

/// The whole kernel, an operation a line.
std::string text(const Kernel& kernel);

/// Every rule that the kernel breaks, with the source line, in order; empty: it is sound.
struct Violation {
  std::uint32_t location = 0;
  std::string message;
};
std::vector<Violation> verify(const Kernel& kernel);

/// The type that an operation's result has by its signature, given its operands; what cannot be
/// told from them (constant, param, cast, tile, shared) is taken as `asked`. The message of the
/// first broken rule otherwise: "add: expected y: s32 as x is, got f32".
Result<Type> result_type(const Kernel& kernel, const Op& op);

}  // namespace lapidary::ir
