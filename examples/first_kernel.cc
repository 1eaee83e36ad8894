// The kernel of docs/dsl.md: built, simulated, printed. Needs no GPU.
#include <lapidary/dsl.h>
#include <lapidary/simulate.h>

#include <cstdio>
#include <vector>

using namespace lapidary;

/// y[i] = factor * x[i] for i below n.
Result<Kernel> scale() {
  KernelBuilder k({.name = "scale", .threads = 128});
  Value n = k.param("n", Scalar::s32);
  Value factor = k.param("factor", Scalar::f32);
  Array x = k.array_param("x", Scalar::f32);  // (n)
  Array y = k.array_param("y", Scalar::f32);  // (n)

  Value i = k.block() * 128 + k.thread();
  k.if_(i < n, [&] { y[i] = x[i] * factor; });
  return k.finish();
}

int main() {
  const Result<Kernel> kernel = scale();
  if (!kernel) {
    std::fprintf(stderr, "%s\n", kernel.error().message.c_str());
    return 1;
  }
  const int n = 1000;
  std::vector<float> x(n), y(n);
  for (int i = 0; i < n; ++i) x[static_cast<std::size_t>(i)] = static_cast<float>(i);

  const auto report =
      simulate(*kernel, {.grid = {(n + 127) / 128, 1, 1}}, {n, 3.0f, in(x), out(y)});
  if (!report) {
    std::fprintf(stderr, "%s\n", report.error().message.c_str());
    return 1;
  }
  for (const Finding& f : report->findings)
    std::printf("%s: %s\n", f.where.c_str(), f.message.c_str());
  std::printf("y[999] = %g after %lld steps\n", y[999], static_cast<long long>(report->steps));
  return report->findings.empty() && y[999] == 2997 ? 0 : 1;
}
