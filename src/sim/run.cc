#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>

#include "numeric/numeric.h"
#include "sim/program.h"
#include "sim/sim.h"

namespace lapidary::sim {
namespace {

using ir::Opcode;

constexpr int kLanes = 32;
constexpr std::uint32_t kAll = ~0u;
/// Shared arrays lie this far apart, more than a block's shared memory has, so that an index that
/// leaves one meets no other. Nothing in a kernel can see an address.
constexpr int kSharedGapBits = 18;
/// A value of a warp: the bits of each lane, the low ones of a word.
using Lanes = std::array<std::uint64_t, kLanes>;

template <class T>
T as(std::uint64_t bits) {
  // Operands that an operation lacks are read too, and need not be 0 or 1.
  if constexpr (std::is_same_v<T, bool>) return (bits & 1) != 0;
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
std::uint64_t raw(T value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

/// Calls f.template operator()<T>() with the C++ type of a scalar that has arithmetic.
template <class F>
void with_type(Scalar type, F&& f) {
  switch (type) {
    case Scalar::s32:
      return f.template operator()<std::int32_t>();
    case Scalar::u32:
      return f.template operator()<std::uint32_t>();
    case Scalar::s64:
      return f.template operator()<std::int64_t>();
    case Scalar::u64:
      return f.template operator()<std::uint64_t>();
    case Scalar::f32:
      return f.template operator()<float>();
    case Scalar::f64:
      return f.template operator()<double>();
    case Scalar::pred:
      return f.template operator()<bool>();
    case Scalar::f16:
    case Scalar::bf16:
      return f.template operator()<std::uint16_t>();
  }
}

/// Sums and products of integers wrap: they are made in the unsigned type.
template <class T, class F>
T wrapped(T x, T y, F f) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    using U = std::make_unsigned_t<T>;
    // Narrow unsigned types would be promoted to int.
    return static_cast<T>(static_cast<U>(f(static_cast<std::uint64_t>(static_cast<U>(x)),
                                           static_cast<std::uint64_t>(static_cast<U>(y)))));
  } else {
    return f(x, y);
  }
}

/// PTX ISA, add, mul, fma, ...: an f32 result that is NaN has this pattern.
template <class T>
T canonical(T x) {
  if constexpr (std::is_same_v<T, float>) {
    if (std::isnan(x)) return std::bit_cast<float>(0x7fffffffu);
  }
  return x;
}

template <class To, class From>
To converted(From x) {
  if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    if (std::isnan(x)) {
      // PTX ISA, cvt: 0, but for f64 or a 64-bit result, where it is the top bit alone.
      if (sizeof(To) == 4 && sizeof(From) == 4) return 0;
      return static_cast<To>(std::make_unsigned_t<To>{1} << (8 * sizeof(To) - 1));
    }
    const double whole = std::trunc(static_cast<double>(x));
    // The limits as powers of two, for 2^63 - 1 is no double.
    const double below = std::is_signed_v<To> ? -std::ldexp(1.0, 8 * sizeof(To) - 1) : 0.0;
    const double above = std::ldexp(1.0, 8 * sizeof(To) - (std::is_signed_v<To> ? 1 : 0));
    if (whole < below) return std::numeric_limits<To>::min();
    if (whole >= above) return std::numeric_limits<To>::max();
    return static_cast<To>(whole);
  } else {
    return canonical(static_cast<To>(x));
  }
}

/// A copy on its way into shared memory: it lands as late as it may.
struct Copy {
  std::size_t to = 0;  // byte of the block's shared memory
  std::int64_t bytes = 0;
  std::array<std::byte, 16> data{};
  std::array<bool, 16> written{};
};

struct Frame {
  std::uint32_t saved = 0, other = 0;
};

struct Block;
struct Warp {
  Block* block = nullptr;
  int number = 0;  // in its block
  std::int32_t pc = 0;
  std::uint32_t active = kAll;
  std::vector<Frame> frames;
  std::vector<Lanes> slots;
  std::vector<std::uint32_t> written;  // of tiles: lanes that have written the element
  enum class State : std::uint8_t { runs, waits, ended } state = State::runs;
  std::vector<Copy> begun;
  std::vector<std::vector<Copy>> copies;  // groups, the oldest first
  std::int32_t waits_at = -1;             // instruction
};

struct Barrier {
  std::vector<Warp*> waiting;
  std::int64_t threads = 0;
};

struct Block {
  std::array<int, 3> at{};
  std::vector<std::unique_ptr<Warp>> warps;
  std::vector<std::byte> shared;
  std::vector<bool> written;
  Barrier barriers[16];
};

class Runner {
 public:
  Runner(const ir::Kernel& kernel, const Launch& launch, Memory& memory, const Options& options)
      : k_(kernel),
        launch_(launch),
        memory_(memory),
        options_(options),
        program_(flatten(kernel)),
        random_(options.seed) {}

  Report run() {
    const std::int64_t blocks =
        std::int64_t{1} * launch_.grid[0] * launch_.grid[1] * launch_.grid[2];
    for (;;) {
      while (std::ssize(resident_) < options_.sms && next_ < blocks) start(next_++);
      if (resident_.empty()) break;
      Warp* const warp = choose();
      if (warp == nullptr) {
        deadlock();
        return std::move(report_);
      }
      // A warp runs for a while, so that orders differ in more than the last operation.
      turn(*warp, 1 + static_cast<int>(draw() % 24));
      if (stopped_) return std::move(report_);
      if (warp->state == Warp::State::ended) retire(*warp->block);
    }
    report_.finished = true;
    return std::move(report_);
  }

 private:
  std::uint64_t draw() {
    // splitmix64 (Steele, Lea, Flood, 2014)
    std::uint64_t x = random_ += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }

  void start(std::int64_t index) {
    auto block = std::make_unique<Block>();
    const auto& g = launch_.grid;
    block->at = {static_cast<int>(index % g[0]), static_cast<int>(index / g[0] % g[1]),
                 static_cast<int>(index / g[0] / g[1])};
    const auto bytes = static_cast<std::size_t>(k_.shared_bytes());
    block->shared.assign(bytes, std::byte{0xff});
    block->written.assign(bytes, false);
    for (int w = 0; w < k_.threads / kLanes; ++w) {
      auto warp = std::make_unique<Warp>();
      warp->block = block.get();
      warp->number = w;
      warp->slots.resize(static_cast<std::size_t>(program_.slots));
      warp->written.resize(static_cast<std::size_t>(program_.slots));
      ready_.push_back(warp.get());
      block->warps.push_back(std::move(warp));
    }
    resident_.push_back(std::move(block));
  }
  Warp* choose() {
    if (ready_.empty()) return nullptr;
    return ready_[draw() % ready_.size()];
  }
  void unready(Warp& warp) { std::erase(ready_, &warp); }
  void retire(Block& block) {
    if (!std::ranges::all_of(block.warps,
                             [](const auto& w) { return w->state == Warp::State::ended; }))
      return;
    std::erase_if(resident_, [&](const auto& b) { return b.get() == &block; });
  }

  void turn(Warp& warp, int steps) {
    for (int i = 0; i < steps && warp.state == Warp::State::runs && !stopped_; ++i) {
      if (++report_.steps > options_.max_steps) {
        find(program_.code[std::size_t(warp.pc)],
             fmt::format("still running after {} operations", options_.max_steps));
        stopped_ = true;
        return;
      }
      const Instruction& in = program_.code[std::size_t(warp.pc++)];
      if (in.flow == Flow::none) {
        execute(warp, in);
      } else {
        flow(warp, in);
      }
    }
  }

  void flow(Warp& w, const Instruction& in) {
    switch (in.flow) {
      case Flow::if_begin: {
        std::uint32_t yes = 0;
        for (int l = 0; l < kLanes; ++l)
          yes |= std::uint32_t(w.slots[std::size_t(in.args[0])][std::size_t(l)] & 1) << l;
        w.frames.push_back({w.active, w.active & ~yes});
        w.active &= yes;
        if (w.active == 0) w.pc = in.jump;
        return;
      }
      case Flow::if_else:
        w.active = w.frames.back().other;
        if (w.active == 0) w.pc = in.jump;
        return;
      case Flow::if_end:
      case Flow::for_end:
        w.active = w.frames.back().saved;
        w.frames.pop_back();
        return;
      case Flow::for_begin:
        w.frames.push_back({w.active, 0});
        w.slots[std::size_t(in.slot)] = w.slots[std::size_t(in.args[0])];
        forward(w, in);
        stay(w, in);
        if (w.active == 0) w.pc = in.jump;
        return;
      case Flow::for_next:
        with_type(in.type, [&]<class T>() {
          for (int l = 0; l < kLanes; ++l) {
            if ((w.active >> l & 1) == 0) continue;
            std::uint64_t& i = w.slots[std::size_t(in.slot)][std::size_t(l)];
            i = raw(wrapped(as<T>(i), as<T>(w.slots[std::size_t(in.args[2])][std::size_t(l)]),
                            [](auto x, auto y) { return x + y; }));
          }
        });
        stay(w, in);
        if (w.active != 0) w.pc = in.jump;
        return;
      case Flow::end:
        w.state = Warp::State::ended;
        unready(w);
        return;
      case Flow::none:
        return;
    }
  }
  /// A loop that does not go forward would not end.
  void forward(Warp& w, const Instruction& in) {
    with_type(in.type, [&]<class T>() {
      each(w, [&](std::size_t l) {
        const T step = as<T>(w.slots[std::size_t(in.args[2])][l]);
        if (step > 0) return;
        find(in, fmt::format("for: the step is not above 0: {}", step), &w, l);
        stopped_ = true;
      });
    });
  }
  /// Lanes whose loop goes on stay active.
  void stay(Warp& w, const Instruction& in) {
    with_type(in.type, [&]<class T>() {
      for (int l = 0; l < kLanes; ++l) {
        const bool more = as<T>(w.slots[std::size_t(in.slot)][std::size_t(l)]) <
                          as<T>(w.slots[std::size_t(in.args[1])][std::size_t(l)]);
        if (!more) w.active &= ~(1u << l);
      }
    });
  }

  // Values. Lanes that are not active compute too, which nobody sees.
  template <class T, class F>
  void map(Warp& w, const Instruction& in, F f) {
    Lanes& to = w.slots[std::size_t(in.slot)];
    const Lanes& a = w.slots[std::size_t(in.args[0])];
    const Lanes& b = w.slots[std::size_t(std::max(in.args[1], 0))];
    const Lanes& c = w.slots[std::size_t(std::max(in.args[2], 0))];
    for (std::size_t l = 0; l < kLanes; ++l)
      to[l] = raw(canonical(f(as<T>(a[l]), as<T>(b[l]), as<T>(c[l]))));
  }
  template <class F>
  void numbers(Warp& w, const Instruction& in, F f) {
    with_type(in.from, [&]<class T>() {
      if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::uint16_t>) {
      } else {
        map<T>(w, in, [&](T x, T y, T) { return f(x, y); });
      }
    });
  }
  template <class F>
  void integers(Warp& w, const Instruction& in, F f) {
    with_type(in.from, [&]<class T>() {
      if constexpr (std::is_integral_v<T>)
        map<T>(w, in, [&](T x, T y, T) { return static_cast<T>(f(x, y)); });
    });
  }
  template <class F>
  void floats(Warp& w, const Instruction& in, F f) {
    if (in.from == Scalar::f32) return map<float>(w, in, f);
    map<double>(w, in, f);
  }
  template <class F>
  void compares(Warp& w, const Instruction& in, F f) {
    with_type(in.from, [&]<class T>() { map<T>(w, in, [&](T x, T y, T) { return f(x, y); }); });
  }

  void execute(Warp& w, const Instruction& in) {
    const auto fill = [&](std::uint64_t bits) { w.slots[std::size_t(in.slot)].fill(bits); };
    switch (in.code) {
      case Opcode::constant:
        return fill(cut(in.type, static_cast<std::uint64_t>(in.attributes[0])));
      case Opcode::param: {
        const std::uint64_t bits = launch_.arguments[std::size_t(in.attributes[0])];
        return fill(k_.op(in.id).type.kind == ir::Type::Kind::pointer ? bits : cut(in.type, bits));
      }
      case Opcode::special:
        return special(w, in);
      case Opcode::add:
        return numbers(w, in, [](auto x, auto y) {
          return wrapped(x, y, [](auto p, auto q) { return p + q; });
        });
      case Opcode::sub:
        return numbers(w, in, [](auto x, auto y) {
          return wrapped(x, y, [](auto p, auto q) { return p - q; });
        });
      case Opcode::mul:
        return numbers(w, in, [](auto x, auto y) {
          return wrapped(x, y, [](auto p, auto q) { return p * q; });
        });
      case Opcode::fma:
        return floats(w, in, [](auto x, auto y, auto z) { return std::fma(x, y, z); });
      case Opcode::div:
        return divide(w, in, [](auto x, auto y) { return x / y; });
      case Opcode::rem:
        return divide(w, in, [](auto x, auto y) {
          if constexpr (std::is_integral_v<decltype(x)>)
            return x % y;
          else
            return x;
        });
      case Opcode::neg:
        return numbers(w, in, [](auto x, auto) {
          if constexpr (std::is_floating_point_v<decltype(x)>)
            return -x;
          else
            return wrapped(decltype(x){0}, x, [](auto p, auto q) { return p - q; });
        });
      case Opcode::min:
        return numbers(w, in, [](auto x, auto y) { return smaller(x, y); });
      case Opcode::max:
        return numbers(w, in, [](auto x, auto y) { return larger(x, y); });
      case Opcode::and_:
        return integers(w, in, [](auto x, auto y) { return x & y; });
      case Opcode::or_:
        return integers(w, in, [](auto x, auto y) { return x | y; });
      case Opcode::xor_:
        return integers(w, in, [](auto x, auto y) { return x ^ y; });
      case Opcode::not_:
        return integers(w, in, [](auto x, auto) {
          if constexpr (std::is_same_v<decltype(x), bool>)
            return !x;
          else
            return ~x;
        });
      case Opcode::shl:
        return shift(w, in, [](auto x, unsigned by, unsigned width) {
          using T = decltype(x);
          if constexpr (std::is_same_v<T, bool>)
            return x;
          else
            return by >= width ? T{0} : static_cast<T>(std::make_unsigned_t<T>(x) << by);
        });
      case Opcode::shr:
        return shift(w, in, [](auto x, unsigned by, unsigned width) {
          using T = decltype(x);
          if constexpr (std::is_same_v<T, bool>)
            return x;
          else if (by < width)
            return static_cast<T>(x >> by);
          else
            return static_cast<T>(x < 0 ? -1 : 0);
        });
      case Opcode::exp2:
        return map<float>(
            w, in, [](float x, float, float) { return static_cast<float>(std::exp2(double{x})); });
      case Opcode::log2:
        return map<float>(
            w, in, [](float x, float, float) { return static_cast<float>(std::log2(double{x})); });
      case Opcode::rsqrt:
        return map<float>(w, in, [](float x, float, float) {
          return static_cast<float>(1 / std::sqrt(double{x}));
        });
      case Opcode::sqrt:
        return floats(w, in, [](auto x, auto, auto) { return std::sqrt(x); });
      case Opcode::abs:
        return floats(w, in, [](auto x, auto, auto) { return std::fabs(x); });
      case Opcode::lt:
        return compares(w, in, [](auto x, auto y) { return x < y; });
      case Opcode::le:
        return compares(w, in, [](auto x, auto y) { return x <= y; });
      case Opcode::eq:
        return compares(w, in, [](auto x, auto y) { return x == y; });
      case Opcode::ne:
        return compares(w, in, [](auto x, auto y) { return x != y; });
      case Opcode::select:
        return map<std::uint64_t>(w, in, [](std::uint64_t p, std::uint64_t x, std::uint64_t y) {
          return (p & 1) != 0 ? x : y;
        });
      case Opcode::cast:
        return cast(w, in);
      case Opcode::bitcast:
        return map<std::uint64_t>(w, in, [](std::uint64_t x, auto, auto) { return x; });
      case Opcode::shared:
        return fill(static_cast<std::uint64_t>(in.attributes[0] + 1) << kSharedGapBits);
      case Opcode::advance:
        return advance(w, in);
      case Opcode::load:
        return load(w, in);
      case Opcode::store:
        return store(w, in);
      case Opcode::load_tile:
        return tile_access(w, in, true);
      case Opcode::store_tile:
        return tile_access(w, in, false);
      case Opcode::atomic_add:
        return atomic(w, in, [](auto x, auto y) {
          return wrapped(x, y, [](auto p, auto q) { return p + q; });
        });
      case Opcode::atomic_max:
        return atomic(w, in, [](auto x, auto y) { return larger(x, y); });
      case Opcode::tile:
        // What is undefined must not be what another turn of a loop has left.
        for (std::int32_t i = 0; i < in.attributes[0]; ++i)
          w.written[std::size_t(in.slot + i)] &= ~w.active;
        return;
      case Opcode::get:
        return get(w, in);
      case Opcode::set:
        return each(w, [&](std::size_t l) {
          const auto cell = std::size_t(in.args[0] + in.attributes[0]);
          w.slots[cell][l] = w.slots[std::size_t(in.args[1])][l];
          w.written[cell] |= 1u << l;
        });
      case Opcode::barrier:
        return barrier(w, in);
      case Opcode::shuffle_xor:
        return exchange(w, in, [&](std::size_t l) { return l ^ std::size_t(in.attributes[0]); });
      case Opcode::shuffle:
        return exchange(w, in, [&](std::size_t l) {
          return std::size_t(w.slots[std::size_t(in.args[1])][l] & 31);
        });
      case Opcode::ballot: {
        whole_warp(w, in);
        std::uint64_t votes = 0;
        each(w, [&](std::size_t l) { votes |= (w.slots[std::size_t(in.args[0])][l] & 1) << l; });
        return fill(votes);
      }
      case Opcode::copy_async:
        return copy_async(w, in);
      case Opcode::commit_copies:
        w.copies.push_back(std::move(w.begun));
        w.begun.clear();
        return;
      case Opcode::wait_copies:
        return wait_copies(w, in);
      case Opcode::load_matrix:
        return load_matrix(w, in);
      case Opcode::mma:
        return mma(w, in);
      case Opcode::check:
        return each(w, [&](std::size_t l) {
          if ((w.slots[std::size_t(in.args[0])][l] & 1) != 0) return;
          find(in, k_.strings[std::size_t(in.attributes[0])], &w, l);
          stopped_ = true;
        });
      case Opcode::print:
        return print(w, in);
      case Opcode::if_:
      case Opcode::for_:
      case Opcode::turn:
        return;  // in `flow`
    }
  }

  /// The bits that a type has.
  static std::uint64_t cut(Scalar type, std::uint64_t bits) {
    const int size = 8 * size_bytes(type);
    return size == 0 || size == 64 ? bits : bits & ((std::uint64_t{1} << size) - 1);
  }
  template <class T>
  static T smaller(T x, T y) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(x) || std::isnan(y)) return std::numeric_limits<T>::quiet_NaN();
      if (x == y) return std::signbit(x) ? x : y;  // -0 is below +0
    }
    return y < x ? y : x;
  }
  template <class T>
  static T larger(T x, T y) {
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(x) || std::isnan(y)) return std::numeric_limits<T>::quiet_NaN();
      if (x == y) return std::signbit(x) ? y : x;
    }
    return x < y ? y : x;
  }

  template <class F>
  static void each(const Warp& w, F f) {
    for (std::uint32_t left = w.active; left != 0; left &= left - 1)
      f(std::size_t(std::countr_zero(left)));
  }

  void special(Warp& w, const Instruction& in) {
    Lanes& to = w.slots[std::size_t(in.slot)];
    for (std::size_t l = 0; l < kLanes; ++l) {
      int value = 0;
      switch (ir::Special(in.attributes[0])) {
        case ir::Special::thread:
          value = w.number * kLanes + static_cast<int>(l);
          break;
        case ir::Special::lane:
          value = static_cast<int>(l);
          break;
        case ir::Special::warp:
          value = w.number;
          break;
        case ir::Special::block_x:
          value = w.block->at[0];
          break;
        case ir::Special::block_y:
          value = w.block->at[1];
          break;
        case ir::Special::block_z:
          value = w.block->at[2];
          break;
        case ir::Special::grid_x:
          value = launch_.grid[0];
          break;
        case ir::Special::grid_y:
          value = launch_.grid[1];
          break;
        case ir::Special::grid_z:
          value = launch_.grid[2];
          break;
      }
      to[l] = raw(value);
    }
  }
  template <class F>
  void divide(Warp& w, const Instruction& in, F f) {
    with_type(in.from, [&]<class T>() {
      if constexpr (std::is_floating_point_v<T>) {
        map<T>(w, in, [&](T x, T y, T) { return static_cast<T>(f(x, y)); });
      } else if constexpr (!std::is_same_v<T, bool> && !std::is_same_v<T, std::uint16_t>) {
        each(w, [&](std::size_t l) {
          const T x = as<T>(w.slots[std::size_t(in.args[0])][l]),
                  y = as<T>(w.slots[std::size_t(in.args[1])][l]);
          if (y == 0) {
            find(in, fmt::format("{}: division by 0: of {}", info(in.code).name, x), &w, l);
            w.slots[std::size_t(in.slot)][l] = raw(static_cast<T>(~T{0}));
            return;
          }
          // The one quotient that overflows: it wraps.
          const bool wraps = std::is_signed_v<T> && y == static_cast<T>(-1);
          const T minus = wrapped(T{0}, x, [](auto p, auto q) { return p - q; });
          w.slots[std::size_t(in.slot)][l] =
              raw(wraps ? (in.code == Opcode::div ? minus : T{0}) : static_cast<T>(f(x, y)));
        });
      }
    });
  }
  template <class F>
  void shift(Warp& w, const Instruction& in, F f) {
    with_type(in.from, [&]<class T>() {
      if constexpr (std::is_integral_v<T>) {
        Lanes& to = w.slots[std::size_t(in.slot)];
        for (std::size_t l = 0; l < kLanes; ++l) {
          to[l] = raw(static_cast<T>(f(as<T>(w.slots[std::size_t(in.args[0])][l]),
                                       as<unsigned>(w.slots[std::size_t(in.args[1])][l]),
                                       unsigned(8 * sizeof(T)))));
        }
      }
    });
  }
  void cast(Warp& w, const Instruction& in) {
    Lanes& to = w.slots[std::size_t(in.slot)];
    const Lanes& from = w.slots[std::size_t(in.args[0])];
    const auto narrow = [](Scalar type) { return type == Scalar::f16 ? DType::f16 : DType::bf16; };
    for (std::size_t l = 0; l < kLanes; ++l) {
      if (size_bytes(in.from) == 2) {
        to[l] = raw(numeric::to_f32(narrow(in.from), as<std::uint16_t>(from[l])));
      } else if (size_bytes(in.type) == 2) {
        const auto x = as<float>(from[l]);
        // PTX ISA, cvt: NaN becomes 0x7fff.
        to[l] = std::isnan(x) ? 0x7fff
                              : numeric::from_f32(narrow(in.type), x, numeric::Overflow::infinity);
      } else {
        with_type(in.from, [&]<class From>() {
          with_type(in.type, [&]<class To>() {
            if constexpr (!std::is_same_v<To, bool> && !std::is_same_v<From, bool>)
              to[l] = raw(converted<To>(as<From>(from[l])));
          });
        });
      }
    }
  }
  void advance(Warp& w, const Instruction& in) {
    const auto size = static_cast<std::uint64_t>(size_bytes(in.type));
    Lanes& to = w.slots[std::size_t(in.slot)];
    for (std::size_t l = 0; l < kLanes; ++l) {
      std::uint64_t by = w.slots[std::size_t(in.args[1])][l];
      if (in.from == Scalar::s32)
        by = static_cast<std::uint64_t>(std::int64_t{as<std::int32_t>(by)});
      to[l] = w.slots[std::size_t(in.args[0])][l] + by * size;
      if (in.space == Space::shared) to[l] &= 0xffffffffu;
    }
  }

  // Memory
  struct Place {
    std::byte* bytes = nullptr;
    std::vector<bool>* written = nullptr;
    std::size_t offset = 0;
  };
  /// Where `bytes` at an address lie; a finding and nowhere if they may not be touched.
  Place place(Warp& w, const Instruction& in, std::size_t l, std::uint64_t address,
              std::int64_t bytes) {
    if (address % static_cast<std::uint64_t>(bytes) != 0) {
      find(in,
           fmt::format("{}: {} bytes at an address that is no multiple of it: {}",
                       info(in.code).name, bytes, described(in, address)),
           &w, l);
      return {};
    }
    if (in.space == Space::shared) {
      Block& block = *w.block;
      const auto [array, offset] = in_shared(address);
      if (array != nullptr && offset >= 0 && offset + bytes <= array_bytes(*array)) {
        const auto at = static_cast<std::size_t>(array->offset_bytes + offset);
        return {block.shared.data() + at, &block.written, at};
      }
    } else if (Memory::Array* const array = memory_.find(address, bytes)) {
      const std::size_t offset = address - array->address;
      return {array->bytes.data() + offset, &array->written, offset};
    }
    find(in, fmt::format("{}: out of bounds: {}", info(in.code).name, described(in, address)), &w,
         l);
    return {};
  }
  static std::int64_t array_bytes(const ir::SharedArray& array) {
    return array.count * size_bytes(array.element);
  }
  /// The shared array to which an address belongs, and its offset there; null: none is near.
  std::pair<const ir::SharedArray*, std::int64_t> in_shared(std::uint64_t address) const {
    constexpr std::int64_t kGap = std::int64_t{1} << kSharedGapBits;
    const auto from_first = static_cast<std::int64_t>(address) - kGap;
    // A quarter of the gap before its first byte an array begins.
    const std::int64_t index = (from_first + kGap / 4) >> kSharedGapBits;
    if (index < 0 || index >= std::ssize(k_.shared)) return {nullptr, 0};
    return {&k_.shared[static_cast<std::size_t>(index)], from_first - index * kGap};
  }
  std::string described(const Instruction& in, std::uint64_t address) const {
    if (in.space == Space::global) return memory_.describe(address);
    const auto [array, offset] = in_shared(address);
    if (array == nullptr) return "an address far from the block's shared arrays";
    return fmt::format("byte {} of shared {}, which has {}", offset, array->name,
                       array_bytes(*array));
  }
  /// What lies at the lane's pointer; null if it may not be touched.
  std::byte* access(Warp& w, const Instruction& in, std::size_t l, std::int64_t bytes, bool reads,
                    bool writes) {
    const std::uint64_t address = w.slots[std::size_t(in.args[0])][l];
    const Place at = place(w, in, l, address, bytes);
    if (at.bytes == nullptr) return nullptr;
    const auto first = at.written->begin() + static_cast<std::ptrdiff_t>(at.offset);
    if (reads && std::find(first, first + bytes, false) != first + bytes) {
      find(in,
           fmt::format("{}: nothing was written there: {}", info(in.code).name,
                       described(in, address)),
           &w, l);
    }
    if (writes) std::fill(first, first + bytes, true);
    return at.bytes;
  }
  void load(Warp& w, const Instruction& in) {
    const auto bytes = static_cast<std::size_t>(size_bytes(in.from));
    each(w, [&](std::size_t l) {
      std::uint64_t& to = w.slots[std::size_t(in.slot)][l];
      to = 0;
      if (const std::byte* const from = access(w, in, l, size_bytes(in.from), true, false))
        std::memcpy(&to, from, bytes);
    });
  }
  void store(Warp& w, const Instruction& in) {
    const auto bytes = static_cast<std::size_t>(size_bytes(in.from));
    each(w, [&](std::size_t l) {
      if (std::byte* const to = access(w, in, l, size_bytes(in.from), false, true))
        std::memcpy(to, &w.slots[std::size_t(in.args[1])][l], bytes);
    });
  }
  void tile_access(Warp& w, const Instruction& in, bool load) {
    const std::int64_t first = in.attributes[0], count = in.attributes[1];
    const std::int64_t bytes = size_bytes(in.from);
    each(w, [&](std::size_t l) {
      std::byte* const at = access(w, in, l, count * bytes, load, !load);
      for (std::int64_t i = 0; i < count; ++i) {
        const auto cell = std::size_t(in.args[1] + first + i);
        std::uint64_t& element = w.slots[cell][l];
        if (load) {
          element = 0;
          w.written[cell] |= 1u << l;
          if (at != nullptr) std::memcpy(&element, at + i * bytes, std::size_t(bytes));
        } else {
          defined(w, in, l, cell, first + i);
          if (at != nullptr) std::memcpy(at + i * bytes, &element, std::size_t(bytes));
        }
      }
    });
  }
  template <class F>
  void atomic(Warp& w, const Instruction& in, F f) {
    with_type(in.from, [&]<class T>() {
      if constexpr (!std::is_same_v<T, bool> && !std::is_same_v<T, std::uint16_t>) {
        each(w, [&](std::size_t l) {
          std::uint64_t old = 0;
          if (std::byte* const at = access(w, in, l, sizeof(T), true, true)) {
            std::memcpy(&old, at, sizeof(T));
            const T sum =
                f(flushed(in, as<T>(old)), flushed(in, as<T>(w.slots[std::size_t(in.args[1])][l])));
            const std::uint64_t bits = raw(canonical(flushed(in, sum)));
            std::memcpy(at, &bits, sizeof(T));
          }
          w.slots[std::size_t(in.slot)][l] = old;
        });
      }
    });
  }

  /// PTX ISA, atom: of f32 in global memory, subnormal operands and results become zero.
  template <class T>
  static T flushed(const Instruction& in, T x) {
    if constexpr (std::is_same_v<T, float>) {
      if (in.space == Space::global && std::fpclassify(x) == FP_SUBNORMAL)
        return std::copysign(0.0f, x);
    }
    return x;
  }

  // Tiles
  void defined(Warp& w, const Instruction& in, std::size_t l, std::size_t cell,
               std::int64_t index) {
    if ((w.written[cell] >> l & 1) == 0)
      find(in, fmt::format("{}: element {} of the tile was not written", info(in.code).name, index),
           &w, l);
  }
  void get(Warp& w, const Instruction& in) {
    const auto cell = std::size_t(in.args[0] + in.attributes[0]);
    each(w, [&](std::size_t l) { defined(w, in, l, cell, in.attributes[0]); });
    w.slots[std::size_t(in.slot)] = w.slots[cell];
  }

  // Threads together
  bool whole_warp(Warp& w, const Instruction& in) {
    if (w.active == kAll) return true;
    find(in,
         fmt::format("{}: not the whole warp: {} of its 32 lanes take part", info(in.code).name,
                     std::popcount(w.active)),
         &w, std::size_t(std::countr_zero(w.active)));
    return false;
  }
  template <class F>
  void exchange(Warp& w, const Instruction& in, F source) {
    whole_warp(w, in);
    const Lanes from = w.slots[std::size_t(in.args[0])];
    for (std::size_t l = 0; l < kLanes; ++l) w.slots[std::size_t(in.slot)][l] = from[source(l)];
  }
  // Asynchronous copies
  void copy_async(Warp& w, const Instruction& in) {
    Instruction target = in, source = in;
    target.space = Space::shared;
    source.space = Space::global;
    const auto bytes = static_cast<std::size_t>(in.attributes[0]);
    each(w, [&](std::size_t l) {
      const Place to = place(w, target, l, w.slots[std::size_t(in.args[0])][l], in.attributes[0]);
      if (to.bytes == nullptr) return;
      Copy copy{.to = to.offset, .bytes = in.attributes[0]};
      copy.written.fill(true);
      if ((w.slots[std::size_t(in.args[2])][l] & 1) != 0) {
        const std::uint64_t address = w.slots[std::size_t(in.args[1])][l];
        const Place from = place(w, source, l, address, copy.bytes);
        if (from.bytes == nullptr) return;
        std::memcpy(copy.data.data(), from.bytes, bytes);
        for (std::size_t i = 0; i < bytes; ++i) copy.written[i] = (*from.written)[from.offset + i];
      }
      // Until it lands nobody knows what is there.
      for (std::size_t i = 0; i < bytes; ++i) (*to.written)[to.offset + i] = false;
      w.begun.push_back(copy);
    });
  }
  void wait_copies(Warp& w, const Instruction& in) {
    if (!whole_warp(w, in)) return;  // groups are counted for the warp as one
    while (std::ssize(w.copies) > in.attributes[0]) {
      for (const Copy& copy : w.copies.front()) {
        std::memcpy(w.block->shared.data() + copy.to, copy.data.data(),
                    static_cast<std::size_t>(copy.bytes));
        for (std::size_t i = 0; i < static_cast<std::size_t>(copy.bytes); ++i)
          w.block->written[copy.to + i] = copy.written[i];
      }
      w.copies.erase(w.copies.begin());
    }
  }

  // Matrices of a warp
  void load_matrix(Warp& w, const Instruction& in) {
    if (!whole_warp(w, in)) return;
    const std::int64_t first = in.attributes[0], matrices = in.attributes[1];
    for (std::int64_t m = 0; m < matrices; ++m) {
      std::uint16_t rows[8][8] = {};
      for (std::size_t r = 0; r < 8; ++r) {
        const std::size_t lane = static_cast<std::size_t>(8 * m) + r;
        if (const std::byte* const row = access(w, in, lane, 16, true, false))
          std::memcpy(rows[r], row, 16);
      }
      const auto cell = static_cast<std::size_t>(in.args[1] + first + 2 * m);
      for (std::size_t e = 0; e < 2; ++e) {
        for (std::size_t l = 0; l < kLanes; ++l) {
          const bool turned = in.attributes[2] != 0;
          const std::size_t outer = l / 4, inner = 2 * (l % 4) + e;
          w.slots[cell + e][l] = turned ? rows[inner][outer] : rows[outer][inner];
        }
        w.written[cell + e] = kAll;
      }
    }
  }
  /// Products are exact; each element's sum is made in f64 and rounded once. The hardware rounds
  /// otherwise: alike are only sums in which nothing is rounded.
  void mma(Warp& w, const Instruction& in) {
    if (!whole_warp(w, in)) return;
    const Scalar kind = in.operand_types[1];
    const bool halves = size_bytes(kind) == 2;
    const std::size_t depth = halves ? 16 : 8;
    const auto cell = [&](std::size_t operand, std::size_t i) {
      const auto slot = static_cast<std::size_t>(in.args[operand] + in.attributes[operand]) + i;
      if (w.written[slot] != kAll) {
        find(in,
             fmt::format("mma: element {} of {} was not written",
                         in.attributes[operand] + std::int64_t(i),
                         std::string_view("dab").substr(operand, 1)),
             &w, std::size_t(std::countr_one(w.written[slot])));
      }
      return slot;
    };
    const auto number = [&](std::uint64_t bits) {
      // tf32: the low 13 bits of the mantissa are not read.
      if (!halves) return as<float>(bits & ~std::uint64_t{0x1fff});
      return numeric::to_f32(kind == Scalar::f16 ? DType::f16 : DType::bf16,
                             static_cast<std::uint32_t>(bits));
    };
    float a[16][16] = {}, b[16][8] = {};
    for (std::size_t i = 0; i < (halves ? 8u : 4u); ++i) {
      const Lanes& from = w.slots[cell(1, i)];
      for (std::size_t l = 0; l < kLanes; ++l) {
        const std::size_t g = l / 4, t = l % 4;
        const std::size_t row = g + (halves ? i / 2 % 2 : i % 2) * 8;
        const std::size_t col = halves ? 2 * t + i % 2 + i / 4 * 8 : t + i / 2 * 4;
        a[row][col] = number(from[l]);
      }
    }
    for (std::size_t i = 0; i < (halves ? 4u : 2u); ++i) {
      const Lanes& from = w.slots[cell(2, i)];
      for (std::size_t l = 0; l < kLanes; ++l) {
        const std::size_t g = l / 4, t = l % 4;
        b[halves ? 2 * t + i % 2 + i / 2 * 8 : t + i * 4][g] = number(from[l]);
      }
    }
    for (std::size_t i = 0; i < 4; ++i) {
      Lanes& d = w.slots[cell(0, i)];
      for (std::size_t l = 0; l < kLanes; ++l) {
        const std::size_t row = l / 4 + i / 2 * 8, col = 2 * (l % 4) + i % 2;
        double sum = as<float>(d[l]);
        for (std::size_t k = 0; k < depth; ++k) sum += double{a[row][k]} * double{b[k][col]};
        d[l] = raw(static_cast<float>(sum));
      }
    }
  }

  void barrier(Warp& w, const Instruction& in) {
    whole_warp(w, in);
    Barrier& b = w.block->barriers[in.attributes[0]];
    if (!b.waiting.empty() && b.threads != in.attributes[1]) {
      find(in,
           fmt::format("barrier: {} threads asked for where {} were before, at barrier {}",
                       in.attributes[1], b.threads, in.attributes[0]),
           &w, 0);
    }
    b.threads = in.attributes[1];
    b.waiting.push_back(&w);
    w.state = Warp::State::waits;
    w.waits_at = w.pc - 1;
    unready(w);
    if (std::ssize(b.waiting) * kLanes < b.threads) return;
    for (Warp* const other : b.waiting) {
      other->state = Warp::State::runs;
      ready_.push_back(other);
    }
    b.waiting.clear();
  }
  void deadlock() {
    for (const auto& block : resident_) {
      for (int id = 0; id < 16; ++id) {
        const Barrier& b = block->barriers[id];
        if (b.waiting.empty()) continue;
        std::string missing;
        for (const auto& warp : block->warps) {
          if (std::ranges::find(b.waiting, warp.get()) != b.waiting.end()) continue;
          missing += fmt::format(
              "; warp {} {}", warp->number,
              warp->state == Warp::State::ended
                  ? "has ended"
                  : fmt::format("waits at {}", where(program_.code[std::size_t(warp->waits_at)])));
        }
        find(program_.code[std::size_t(b.waiting.front()->waits_at)],
             fmt::format("deadlock: {} of {} threads wait at barrier {}{}",
                         b.waiting.size() * kLanes, b.threads, id, missing),
             b.waiting.front(), 0);
      }
    }
  }

  void print(Warp& w, const Instruction& in) {
    const auto list = std::size_t(in.attributes[1]);
    each(w, [&](std::size_t l) {
      std::string text = k_.strings[std::size_t(in.attributes[0])];
      for (std::size_t i = 0; i < program_.lists[list].size(); ++i) {
        const std::uint64_t bits = w.slots[std::size_t(program_.lists[list][i])][l];
        with_type(program_.list_types[list][i],
                  [&]<class T>() { text += fmt::format(" {}", as<T>(bits)); });
      }
      report_.printed.push_back(std::move(text));
    });
  }

  // Findings
  std::string where(const Instruction& in) const { return text(k_.locations[in.location]); }
  void find(const Instruction& in, std::string message, const Warp* w = nullptr,
            std::size_t lane = 0) {
    // What varies from lane to lane comes after the kind, and the first lane stands for all.
    const std::string kind = message.substr(0, message.find(": ", message.find(": ") + 2));
    const auto [it, fresh] = seen_.try_emplace({in.id, kind}, report_.findings.size());
    if (!fresh) {
      ++report_.findings[it->second].count;
      return;
    }
    if (w != nullptr) {
      const auto& at = w->block->at;
      message += fmt::format("; block ({}, {}, {}), thread {}", at[0], at[1], at[2],
                             w->number * kLanes + static_cast<int>(lane));
    }
    report_.findings.push_back({where(in), std::move(message)});
  }

  const ir::Kernel& k_;
  const Launch& launch_;
  Memory& memory_;
  const Options options_;
  const Program program_;
  std::uint64_t random_;
  std::int64_t next_ = 0;
  std::vector<std::unique_ptr<Block>> resident_;
  std::vector<Warp*> ready_;
  std::map<std::pair<ir::Id, std::string>, std::size_t> seen_;
  Report report_;
  bool stopped_ = false;
};

}  // namespace

Result<Report> run(const ir::Kernel& kernel, const Launch& launch, Memory& memory,
                   const Options& options) {
  for (std::size_t axis = 0; axis < 3; ++axis) {
    // CUDA C++ Programming Guide, compute capabilities.
    const int most = axis == 0 ? std::numeric_limits<int>::max() : 65535;
    if (launch.grid[axis] < 1 || launch.grid[axis] > most) {
      return fail(ErrorCode::invalid_argument,
                  "simulate: {}: expected 1 to {} blocks along axis {}, got {}", kernel.name, most,
                  axis, launch.grid[axis]);
    }
  }
  if (launch.arguments.size() != kernel.params.size()) {
    return fail(ErrorCode::invalid_argument, "simulate: {}: expected {} arguments, got {}",
                kernel.name, kernel.params.size(), launch.arguments.size());
  }
  if (options.sms < 1) {
    return fail(ErrorCode::invalid_argument, "simulate: expected 1 SM or more, got {}",
                options.sms);
  }
  return Runner(kernel, launch, memory, options).run();
}

}  // namespace lapidary::sim
