// A sum over all elements: a loop over the grid, a tree over the lanes of a warp, one atomic for
// each warp.
//
// `k.var` is a variable: what a `Value` never is. A shuffle exchanges values within a warp without
// memory, and every lane must take part: it stands outside of any branch. Integers, so that the
// order of the atomics cannot be seen in the result.
#include "kernels.h"

namespace lapidary::examples {

Result<Kernel> reduction() {
  constexpr int kThreads = 256;
  KernelBuilder k({.name = "reduction", .threads = kThreads});
  Value n = k.param("n", Scalar::s32);
  Array x = k.array_param("x", Scalar::s32);      // (n)
  Array sum = k.array_param("sum", Scalar::s32);  // (1), 0 at first

  Var mine = k.var(Scalar::s32, 0);
  Value first = k.block() * kThreads + k.thread();
  k.for_range(first, n, k.grid() * kThreads, [&](Value i) { mine += x[i]; });

  for (int distance = 16; distance > 0; distance /= 2) mine += shuffle_xor(mine, distance);
  k.if_(k.lane() == 0, [&] { sum[0].atomic_add(mine); });
  return k.finish();
}

}  // namespace lapidary::examples
