#include "numeric/numeric.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "support/result.h"

namespace lapidary {

std::string_view name(DType type) {
  switch (type) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::e4m3:
      return "e4m3";
    case DType::e5m2:
      return "e5m2";
  }
  return "?";
}

std::optional<DType> dtype_from_name(std::string_view name_of_type) {
  for (const DType type : kDTypes) {
    if (name(type) == name_of_type) return type;
  }
  return std::nullopt;
}

}  // namespace lapidary

namespace lapidary::numeric {
namespace {

/// How a type lays out sign, exponent and mantissa. Without the sign, codes are ordered as their
/// magnitudes are, so adding one to a code is the step to the next value.
struct Format {
  int mantissa_bits, bias, sign_bit;
  std::uint32_t max_finite;  ///< code of the largest finite value
  std::uint32_t overflow;    ///< code of infinity; e4m3 has none and takes its NaN
  std::uint32_t nan;         ///< a quiet NaN
};

constexpr Format kF32{23, 127, 31, 0x7f7fffff, 0x7f800000, 0x7fc00000};
constexpr Format kBf16{7, 127, 15, 0x7f7f, 0x7f80, 0x7fc0};
constexpr Format kF16{10, 15, 15, 0x7bff, 0x7c00, 0x7e00};
constexpr Format kE4m3{3, 7, 7, 0x7e, 0x7f, 0x7f};
constexpr Format kE5m2{2, 15, 7, 0x7b, 0x7c, 0x7e};

constexpr const Format& format(DType type) {
  switch (type) {
    case DType::f32:
      return kF32;
    case DType::bf16:
      return kBf16;
    case DType::f16:
      return kF16;
    case DType::e4m3:
      return kE4m3;
    case DType::e5m2:
      return kE5m2;
  }
  return kF32;
}

constexpr std::uint32_t kF32Abs = 0x7fffffff, kF32Inf = 0x7f800000;

// The two conversions below have no branches, so that the loops of `widen` and `narrow` vectorise.

/// a > b for numbers below 2^31, where the vector units have the signed comparison alone.
[[gnu::always_inline]] inline bool above(std::uint32_t a, std::uint32_t b) {
  return std::int32_t(a) > std::int32_t(b);
}

/// condition ? yes : no, by masks: GCC 12 makes a branch of a `?:` around floating-point
/// arithmetic, which may trap.
[[gnu::always_inline]] inline std::uint32_t pick(bool condition, std::uint32_t yes,
                                                 std::uint32_t no) {
  const std::uint32_t mask = 0u - std::uint32_t(condition);
  return (yes & mask) | (no & ~mask);
}

/// f16, e4m3 and e5m2 to f32: the exponent is rebased as an integer; a subnormal code is counted in
/// units of the smallest subnormal by putting it below the mantissa of a power of two and taking
/// that away again.
template <const Format& F>
[[gnu::always_inline]] inline float widen_bits(std::uint32_t code) {
  constexpr int kShift = 23 - F.mantissa_bits;
  constexpr std::uint32_t kAbs = (1u << F.sign_bit) - 1;
  constexpr std::uint32_t kRebase = std::uint32_t(127 - F.bias) << 23;
  const std::uint32_t sign = (code >> F.sign_bit & 1) << 31;
  const std::uint32_t magnitude = (code & kAbs) << kShift;
  const std::uint32_t normal = magnitude + kRebase;
  constexpr std::uint32_t kMagic = std::uint32_t(127 - F.bias + 1)
                                   << 23;  // 2^(1-bias), the smallest normal
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(
      std::bit_cast<float>(magnitude + kMagic) - std::bit_cast<float>(kMagic));
  std::uint32_t bits = pick(above(1u << 23, magnitude), subnormal, normal);
  // Beyond the largest finite code stand infinity and the NaNs; e4m3's NaN keeps ones in its
  // mantissa.
  const std::uint32_t special = magnitude | kF32Inf;
  bits = pick(above(code & kAbs, F.max_finite), special, bits);
  return std::bit_cast<float>(bits | sign);
}

/// f32 to f16, e4m3 and e5m2, one rounding. Normal results round as integers; for subnormal ones an
/// addition whose unit in the last place is the smallest subnormal does it.
template <const Format& F>
[[gnu::always_inline]] inline std::uint32_t narrow_bits(float x, std::uint32_t overflow) {
  constexpr int kShift = 23 - F.mantissa_bits;
  constexpr std::uint32_t kRebase = std::uint32_t(127 - F.bias) << 23;
  constexpr std::uint32_t kMinNormal = std::uint32_t(127 - F.bias + 1) << 23;
  constexpr std::uint32_t kMagic = std::uint32_t(127 - F.bias + 1 + kShift) << 23;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & kF32Abs;
  const std::uint32_t sign = (bits >> 31) << F.sign_bit;
  const std::uint32_t even = magnitude >> kShift & 1;
  const std::uint32_t normal = (magnitude - kRebase + (1u << (kShift - 1)) - 1 + even) >> kShift;
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(kMagic)) -
      kMagic;
  std::uint32_t code = pick(above(kMinNormal, magnitude), subnormal, normal);
  code = pick(above(code, F.max_finite), overflow, code);
  code = pick(above(magnitude, kF32Inf), F.nan, code);
  return code | sign;
}

[[gnu::always_inline]] inline std::uint32_t narrow_bf16(float x, std::uint32_t overflow) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & kF32Abs;
  std::uint32_t code = (magnitude + 0x7fff + (magnitude >> 16 & 1)) >> 16;
  code = pick(above(code, kBf16.max_finite), overflow, code);
  code = pick(above(magnitude, kF32Inf), magnitude >> 16 | 0x40, code);
  return code | (bits >> 16 & 0x8000);
}

template <class T, class Convert>
[[gnu::always_inline]] inline void each(const void* from, std::int64_t count, float* to,
                                        Convert convert) {
  const T* codes = static_cast<const T*>(from);
  for (std::int64_t i = 0; i < count; ++i) to[i] = convert(codes[i]);
}

template <class T, class Convert>
[[gnu::always_inline]] inline void each(const float* from, std::int64_t count, void* to,
                                        Convert convert) {
  T* codes = static_cast<T*>(to);
  for (std::int64_t i = 0; i < count; ++i) codes[i] = static_cast<T>(convert(from[i]));
}

std::uint32_t overflow_code(DType type, Overflow overflow) {
  return overflow == Overflow::saturate ? format(type).max_finite : format(type).overflow;
}

}  // namespace

Overflow store_overflow(DType type) {
  return size_bytes(type) == 1 ? Overflow::saturate : Overflow::infinity;
}

float to_f32(DType type, std::uint32_t bits) {
  switch (type) {
    case DType::f32:
      return std::bit_cast<float>(bits);
    case DType::bf16:
      return std::bit_cast<float>(bits << 16);
    case DType::f16:
      return widen_bits<kF16>(bits);
    case DType::e4m3:
      return widen_bits<kE4m3>(bits);
    case DType::e5m2:
      return widen_bits<kE5m2>(bits);
  }
  return 0;
}

std::uint32_t from_f32(DType type, float x, Overflow overflow) {
  const std::uint32_t beyond = overflow_code(type, overflow);
  switch (type) {
    case DType::f32: {
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
      return (bits & kF32Abs) == kF32Inf ? (bits & ~kF32Abs) | beyond : bits;
    }
    case DType::bf16:
      return narrow_bf16(x, beyond);
    case DType::f16:
      return narrow_bits<kF16>(x, beyond);
    case DType::e4m3:
      return narrow_bits<kE4m3>(x, beyond);
    case DType::e5m2:
      return narrow_bits<kE5m2>(x, beyond);
  }
  return 0;
}

std::uint32_t from_f64(DType type, double x, Overflow overflow) {
  const Format& f = format(type);
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  const std::uint32_t sign = std::uint32_t(bits >> 63) << f.sign_bit;
  if (std::isnan(x)) return f.nan | sign;
  if (std::isinf(x)) return overflow_code(type, overflow) | sign;

  // |x| = mantissa * 2^(exponent - 52), with the hidden bit in place.
  const int biased = int(bits >> 52 & 0x7ff);
  const std::uint64_t fraction = bits & ((1ull << 52) - 1);
  const std::uint64_t mantissa = biased == 0 ? fraction : fraction | 1ull << 52;
  const int exponent = biased == 0 ? -1022 : biased - 1023;

  // The result counts units of 2^(result_exponent - mantissa_bits); below the smallest normal they
  // stay as small as they get there, which makes the subnormals.
  const int min_exponent = 1 - f.bias;
  const int result_exponent = exponent < min_exponent ? min_exponent : exponent;
  const int shift = result_exponent - exponent + 52 - f.mantissa_bits;
  if (shift > 53) return sign;  // less than half a unit, of the smallest subnormal
  std::uint64_t units = mantissa >> shift;
  const std::uint64_t rest = mantissa & ((1ull << shift) - 1), half = 1ull << (shift - 1);
  if (rest > half || (rest == half && (units & 1) != 0)) ++units;
  // The hidden bit of a normal result, and a carry out of the mantissa, add to the exponent field.
  const std::uint64_t code =
      (std::uint64_t(result_exponent - min_exponent) << f.mantissa_bits) + units;
  return (code > f.max_finite ? overflow_code(type, overflow) : std::uint32_t(code)) | sign;
}

float round_to_tf32(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & kF32Abs) > kF32Inf) return x;
  return std::bit_cast<float>((bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu);
}

float load(DType type, const void* base, std::int64_t i) {
  const char* at = static_cast<const char*>(base) + i * size_bytes(type);
  switch (size_bytes(type)) {
    case 1:
      return to_f32(type, static_cast<std::uint8_t>(*at));
    case 2: {
      std::uint16_t code;
      std::memcpy(&code, at, sizeof code);
      return to_f32(type, code);
    }
    default: {
      float value;
      std::memcpy(&value, at, sizeof value);
      return value;
    }
  }
}

namespace {
void store_bits(DType type, void* base, std::int64_t i, std::uint32_t bits) {
  // The low bytes come first on every machine that we run on (x86-64, AArch64).
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(static_cast<char*>(base) + i * size_bytes(type), &bits,
              std::size_t(size_bytes(type)));
}
}  // namespace

void store(DType type, void* base, std::int64_t i, float x) {
  store_bits(type, base, i, from_f32(type, x, store_overflow(type)));
}

void store_f64(DType type, void* base, std::int64_t i, double x) {
  store_bits(type, base, i, from_f64(type, x, store_overflow(type)));
}

namespace {

// The loops stand once and are compiled twice, for any x86-64 and for AVX2: no flag of ours decides
// what a user's machine has. They must be inlined for that.

[[gnu::always_inline]] inline void widen_row(DType type, const void* from, std::int64_t count,
                                             float* to) {
  using u8 = std::uint8_t;
  using u16 = std::uint16_t;
  switch (type) {
    case DType::f32:
      if (count > 0) std::memcpy(to, from, std::size_t(count) * 4);
      return;
    case DType::bf16:
      return each<u16>(from, count, to,
                       [](u16 c) { return std::bit_cast<float>(std::uint32_t(c) << 16); });
    case DType::f16:
      return each<u16>(from, count, to, [](u16 c) { return widen_bits<kF16>(c); });
    case DType::e4m3:
      return each<u8>(from, count, to, [](u8 c) { return widen_bits<kE4m3>(c); });
    case DType::e5m2:
      return each<u8>(from, count, to, [](u8 c) { return widen_bits<kE5m2>(c); });
  }
}

[[gnu::always_inline]] inline void narrow_row(DType type, const float* from, std::int64_t count,
                                              void* to) {
  using u8 = std::uint8_t;
  using u16 = std::uint16_t;
  switch (type) {
    case DType::f32:
      if (count > 0) std::memcpy(to, from, std::size_t(count) * 4);
      return;
    case DType::bf16:
      return each<u16>(from, count, to, [](float x) { return narrow_bf16(x, kBf16.overflow); });
    case DType::f16:
      return each<u16>(from, count, to,
                       [](float x) { return narrow_bits<kF16>(x, kF16.overflow); });
    case DType::e4m3:
      return each<u8>(from, count, to,
                      [](float x) { return narrow_bits<kE4m3>(x, kE4m3.max_finite); });
    case DType::e5m2:
      return each<u8>(from, count, to,
                      [](float x) { return narrow_bits<kE5m2>(x, kE5m2.max_finite); });
  }
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] void widen_avx2(DType type, const void* from, std::int64_t count,
                                        float* to) {
  widen_row(type, from, count, to);
}
[[gnu::target("avx2")]] void narrow_avx2(DType type, const float* from, std::int64_t count,
                                         void* to) {
  narrow_row(type, from, count, to);
}
bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}
#endif

}  // namespace

void widen(DType type, const void* from, std::int64_t count, float* to) {
#if defined(__x86_64__)
  if (has_avx2()) return widen_avx2(type, from, count, to);
#endif
  detail::widen_anywhere(type, from, count, to);
}

void narrow(DType type, const float* from, std::int64_t count, void* to) {
#if defined(__x86_64__)
  if (has_avx2()) return narrow_avx2(type, from, count, to);
#endif
  detail::narrow_anywhere(type, from, count, to);
}

void detail::widen_anywhere(DType type, const void* from, std::int64_t count, float* to) {
  widen_row(type, from, count, to);
}
void detail::narrow_anywhere(DType type, const float* from, std::int64_t count, void* to) {
  narrow_row(type, from, count, to);
}

double max_finite(DType type) { return to_f32(type, format(type).max_finite); }

double min_normal(DType type) { return std::ldexp(1.0, 1 - format(type).bias); }

double min_subnormal(DType type) {
  return std::ldexp(1.0, 1 - format(type).bias - format(type).mantissa_bits);
}

double unit_roundoff(DType type) { return std::ldexp(1.0, -format(type).mantissa_bits - 1); }

std::int64_t max_exact_integer(DType type) { return std::int64_t(2) << format(type).mantissa_bits; }

namespace {
std::uint32_t magnitude_code(DType type, std::uint32_t bits) {
  return bits & ((1u << format(type).sign_bit) - 1);
}
}  // namespace

bool is_nan(DType type, std::uint32_t bits) {
  const Format& f = format(type);
  const std::uint32_t code = magnitude_code(type, bits);
  return code > f.max_finite && (f.overflow == f.nan || code != f.overflow);
}

bool is_inf(DType type, std::uint32_t bits) {
  const Format& f = format(type);
  return f.overflow != f.nan && magnitude_code(type, bits) == f.overflow;
}

std::uint32_t nan_pattern(DType type) {
  // Negative, with a payload that neither conversions nor the default NaNs of x86, Arm or NVIDIA
  // have.
  switch (type) {
    case DType::f32:
      return 0xffedbeef;
    case DType::bf16:
      return 0xffed;
    case DType::f16:
      return 0xfeed;
    case DType::e4m3:
      return 0xff;
    case DType::e5m2:
      return 0xfd;
  }
  return 0;
}

}  // namespace lapidary::numeric
