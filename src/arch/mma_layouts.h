#pragma once

#include <span>
#include <string>
#include <string_view>

#include "lapidary/layout.h"

// Which thread holds which element of an MMA instruction's operands, as layouts (thread, value) ->
// element, and the tiles of shared memory that wgmma reads.
namespace lapidary::arch {

/// One warp-wide (or warpgroup-wide) D = A * B + C on m x n x k. The layouts take a thread and a
/// value, values in the order of its registers (packed ones from the low bits up), and give the
/// element, counted down the columns: m + M * k for A, n + N * k for B, m + M * n for C and D.
struct MmaAtom {
  std::string_view instruction;  ///< "mma.sync" or "wgmma"
  int m, n, k;
  int bits;                ///< of an element of A and B
  std::string_view types;  ///< of A and B, with the first sm_XX that has them
  Layout a, b, c;          ///< wgmma: a from registers, b only in shared memory, where it is 1:0
};

/// The atoms of mma.sync that kernels here use; "PTX ISA 9.0, Matrix Fragments for mma.m16n8kK".
std::span<const MmaAtom> mma_sync_atoms();

/// The atom of this shape and element width, or `invalid_argument` with those there are. `bits` 0:
/// the first of the shape.
Result<MmaAtom> mma_sync_atom(int m, int n, int k, int bits);

/// wgmma.mma_async.m64nNk(256 / bits) with elements of 8, 16 or 32 bits (32: tf32); n is a multiple
/// of 8 up to 256. "PTX ISA 9.0, Register Fragments and Shared Memory Matrix Layouts" of wgmma.
Result<MmaAtom> wgmma_atom(int n, int bits);

/// How the 16-byte chunks of a tile's rows are permuted: rows of 16 (interleaved), 32, 64, 128
/// bytes.
enum class SmemSwizzle { none, b32, b64, b128 };

/// The tile of shared memory that wgmma's and TMA's swizzle modes repeat: 8 rows of that many
/// bytes, as elements of `bits`; K-major (rows along M or N, K contiguous) or its transpose.
///   b128, 16 bits: S<3,3,3> o 0 o (8,64):(64,1); MN-major S<3,3,3> o 0 o (64,8):(1,64).
/// "PTX ISA 9.0, Shared Memory Matrix Layout" of wgmma, "Swizzling Modes" of tensors. Fails for
/// other widths than 4, 8, 16, 32 and 64 bits.
Result<Layout> smem_atom(SmemSwizzle swizzle, int bits, bool k_major = true);

}  // namespace lapidary::arch
