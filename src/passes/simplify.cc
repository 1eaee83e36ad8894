#include <unordered_map>
#include <utility>

#include "passes/effects.h"
#include "passes/passes.h"

namespace lapidary::passes {
namespace {

using ir::Id;
using ir::kNone;
using ir::Op;
using ir::Opcode;
using ir::Type;

std::uint64_t hash_of(const Op& op) {
  std::uint64_t hash =
      static_cast<std::uint64_t>(op.code) << 8 | static_cast<std::uint64_t>(op.type.scalar);
  const auto mix = [&](std::uint64_t x) {
    hash = (hash ^ x) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29;
  };
  for (const Id arg : op.args) mix(arg);
  for (const std::int64_t attribute : op.attributes) mix(static_cast<std::uint64_t>(attribute));
  return hash;
}
/// Both compute the same.
bool same(const Op& x, const Op& y) {
  return x.code == y.code && x.type == y.type && x.args == y.args && x.attributes == y.attributes;
}

/// x in the range of an integer type, as its constants hold it: signed ones with their sign,
/// unsigned ones without.
std::int64_t wrapped(Scalar type, std::uint64_t x) {
  switch (type) {
    case Scalar::pred:
      return static_cast<std::int64_t>(x & 1);
    case Scalar::s32:
      return static_cast<std::int32_t>(x);
    case Scalar::u32:
      return static_cast<std::uint32_t>(x);
    default:
      return static_cast<std::int64_t>(x);
  }
}

/// Copies a kernel operation by operation, in order, each under a scope of what was computed before
/// it in this block or one around it.
class Simplifier {
 public:
  explicit Simplifier(const ir::Kernel& from)
      : from_(from), to_(without_operations(from)), names_(from.ops.size(), kNone) {}

  ir::Kernel run() {
    region(0);
    return std::move(to_);
  }

 private:
  void region(std::uint32_t index) {
    const std::size_t mark = scope_.size();
    for (const Id id : from_.regions[index].ops) one(index, id);
    // What was computed in a block is not there behind it.
    while (scope_.size() > mark) {
      seen_.erase(scope_.back());
      scope_.pop_back();
    }
  }
  void one(std::uint32_t index, Id id) {
    Op op = from_.op(id);
    for (Id& arg : op.args) arg = names_[arg];
    for (const std::uint32_t inner : op.regions) region(inner);
    names_[id] = is_pure(op.code) ? shared(index, std::move(op)) : append(index, std::move(op));
  }
  Id append(std::uint32_t index, Op op) {
    to_.ops.push_back(std::move(op));
    const auto id = static_cast<Id>(to_.ops.size() - 1);
    to_.regions[index].ops.push_back(id);
    return id;
  }
  Id shared(std::uint32_t index, Op op) {
    if (const Id same = unchanged(op); same != kNone) return same;
    if (const auto value = folded(op)) {
      op.code = Opcode::constant;
      op.args.clear();
      op.attributes = {*value};
    }
    const std::uint64_t hash = hash_of(op);
    const auto [first, last] = seen_.equal_range(hash);
    for (auto it = first; it != last; ++it) {
      if (same(to_.op(it->second), op)) return it->second;
    }
    const Id id = append(index, std::move(op));
    scope_.push_back(seen_.emplace(hash, id));
    return id;
  }

  const Op& arg(const Op& op, std::size_t i) const { return to_.op(op.args[i]); }
  /// The value of an operand that is a known integer or predicate.
  std::optional<std::int64_t> known(const Op& op, std::size_t i) const {
    const Op& x = arg(op, i);
    if (x.code != Opcode::constant || !(is_integer(x.type.scalar) || x.type.is(Scalar::pred)))
      return std::nullopt;
    return wrapped(x.type.scalar, static_cast<std::uint64_t>(x.attributes[0]));
  }
  /// An operand that is the result, whatever the other one is.
  Id unchanged(const Op& op) const {
    const auto is = [&](std::size_t i, std::int64_t value) {
      return i < op.args.size() && known(op, i) == value;
    };
    switch (op.code) {
      case Opcode::add:
      case Opcode::or_:
      case Opcode::xor_:
        if (is(0, 0)) return op.args[1];
        return is(1, 0) ? op.args[0] : kNone;
      case Opcode::sub:
      case Opcode::shl:
      case Opcode::shr:
      case Opcode::advance:
        return is(1, 0) ? op.args[0] : kNone;
      case Opcode::mul:
        if (is(0, 1)) return op.args[1];
        return is(1, 1) ? op.args[0] : kNone;
      case Opcode::div:
        return is(1, 1) ? op.args[0] : kNone;
      case Opcode::and_:
        // Of predicates 1 is all bits.
        if (is(0, op.type.is(Scalar::pred) ? 1 : wrapped(op.type.scalar, ~0ull))) return op.args[1];
        return is(1, op.type.is(Scalar::pred) ? 1 : wrapped(op.type.scalar, ~0ull)) ? op.args[0]
                                                                                    : kNone;
      case Opcode::select:
        if (op.args[1] == op.args[2] || is(0, 1)) return op.args[1];
        return is(0, 0) ? op.args[2] : kNone;
      default:
        return kNone;
    }
  }
  /// The bits of a result that is known.
  std::optional<std::int64_t> folded(const Op& op) const {
    const bool makes_integer = op.type.kind == Type::Kind::scalar &&
                               (is_integer(op.type.scalar) || op.type.is(Scalar::pred));
    if (!makes_integer || op.args.empty() || op.args.size() > 2) return std::nullopt;
    const auto x = known(op, 0);
    if (!x) return std::nullopt;
    const auto done = [&](std::uint64_t bits) {
      return std::optional(wrapped(op.type.scalar, bits));
    };
    const auto a = static_cast<std::uint64_t>(*x);
    switch (op.code) {
      case Opcode::neg:
        return done(-a);
      case Opcode::not_:
        return done(~a);
      case Opcode::cast:
        return done(a);
      default:
        break;
    }
    if (op.args.size() != 2) return std::nullopt;
    const auto y = known(op, 1);
    if (!y) return std::nullopt;
    const auto b = static_cast<std::uint64_t>(*y);
    const Scalar type = arg(op, 0).type.scalar;
    const bool sign = is_signed(type);
    const std::uint64_t width = 8u * static_cast<std::uint64_t>(size_bytes(type));
    // -2^63 / -1 has no result in C++.
    const bool divides = b != 0 && !(sign && *y == -1);
    const bool below = sign ? *x < *y : a < b;
    switch (op.code) {
      case Opcode::add:
        return done(a + b);
      case Opcode::sub:
        return done(a - b);
      case Opcode::mul:
        return done(a * b);
      case Opcode::div:
        if (!divides) return std::nullopt;
        return done(sign ? static_cast<std::uint64_t>(*x / *y) : a / b);
      case Opcode::rem:
        if (!divides) return std::nullopt;
        return done(sign ? static_cast<std::uint64_t>(*x % *y) : a % b);
      case Opcode::min:
        return done(below ? a : b);
      case Opcode::max:
        return done(below ? b : a);
      case Opcode::and_:
        return done(a & b);
      case Opcode::or_:
        return done(a | b);
      case Opcode::xor_:
        return done(a ^ b);
      case Opcode::shl:
        return done(static_cast<std::uint32_t>(b) >= width ? 0
                                                           : a << static_cast<std::uint32_t>(b));
      case Opcode::lt:
        return done(below);
      case Opcode::le:
        return done(below || a == b);
      case Opcode::eq:
        return done(a == b);
      case Opcode::ne:
        return done(a != b);
      default:
        return std::nullopt;
    }
  }

  const ir::Kernel& from_;
  ir::Kernel to_;
  std::vector<Id> names_;                            // of each operation of from_: the value in to_
  std::unordered_multimap<std::uint64_t, Id> seen_;  // by hash
  std::vector<std::unordered_multimap<std::uint64_t, Id>::iterator> scope_;
};

}  // namespace

ir::Kernel simplify(const ir::Kernel& kernel) { return Simplifier(kernel).run(); }

}  // namespace lapidary::passes
