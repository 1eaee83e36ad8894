#pragma once

#include <cstdint>

#include "lapidary/numeric.h"

// Bits, rounding and ranges of the narrow types. Everything rounds to nearest, ties to even, and
// subnormals are kept. Sources: IEEE 754-2019 (f16, f32); "FP8 Formats for Deep Learning"
// (Micikevicius et al., 2022) for e4m3 (no infinity, S.1111.111 is NaN, largest 448) and e5m2
// (IEEE-like, largest 57344).
namespace lapidary::numeric {

/// What a finite value beyond the largest finite one becomes: f16 and bf16 stores give infinity,
/// fp8 stores of ours saturate (contract of epilogue stores).
enum class Overflow { infinity, saturate };

/// The overflow rule of a store to `type` in an epilogue: saturate for e4m3 and e5m2, infinity
/// otherwise.
Overflow store_overflow(DType type);

/// The value of an element's bits (the low size_bytes(type) bytes); exact.
float to_f32(DType type, std::uint32_t bits);

/// Bits of x rounded to `type`. e4m3 has no infinity: with Overflow::infinity an overflow or
/// infinity gives its NaN. With Overflow::saturate infinities, too, become the largest finite
/// value. NaN stays NaN.
std::uint32_t from_f32(DType type, float x, Overflow overflow);

/// The same from float64 with a single rounding (through f32 it would round twice).
std::uint32_t from_f64(DType type, double x, Overflow overflow);

/// x rounded to tf32's 10 explicit mantissa bits (nearest even), as an f32.
float round_to_tf32(float x);

/// Element i of an array of `type`.
float load(DType type, const void* base, std::int64_t i);
/// Stores x, rounded as an epilogue store does.
void store(DType type, void* base, std::int64_t i, float x);
void store_f64(DType type, void* base, std::int64_t i, double x);

/// A row of elements widened to f32, or narrowed from it as an epilogue store does; vectorised. No
/// overlap.
void widen(DType type, const void* from, std::int64_t count, float* to);
void narrow(DType type, const float* from, std::int64_t count, void* to);

namespace detail {
/// What `widen` and `narrow` do on a machine without AVX2; declared for tests.
void widen_anywhere(DType type, const void* from, std::int64_t count, float* to);
void narrow_anywhere(DType type, const float* from, std::int64_t count, void* to);
}  // namespace detail

/// Largest finite value; smallest normal and smallest subnormal value above zero.
double max_finite(DType type);
double min_normal(DType type);
double min_subnormal(DType type);

/// u: half the distance from 1 to the next value, e.g. 2^-8 for bf16, 2^-11 for f16, 2^-24 for f32.
double unit_roundoff(DType type);

/// Every integer of magnitude up to this is exact: 2^24, 256, 2048, 16, 8.
std::int64_t max_exact_integer(DType type);

bool is_nan(DType type, std::uint32_t bits);
bool is_inf(DType type, std::uint32_t bits);

/// A NaN whose bits no arithmetic makes by chance where the type has room; fills D before a run.
std::uint32_t nan_pattern(DType type);

}  // namespace lapidary::numeric
