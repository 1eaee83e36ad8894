#include "arch/mma_layouts.h"

#include "support/result.h"

namespace lapidary::arch {
namespace {

// In a warp, thread = 4 * group + lane: lane < 4 walks along k (of C: n), group < 8 along rows (of
// B: columns n). A thread's 32-bit register holds 32 / bits neighbours along k; further registers
// are 8 rows below (A and C), then half of k further on.

/// Elements of k in a register, and lanes * these: the half of k that is filled before registers go
/// on to the other half.
struct Packing {
  int packed, half;
};
Packing packing(int bits) { return {32 / bits, 4 * 32 / bits}; }

/// A (thread, value) layout from the values' modes; extents of 1 are left out.
Layout thread_value(const IntTuple& threads, const IntTuple& thread_strides,
                    std::initializer_list<std::pair<int, int>> values) {
  std::vector<std::int64_t> extents, strides;
  for (const auto& [extent, stride] : values) {
    if (extent == 1) continue;
    extents.push_back(extent);
    strides.push_back(stride);
  }
  const bool one = extents.size() < 2;
  const IntTuple shape = !one ? IntTuple::tuple(extents) : extents.empty() ? 1 : extents[0];
  const IntTuple stride = !one ? IntTuple::tuple(strides) : strides.empty() ? 0 : strides[0];
  const auto made = make_layout(IntTuple{threads, shape}, IntTuple{thread_strides, stride});
  LAPIDARY_CHECK(made);
  return *made;
}

MmaAtom sync_atom(int k, int bits, std::string_view types) {
  const auto [packed, half] = packing(bits);
  return {
      .instruction = "mma.sync",
      .m = 16,
      .n = 8,
      .k = k,
      .bits = bits,
      .types = types,
      .a = thread_value({4, 8}, {16 * packed, 1}, {{packed, 16}, {2, 8}, {k / half, 16 * half}}),
      .b = thread_value({4, 8}, {8 * packed, 1}, {{packed, 8}, {k / half, 8 * half}}),
      .c = thread_value({4, 8}, {32, 1}, {{2, 16}, {2, 8}})};
}

}  // namespace

std::span<const MmaAtom> mma_sync_atoms() {
  static const MmaAtom atoms[] = {
      sync_atom(16, 16, "f16, bf16 (sm_80)"),
      sync_atom(8, 16, "f16, bf16 (sm_80)"),
      sync_atom(8, 32, "tf32 (sm_80)"),
      sync_atom(4, 32, "tf32 (sm_80)"),
      sync_atom(32, 8, "s8, u8 (sm_80), e4m3, e5m2 (sm_89)"),
  };
  return atoms;
}

Result<MmaAtom> mma_sync_atom(int m, int n, int k, int bits) {
  std::string known;
  for (const MmaAtom& atom : mma_sync_atoms()) {
    if (atom.m == m && atom.n == n && atom.k == k && (bits == 0 || atom.bits == bits)) return atom;
    known += fmt::format("{}m{}n{}k{} ({} bits)", known.empty() ? "" : ", ", atom.m, atom.n, atom.k,
                         atom.bits);
  }
  return fail(ErrorCode::invalid_argument, "layout: no mma.sync is m{}n{}k{}{}; there are {}", m, n,
              k, bits == 0 ? "" : fmt::format(" of {} bits", bits), known);
}

Result<MmaAtom> wgmma_atom(int n, int bits) {
  if (n < 8 || n > 256 || n % 8 != 0) {
    return fail(ErrorCode::invalid_argument,
                "layout: no wgmma has n = {}; it is a multiple of 8 from 8 to 256", n);
  }
  if (bits != 8 && bits != 16 && bits != 32) {
    return fail(ErrorCode::invalid_argument,
                "layout: no wgmma has elements of {} bits; 8, 16 or 32 (tf32)", bits);
  }
  // Four warps, 16 rows each.
  const auto [packed, half] = packing(bits);
  const int k = 256 / bits;
  return MmaAtom{.instruction = "wgmma",
                 .m = 64,
                 .n = n,
                 .k = k,
                 .bits = bits,
                 .types = bits == 8    ? "e4m3, e5m2, s8, u8 (sm_90a)"
                          : bits == 16 ? "f16, bf16 (sm_90a)"
                                       : "tf32 (sm_90a)",
                 .a = thread_value({4, 8, 4}, {64 * packed, 1, 16},
                                   {{packed, 64}, {2, 8}, {k / half, 64 * half}}),
                 .b = {},
                 .c = thread_value({4, 8, 4}, {128, 1, 16}, {{2, 64}, {2, 8}, {n / 8, 512}})};
}

Result<Layout> smem_atom(SmemSwizzle swizzle, int bits, bool k_major) {
  if (bits != 4 && bits != 8 && bits != 16 && bits != 32 && bits != 64) {
    return fail(ErrorCode::invalid_argument,
                "layout: no atom of shared memory has elements of {} bits; 4, 8, 16, 32 or 64",
                bits);
  }
  // A row is 16 bytes times 2^span; the chunk's number is XORed with the row's, span bits of it.
  const int span = static_cast<int>(swizzle);
  constexpr int kChunkBits = 128, kRows = 8;
  const int row = (kChunkBits << span) / bits;
  int base = 0;  // log2 of a chunk's elements
  while ((1 << base) * bits < kChunkBits) ++base;
  LAPIDARY_TRY(const Layout plain,
               k_major ? make_layout({kRows, row}, {row, 1}) : make_layout({row, kRows}, {1, row}));
  return make_composed_layout({span, base, 3}, 0, plain);
}

}  // namespace lapidary::arch
