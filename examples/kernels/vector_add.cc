// The smallest kernel that is worth its launch: four elements a thread, in accesses of 16 bytes,
// and a tail.
//
// A kernel is built by calls on a KernelBuilder. Parameters come first, in the order of a launch's
// arguments. Values are those of one thread; `k.thread()` and `k.block()` tell threads apart. The
// C++ `for` below unrolls: it runs while the kernel is built, and adds four additions to it.
// `k.if_` is a branch on the device.
#include "kernels.h"

namespace lapidary::examples {

Result<Kernel> vector_add() {
  constexpr int kEach = 4;  // 16 bytes of f32: the widest access there is
  KernelBuilder k({.name = "vector_add", .threads = 256});
  Value n = k.param("n", Scalar::s32);
  Array x = k.array_param("x", Scalar::f32);  // (n), 16-byte aligned, as y and z
  Array y = k.array_param("y", Scalar::f32);  // (n)
  Array z = k.array_param("z", Scalar::f32);  // (n)

  Value first = (k.block() * 256 + k.thread()) * kEach;
  k.if_(
      first + kEach <= n,
      [&] {
        Tile a = k.tile(Scalar::f32, kEach), b = k.tile(Scalar::f32, kEach);
        a.load(x.at(first));
        b.load(y.at(first));
        for (int i = 0; i < kEach; ++i) a[i] = a[i] + b[i];
        a.store(z.at(first));
      },
      [&] {  // the last few elements, one by one
        k.for_range(first, n, 1, [&](Value i) { z[i] = x[i] + y[i]; });
      });
  return k.finish();
}

}  // namespace lapidary::examples
