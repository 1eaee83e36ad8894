// One linear layer of a transformer through the library: describe the product, tune it once, run it
// on our own buffers. Run it again and the tune comes from the store.
#include <lapidary/gemm.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace lapidary;

namespace {

int fail(const Error& error) {
  std::fprintf(stderr, "gemm: %s\n", error.message.c_str());
  return 1;
}

}  // namespace

int main() {
  // D (m, n) = gelu(A * B^T + bias): A (m, k) activations, B (n, k) weights that never change.
  auto epilogue = parse_epilogue("d = gelu(acc + bias[n])");
  if (!epilogue) return fail(epilogue.error());
  const GemmProblem problem{.m = 16, .n = 1024, .k = 512, .epilogue = *epilogue, .constant = {"b"}};

  auto session = Session::open({.device = "cpu", .on_warning = [](std::string_view line) {
                                  std::fprintf(stderr, "gemm: %.*s\n",
                                               static_cast<int>(line.size()), line.data());
                                }});
  if (!session) return fail(session.error());

  const auto tuned = session->tune(problem, {.budget_s = 20});
  if (!tuned) return fail(tuned.error());
  auto plan = session->plan(problem);
  if (!plan) return fail(plan.error());
  std::printf("%s\n%s%s\n", summary(plan->problem()).c_str(), text(plan->candidate()).c_str(),
              tuned->from_store ? ", from the store" : ", tuned now");

  // Our buffers, in the order that the plan lists: a, b, bias, d.
  std::vector<std::vector<float>> buffers;
  std::vector<void*> operands;
  for (const OperandSpec& spec : plan->operands()) {
    std::vector<float> data(static_cast<std::size_t>(spec.span_elems()));
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = static_cast<float>((i * 37 + spec.name.size()) % 17) / 16 - 0.5f;
    buffers.push_back(std::move(data));
    operands.push_back(buffers.back().data());
  }
  const auto scratch = [](std::int64_t bytes) {
    return std::aligned_alloc(64, static_cast<std::size_t>((bytes + 64) / 64 * 64));
  };
  const RunArguments run{.operands = operands,
                         .workspace = scratch(plan->workspace_bytes()),
                         .packed = scratch(plan->packed_bytes())};
  if (const Status packed = plan->pack(run); !packed) return fail(packed.error());
  if (const Status ran = plan->run(run); !ran) return fail(ran.error());

  // One element by hand.
  const std::vector<float>&a = buffers[0], &b = buffers[1], &bias = buffers[2], &d = buffers[3];
  double sum = bias[7];
  for (std::size_t k = 0; k < 512; ++k) sum += static_cast<double>(a[3 * 512 + k]) * b[7 * 512 + k];
  const double expected = 0.5 * sum * std::erfc(-sum / std::sqrt(2.0));
  std::printf("d[3,7] = %.5f, by hand %.5f\n", static_cast<double>(d[3 * 1024 + 7]), expected);

  // Serving: one plan for every M, through the values that were tuned.
  const std::int64_t anchors[] = {1, 16, 64};
  const auto range = session->plan_range(problem, anchors);
  if (!range) return fail(range.error());
  const auto for_five = range->at(5);
  if (!for_five) return fail(for_five.error());
  std::printf("5 rows run %s\n", text(for_five->candidate()).c_str());

  std::free(run.workspace);
  std::free(run.packed);
  return std::abs(expected - static_cast<double>(d[3 * 1024 + 7])) < 1e-3 ? 0 : 1;
}
