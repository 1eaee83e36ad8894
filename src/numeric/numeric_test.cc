#include "numeric/numeric.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "support/random.h"

namespace lapidary::numeric {
namespace {

constexpr DType kNarrow[] = {DType::bf16, DType::f16, DType::e4m3, DType::e5m2};

/// The published description of each type, apart from the code under test.
struct Spec {
  int exponent_bits, mantissa_bits;
  bool has_infinity;  // else only the code of all ones is special
};
Spec spec(DType type) {
  switch (type) {
    case DType::f32:
      return {8, 23, true};
    case DType::bf16:
      return {8, 7, true};
    case DType::f16:
      return {5, 10, true};
    case DType::e4m3:
      return {4, 3, false};
    case DType::e5m2:
      return {5, 2, true};
  }
  return {};
}

std::uint32_t codes(DType type) { return 1u << (8 * size_bytes(type)); }
std::uint32_t sign_of(DType type) { return codes(type) / 2; }

/// The value by the definition: (-1)^s * 2^(e - bias) * 1.f, subnormals 2^(1 - bias) * 0.f.
double value(DType type, std::uint32_t bits) {
  const Spec s = spec(type);
  const int bias = (1 << (s.exponent_bits - 1)) - 1;
  const std::uint32_t mantissa = bits & ((1u << s.mantissa_bits) - 1);
  const std::uint32_t exponent = bits >> s.mantissa_bits & ((1u << s.exponent_bits) - 1);
  const bool all_ones = exponent + 1 == 1u << s.exponent_bits;
  const double sign = (bits >> (s.mantissa_bits + s.exponent_bits) & 1) != 0 ? -1 : 1;
  if (all_ones && s.has_infinity) return mantissa == 0 ? sign * HUGE_VAL : std::nan("");
  if (all_ones && mantissa + 1 == 1u << s.mantissa_bits) return std::nan("");
  const double fraction = std::ldexp(double(mantissa), -s.mantissa_bits);
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias);
  return sign * std::ldexp(1 + fraction, int(exponent) - bias);
}

/// The magnitudes of all finite values, in order: entry i is the value of code i.
std::vector<double> magnitudes(DType type) {
  std::vector<double> all;
  for (std::uint32_t code = 0; code < sign_of(type) && std::isfinite(value(type, code)); ++code) {
    all.push_back(value(type, code));
  }
  return all;
}

/// Rounding by search among all values: the nearest, the even code of two equally near ones. Beyond
/// the largest finite value the code after it stands for the next value that the mantissa would
/// have.
std::uint32_t rounded_by_search(DType type, const std::vector<double>& all, double x,
                                Overflow overflow) {
  const std::uint32_t sign = std::signbit(x) ? sign_of(type) : 0;
  const double size = std::fabs(x);
  const auto last = std::uint32_t(all.size()) - 1;
  const std::uint32_t beyond = overflow == Overflow::saturate ? last : last + 1;
  if (size > all.back()) {
    const double next = all.back() + (all.back() - all[last - 1]);
    const long double middle = (static_cast<long double>(all.back()) + next) / 2;
    const bool up = size > middle || (size == middle && last % 2 == 1);
    return sign | (up ? beyond : last);
  }
  const auto above = std::uint32_t(std::lower_bound(all.begin(), all.end(), size) - all.begin());
  if (all[above] == size) return sign | above;
  const long double middle =
      (static_cast<long double>(all[above]) + all[above - 1]) / 2;  // exact: 64 bits suffice
  const bool up = size > middle || (size == middle && above % 2 == 0);
  return sign | (up ? above : above - 1);
}

TEST(Numeric, NamesReadBack) {
  for (const DType type : kDTypes) EXPECT_EQ(dtype_from_name(name(type)), type);
  EXPECT_EQ(dtype_from_name("f64"), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
}

TEST(Numeric, EveryCodeHasItsValueAndComesBack) {
  for (const DType type : kNarrow) {
    for (std::uint32_t bits = 0; bits < codes(type); ++bits) {
      const double want = value(type, bits);
      const float got = to_f32(type, bits);
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(got)) << name(type) << " " << bits;
        EXPECT_TRUE(is_nan(type, bits)) << name(type) << " " << bits;
        for (const Overflow overflow : {Overflow::infinity, Overflow::saturate}) {
          EXPECT_TRUE(is_nan(type, from_f32(type, got, overflow))) << name(type) << " " << bits;
          EXPECT_TRUE(is_nan(type, from_f64(type, got, overflow))) << name(type) << " " << bits;
        }
        continue;
      }
      EXPECT_FALSE(is_nan(type, bits)) << name(type) << " " << bits;
      EXPECT_EQ(is_inf(type, bits), std::isinf(want)) << name(type) << " " << bits;
      // Bits, not values: 0 and -0 are equal.
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(float(want)))
          << name(type) << " " << bits;
      ASSERT_EQ(from_f32(type, got, Overflow::infinity), bits) << name(type);
      ASSERT_EQ(from_f64(type, want, Overflow::infinity), bits) << name(type);
    }
  }
}

TEST(Numeric, MiddlesGoToTheEvenCode) {
  for (const DType type : kNarrow) {
    const std::vector<double> all = magnitudes(type);
    for (std::uint32_t code = 0; code + 1 < all.size(); ++code) {
      const double middle = (all[code] + all[code + 1]) / 2;
      const std::uint32_t even = code % 2 == 0 ? code : code + 1;
      for (const std::uint32_t sign : {0u, sign_of(type)}) {
        const double s = sign == 0 ? 1 : -1;
        ASSERT_EQ(from_f64(type, s * middle, Overflow::infinity), even | sign)
            << name(type) << " " << code;
        ASSERT_EQ(from_f64(type, s * std::nextafter(middle, 0), Overflow::infinity), code | sign)
            << name(type) << " " << code;
        ASSERT_EQ(from_f64(type, s * std::nextafter(middle, HUGE_VAL), Overflow::infinity),
                  (code + 1) | sign)
            << name(type) << " " << code;
        const auto f = static_cast<float>(s * middle);
        ASSERT_EQ(double(f), s * middle) << "the middle is an f32";
        ASSERT_EQ(from_f32(type, f, Overflow::infinity), even | sign) << name(type) << " " << code;
        ASSERT_EQ(from_f32(type, std::nextafterf(f, 0), Overflow::infinity), code | sign)
            << name(type) << " " << code;
        ASSERT_EQ(from_f32(type, std::nextafterf(f, float(s * HUGE_VAL)), Overflow::infinity),
                  (code + 1) | sign)
            << name(type) << " " << code;
      }
    }
  }
}

/// f64 values of every size around the range of a type, among them many next to middles.
double sample(DType type, std::uint64_t seed, std::uint64_t i) {
  const Spec s = spec(type);
  const int bias = (1 << (s.exponent_bits - 1)) - 1;
  const std::uint64_t bits = mix(seed, i);
  const int span = 2 * bias + s.mantissa_bits + 8;
  const int exponent = int(bits % std::uint64_t(span)) - bias - s.mantissa_bits - 4;
  std::uint64_t fraction = bits >> 12;
  if (i % 2 == 0)
    fraction &= ~((1ull << (50 - s.mantissa_bits)) - 1);  // few bits below the mantissa: ties
  const double x = std::ldexp(1 + std::ldexp(double(fraction), -52), exponent);
  return (bits >> 11 & 1) != 0 ? -x : x;
}

TEST(Numeric, FromF64AgreesWithASearchAmongAllValues) {
  for (const DType type : kNarrow) {
    const std::vector<double> all = magnitudes(type);
    for (std::uint64_t i = 0; i < 100000; ++i) {
      const double x = sample(type, 11, i);
      for (const Overflow overflow : {Overflow::infinity, Overflow::saturate}) {
        const std::uint32_t want = rounded_by_search(type, all, x, overflow);
        ASSERT_EQ(from_f64(type, x, overflow), want) << name(type) << " of " << std::hexfloat << x;
        const auto f = static_cast<float>(x);
        ASSERT_EQ(from_f32(type, f, overflow), rounded_by_search(type, all, f, overflow))
            << name(type) << " of " << std::hexfloat << f;
      }
    }
  }
}

TEST(Numeric, FromF64ToF32IsTheMachines) {
  for (std::uint64_t i = 0; i < 1000000; ++i) {
    const double x = sample(DType::f32, 12, i);
    ASSERT_EQ(from_f64(DType::f32, x, Overflow::infinity),
              std::bit_cast<std::uint32_t>(static_cast<float>(x)))
        << std::hexfloat << x;
  }
}

TEST(Numeric, RoundsOnceFromF64) {
  // 1 + 2^-8 + 2^-40 lies above bf16's middle 1 + 2^-8; through f32 the last bit would be lost and
  // the tie go down.
  const double x = 1 + 0x1p-8 + 0x1p-40;
  EXPECT_EQ(from_f64(DType::bf16, x, Overflow::infinity), 0x3f81u);
  EXPECT_EQ(from_f32(DType::bf16, static_cast<float>(x), Overflow::infinity), 0x3f80u);
}

TEST(Numeric, ThePaths) {
  // Every path from f32 gives the same bits: scalar, by f64, in rows.
  for (const DType type : kDTypes) {
    std::vector<float> values;
    for (std::uint64_t i = 0; i < 200000; ++i) {
      values.push_back(i % 4 == 0 ? std::bit_cast<float>(std::uint32_t(mix(5, i)))
                                  : float(sample(type, 6, i)));
    }
    for (const float x :
         {0.0f, -0.0f, HUGE_VALF, -HUGE_VALF, std::numeric_limits<float>::quiet_NaN(), -1.0f,
          std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min(),
          std::numeric_limits<float>::signaling_NaN(), 448.0f, 464.0f, 465.0f, 65504.0f, 65519.0f,
          65520.0f}) {
      values.push_back(x);
    }
    const Overflow overflow = store_overflow(type);
    std::vector<std::byte> row(values.size() * 4 + 1, std::byte(0xa5)),
        one(values.size() * 4 + 1, std::byte(0xa5));
    narrow(type, values.data(), std::int64_t(values.size()), row.data());
    for (std::size_t i = 0; i < values.size(); ++i)
      store(type, one.data(), std::int64_t(i), values[i]);
    ASSERT_EQ(row, one) << name(type) << ": also what lies behind the row";
    std::fill(row.begin(), row.end(), std::byte(0xa5));
    detail::narrow_anywhere(type, values.data(), std::int64_t(values.size()), row.data());
    ASSERT_EQ(row, one) << name(type) << ": the loops for any machine";
    std::vector<float> wide(values.size());
    widen(type, row.data(), std::int64_t(values.size()), wide.data());
    std::vector<float> anywhere(values.size());
    detail::widen_anywhere(type, row.data(), std::int64_t(values.size()), anywhere.data());
    ASSERT_EQ(std::memcmp(wide.data(), anywhere.data(), wide.size() * sizeof(float)), 0)
        << name(type);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float loaded = load(type, row.data(), std::int64_t(i));
      ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(loaded))
          << name(type);
      const std::uint32_t by_f64 = from_f64(type, values[i], overflow);
      if (std::isnan(values[i])) {
        ASSERT_TRUE(std::isnan(loaded) && is_nan(type, by_f64)) << name(type);
      } else {
        ASSERT_EQ(from_f32(type, values[i], overflow), by_f64)
            << name(type) << " of " << std::hexfloat << values[i];
        ASSERT_EQ(std::bit_cast<std::uint32_t>(loaded),
                  std::bit_cast<std::uint32_t>(to_f32(type, by_f64)));
      }
      std::byte cell[4] = {};
      store_f64(type, cell, 0, values[i]);
      if (!std::isnan(values[i])) {
        ASSERT_EQ(load(type, cell, 0), loaded) << name(type);
      }
    }
  }
}

TEST(Numeric, ShortAndUnalignedRows) {
  for (const DType type : kDTypes) {
    const int size = size_bytes(type);
    std::vector<std::byte> bytes(64 * 4 + 3);
    for (std::int64_t count = 0; count < 40; ++count) {
      for (std::size_t shift = 0; shift < 3; ++shift) {
        const std::size_t start = shift * std::size_t(size);
        for (std::size_t i = 0; i < bytes.size(); ++i)
          bytes[i] = std::byte(mix(3, i) & 0x3f);  // finite in all types
        std::vector<float> wide(std::size_t(count) + 1, 7.0f);
        widen(type, bytes.data() + start, count, wide.data());
        EXPECT_EQ(wide.back(), 7.0f);
        std::vector<std::byte> back = bytes;
        std::fill(back.begin() + std::ptrdiff_t(start),
                  back.begin() + std::ptrdiff_t(start + std::size_t(count * size)), std::byte(0));
        narrow(type, wide.data(), count, back.data() + start);
        EXPECT_EQ(back, bytes) << name(type) << " count " << count;
      }
    }
  }
}

TEST(Numeric, Overflow) {
  const double inf = HUGE_VAL;
  struct Case {
    DType type;
    double x;
    std::uint32_t infinity, saturate;
  };
  const Case cases[] = {
      {DType::f16, 65519.999, 0x7bff, 0x7bff},
      {DType::f16, 65520, 0x7c00, 0x7bff},
      {DType::f16, -inf, 0xfc00, 0xfbff},
      {DType::bf16, 3.4e38, 0x7f80, 0x7f7f},
      {DType::bf16, inf, 0x7f80, 0x7f7f},
      {DType::e4m3, 464, 0x7e, 0x7e},
      {DType::e4m3, 464.001, 0x7f, 0x7e},
      {DType::e4m3, -1e300, 0xff, 0xfe},
      {DType::e4m3, inf, 0x7f, 0x7e},
      {DType::e5m2, 61439, 0x7b, 0x7b},
      {DType::e5m2, 61440, 0x7c, 0x7b},
      {DType::e5m2, -inf, 0xfc, 0xfb},
      {DType::f32, 3.4028236e38, 0x7f800000, 0x7f7fffff},
      {DType::f32, -inf, 0xff800000, 0xff7fffff},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(from_f64(c.type, c.x, Overflow::infinity), c.infinity)
        << name(c.type) << " of " << c.x;
    EXPECT_EQ(from_f64(c.type, c.x, Overflow::saturate), c.saturate)
        << name(c.type) << " of " << c.x;
  }
  EXPECT_EQ(from_f32(DType::f32, -HUGE_VALF, Overflow::saturate), 0xff7fffffu);
  EXPECT_EQ(store_overflow(DType::bf16), Overflow::infinity);
  EXPECT_EQ(store_overflow(DType::e5m2), Overflow::saturate);
}

TEST(Numeric, Subnormals) {
  EXPECT_EQ(to_f32(DType::f16, 1), 0x1p-24f);
  EXPECT_EQ(to_f32(DType::e4m3, 1), 0x1p-9f);
  EXPECT_EQ(to_f32(DType::e5m2, 1), 0x1p-16f);
  EXPECT_EQ(to_f32(DType::bf16, 1), 0x1p-133f);
  for (const DType type : kDTypes) {
    const double least = min_subnormal(type);
    EXPECT_EQ(from_f64(type, least, Overflow::infinity), 1u) << name(type);
    EXPECT_EQ(from_f64(type, least / 2, Overflow::infinity), 0u)
        << name(type) << ": a tie goes to zero";
    EXPECT_EQ(from_f64(type, -least / 2, Overflow::infinity),
              type == DType::f32 ? 0x80000000u : sign_of(type));
    EXPECT_EQ(from_f64(type, std::nextafter(least / 2, 1.0), Overflow::infinity), 1u) << name(type);
    EXPECT_EQ(from_f64(type, 5e-324, Overflow::infinity), 0u);
  }
}

TEST(Numeric, Ranges) {
  EXPECT_EQ(max_finite(DType::f32), double(std::numeric_limits<float>::max()));
  EXPECT_EQ(max_finite(DType::f16), 65504);
  EXPECT_EQ(max_finite(DType::e4m3), 448);
  EXPECT_EQ(max_finite(DType::e5m2), 57344);
  EXPECT_EQ(max_finite(DType::bf16), 0x1.fep127);
  EXPECT_EQ(min_normal(DType::e4m3), 0x1p-6);
  EXPECT_EQ(min_normal(DType::f32), double(std::numeric_limits<float>::min()));
  EXPECT_EQ(unit_roundoff(DType::bf16), 0x1p-8);
  EXPECT_EQ(unit_roundoff(DType::f16), 0x1p-11);
  EXPECT_EQ(unit_roundoff(DType::f32), 0x1p-24);
  const std::int64_t exact[] = {1 << 24, 256, 2048, 16, 8};
  for (std::size_t i = 0; i < std::size(exact); ++i) {
    const DType type = kDTypes[i];
    EXPECT_EQ(max_exact_integer(type), exact[i]) << name(type);
    for (std::int64_t x = std::max<std::int64_t>(0, exact[i] - 300); x <= exact[i]; ++x) {
      EXPECT_EQ(to_f32(type, from_f64(type, double(x), Overflow::infinity)), float(x))
          << name(type);
    }
    const double next = double(exact[i] + 1);
    EXPECT_NE(to_f32(type, from_f64(type, next, Overflow::infinity)), next)
        << name(type) << ": the bound is tight";
  }
}

TEST(Numeric, NanPatternIsANanOfItsOwn) {
  for (const DType type : kDTypes) {
    const std::uint32_t pattern = nan_pattern(type);
    EXPECT_TRUE(is_nan(type, pattern)) << name(type);
    EXPECT_FALSE(is_inf(type, pattern)) << name(type);
    EXPECT_NE(from_f64(type, std::nan(""), Overflow::infinity), pattern) << name(type);
    EXPECT_NE(from_f64(type, -std::nan(""), Overflow::infinity), pattern == 0xff ? 0 : pattern)
        << name(type);
  }
  EXPECT_TRUE(is_nan(DType::e4m3, 0x7f) && !is_inf(DType::e4m3, 0x7f));
  EXPECT_FALSE(is_nan(DType::f32, 0x7f800000));
}

TEST(Numeric, ANanOfLowBitsAloneStaysNan) {
  for (const DType type : kDTypes) {
    for (const std::uint32_t bits : {0x7f800001u, 0xff800001u, 0x7f801000u, 0x7fffffffu}) {
      const auto nan = std::bit_cast<float>(bits);
      std::uint32_t code = 0;
      narrow(type, &nan, 1, &code);
      EXPECT_TRUE(is_nan(type, code)) << name(type) << " " << bits;
      EXPECT_TRUE(is_nan(type, from_f32(type, nan, Overflow::saturate)))
          << name(type) << " " << bits;
      EXPECT_EQ(std::signbit(to_f32(type, code)), std::signbit(nan)) << name(type) << " " << bits;
    }
  }
}

TEST(Numeric, Tf32) {
  EXPECT_EQ(round_to_tf32(1 + 0x1p-11f), 1);                       // tie to even
  EXPECT_EQ(round_to_tf32(1 + 0x1p-10f + 0x1p-11f), 1 + 0x1p-9f);  // tie to even, upwards
  EXPECT_EQ(round_to_tf32(1 + 0x1p-11f + 0x1p-23f), 1 + 0x1p-10f);
  EXPECT_EQ(round_to_tf32(-0.0f), 0);
  EXPECT_TRUE(std::signbit(round_to_tf32(-0.0f)));
  EXPECT_EQ(round_to_tf32(std::numeric_limits<float>::max()), HUGE_VALF);
  EXPECT_EQ(round_to_tf32(-HUGE_VALF), -HUGE_VALF);
  EXPECT_TRUE(std::isnan(round_to_tf32(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(round_to_tf32(std::bit_cast<float>(0x7fffffffu))))
      << "a payload of ones does not carry over";
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const float x = std::bit_cast<float>(std::uint32_t(mix(9, i)));
    if (!std::isfinite(x)) continue;
    // Independent: count units of the last kept place in f64, whose own rounding is to nearest
    // even.
    int exponent = 0;
    std::frexp(x, &exponent);
    const double unit = std::ldexp(1.0, std::max(exponent - 11, -136));
    EXPECT_EQ(round_to_tf32(x), float(std::nearbyint(double(x) / unit) * unit))
        << std::hexfloat << x;
  }
}

// All of f32 by both ways; 2^32 values take minutes.
TEST(SlowNumeric, EveryF32Narrows) {
  for (const DType type : kNarrow) {
    for (std::uint64_t bits = 0; bits < 1ull << 32; bits += 7) {
      const float x = std::bit_cast<float>(std::uint32_t(bits));
      const std::uint32_t code = from_f32(type, x, Overflow::infinity);
      if (std::isnan(x)) {
        ASSERT_TRUE(is_nan(type, code));
      } else {
        ASSERT_EQ(code, from_f64(type, x, Overflow::infinity))
            << name(type) << " of " << std::hexfloat << x;
      }
    }
  }
}

}  // namespace
}  // namespace lapidary::numeric
