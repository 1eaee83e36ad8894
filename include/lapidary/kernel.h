#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lapidary/result.h"

// A kernel as a value: what `KernelBuilder::finish` (dsl.h) gives, and what the simulator, the PTX
// printer and a device take.
namespace lapidary {

namespace ir {
struct Kernel;
}

/// Types of values in a kernel. Integers carry their sign, as in PTX. f16 and bf16 are for memory
/// and tiles: arithmetic is done after `cast` to f32.
enum class Scalar : std::uint8_t { pred, s32, u32, s64, u64, f16, bf16, f32, f64 };

inline constexpr Scalar kScalars[] = {Scalar::pred, Scalar::s32, Scalar::u32,
                                      Scalar::s64,  Scalar::u64, Scalar::f16,
                                      Scalar::bf16, Scalar::f32, Scalar::f64};

/// "s32".
std::string_view name(Scalar type);

/// Bytes of one in memory; a predicate has none there: 0.
constexpr int size_bytes(Scalar type) {
  switch (type) {
    case Scalar::pred:
      return 0;
    case Scalar::f16:
    case Scalar::bf16:
      return 2;
    case Scalar::s64:
    case Scalar::u64:
    case Scalar::f64:
      return 8;
    default:
      return 4;
  }
}
constexpr bool is_integer(Scalar type) { return type >= Scalar::s32 && type <= Scalar::u64; }
constexpr bool is_signed(Scalar type) { return type == Scalar::s32 || type == Scalar::s64; }
/// What arithmetic takes: everything but predicates and the 16-bit floats.
constexpr bool is_number(Scalar type) {
  return is_integer(type) || type == Scalar::f32 || type == Scalar::f64;
}

/// Kinds of memory. Each has its own pointers: there are no generic ones.
enum class Space : std::uint8_t { global, shared };
std::string_view name(Space space);

/// What a kernel may use; the names are those of PTX targets.
enum class Arch : std::uint8_t { sm_80, sm_89, sm_90a };
std::string_view name(Arch arch);
/// The target for a device of compute capability `sm` (90 for 9.0). Cubins run within their major
/// version alone; empty: none of ours does there.
std::optional<Arch> arch_for(int sm);

/// A finished, verified kernel; cheap to copy, never changed.
class Kernel {
 public:
  explicit Kernel(std::shared_ptr<const ir::Kernel> body) : body_(std::move(body)) {}
  const ir::Kernel& ir() const { return *body_; }
  std::string_view name() const;
  /// The IR as text, an operation a line.
  std::string text() const;

 private:
  std::shared_ptr<const ir::Kernel> body_;
};

}  // namespace lapidary
