// One linear layer on a GPU through the library: tuned once, then run on our own stream and inside
// our own CUDA graph, with the CUDA runtime for memory. Run it again and the tune comes from the
// store.
#include <cuda_runtime.h>
#include <lapidary/gemm.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

using namespace lapidary;

namespace {

int fail(const Error& error) {
  std::fprintf(stderr, "gemm_cuda: %s\n", error.message.c_str());
  return 1;
}
void check(cudaError_t result) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "gemm_cuda: %s\n", cudaGetErrorString(result));
  std::exit(1);
}

/// bf16 as its upper half of an f32: our values have no more bits.
std::uint16_t bf16(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>(bits >> 16);
}
/// -1, 0 or 1, as the index falls.
float small_integer(std::size_t index) {
  return static_cast<float>((static_cast<std::uint32_t>(index) * 2654435761u >> 16) % 3) - 1;
}
float f32(std::uint16_t value) {
  const std::uint32_t bits = std::uint32_t(value) << 16;
  float wide = 0;
  std::memcpy(&wide, &bits, sizeof wide);
  return wide;
}

}  // namespace

int main() {
  // D (m, n) = relu(A * B^T + bias): A (m, k) activations, B (n, k) weights that never change.
  auto epilogue = parse_epilogue("d = relu(acc + bias[n])");
  if (!epilogue) return fail(epilogue.error());
  const GemmProblem problem{.m = 64,
                            .n = 1024,
                            .k = 512,
                            .a = DType::bf16,
                            .b = DType::bf16,
                            .epilogue = *epilogue,
                            .constant = {"b"}};
  auto session = Session::open({.device = "cuda:0"});
  if (!session) return fail(session.error());
  const auto tuned = session->tune(problem, {.budget_s = 20});
  if (!tuned) return fail(tuned.error());
  const auto plan = session->plan(problem);
  if (!plan) return fail(plan.error());
  std::printf("%s\n%s%s\n", summary(plan->problem()).c_str(), text(plan->candidate()).c_str(),
              tuned->from_store ? ", from the store" : ", tuned now");

  // Our buffers on the device, in the order that the plan lists: a, b, bias, d. Small integers.
  std::vector<std::vector<std::uint16_t>> buffers;
  std::vector<void*> operands;
  for (const OperandSpec& spec : plan->operands()) {
    std::vector<std::uint16_t> data(static_cast<std::size_t>(spec.span_elems()));
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = bf16(small_integer(i + 40503 * spec.name.size()));
    void* there = nullptr;
    check(cudaMalloc(&there, data.size() * 2));
    check(cudaMemcpy(there, data.data(), data.size() * 2, cudaMemcpyHostToDevice));
    operands.push_back(there);
    buffers.push_back(std::move(data));
  }
  void* workspace = nullptr;
  check(cudaMalloc(&workspace, static_cast<std::size_t>(plan->workspace_bytes() + 1)));
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream));
  const RunArguments run{.operands = operands, .workspace = workspace, .stream = stream};

  const auto element = [&](std::size_t row, std::size_t col) {
    std::uint16_t d = 0;
    check(cudaMemcpyAsync(&d, static_cast<std::uint16_t*>(operands[3]) + row * 1024 + col, 2,
                          cudaMemcpyDeviceToHost, stream));
    check(cudaStreamSynchronize(stream));
    return f32(d);
  };
  float expected = f32(buffers[2][6]);
  for (std::size_t k = 0; k < 512; ++k)
    expected += f32(buffers[0][3 * 512 + k]) * f32(buffers[1][6 * 512 + k]);
  expected = std::max(expected, 0.0f);

  // On our stream: the call returns when the work is queued.
  if (const Status ran = plan->run(run); !ran) return fail(ran.error());
  const float queued = element(3, 6);

  // In our graph: captured once, launched as often as wanted.
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  check(cudaMemsetAsync(operands[3], 0xff, buffers[3].size() * 2, stream));
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  if (const Status ran = plan->run(run); !ran) return fail(ran.error());
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&exec, graph, 0));
  check(cudaGraphLaunch(exec, stream));
  const float replayed = element(3, 6);
  std::printf("d[3,6] = %g on a stream, %g in a graph, by hand %g\n", queued, replayed, expected);

  check(cudaGraphExecDestroy(exec));
  check(cudaGraphDestroy(graph));
  check(cudaStreamDestroy(stream));
  for (void* operand : operands) check(cudaFree(operand));
  check(cudaFree(workspace));
  return queued == expected && replayed == expected ? 0 : 1;
}
