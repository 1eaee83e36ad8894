#include <algorithm>

#include "ir/kernel.h"
#include "ir/signature.h"
#include "support/result.h"

namespace lapidary::ir {
namespace {

std::string who(const Op& op) { return std::string(info(op.code).name); }

template <class... Args>
Error broken(const Op& op, fmt::format_string<Args...> text, Args&&... args) {
  return Error{ErrorCode::invalid_argument,
               who(op) + ": " + fmt::format(text, std::forward<Args>(args)...)};
}

/// The operands of one operation against its signature: letters and named operands get their types.
class Match {
 public:
  Match(const Kernel& kernel, const Op& op) : k_(kernel), op_(op), s_(signature(op.code)) {}

  Result<Type> result() {
    const std::size_t count = op_.args.size();
    if (count < s_.operands.size() || (count > s_.operands.size() && !s_.variadic))
      return broken(op_, "expected {} operands, got {}", s_.operands.size(), count);
    for (std::size_t i = 0; i < s_.operands.size(); ++i)
      LAPIDARY_TRY_STATUS(operand(s_.operands[i], k_.op(op_.args[i]).type));
    for (std::size_t i = s_.operands.size(); i < count; ++i) {
      const Type type = k_.op(op_.args[i]).type;
      if (type.kind != Type::Kind::scalar)
        return broken(op_, "expected scalars, got {} as operand {}", text(type), i + 1);
    }
    if (op_.attributes.size() != s_.attributes.size())
      return broken(op_, "expected {} attributes, got {}", s_.attributes.size(),
                    op_.attributes.size());
    if (op_.regions.size() != s_.regions.size())
      return broken(op_, "expected {} regions, got {}", s_.regions.size(), op_.regions.size());
    if (!s_.result) return Type{};
    return typed(*s_.result);
  }

 private:
  Status operand(const Slot& slot, const Type& got) {
    named_.push_back({slot.name, got});
    const auto wrong = [&](const std::string& expected) {
      return broken(op_, "expected {}: {}, got {}", slot.name, expected, text(got));
    };
    switch (slot.kind) {
      case Slot::Kind::scalar:
        if (!got.is(slot.scalar)) return wrong(std::string(lapidary::name(slot.scalar)));
        return {};
      case Slot::Kind::pointer:
        if (got.kind != Type::Kind::pointer) return wrong("a pointer");
        return {};
      case Slot::Kind::tile:
        if (got.kind != Type::Kind::tile) return wrong("a tile");
        return {};
      case Slot::Kind::same_as:
        if (const Type other = of(slot.of); got != other)
          return wrong(fmt::format("{} as {} is", text(other), slot.of));
        return {};
      case Slot::Kind::element_of:
        if (const Type holder = of(slot.of); !got.is(holder.scalar))
          return wrong(
              fmt::format("{}, the element type of {}", lapidary::name(holder.scalar), slot.of));
        return {};
      case Slot::Kind::letter:
        break;
    }
    const Type* const bound = letter(slot.letter);
    if (bound != nullptr) {
      if (got != *bound)
        return wrong(fmt::format("{} as {} is", text(*bound), holder(slot.letter)));
      return {};
    }
    if (got.kind != Type::Kind::scalar || !contains(slot.limit, got.scalar)) {
      return wrong(slot.limit == Class::any ? "a scalar"
                                            : fmt::format("one of {}", list(slot.limit)));
    }
    if (slot.letter != 0) letters_.push_back({slot.letter, slot.name, got});
    return {};
  }

  Result<Type> typed(const Slot& slot) {
    switch (slot.kind) {
      case Slot::Kind::scalar:
        return Type::of(slot.scalar);
      case Slot::Kind::same_as:
        return of(slot.of);
      case Slot::Kind::element_of:
        return Type::of(of(slot.of).scalar);
      case Slot::Kind::pointer:
      case Slot::Kind::tile:
        return op_.type;
      case Slot::Kind::letter:
        break;
    }
    if (const Type* const bound = letter(slot.letter); bound != nullptr) return *bound;
    if (slot.letter != 0 &&
        (op_.type.kind != Type::Kind::scalar || !contains(slot.limit, op_.type.scalar)))
      return broken(op_, "expected a result of {}, got {}", list(slot.limit), text(op_.type));
    return op_.type;
  }

  Type of(std::string_view operand) const {
    for (const auto& [name, type] : named_) {
      if (name == operand) return type;
    }
    return {};
  }
  const Type* letter(char which) const {
    for (const auto& bound : letters_) {
      if (bound.letter == which) return &bound.type;
    }
    return nullptr;
  }
  std::string_view holder(char which) const {
    for (const auto& bound : letters_) {
      if (bound.letter == which) return bound.holder;
    }
    return "";
  }
  static std::string list(Class limit) {
    std::string all;
    for (const Scalar type : kScalars) {
      if (contains(limit, type))
        all += (all.empty() ? "" : " ") + std::string(lapidary::name(type));
    }
    return all;
  }

  struct Bound {
    char letter;
    std::string_view holder;
    Type type;
  };
  const Kernel& k_;
  const Op& op_;
  const Signature& s_;
  std::vector<std::pair<std::string_view, Type>> named_;
  std::vector<Bound> letters_;
};

/// What a signature cannot say.
Status own_rule(const Kernel& k, const Op& op) {
  const auto type_of = [&](std::size_t arg) { return k.op(op.args[arg]).type; };
  const auto attribute = [&](std::size_t i) { return op.attributes[i]; };
  switch (op.code) {
    case Opcode::constant:
      if (op.type.kind != Type::Kind::scalar)
        return broken(op, "expected a scalar, got {}", text(op.type));
      if (op.type.is(Scalar::pred) && (attribute(0) < 0 || attribute(0) > 1))
        return broken(op, "expected 0 or 1 as pred, got {}", attribute(0));
      if (const int size = 8 * size_bytes(op.type.scalar);
          size > 0 && size < 64 &&
          (attribute(0) < -(std::int64_t{1} << (size - 1)) || attribute(0) >= std::int64_t{1}
                                                                                  << size))
        return broken(op, "expected {} bits as of {}, got {}", size, text(op.type), attribute(0));
      return {};
    case Opcode::param: {
      if (attribute(0) < 0 || attribute(0) >= std::ssize(k.params)) {
        return broken(op, "expected an index below {}, the kernel's parameters, got {}",
                      k.params.size(), attribute(0));
      }
      const Type declared = k.params[static_cast<std::size_t>(attribute(0))].type;
      if (op.type != declared)
        return broken(op, "expected {} as declared, got {}", text(declared), text(op.type));
      return {};
    }
    case Opcode::special:
      if (attribute(0) < 0 || attribute(0) > static_cast<std::int64_t>(Special::grid_z))
        return broken(op, "expected a place of a thread, 0 to 8, got {}", attribute(0));
      return {};
    case Opcode::shared: {
      if (attribute(0) < 0 || attribute(0) >= std::ssize(k.shared)) {
        return broken(op, "expected an index below {}, the kernel's shared arrays, got {}",
                      k.shared.size(), attribute(0));
      }
      const Type declared =
          Type::pointer(k.shared[static_cast<std::size_t>(attribute(0))].element, Space::shared);
      if (op.type != declared)
        return broken(op, "expected {}, got {}", text(declared), text(op.type));
      return {};
    }
    case Opcode::cast:
      if (type_of(0) == op.type)
        return broken(op, "expected another type than {}, which x has", text(op.type));
      if ((size_bytes(op.type.scalar) == 2 && !type_of(0).is(Scalar::f32)) ||
          (size_bytes(type_of(0).scalar) == 2 && !op.type.is(Scalar::f32))) {
        return broken(op, "expected f32 on the other side of {}, got {}",
                      text(size_bytes(op.type.scalar) == 2 ? op.type : type_of(0)),
                      text(size_bytes(op.type.scalar) == 2 ? type_of(0) : op.type));
      }
      return {};
    case Opcode::min:
    case Opcode::max:
      if (type_of(0).is(Scalar::f64))
        return broken(op, "expected one of s32 u32 s64 u64 f32, got f64");
      return {};
    case Opcode::bitcast:
      if (size_bytes(type_of(0).scalar) != size_bytes(op.type.scalar)) {
        return broken(op, "expected a type of {} bytes as {} has, got {}",
                      size_bytes(type_of(0).scalar), text(type_of(0)), text(op.type));
      }
      return {};
    case Opcode::load_tile:
    case Opcode::store_tile: {
      const Type p = type_of(0), tile = type_of(1);
      if (p.scalar != tile.scalar)
        return broken(op, "expected t: a tile of {} as p points to, got {}", name(p.scalar),
                      text(tile));
      if (attribute(0) < 0 || attribute(1) < 1 || attribute(1) > tile.count ||
          attribute(0) > tile.count - attribute(1)) {
        return broken(op, "expected elements within the tile's {}, got {} from {}", tile.count,
                      attribute(1), attribute(0));
      }
      const std::int64_t bytes = attribute(1) * size_bytes(tile.scalar);
      if (bytes != 4 && bytes != 8 && bytes != 16)
        return broken(op, "expected 4, 8 or 16 bytes in one access, got {}", bytes);
      if (size_bytes(tile.scalar) == 2 && attribute(0) % 2 != 0)
        return broken(op, "expected an even first element of {}, got {}", name(tile.scalar),
                      attribute(0));
      return {};
    }
    case Opcode::tile:
      if (op.type.kind != Type::Kind::tile || op.type.count != attribute(0))
        return broken(op, "expected a tile of {} elements, got {}", attribute(0), text(op.type));
      if (op.type.scalar == Scalar::pred)
        return broken(op, "expected elements with bits, got pred");
      if (attribute(0) < 1 || attribute(0) > 256)
        return broken(op, "expected 1 to 256 elements, got {}", attribute(0));
      return {};
    case Opcode::get:
    case Opcode::set:
      if (attribute(0) < 0 || attribute(0) >= type_of(0).count) {
        return broken(op, "expected an index below {}, the tile's elements, got {}",
                      type_of(0).count, attribute(0));
      }
      return {};
    case Opcode::atomic_add: {
      const Scalar type = type_of(1).scalar;
      if (!is_number(type) || type == Scalar::s64)
        return broken(op, "expected value: one of s32 u32 u64 f32 f64, got {}", name(type));
      return {};
    }
    case Opcode::atomic_max:
      if (!is_integer(type_of(1).scalar))
        return broken(op, "expected value: one of s32 u32 s64 u64, got {}",
                      name(type_of(1).scalar));
      return {};
    case Opcode::barrier:
      if (attribute(0) < 0 || attribute(0) > 15)
        return broken(op, "expected a barrier from 0 to 15, got {}", attribute(0));
      if (attribute(1) < 32 || attribute(1) % 32 != 0 || attribute(1) > k.threads) {
        return broken(op, "expected a multiple of 32 up to {}, the block's threads, got {}",
                      k.threads, attribute(1));
      }
      return {};
    case Opcode::for_: {
      const Op& step = k.op(op.args[2]);
      if (step.code != Opcode::constant || step.attributes.empty()) return {};
      const std::int64_t bits = step.attributes[0];
      if (const std::int64_t value = step.type.is(Scalar::s32)   ? static_cast<std::int32_t>(bits)
                                     : step.type.is(Scalar::u32) ? static_cast<std::uint32_t>(bits)
                                     : step.type.is(Scalar::u64) && bits != 0 ? 1
                                                                              : bits;
          value <= 0)
        return broken(op, "expected a step above 0, got {}", value);
      return {};
    }
    case Opcode::shuffle_xor:
      if (attribute(0) < 0 || attribute(0) > 31)
        return broken(op, "expected a mask from 0 to 31, got {}", attribute(0));
      return {};
    case Opcode::copy_async:
      if (type_of(0).space != Space::shared || type_of(1).space != Space::global ||
          type_of(0).scalar != type_of(1).scalar) {
        return broken(op, "expected to: shared and from: global memory of one type, got {} and {}",
                      text(type_of(0)), text(type_of(1)));
      }
      if (attribute(0) != 4 && attribute(0) != 8 && attribute(0) != 16)
        return broken(op, "expected 4, 8 or 16 bytes, got {}", attribute(0));
      return {};
    case Opcode::wait_copies:
      if (attribute(0) < 0 || attribute(0) > 7)
        return broken(op, "expected 0 to 7 groups left, got {}", attribute(0));
      return {};
    case Opcode::load_matrix: {
      const Type p = type_of(0), tile = type_of(1);
      if (p.space != Space::shared || size_bytes(p.scalar) != 2 || tile.scalar != p.scalar) {
        return broken(op, "expected shared memory and a tile of f16 or bf16, got {} and {}",
                      text(p), text(tile));
      }
      if (attribute(1) != 1 && attribute(1) != 2 && attribute(1) != 4)
        return broken(op, "expected 1, 2 or 4 matrices, got {}", attribute(1));
      if (attribute(0) < 0 || attribute(0) % 2 != 0 ||
          attribute(0) > tile.count - 2 * attribute(1)) {
        return broken(op, "expected an even first of {} elements within the tile's {}, got {}",
                      2 * attribute(1), tile.count, attribute(0));
      }
      return {};
    }
    case Opcode::mma: {
      const Type d = type_of(0), a = type_of(1), b = type_of(2);
      const bool halves = size_bytes(a.scalar) == 2;
      if (d.scalar != Scalar::f32 || a.scalar != b.scalar || !(halves || a.scalar == Scalar::f32)) {
        return broken(op, "expected d of f32, a and b both of f16, bf16 or f32, got {}, {} and {}",
                      text(d), text(a), text(b));
      }
      const std::int64_t counts[] = {4, halves ? 8 : 4, halves ? 4 : 2};
      for (std::size_t i = 0; i < 3; ++i) {
        if (attribute(i) < 0 || (i > 0 && halves && attribute(i) % 2 != 0) ||
            attribute(i) > type_of(i).count - counts[i]) {
          return broken(op, "expected {} elements within {}'s {}{}, got them from {}", counts[i],
                        signature(op.code).operands[i].name, type_of(i).count,
                        i > 0 && halves ? ", an even first" : "", attribute(i));
        }
      }
      return {};
    }
    case Opcode::check:
    case Opcode::print:
      for (std::size_t i = 0; op.code == Opcode::print && i < op.args.size(); ++i) {
        if (size_bytes(type_of(i).scalar) == 2)
          return broken(op, "expected a cast to f32, got {} as operand {}", text(type_of(i)),
                        i + 1);
      }
      if (attribute(0) < 0 || attribute(0) >= std::ssize(k.strings))
        return broken(op, "expected an index below {}, the kernel's messages, got {}",
                      k.strings.size(), attribute(0));
      return {};
    default:
      return {};
  }
}

/// Walks the kernel in the order in which it runs: a value must be there before it is used.
class Verifier {
 public:
  explicit Verifier(const Kernel& kernel)
      : k_(kernel), state_(kernel.ops.size(), kUnseen), entered_(kernel.regions.size(), false) {}

  std::vector<Violation> run() {
    if (!is_name(k_.name)) {
      report(0, fmt::format("kernel: expected a name of letters, digits and _ that begins with a "
                            "letter, got '{}'",
                            k_.name));
    }
    // The one function that PTX calls, and its one constant with a name.
    if (k_.name == "vprintf" || k_.name == "WARP_SZ")
      report(0, fmt::format("kernel: expected a name that is not PTX's own, got '{}'", k_.name));
    if (k_.threads < 32 || k_.threads > 1024 || k_.threads % 32 != 0)
      report(0, fmt::format("kernel: expected a multiple of 32 threads up to 1024, got {}",
                            k_.threads));
    for (const Param& param : k_.params) parameter(param);
    for (const SharedArray& array : k_.shared) shared(array);
    // sm_80's 163 KB, sm_89's 99 and sm_90's 227 (CUDA C++ Programming Guide, compute
    // capabilities).
    const std::int64_t most = k_.arch == Arch::sm_89 ? 99 : k_.arch == Arch::sm_80 ? 163 : 227;
    if (k_.shared_bytes() > most << 10) {
      report(0, fmt::format("kernel: expected at most {} bytes of shared memory on {}, got {}",
                            most << 10, name(k_.arch), k_.shared_bytes()));
    }
    if (k_.regions.empty()) {
      report(0, "kernel: expected a body, got no region");
    } else {
      region(0, nullptr);
    }
    return std::move(found_);
  }

 private:
  static constexpr std::uint8_t kUnseen = 0, kVisible = 1, kGone = 2;

  /// What every printer takes for a name.
  static bool is_name(std::string_view name) {
    const auto letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
    const auto more = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
    };
    return !name.empty() && letter(name[0]) && std::ranges::all_of(name, more);
  }
  void parameter(const Param& param) {
    if (!is_name(param.name)) {
      report(0, fmt::format("kernel: expected a parameter's name of letters, digits and _ that "
                            "begins with a letter, got '{}'",
                            param.name));
    }
    const Type& type = param.type;
    const bool fits = type.kind == Type::Kind::pointer
                          ? type.space == Space::global && type.scalar != Scalar::pred
                          : type.kind == Type::Kind::scalar && is_number(type.scalar);
    if (!fits) {
      report(0, fmt::format("kernel: expected parameter {} to be an integer, f32, f64 or a global "
                            "array of elements with bits, got {}",
                            param.name, text(type)));
    }
  }
  void shared(const SharedArray& array) {
    if (array.count < 1 || array.count > std::int64_t{1} << 20 || array.element == Scalar::pred) {
      report(0, fmt::format("kernel: expected shared {} to have 1 to 2^20 elements with bits, got "
                            "{} x {}",
                            array.name, array.count, name(array.element)));
    }
    if (array.offset_bytes < 0 || array.offset_bytes % 16 != 0) {
      report(0, fmt::format("kernel: expected shared {} at a multiple of 16 bytes, got {}",
                            array.name, array.offset_bytes));
    }
  }

  void region(std::uint32_t index, const Op* owner) {
    const std::uint32_t location = owner == nullptr ? 0 : owner->location;
    if (index >= k_.regions.size()) {
      report(location, fmt::format("{}: expected a region below {}, got {}", who(*owner),
                                   k_.regions.size(), index));
      return;
    }
    if (entered_[index]) {
      report(location,
             fmt::format("{}: region {} is run by another operation", who(*owner), index));
      return;
    }
    entered_[index] = true;
    const std::vector<Id>& ops = k_.regions[index].ops;
    if (owner != nullptr && owner->code == Opcode::for_) loop(ops, *owner);
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (ops[i] >= k_.ops.size()) {
        report(location, fmt::format("region {}: expected operations below {}, got {}", index,
                                     k_.ops.size(), ops[i]));
        continue;
      }
      const Op& op = k_.op(ops[i]);
      if (op.code == Opcode::turn && (i > 0 || owner == nullptr || owner->code != Opcode::for_))
        report(op.location, "turn: expected as the first operation of a loop's body");
      one(ops[i], op);
    }
    for (const Id id : ops) {
      if (id < k_.ops.size()) state_[id] = kGone;
    }
  }
  void loop(const std::vector<Id>& body, const Op& owner) {
    if (body.empty() || body.front() >= k_.ops.size() || k_.op(body.front()).code != Opcode::turn) {
      report(owner.location, "for: expected turn first in its body");
    } else if (!owner.args.empty() && owner.args[0] < k_.ops.size() &&
               k_.op(body.front()).type != k_.op(owner.args[0]).type) {
      report(owner.location, "for: expected turn to have the type of first");
    }
  }
  void one(Id id, const Op& op) {
    if (op.location >= k_.locations.size() && !k_.locations.empty()) {
      report(0, fmt::format("%{}: expected a location below {}, got {}", id, k_.locations.size(),
                            op.location));
    }
    if (state_[id] != kUnseen) {
      report(op.location, fmt::format("%{}: expected once, got again", id));
      return;
    }
    if (there(op)) {
      if (const Result<Type> type = result_type(k_, op); !type) {
        report(op.location, type.error().message);
      } else if (*type != op.type) {
        report(op.location, fmt::format("{}: expected a result of {}, got {}", info(op.code).name,
                                        text(*type), text(op.type)));
      }
    }
    for (const std::uint32_t inner : op.regions) region(inner, &op);
    state_[id] = kVisible;
  }
  /// Whether all operands of an operation are.
  bool there(const Op& op) {
    for (const Id arg : op.args) {
      if (arg < k_.ops.size() && state_[arg] == kVisible) continue;
      report(op.location,
             fmt::format("{}: %{} is not there yet, or no longer: it was made in another block",
                         info(op.code).name, arg));
      return false;
    }
    return true;
  }
  void report(std::uint32_t location, std::string message) {
    found_.push_back({location, std::move(message)});
  }

  const Kernel& k_;
  std::vector<std::uint8_t> state_;
  std::vector<bool> entered_;
  std::vector<Violation> found_;
};

}  // namespace

Result<Type> result_type(const Kernel& kernel, const Op& op) {
  LAPIDARY_TRY(const Type type, Match(kernel, op).result());
  LAPIDARY_TRY_STATUS(own_rule(kernel, op));
  return type;
}

std::vector<Violation> verify(const Kernel& kernel) { return Verifier(kernel).run(); }

}  // namespace lapidary::ir
