#pragma once

#include <cstdint>

// Inner loops that are compiled once per instruction set (isa_kernels.inc). The files that do so
// include this header and nothing else: an inline function of the standard library compiled with
// AVX-512 could be picked by the linker for the whole program.
namespace lapidary::backends {

inline constexpr int kMaxRows = 16;  ///< of A in a micro tile, over all sets

struct IsaKernels {
  int rows, columns;  ///< of a micro tile: A is packed [k][rows], B is packed [k][columns]

  /// c[i][j] (+)= sum_k a[k][i] * b[k][j] for i < tile_rows <= rows and all `columns` j. `add`: to
  /// what c holds.
  void (*micro)(int tile_rows, std::int64_t k, const float* a, const float* b, float* c,
                std::int64_t c_pitch, bool add);

  /// c[i][j] (+)= dot(a row i, b row j) over k contiguous elements, i < m <= 4, j < n <= 4.
  void (*dot)(int m, int n, std::int64_t k, const float* a, std::int64_t a_pitch, const float* b,
              std::int64_t b_pitch, float* c, std::int64_t c_pitch, bool add);

  void (*widen_bf16)(const std::uint16_t* from, std::int64_t count, float* to);

  /// to[k * lanes + lane] = from[lane * pitch + k] for lane < lanes and k < count.
  void (*transpose)(const float* from, std::int64_t pitch, int lanes, std::int64_t count,
                    float* to);
};

extern const IsaKernels kBaseKernels, kAvx2Kernels, kAvx512Kernels;

}  // namespace lapidary::backends
