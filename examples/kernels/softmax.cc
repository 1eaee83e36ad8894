// y = softmax of each row of x, f32: one warp a row, the row read three times (from the second time
// on out of a cache).
//
// The largest element is taken off before the exponential, so that nothing overflows. exp(t) is
// exp2(t * log2 e): the hardware has the power of two. The error is bounded by those of the
// exponentials and of the sum.
#include <cmath>

#include "kernels.h"

namespace lapidary::examples {
namespace {

/// What `combine` makes of all lanes' values; every lane gets it.
template <class F>
void over_the_warp(Var& value, F combine) {
  for (int distance = 16; distance > 0; distance /= 2)
    value = combine(value, shuffle_xor(value, distance));
}

}  // namespace

Result<Kernel> softmax() {
  constexpr int kWarps = 4;
  constexpr double kLog2E = 1.4426950408889634;
  KernelBuilder k({.name = "softmax", .threads = 32 * kWarps});
  Value rows = k.param("rows", Scalar::s32);
  Value cols = k.param("cols", Scalar::s32);
  Array x = k.array_param("x", Scalar::f32);  // (rows, cols), row-major
  Array y = k.array_param("y", Scalar::f32);  // (rows, cols)

  // A warp whose row is not there repeats the last one and writes nothing: all lanes of a warp
  // agree, so that the shuffles see whole warps.
  Value row = k.block() * kWarps + k.warp();
  Value base = cast(min(row, rows - 1), Scalar::s64) * cast(cols, Scalar::s64);
  Array in = x.at(base), out = y.at(base);
  const auto for_columns = [&](const std::function<void(Value)>& body) {
    k.for_range(k.lane(), cols, 32, body);
  };

  Var most = k.var(Scalar::f32, -INFINITY);
  for_columns([&](Value i) { most = max(most, in[i]); });
  over_the_warp(most, [](Value p, Value q) { return max(p, q); });

  Var sum = k.var(Scalar::f32, 0.0);
  for_columns([&](Value i) { sum += exp2((in[i] - most) * kLog2E); });
  over_the_warp(sum, [](Value p, Value q) { return p + q; });

  k.if_(row < rows,
        [&] { for_columns([&](Value i) { out[i] = exp2((in[i] - most) * kLog2E) / sum; }); });
  return k.finish();
}

}  // namespace lapidary::examples
