#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "lapidary/dsl.h"
#include "support/result.h"

// A kernel over the whole table of operations, for golden texts and the assembler.
namespace lapidary::testing {

/// Makes every operation in every type that it takes. It is for printing: nobody runs it.
class EveryOp {
 public:
  explicit EveryOp(Arch arch) : k_({.name = "every_op", .arch = arch, .threads = 64}) {}

  Result<Kernel> make() {
    values();
    arithmetic();
    conversions();
    memory();
    tiles();
    together();
    control();
    return k_.finish();
  }

 private:
  static constexpr Scalar kStored[] = {Scalar::s32, Scalar::u32,  Scalar::s64, Scalar::u64,
                                       Scalar::f16, Scalar::bf16, Scalar::f32, Scalar::f64};
  static constexpr Scalar kIntegers[] = {Scalar::s32, Scalar::u32, Scalar::s64, Scalar::u64};
  static constexpr Scalar kNumbers[] = {Scalar::s32, Scalar::u32, Scalar::s64,
                                        Scalar::u64, Scalar::f32, Scalar::f64};

  void values() {
    for (const Scalar type : kNumbers) v_[type] = k_.param("n_" + std::string(name(type)), type);
    for (const Scalar type : kStored) {
      global_[type] = k_.array_param("x_" + std::string(name(type)), type);
      shared_[type] = k_.shared("s_" + std::string(name(type)), type, 128);
    }
    v_[Scalar::f16] = global_[Scalar::f16][0];
    v_[Scalar::bf16] = global_[Scalar::bf16][0];
    v_[Scalar::pred] = k_.constant(Scalar::pred, 1);
    v_[Scalar::pred] = v_[Scalar::pred] && k_.constant(Scalar::pred, 0);
    v_[Scalar::s32] = v_[Scalar::s32] + std::numeric_limits<std::int32_t>::min();
    v_[Scalar::u32] = v_[Scalar::u32] + std::numeric_limits<std::uint32_t>::max();
    v_[Scalar::s64] = v_[Scalar::s64] + std::numeric_limits<std::int64_t>::min();
    v_[Scalar::u64] = v_[Scalar::u64] + std::numeric_limits<std::uint64_t>::max();
    v_[Scalar::f32] = v_[Scalar::f32] + std::numeric_limits<float>::infinity();
    v_[Scalar::f64] = v_[Scalar::f64] + -0.0;
    for (const Value& place : {k_.thread(), k_.lane(), k_.warp()}) use(place);
    for (int axis = 0; axis < 3; ++axis) {
      use(k_.block(axis));
      use(k_.grid(axis));
    }
  }
  /// Stores a value, so that it stays.
  void use(const Value& x) {
    if (x.type() == Scalar::pred) return use(select(x, v_[Scalar::s32], 0));
    global_[x.type()][k_.thread()] = x;
  }
  void arithmetic() {
    for (const Scalar type : kNumbers) {
      const Value x = v_[type], y = x * x;
      for (const Value& z : {x + y, x - y, x / y, negate(x)}) use(z);
      for (const Value& p : {x < y, x <= y, x == y, x != y}) use(p);
      if (type != Scalar::f64) {
        use(min(x, y));
        use(max(x, y));
      }
      if (!is_integer(type)) {
        for (const Value& z : {fma(x, y, x), sqrt(x), abs(x)}) use(z);
      }
    }
    for (const Scalar type : kIntegers) {
      const Value x = v_[type], y = x * x;
      for (const Value& z : {x % y, x & y, x | y, x ^ y, invert(x)}) use(z);
      for (const Value& z : {x << v_[Scalar::s32], x >> v_[Scalar::s32], x >> 3}) use(z);
    }
    const Value p = v_[Scalar::pred], q = k_.thread() < 3, f = v_[Scalar::f32];
    for (const Value& z : {p & q, p | q, p ^ q, invert(p)}) use(z);
    for (const Value& z : {exp2(f), log2(f), rsqrt(f)}) use(z);
    for (const Scalar type : kScalars) use(select(q, v_[type], v_[type]));
  }
  void conversions() {
    for (const Scalar from : kStored) {
      for (const Scalar to : kStored) {
        if (from == to) continue;
        const bool narrow = size_bytes(from) == 2 || size_bytes(to) == 2;
        if (!narrow || from == Scalar::f32 || to == Scalar::f32) use(cast(v_[from], to));
        if (size_bytes(from) == size_bytes(to)) use(bitcast(v_[from], to));
      }
    }
  }
  void memory() {
    for (const Scalar type : kStored) {
      for (auto* arrays : {&global_, &shared_}) {
        const Array& x = (*arrays)[type];
        x[0] = x[1];
        for (const Scalar by : kIntegers) x.at(v_[by])[0] = v_[type];
        if (is_number(type) && type != Scalar::s64) use(x[2].atomic_add(v_[type]));
        if (is_integer(type)) use(x[2].atomic_max(v_[type]));
      }
    }
  }
  void tiles() {
    for (const Scalar type : kStored) {
      const int most = 16 / size_bytes(type), least = size_bytes(type) == 2 ? 2 : 1;
      for (int count = least; count <= most; count *= 2) {
        Tile tile = k_.tile(type, count);
        tile.load(global_[type]);
        tile[count - 1] = v_[type];
        use(tile[0]);
        use(tile[count - 1]);
        tile.store(shared_[type]);
        tile.load(shared_[type]);
        tile.store(global_[type]);
      }
      Var var = k_.var(type, v_[type]);
      k_.if_(v_[Scalar::pred], [&] { var = v_[type]; });
      use(var);
    }
    Tile odd = k_.tile(Scalar::f16, 3);
    for (int i = 0; i < 3; ++i) odd[i] = v_[Scalar::f16];
    use(odd[2]);
  }
  void together() {
    k_.barrier();
    k_.barrier(15, 32);
    for (const Scalar type : {Scalar::s32, Scalar::u32, Scalar::f32}) {
      use(shuffle_xor(v_[type], 31));
      use(shuffle(v_[type], k_.lane()));
    }
    use(ballot(v_[Scalar::pred]));
    for (const int bytes : {4, 8, 16}) {
      k_.copy_async(shared_[Scalar::f32], global_[Scalar::f32], bytes, v_[Scalar::pred]);
      k_.commit_copies();
    }
    k_.wait_copies(1);
    k_.wait_copies(0);
    k_.barrier();
    Tile d = k_.tile(Scalar::f32, 8), words = k_.tile(Scalar::f32, 8);
    for (int i = 0; i < 8; ++i) {
      d[i] = 0;
      words[i] = v_[Scalar::f32];
    }
    for (const Scalar type : {Scalar::f16, Scalar::bf16}) {
      Tile a = k_.tile(type, 16);
      for (const bool transposed : {false, true}) {
        for (const int matrices : {1, 2, 4}) {
          a.load_matrix(shared_[type].at(k_.lane() * 8), 0, matrices, transposed);
          a.load_matrix(shared_[type].at(k_.lane() * 8), 8, matrices, transposed);
        }
      }
      k_.mma(d, 4, a, 8, a, 2);
    }
    k_.mma(d, 0, words, 4, words, 1);
    for (int i = 0; i < 8; ++i) use(d[i]);
  }
  void control() {
    for (const Scalar type : kIntegers) {
      k_.for_range(v_[type], v_[type] + 5, 2, [&](Value i) {
        k_.if_(i == 3, [&] { use(i); }, [&] { k_.if_(k_.thread() == 0, [&] { use(i + 1); }); });
      });
    }
    k_.if_(v_[Scalar::pred], [] {});
    k_.if_(v_[Scalar::pred], [] {}, [&] { use(v_[Scalar::s32]); });
    k_.check(k_.thread() < 64, "a \"quoted\" message");
    k_.print("100 % of everything\n\\",
             {v_[Scalar::pred], v_[Scalar::s32], v_[Scalar::f64], v_[Scalar::u32], v_[Scalar::s64],
              v_[Scalar::f32], v_[Scalar::u64]});
    k_.print("nothing", {});
  }

  KernelBuilder k_;
  std::map<Scalar, Value> v_;
  std::map<Scalar, Array> global_, shared_;
};

inline Result<Kernel> every_op(Arch arch = Arch::sm_80) { return EveryOp(arch).make(); }

}  // namespace lapidary::testing
