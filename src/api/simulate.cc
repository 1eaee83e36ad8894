#include "lapidary/simulate.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "passes/passes.h"
#include "ptx/ptx.h"
#include "sim/sim.h"
#include "support/result.h"

namespace lapidary {

Argument make_array(std::span<std::byte> bytes, int element_bytes, bool floating, bool is_signed,
                    bool reads, bool writes) {
  Argument argument;
  argument.is_array_ = true;
  argument.bytes_ = bytes;
  argument.element_bytes_ = element_bytes;
  argument.floating_ = floating;
  argument.signed_ = is_signed;
  argument.reads_ = reads;
  argument.writes_ = writes;
  return argument;
}

struct SimulateAccess {
  /// What an argument is, in words.
  static std::string kind(const Argument& x) {
    if (!x.is_array_)
      return x.is_integer_ ? fmt::format("the number {}", x.integer_)
                           : fmt::format("the number {}", x.real_);
    return fmt::format("an array of {}-byte {}", x.element_bytes_,
                       x.floating_ ? "floats"
                       : x.signed_ ? "signed integers"
                                   : "unsigned integers");
  }
  /// The bits of a number as a parameter of that type; empty when it does not fit.
  static std::optional<std::uint64_t> number(const Argument& x, Scalar type) {
    if (x.is_array_) return std::nullopt;
    if (type == Scalar::f64) return std::bit_cast<std::uint64_t>(x.real_);
    if (type == Scalar::f32) return std::bit_cast<std::uint32_t>(static_cast<float>(x.real_));
    if (!x.is_integer_) return std::nullopt;
    const std::int64_t value = x.integer_;
    switch (type) {
      case Scalar::s32:
        if (value != static_cast<std::int32_t>(value)) return std::nullopt;
        return static_cast<std::uint32_t>(value);
      case Scalar::u32:
        if (value != static_cast<std::uint32_t>(value)) return std::nullopt;
        return static_cast<std::uint32_t>(value);
      case Scalar::s64:
        return static_cast<std::uint64_t>(value);
      case Scalar::u64:
        if (value < 0) return std::nullopt;
        return static_cast<std::uint64_t>(value);
      default:
        return std::nullopt;
    }
  }
  /// Whether the array's elements may be seen as that type.
  static bool suits(const Argument& x, Scalar type) {
    if (!x.is_array_ || x.element_bytes_ != size_bytes(type)) return false;
    if (size_bytes(type) == 2) return !x.floating_;  // f16 and bf16 by their bits
    if (x.floating_ || !is_integer(type)) return x.floating_ && !is_integer(type);
    return x.signed_ == is_signed(type);
  }

  static Result<SimulateReport> run(const Kernel& kernel, const SimulateOptions& options,
                                    const std::vector<Argument>& arguments) {
    const ir::Kernel& ir = kernel.ir();
    if (arguments.size() != ir.params.size()) {
      return fail(ErrorCode::invalid_argument, "simulate: {}: expected {} arguments, got {}",
                  ir.name, ir.params.size(), arguments.size());
    }
    sim::Memory memory;
    sim::Launch launch{.grid = options.grid, .arguments = {}};
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const auto& [name, type] = ir.params[i];
      const Argument& x = arguments[i];
      if (type.kind == ir::Type::Kind::pointer) {
        if (!suits(x, type.scalar)) {
          return fail(ErrorCode::invalid_argument,
                      "simulate: {}: parameter {}, {}: expected an array of {}, got {}", ir.name, i,
                      name, lapidary::name(type.scalar), kind(x));
        }
        launch.arguments.push_back(x.reads_ ? memory.add(name, x.bytes_)
                                            : memory.add_undefined(name, std::ssize(x.bytes_)));
        continue;
      }
      const auto bits = number(x, type.scalar);
      if (!bits) {
        return fail(ErrorCode::invalid_argument,
                    "simulate: {}: parameter {}, {}: expected a {}, got {}", ir.name, i, name,
                    lapidary::name(type.scalar), kind(x));
      }
      launch.arguments.push_back(*bits);
    }
    LAPIDARY_TRY(sim::Report report,
                 sim::run(ir, launch, memory, {.seed = options.seed, .sms = options.sms}));
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const Argument& x = arguments[i];
      if (!x.writes_ || x.bytes_.empty()) continue;
      std::memcpy(x.bytes_.data(), memory.contents(launch.arguments[i]).data(), x.bytes_.size());
    }
    return report;
  }
};

Result<SimulateReport> simulate(const Kernel& kernel, const SimulateOptions& options,
                                const std::vector<Argument>& arguments) {
  return SimulateAccess::run(kernel, options, arguments);
}

Result<std::string> ptx_text(const Kernel& kernel, Arch target) {
  LAPIDARY_TRY(const ir::Kernel simplified, passes::run(kernel.ir()));
  return ptx::print(simplified, {.target = target});
}

}  // namespace lapidary
