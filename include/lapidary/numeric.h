#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lapidary {

/// Storage types of matrix elements. Enumerators are spelled as in problem keys.
enum class DType : std::uint8_t { f32, bf16, f16, e4m3, e5m2 };

inline constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f16, DType::e4m3, DType::e5m2};

/// "bf16".
std::string_view name(DType type);
/// The type of that name; empty when there is none.
std::optional<DType> dtype_from_name(std::string_view name);

/// Bytes of one element: 4, 2 or 1.
constexpr int size_bytes(DType type) {
  return type == DType::f32 ? 4 : (type == DType::bf16 || type == DType::f16) ? 2 : 1;
}

}  // namespace lapidary
