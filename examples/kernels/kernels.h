#pragma once

#include <lapidary/dsl.h>

// The example kernels: each file teaches one thing, in the order of this list.
namespace lapidary::examples {

/// z[i] = x[i] + y[i] for i below n: `n` s32, `x`, `y`, `z` f32. ceil(n / 1024) blocks of 256
/// threads.
Result<Kernel> vector_add();
/// sum[0] += sum of x[i] for i below n: `n` s32, `x`, `sum` s32. Any number of blocks of 256
/// threads.
Result<Kernel> reduction();
/// b[j][i] = a[i][j]: `rows`, `cols` s32, `a` (rows, cols), `b` (cols, rows) bf16. ceil(cols / 32)
/// x ceil(rows / 32) blocks.
Result<Kernel> transpose();
/// y[i][j] = exp(x[i][j]) / sum over j of exp(x[i][j]): `rows`, `cols` s32 above 0, `x`, `y` f32.
/// ceil(rows / 4) blocks.
Result<Kernel> softmax();

/// How `gemm_mma` tiles: a block's tile of D and depth in elements, the ring's stages, the block's
/// warps.
struct GemmMmaConfig {
  int tile_m = 128, tile_n = 128, tile_k = 32;  ///< tile_k 32 or 64
  int stages = 4;
  int warps_m = 2, warps_n = 2;
};
/// d (m, n) = a (m, k) * b (n, k)^T, bf16, f32 accumulation, row-major: `m`, `n`, `k` s32, k a
/// multiple of 8, n even; `a`, `b`, `d`. ceil(m / tile_m) x ceil(n / tile_n) blocks.
Result<Kernel> gemm_mma(const GemmMmaConfig& config = {});

}  // namespace lapidary::examples
