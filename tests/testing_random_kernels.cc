#include "testing_random_kernels.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "lapidary/dsl.h"
#include "support/result.h"

namespace lapidary::testing_kernels {
namespace {

constexpr int kInputs = 256;  // elements of each array that is read; a power of 2
constexpr int kSlots = 16;    // elements that a thread owns in each array that is written
constexpr int kCommon = 16;   // elements of each array of common sums
constexpr Scalar kStored[] = {Scalar::s32, Scalar::u32,  Scalar::s64, Scalar::u64,
                              Scalar::f16, Scalar::bf16, Scalar::f32, Scalar::f64};
constexpr Scalar kIntegers[] = {Scalar::s32, Scalar::u32, Scalar::s64, Scalar::u64};
constexpr Scalar kNumbers[] = {Scalar::s32, Scalar::u32, Scalar::s64,
                               Scalar::u64, Scalar::f32, Scalar::f64};
constexpr Scalar kFloats[] = {Scalar::f32, Scalar::f64};
constexpr Scalar kWords[] = {Scalar::s32, Scalar::u32, Scalar::f32};
constexpr Scalar kAdded[] = {Scalar::s32, Scalar::u32, Scalar::u64, Scalar::f32, Scalar::f64};

bool is_float(Scalar type) { return type == Scalar::f32 || type == Scalar::f64; }
std::size_t index_of(Scalar type) { return static_cast<std::size_t>(type); }

/// splitmix64 (Steele, Lea, Flood, 2014): the same numbers with every standard library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  /// 0 to `end` - 1.
  int below(std::size_t end) { return static_cast<int>(bits() % end); }
  bool one_in(std::size_t n) { return below(n) == 0; }
  template <class T, std::size_t N>
  T of(const T (&all)[N]) {
    return all[below(N)];
  }

 private:
  std::uint64_t state_;
};

/// Bits of a number that is no NaN, edges more often than chance would have it.
std::uint64_t number_bits(Random& random, Scalar type) {
  const int size = 8 * size_bytes(type);
  const std::uint64_t mask = size == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << size) - 1;
  if (is_integer(type)) {
    const std::uint64_t top = std::uint64_t{1} << (size - 1);
    const std::uint64_t edges[] = {0, 1, 2, mask, top, top - 1, top + 1, 31, 32, 63, 64};
    if (random.one_in(3)) return random.of(edges) & mask;
    if (random.one_in(2)) return random.bits() % 100;
    return random.bits() & mask;
  }
  const int mantissa = type == Scalar::f64   ? 52
                       : type == Scalar::f32 ? 23
                       : type == Scalar::f16 ? 10
                                             : 7;
  const std::uint64_t sign = std::uint64_t{random.bits() & 1} << (size - 1);
  const std::uint64_t infinity = ((std::uint64_t{1} << (size - 1 - mantissa)) - 1) << mantissa;
  const std::uint64_t one = infinity / 2 & infinity;
  const std::uint64_t edges[] = {
      0,       1, (std::uint64_t{1} << mantissa) - 1, std::uint64_t{1} << mantissa, infinity - 1,
      infinity};
  if (random.one_in(6)) return sign | random.of(edges);
  if (random.one_in(3)) return sign | random.bits() % infinity;
  // Near 1, where sums and products round.
  const std::uint64_t spread = std::uint64_t{6} << mantissa;
  return sign | (one - spread / 2 + random.bits() % spread);
}

class Generator {
 public:
  explicit Generator(std::uint64_t seed)
      : random_(seed * 0x2545f4914f6cdd1du + 1),
        threads_(random_.of({32, 64, 96, 128})),
        k_({.name = fmt::format("random_{}", seed), .threads = threads_}) {
    run_.what = fmt::format("seed {}", seed);
  }

  Result<RandomKernel> make() {
    const int most = 24 * 32 / threads_;  // warps in all: what a test has time for
    run_.grid = {1 + random_.below(3), 1 + random_.below(2), 1 + random_.below(2)};
    while (run_.grid[0] * run_.grid[1] * run_.grid[2] > most) --run_.grid[random_.below(3)];
    for (int& blocks : run_.grid) blocks = std::max(blocks, 1);
    parameters();
    first_values();
    statements(12 + random_.below(24));
    for (const Scalar type : kStored) store(type);
    auto kernel = k_.finish();
    if (!kernel) return kernel.error();
    return RandomKernel{*std::move(kernel), std::move(run_)};
  }

 private:
  /// A value and whether it may be a NaN: then its bits must not be seen.
  struct Held {
    Value value;
    bool nan = false;
  };
  struct HeldTile {
    Tile tile;
    Scalar type;
  };
  struct HeldVar {
    Var var;
    Scalar type;
  };
  /// Which threads of a block stand at a point together.
  enum class Together { block, warp, none };

  // What a launch gives
  Array buffer(const std::string& name, Scalar type, std::size_t count, bool zero) {
    Buffer b{.name = name, .type = type, .contents = {}, .expected = {}, .bound = {}};
    const auto size = static_cast<std::size_t>(size_bytes(type));
    b.contents.resize(count * size);
    for (std::size_t i = 0; i < count && !zero; ++i) {
      const std::uint64_t bits = number_bits(random_, type);
      std::memcpy(b.contents.data() + i * size, &bits, size);
    }
    run_.arguments.push_back({.buffer = static_cast<int>(run_.buffers.size())});
    run_.buffers.push_back(std::move(b));
    return k_.array_param(name, type);
  }
  void parameters() {
    for (const Scalar type : kNumbers) {
      keep(k_.param(fmt::format("n_{}", name(type)), type), type);
      run_.arguments.push_back({.bits = number_bits(random_, type)});
    }
    const auto all =
        static_cast<std::size_t>(threads_ * run_.grid[0] * run_.grid[1] * run_.grid[2]);
    for (const Scalar type : kStored) {
      in_[index_of(type)] = buffer(fmt::format("in_{}", name(type)), type, kInputs, false);
      out_[index_of(type)] = buffer(fmt::format("out_{}", name(type)), type, all * kSlots, true);
    }
    for (const Scalar type : kAdded)
      sum_[index_of(type)] = buffer(fmt::format("sum_{}", name(type)), type, kCommon, true);
    for (const Scalar type : kIntegers)
      max_[index_of(type)] = buffer(fmt::format("max_{}", name(type)), type, kCommon, true);
  }
  void first_values() {
    const Value places[] = {k_.thread(), k_.lane(),  k_.warp(),  k_.block(0), k_.block(1),
                            k_.block(2), k_.grid(0), k_.grid(1), k_.grid(2)};
    for (const Value& place : places) keep(place, Scalar::s32);
    global_ = ((k_.block(2) * k_.grid(1) + k_.block(1)) * k_.grid(0) + k_.block(0)) * threads_ +
              k_.thread();
    keep(global_, Scalar::s32);
    keep(k_.thread() < threads_ / 2, Scalar::pred);
    keep(k_.constant(Scalar::pred, 1), Scalar::pred);
    for (const Scalar type : kStored) keep(in_[index_of(type)][global_ & (kInputs - 1)], type);
  }

  // Values
  void keep(Value value, Scalar type, bool nan = false) {
    held_[index_of(type)].push_back({value, nan});
  }
  Held any(Scalar type) {
    const std::vector<Held>& all = held_[index_of(type)];
    // The newest are taken more often, which makes long chains.
    const std::size_t last = random_.one_in(2) ? std::min<std::size_t>(all.size(), 4) : all.size();
    return all[all.size() - 1 - static_cast<std::size_t>(random_.below(last))];
  }
  Value pick(Scalar type) { return any(type).value; }
  /// One without a NaN.
  Value clean(Scalar type) {
    const Held held = any(type);
    if (!held.nan) return held.value;
    return select(held.value == held.value, held.value, 0);
  }
  Value constant(Scalar type) {
    const std::uint64_t bits = number_bits(random_, type);
    switch (type) {
      case Scalar::f32:
        return k_.constant(type, std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
      case Scalar::f64:
        return k_.constant(type, std::bit_cast<double>(bits));
      case Scalar::s32:
        return k_.constant(type, static_cast<std::int32_t>(bits));
      case Scalar::s64:
        return k_.constant(type, static_cast<std::int64_t>(bits));
      default:
        return k_.constant(type, bits);
    }
  }
  /// An integer from 0 to `end` - 1, `end` a power of 2; of any type.
  Value small(int end) {
    const Scalar type = random_.of(kIntegers);
    return pick(type) & (end - 1);
  }

  void arithmetic() {
    const Scalar type = random_.of(kNumbers);
    const Held x = any(type), y = any(type);
    const bool real = is_float(type);
    switch (random_.below(9)) {
      case 0:
        return keep(x.value + y.value, type, real);
      case 1:
        return keep(x.value - y.value, type, real);
      case 2:
        return keep(x.value * y.value, type, real);
      case 3:
        return keep(real ? x.value / y.value : x.value / (y.value | 1), type, real);
      case 4:
        return keep(real ? sqrt(x.value) : x.value % (y.value | 1), type, real);
      case 5:
        if (real) return keep(fma(x.value, y.value, pick(type)), type, true);
        return keep(negate(x.value), type);
      case 6:
        if (type == Scalar::f64) return keep(abs(x.value), type, x.nan);
        return keep(min(x.value, y.value), type, x.nan || y.nan);
      case 7:
        if (type == Scalar::f64) return keep(negate(x.value), type, x.nan);
        return keep(max(x.value, y.value), type, x.nan || y.nan);
      default:
        keep(constant(type), type);
    }
  }
  void bitwise() {
    const Scalar type = random_.one_in(4) ? Scalar::pred : random_.of(kIntegers);
    const Value x = pick(type), y = pick(type);
    const int what = random_.below(type == Scalar::pred ? 4 : 6);
    switch (what) {
      case 0:
        return keep(x & y, type);
      case 1:
        return keep(x | y, type);
      case 2:
        return keep(x ^ y, type);
      case 3:
        return keep(invert(x), type);
      default: {
        const Value count = random_.one_in(2) ? pick(Scalar::s32) : pick(Scalar::s32) & 63;
        return keep(what == 4 ? x << count : x >> count, type);
      }
    }
  }
  void compare() {
    const Scalar type = random_.of(kNumbers);
    const Value x = pick(type), y = pick(type);
    switch (random_.below(6)) {
      case 0:
        return keep(x < y, Scalar::pred);
      case 1:
        return keep(x <= y, Scalar::pred);
      case 2:
        return keep(x == y, Scalar::pred);
      case 3:
        return keep(x != y, Scalar::pred);
      case 4:
        return keep(x > y, Scalar::pred);
      default:
        return keep(x >= y, Scalar::pred);
    }
  }
  void choose() {
    const Scalar type = random_.of(kScalars);
    const Held x = any(type), y = any(type);
    keep(select(pick(Scalar::pred), x.value, y.value), type, x.nan || y.nan);
  }
  void convert() {
    const Scalar narrow = random_.one_in(2) ? Scalar::f16 : Scalar::bf16;
    switch (random_.below(6)) {
      case 0:
        return keep(cast(clean(Scalar::f32), narrow), narrow);
      case 1:
        return keep(cast(pick(narrow), Scalar::f32), Scalar::f32, true);
      case 2: {
        const Scalar other = narrow == Scalar::f16 ? Scalar::bf16 : Scalar::f16;
        return keep(bitcast(pick(narrow), other), other);
      }
      case 3: {
        static constexpr Scalar k32[] = {Scalar::s32, Scalar::u32, Scalar::f32};
        static constexpr Scalar k64[] = {Scalar::s64, Scalar::u64, Scalar::f64};
        const bool wide = random_.one_in(2);
        const Scalar from = wide ? random_.of(k64) : random_.of(k32);
        const Scalar to = wide ? random_.of(k64) : random_.of(k32);
        return keep(bitcast(clean(from), to), to, is_float(to));
      }
      default: {
        const Scalar from = random_.of(kNumbers), to = random_.of(kNumbers);
        const Held x = any(from);
        return keep(cast(x.value, to), to, is_float(from) && is_float(to));
      }
    }
  }

  // Memory
  void load() {
    const Scalar type = random_.of(kStored);
    const Array& from = in_[index_of(type)];
    switch (random_.below(3)) {
      case 0:
        return keep(from[small(kInputs)], type);
      case 1: {
        // Forth, back and forth again.
        const Value first = small(kInputs / 2), second = small(kInputs / 2);
        return keep(from.at(first).at(-kInputs).at(second)[kInputs], type);
      }
      default:
        return keep(from[random_.below(kInputs)], type);
    }
  }
  Array own(Scalar type) { return out_[index_of(type)].at(global_ * kSlots); }
  void store(Scalar type) { own(type)[random_.below(kSlots)] = clean(type); }
  void add_to_common() {
    if (random_.one_in(2)) {
      const Scalar type = random_.of(kIntegers);
      max_[index_of(type)][small(kCommon)].atomic_max(pick(type));
      return;
    }
    const Scalar type = random_.of(kAdded);
    Element at = sum_[index_of(type)][small(kCommon)];
    // Of floats small integers alone: their sums are exact in every order.
    at.atomic_add(is_float(type) ? cast(pick(Scalar::s32) & 15, type) : pick(type));
  }

  // Tiles and variables
  void make_tile() {
    const Scalar type = random_.of(kStored);
    const int whole = random_.of({1, 2, 3, 4, 6, 8});
    const int count = size_bytes(type) == 2 ? 2 * whole : whole;
    Tile tile = k_.tile(type, count);
    if (random_.one_in(2)) {
      tile.load(in_[index_of(type)].at(small(kInputs / 16) * 16));
    } else {
      for (int i = 0; i < count; ++i) tile[i] = clean(type);
    }
    tiles_.push_back({tile, type});
  }
  void use_tile() {
    if (tiles_.empty()) return make_tile();
    const auto [tile, type] = tiles_[static_cast<std::size_t>(random_.below(tiles_.size()))];
    const int i = random_.below(static_cast<std::size_t>(tile.count()));
    switch (random_.below(4)) {
      case 0:
        tile[i] = clean(type);
        return;
      case 1:
        tile.store(own(type));
        return;
      case 2:
        tile.load(in_[index_of(type)].at(small(kInputs / 16) * 16));
        return;
      default:
        return keep(tile[i], type);
    }
  }
  void use_variable() {
    if (variables_.empty() || random_.one_in(4)) {
      const Scalar type = random_.of(kStored);
      variables_.push_back({k_.var(type, clean(type)), type});
      return;
    }
    auto& [var, type] = variables_[static_cast<std::size_t>(random_.below(variables_.size()))];
    if (is_integer(type) && random_.one_in(2)) {
      var += pick(type);
    } else if (random_.one_in(2)) {
      var = clean(type);
    } else {
      keep(var, type);
    }
  }

  // Threads together
  void shuffle_some() {
    const Scalar type = random_.of(kWords);
    const Value x = clean(type);
    switch (random_.below(3)) {
      case 0:
        return keep(shuffle_xor(x, random_.below(32)), type);
      case 1:
        return keep(shuffle(x, pick(Scalar::s32)), type);
      default:
        return keep(ballot(pick(Scalar::pred)), Scalar::u32);
    }
  }
  /// Every thread gives a value and takes another's. `count` threads, the first of the block, take
  /// part, and meet at barrier `id`.
  void exchange(int count, int id) {
    const Scalar type = random_.of(kStored);
    Array shared = k_.shared(fmt::format("shared_{}", shared_++), type, count);
    const auto meet = [&] { id == 0 ? k_.barrier() : k_.barrier(id, count); };
    shared[k_.thread()] = clean(type);
    meet();
    const Value other = cast(small(256), Scalar::u32) % count;
    keep(shared[other], type);
    meet();
  }
  /// The first warps of a block meet at a named barrier.
  void exchange_of_some() {
    const int warps = 1 + random_.below(static_cast<std::size_t>(threads_ / 32));
    const int id = 1 + random_.below(15);
    scope([&](const std::function<void()>& body) { k_.if_(k_.warp() < warps, body); },
          Together::warp, [&] { exchange(32 * warps, id); });
  }
  void shared_sum() {
    const Scalar type = random_.of(kAdded);
    Array shared = k_.shared(fmt::format("shared_{}", shared_++), type, 32);
    k_.if_(k_.thread() < 32, [&] { shared[k_.thread()] = 0; });
    k_.barrier();
    Element at = shared[small(32)];
    at.atomic_add(is_float(type) ? cast(pick(Scalar::s32) & 15, type) : pick(type));
    k_.barrier();
    keep(shared[small(32)], type);
    k_.barrier();
  }

  // Control
  /// Runs `make(body)`, where the values, tiles and variables that `body` makes are gone after it.
  void scope(const std::function<void(const std::function<void()>&)>& make, Together together,
             const std::function<void()>& body) {
    make([&] {
      std::size_t sizes[std::size(kScalars)];
      for (std::size_t i = 0; i < std::size(sizes); ++i) sizes[i] = held_[i].size();
      const std::size_t tiles = tiles_.size(), variables = variables_.size();
      const Together before = together_;
      together_ = std::max(together_, together);
      ++depth_;
      body();
      --depth_;
      together_ = before;
      for (std::size_t i = 0; i < std::size(sizes); ++i) shrink(held_[i], sizes[i]);
      shrink(tiles_, tiles);
      shrink(variables_, variables);
    });
  }
  template <class T>
  static void shrink(std::vector<T>& all, std::size_t size) {
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(size), all.end());
  }
  void branch() {
    const bool uniform = random_.one_in(3);
    const Value p = uniform ? k_.block(0) + random_.below(2) != 1 : pick(Scalar::pred);
    const Together together = uniform ? Together::block : Together::none;
    const auto some = [&] { statements(1 + random_.below(4)); };
    const auto plain = [](const std::function<void()>& body) { body(); };
    if (random_.one_in(2)) {
      k_.if_(p, [&] { scope(plain, together, some); });
    } else {
      k_.if_(p, [&] { scope(plain, together, some); }, [&] { scope(plain, together, some); });
    }
  }
  void loop() {
    const Scalar type = random_.of(kIntegers);
    const bool uniform = random_.one_in(2);
    const int start = is_signed(type) ? random_.below(9) - 4 : random_.below(4);
    const int step = 1 + random_.below(3);
    Value first = k_.constant(type, start), end = k_.constant(type, start + random_.below(6));
    if (!uniform) {
      first = first + (pick(type) & 1);
      end = first + (pick(type) & 3);
    }
    const auto make = [&](const std::function<void()>& body) {
      k_.for_range(first, end, step, [&](Value i) {
        turn_ = {i, type};
        body();
      });
    };
    scope(make, uniform ? Together::block : Together::none, [&] {
      keep(turn_.first, turn_.second);
      statements(1 + random_.below(4));
    });
  }
  void say_and_check() {
    k_.check(k_.thread() >= 0, "a thread has a place");
    // For the printers: no thread comes here.
    const Value x = pick(random_.of(kNumbers)), p = pick(Scalar::pred);
    k_.if_(k_.thread() < 0, [&] { k_.print("never", {x, p, k_.thread()}); });
  }

  void statements(int count) {
    for (int i = 0; i < count; ++i) statement();
  }
  void statement() {
    const int what = random_.below(64);
    if (what < 16) return arithmetic();
    if (what < 22) return bitwise();
    if (what < 26) return compare();
    if (what < 29) return choose();
    if (what < 35) return convert();
    if (what < 38) return load();
    if (what < 41) return store(random_.of(kStored));
    if (what < 43) return add_to_common();
    if (what < 48) return use_tile();
    if (what < 52) return use_variable();
    if (what < 53) return say_and_check();
    if (what < 57) return depth_ < 3 ? branch() : compare();
    if (what < 60) return depth_ < 3 ? loop() : arithmetic();
    if (what < 62) return together_ != Together::none ? shuffle_some() : arithmetic();
    if (together_ != Together::block || shared_ > 8) return arithmetic();
    if (what == 62) return random_.one_in(2) ? exchange(threads_, 0) : exchange_of_some();
    shared_sum();
  }

  Random random_;
  int threads_;
  KernelBuilder k_;
  Launching run_;
  Array in_[std::size(kScalars)], out_[std::size(kScalars)], sum_[std::size(kScalars)],
      max_[std::size(kScalars)];
  Value global_;  // a thread's number in the grid
  std::vector<Held> held_[std::size(kScalars)];
  std::vector<HeldTile> tiles_;
  std::vector<HeldVar> variables_;
  std::pair<Value, Scalar> turn_;
  Together together_ = Together::block;
  int depth_ = 0, shared_ = 0;
};

}  // namespace

Result<RandomKernel> random_kernel(std::uint64_t seed) { return Generator(seed).make(); }

}  // namespace lapidary::testing_kernels
