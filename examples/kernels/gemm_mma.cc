// D = A * B^T in bf16 with the tensor cores of sm_80: what every GEMM is made of.
//
// A block makes a tile of D, walking along k. Pieces of A and B come into shared memory by
// asynchronous copies, a ring of `stages` of them: while the warps multiply one, the next ones are
// on their way. Each warp keeps its part of D in registers, loads fragments of A and B with
// `load_matrix`, and multiplies them with `mma`.
//
// Shared memory is swizzled: `load_matrix` reads eight rows of 16 bytes at a time, which in a plain
// row-major tile would lie in the same banks. `lapidary layout 'S<2,3,3> o 0 o (128,32):(32,1)'
// --svg --banks` shows where they are.
#include <lapidary/tensor.h>

#include "kernels.h"

namespace lapidary::examples {
namespace {

/// 16-byte chunks of 8 elements in a row of tile_k, permuted so that 8 rows meet 8 different ones.
Layout swizzled_rows(int rows, int tile_k) {
  const int bits = tile_k == 64 ? 3 : 2;
  return *make_composed_layout({bits, 3, 3}, 0, *make_layout({rows, tile_k}, {tile_k, 1}));
}

}  // namespace

Result<Kernel> gemm_mma(const GemmMmaConfig& c) {
  const int warps = c.warps_m * c.warps_n, threads = 32 * warps;
  const int warp_m = c.tile_m / c.warps_m, warp_n = c.tile_n / c.warps_n;  // of D, a warp
  const int rows_16 = warp_m / 16, cols_8 = warp_n / 8;                    // in mma's 16 x 8
  KernelBuilder k({.name = "gemm_mma", .threads = threads});
  Value m = k.param("m", Scalar::s32);
  Value n = k.param("n", Scalar::s32);
  Value depth = k.param("k", Scalar::s32);
  Array a = k.array_param("a", Scalar::bf16);  // (m, k), row-major, 16-byte aligned, as the rest
  Array b = k.array_param("b", Scalar::bf16);  // (n, k), row-major
  Array d = k.array_param("d", Scalar::bf16);  // (m, n), row-major

  const Layout layout_a = swizzled_rows(c.tile_m, c.tile_k);  // (tile_m, tile_k)
  const Layout layout_b = swizzled_rows(c.tile_n, c.tile_k);  // (tile_n, tile_k)
  Array ring_a = k.shared("a", Scalar::bf16, layout_a.size() * c.stages);
  Array ring_b = k.shared("b", Scalar::bf16, layout_b.size() * c.stages);

  Value thread = k.thread(), lane = k.lane();
  Value m0 = k.block(0) * c.tile_m, n0 = k.block(1) * c.tile_n;

  // A chunk a thread at a time; rows and k beyond the matrix become zeros.
  const auto copy_tile = [&](Array from, Value row0, Value rows, Value k0, Tensor to,
                             int tile_rows) {
    const int chunks = c.tile_k / 8;
    for (int i = 0; i < tile_rows * chunks / threads; ++i) {
      Value at = thread + i * threads;
      Value row = at / chunks, col = at % chunks * 8;
      Value there =
          cast(row0 + row, Scalar::s64) * cast(depth, Scalar::s64) + cast(k0 + col, Scalar::s64);
      k.copy_async(to.at(row, col), from.at(there), 16, row0 + row < rows && k0 + col < depth);
    }
  };
  const auto stage_of = [&](Value kt) { return kt % c.stages; };
  const auto produce = [&](Value kt) {
    Value stage = stage_of(kt), k0 = kt * c.tile_k;
    copy_tile(a, m0, m, k0, Tensor(ring_a.at(stage * layout_a.size()), layout_a), c.tile_m);
    copy_tile(b, n0, n, k0, Tensor(ring_b.at(stage * layout_b.size()), layout_b), c.tile_n);
    k.commit_copies();
  };

  Tile acc = k.tile(Scalar::f32, rows_16 * cols_8 * 4);  // this warp's part of D
  for (int i = 0; i < acc.count(); ++i) acc[i] = 0;
  Value warp_row = k.warp() / c.warps_n * warp_m, warp_col = k.warp() % c.warps_n * warp_n;

  for (int s = 0; s < c.stages - 1; ++s) produce(k.constant(Scalar::s32, s));
  k.for_range(0, (depth + (c.tile_k - 1)) / c.tile_k, 1, [&](Value kt) {
    k.wait_copies(c.stages - 2);  // this thread's part of tile kt has come
    k.barrier();                  // everybody's has, and all are done with tile kt - 1
    produce(kt + (c.stages - 1));
    Tensor sA(ring_a.at(stage_of(kt) * layout_a.size()), layout_a);  // (tile_m, tile_k)
    Tensor sB(ring_b.at(stage_of(kt) * layout_b.size()), layout_b);  // (tile_n, tile_k)
    for (int kk = 0; kk < c.tile_k; kk += 16) {
      Tile fA = k.tile(Scalar::bf16, rows_16 * 8), fB = k.tile(Scalar::bf16, cols_8 * 4);
      for (int i = 0; i < rows_16; ++i)
        fA.load_matrix(sA.at(warp_row + i * 16 + lane % 16, lane / 16 * 8 + kk), i * 8, 4);
      for (int j = 0; j < cols_8; j += 2)
        fB.load_matrix(sB.at(warp_col + j * 8 + lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8 + kk),
                       j * 4, 4);
      for (int i = 0; i < rows_16; ++i) {
        for (int j = 0; j < cols_8; ++j) k.mma(acc, (i * cols_8 + j) * 4, fA, i * 8, fB, j * 4);
      }
    }
  });

  // Two neighbours of a row are one store.
  for (int i = 0; i < rows_16; ++i) {
    for (int j = 0; j < cols_8; ++j) {
      for (int half = 0; half < 2; ++half) {
        Value row = m0 + warp_row + (i * 16 + half * 8) + lane / 4;
        Value col = n0 + warp_col + j * 8 + lane % 4 * 2;
        const int first = (i * cols_8 + j) * 4 + half * 2;
        Tile pair = k.tile(Scalar::bf16, 2);
        for (int e = 0; e < 2; ++e) pair[e] = cast(acc[first + e], Scalar::bf16);
        k.if_(row < m && col < n, [&] {
          pair.store(d.at(cast(row, Scalar::s64) * cast(n, Scalar::s64) + cast(col, Scalar::s64)));
        });
      }
    }
  }
  return k.finish();
}

}  // namespace lapidary::examples
