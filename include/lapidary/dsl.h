#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lapidary/kernel.h"

// The words a kernel is written in. Host code runs while the kernel is built: a C++ `for` unrolls,
// `k.for_range` loops on the device. No call returns an error: misuse is kept with the line of the
// call, and `finish` reports all of it.
//
//   KernelBuilder k({.name = "scale", .threads = 256});
//   Value n = k.param("n", Scalar::s32);
//   Array x = k.array_param("x", Scalar::f32);
//   Value i = k.block() * 256 + k.thread();
//   k.if_(i < n, [&] { x[i] = x[i] * 2; });
//   Result<Kernel> kernel = k.finish();
namespace lapidary {

class KernelBuilder;
namespace detail {
struct BuilderState;
}

/// A value of one thread: fixed once it is made. After a misuse it is poisoned, and silently
/// poisons what uses it.
class Value {
 public:
  Value() = default;
  Scalar type() const { return type_; }

 private:
  friend struct detail::BuilderState;
  Value(detail::BuilderState* state, std::uint32_t id, Scalar type)
      : state_(state), id_(id), type_(type) {}
  detail::BuilderState* state_ = nullptr;
  std::uint32_t id_ = ~0u;
  Scalar type_ = Scalar::s32;
};

class Element;

/// What a call takes: a value, or a C++ number, which becomes a constant of the type that the other
/// operand has. It notes where the call stands.
class Operand {
 public:
  using Where = std::source_location;
  Operand(Value value, Where where = Where::current()) : value_(value), where_(where) {}
  /// An element, a variable, a tile's cell: its value here.
  template <std::convertible_to<Value> T>
    requires(!std::is_same_v<T, Value> && !std::is_arithmetic_v<T>)
  Operand(const T& place, Where where = Where::current()) : value_(place), where_(where) {}
  template <std::integral T>
  Operand(T number, Where where = Where::current())
      : kind_(Kind::integer),
        wide_(std::is_unsigned_v<T> && static_cast<std::uint64_t>(number) >> 63 != 0),
        integer_(static_cast<std::int64_t>(number)),
        where_(where) {}
  template <std::floating_point T>
  Operand(T number, Where where = Where::current())
      : kind_(Kind::real), real_(static_cast<double>(number)), where_(where) {}

 private:
  friend struct detail::BuilderState;
  enum class Kind : std::uint8_t { value, integer, real };
  Kind kind_ = Kind::value;
  bool wide_ = false;  // integer_ is that of an unsigned number above 2^63 - 1
  Value value_{};
  std::int64_t integer_ = 0;
  double real_ = 0;
  Where where_;
};

// Arithmetic. Both sides have one type, or one is a C++ number. Integers wrap; / and % go toward
// zero.
Value operator+(Value x, Operand y);
Value operator-(Value x, Operand y);
Value operator*(Value x, Operand y);
Value operator/(Value x, Operand y);
Value operator%(Value x, Operand y);
Value operator&(Value x, Operand y);
Value operator|(Value x, Operand y);
Value operator^(Value x, Operand y);
Value operator<<(Value x, Operand count);
Value operator>>(Value x, Operand count);
Value operator<(Value x, Operand y);
Value operator<=(Value x, Operand y);
Value operator>(Value x, Operand y);
Value operator>=(Value x, Operand y);
Value operator==(Value x, Operand y);
Value operator!=(Value x, Operand y);
/// Of predicates: logical, both sides are computed.
Value operator&&(Value x, Operand y);
Value operator||(Value x, Operand y);
template <class T>
concept Number = std::integral<T> || std::floating_point<T>;
template <Number T>
Value operator+(T x, Operand y);
template <Number T>
Value operator-(T x, Operand y);
template <Number T>
Value operator*(T x, Operand y);

Value negate(Operand x);
Value invert(Operand x);  ///< of a predicate: not
Value fma(Operand x, Operand y, Operand z);
Value min(Operand x, Operand y);
Value max(Operand x, Operand y);
Value abs(Operand x);
Value exp2(Operand x);
Value log2(Operand x);
Value sqrt(Operand x);
Value rsqrt(Operand x);
Value select(Operand p, Operand x, Operand y);
/// The value in another type (`cast` of ops: floats to nearest even, to integers toward zero and
/// saturated).
Value cast(Operand x, Scalar type);
Value bitcast(Operand x, Scalar type);
/// x of the lane whose number is ours xor `mask`; the whole warp must take part.
Value shuffle_xor(Operand x, int mask);
Value shuffle(Operand x, Operand lane);
/// Bit i: p of lane i.
Value ballot(Operand p);

/// An array in global or shared memory, by its first element. Indices count elements.
class Array {
 public:
  Array() = default;
  Element operator[](Operand index) const;
  /// The array that begins at element `index`.
  Array at(Operand index) const;
  Scalar element() const { return element_; }

 private:
  friend struct detail::BuilderState;
  friend class Element;
  friend class Tile;
  Array(detail::BuilderState* state, std::uint32_t id, Scalar element, Space space)
      : state_(state), id_(id), element_(element), space_(space) {}
  detail::BuilderState* state_ = nullptr;
  std::uint32_t id_ = ~0u;
  Scalar element_ = Scalar::f32;
  Space space_ = Space::global;
};

/// One element of an array: reads when used as a value, writes when assigned.
class Element {
 public:
  operator Value() const;
  void operator=(Operand value) const;
  void operator=(const Element& other) const;
  /// Adds in one step for the whole device; gives what was there.
  Value atomic_add(Operand value) const;
  Value atomic_max(Operand value) const;

 private:
  friend class Array;
  friend class Operand;
  friend struct detail::BuilderState;
  Element(Array at, std::source_location where) : at_(at), where_(where) {}
  Array at_;
  std::source_location where_;
};

/// A variable of one thread: the value at a point is what was assigned last.
class Var {
 public:
  operator Value() const;
  void operator=(Operand value);
  void operator+=(Operand value);
  Var(const Var&) = default;
  Var& operator=(const Var& other);

 private:
  friend class KernelBuilder;
  friend class Operand;
  friend struct detail::BuilderState;
  Var(detail::BuilderState* state, std::uint32_t tile, Scalar type)
      : state_(state), tile_(tile), type_(type) {}
  detail::BuilderState* state_;
  std::uint32_t tile_;
  Scalar type_;
};

/// Registers of one thread: `count` elements with indices that are known while the kernel is built.
/// Undefined until written.
class Tile {
 public:
  class Cell {
   public:
    operator Value() const;
    void operator=(Operand value) const;
    void operator=(const Cell& other) const;

   private:
    friend class Tile;
    friend class Operand;
    Cell(detail::BuilderState* state, std::uint32_t tile, Scalar type, std::int64_t index,
         std::source_location where)
        : state_(state), tile_(tile), type_(type), index_(index), where_(where) {}
    detail::BuilderState* state_;
    std::uint32_t tile_;
    Scalar type_;
    std::int64_t index_;
    std::source_location where_;
  };
  /// An index, and where it stands.
  struct At {
    template <std::integral T>
    At(T element, std::source_location place = std::source_location::current())
        : index(static_cast<std::int64_t>(element)), where(place) {}
    std::int64_t index;
    std::source_location where;
  };
  int count() const { return count_; }
  Cell operator[](At index) const;
  /// All elements from consecutive memory, in accesses of up to 16 bytes: the address must be a
  /// multiple of the access.
  void load(const Array& from, std::source_location where = std::source_location::current()) const;
  /// 1, 2 or 4 matrices of 8 x 8 elements of 16 bits into elements `first` on: lane 8 i + r points
  /// to row r of matrix i.
  void load_matrix(const Array& row, int first, int matrices, bool transposed = false,
                   std::source_location where = std::source_location::current()) const;
  void store(const Array& to, std::source_location where = std::source_location::current()) const;

 private:
  friend class KernelBuilder;
  friend struct detail::BuilderState;
  Tile(detail::BuilderState* state, std::uint32_t id, Scalar type, int count)
      : state_(state), id_(id), type_(type), count_(count) {}
  detail::BuilderState* state_;
  std::uint32_t id_;
  Scalar type_;
  int count_;
};

struct KernelSpec {
  std::string name;
  Arch arch = Arch::sm_80;
  int threads = 128;  ///< of a block, along one axis; a multiple of 32 up to 1024
};

/// Builds one kernel, in the order of the calls.
class KernelBuilder {
 public:
  using Where = std::source_location;
  explicit KernelBuilder(KernelSpec spec, Where where = Where::current());
  ~KernelBuilder();
  KernelBuilder(const KernelBuilder&) = delete;
  KernelBuilder& operator=(const KernelBuilder&) = delete;

  // What a launch gives.
  Value param(std::string name, Scalar type, Where where = Where::current());
  Array array_param(std::string name, Scalar element, Where where = Where::current());
  Value thread(Where where = Where::current());  ///< in its block, s32, as the rest
  Value lane(Where where = Where::current());
  Value warp(Where where = Where::current());
  Value block(int axis = 0, Where where = Where::current());
  Value grid(int axis = 0, Where where = Where::current());  ///< blocks along that axis

  Value constant(Scalar type, Operand number);
  /// An array that the block's threads share; undefined at first. 16-byte aligned.
  Array shared(std::string name, Scalar element, std::int64_t count,
               Where where = Where::current());
  Tile tile(Scalar element, int count, Where where = Where::current());
  Var var(Scalar type, Operand first);

  void if_(Operand p, const std::function<void()>& then);
  void if_(Operand p, const std::function<void()>& then, const std::function<void()>& otherwise);
  /// For i = first, first + step, ... below end, on the device. `step` is above 0.
  void for_range(Operand first, Operand end, Operand step,
                 const std::function<void(Value i)>& body);
  /// Waits for all threads of the block.
  void barrier(Where where = Where::current());
  /// Waits for `threads` of them at barrier `id`, 1 to 15.
  void barrier(int id, int threads, Where where = Where::current());
  // Asynchronous copies into shared memory, in groups (sm_80).
  /// Begins to copy `bytes` (4, 8 or 16), where p holds; else the bytes become 0 and `from` is not
  /// read.
  void copy_async(const Array& to, const Array& from, int bytes, Operand p);
  /// Closes the group of what this thread has begun.
  void commit_copies(Where where = Where::current());
  /// Waits until at most `left` of this thread's groups are on their way; a barrier tells the
  /// others.
  void wait_copies(int left, Where where = Where::current());
  /// D += A * B of a warp, 16 x 8 f32: from these elements of the tiles on, in the fragments that
  /// `mma` of docs/ir.md describes. a and b are f16, bf16 (16 deep) or f32 as tf32 (8 deep).
  void mma(const Tile& d, int d_first, const Tile& a, int a_first, const Tile& b, int b_first,
           Where where = Where::current());

  /// Traps where p does not hold; the simulator says `message`.
  void check(Operand p, std::string message);
  void print(std::string message, const std::vector<Value>& values, Where where = Where::current());

  /// The finished kernel; or `invalid_argument` with all misuses, a line each: "file:line: what".
  Result<Kernel> finish();

 private:
  friend struct detail::BuilderState;
  std::unique_ptr<detail::BuilderState> state_;
};

namespace detail {
Value swapped(char op, Operand number, Operand y);
}
template <Number T>
Value operator+(T x, Operand y) {
  return detail::swapped('+', Operand(x), y);
}
template <Number T>
Value operator-(T x, Operand y) {
  return detail::swapped('-', Operand(x), y);
}
template <Number T>
Value operator*(T x, Operand y) {
  return detail::swapped('*', Operand(x), y);
}

}  // namespace lapidary
