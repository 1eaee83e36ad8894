// B = A^T of bf16 through shared memory, so that both the reads and the writes of global memory are
// of whole rows.
//
// A block moves one 32 x 32 tile: a warp a row in, a warp a row of B out. In shared memory a column
// of a plain tile, (32,32):(32,1), lies in one bank, and 32 lanes would wait for each other. The
// layout below xors the column with the row: `lapidary layout 'S<5,0,5> o 0 o (32,32):(32,1)'`
// shows that a column then meets every bank once. That costs a shift, a mask and an xor, and the
// code does not mention it.
#include <lapidary/tensor.h>

#include "kernels.h"

namespace lapidary::examples {

Result<Kernel> transpose() {
  constexpr int kTile = 32, kWarps = 8;
  KernelBuilder k({.name = "transpose", .threads = 32 * kWarps});
  Value rows = k.param("rows", Scalar::s32);
  Value cols = k.param("cols", Scalar::s32);
  Array a = k.array_param("a", Scalar::bf16);  // (rows, cols), row-major
  Array b = k.array_param("b", Scalar::bf16);  // (cols, rows), row-major
  // An element in a 32-bit word: banks are words.
  Tensor tile(k.shared("tile", Scalar::f32, kTile * kTile), "S<5,0,5> o 0 o (32,32):(32,1)");
  // Sizes may pass 2^31 elements.
  const auto row_major = [](Value row, Value col, Value pitch) {
    return cast(row, Scalar::s64) * cast(pitch, Scalar::s64) + cast(col, Scalar::s64);
  };

  Value lane = k.lane(), warp = k.warp();
  Value row0 = k.block(1) * kTile, col0 = k.block(0) * kTile;
  for (int step = 0; step < kTile / kWarps; ++step) {
    Value r = warp + step * kWarps, row = row0 + r, col = col0 + lane;
    k.if_(row < rows && col < cols,
          [&] { tile(r, lane) = cast(a[row_major(row, col, cols)], Scalar::f32); });
  }
  k.barrier();
  for (int step = 0; step < kTile / kWarps; ++step) {
    Value c = warp + step * kWarps, row = row0 + lane, col = col0 + c;
    k.if_(row < rows && col < cols,
          [&] { b[row_major(col, row, rows)] = cast(tile(lane, c), Scalar::bf16); });
  }
  return k.finish();
}

}  // namespace lapidary::examples
