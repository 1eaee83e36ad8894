// Our declarations of oneDNN against its own header, where there is one, and what its fused matmul
// refuses.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <type_traits>

#include "backends/backend.h"
#include "backends/onednn_api.h"
#include "backends/testing_problem.h"

#if __has_include(<oneapi/dnnl/dnnl.h>)
#include <oneapi/dnnl/dnnl.h>
#if DNNL_VERSION_MAJOR == 2
#define LAPIDARY_HAS_ONEDNN_HEADER 1
#endif
#endif

namespace lapidary::backends {
namespace {

#if defined(LAPIDARY_HAS_ONEDNN_HEADER)
namespace api = onednn_api;

static_assert(sizeof(api::MemoryDesc) == sizeof(dnnl_memory_desc_t));
static_assert(alignof(api::MemoryDesc) >= alignof(dnnl_memory_desc_t));
static_assert(sizeof(api::MatmulDesc) == sizeof(dnnl_matmul_desc_t));
static_assert(alignof(api::MatmulDesc) >= alignof(dnnl_matmul_desc_t));
static_assert(sizeof(api::ExecArg) == sizeof(dnnl_exec_arg_t));
static_assert(offsetof(api::ExecArg, arg) == offsetof(dnnl_exec_arg_t, arg));
static_assert(offsetof(api::ExecArg, memory) == offsetof(dnnl_exec_arg_t, memory));
static_assert(offsetof(api::Version, major) == offsetof(dnnl_version_t, major));
static_assert(offsetof(api::Version, minor) == offsetof(dnnl_version_t, minor));
static_assert(offsetof(api::Version, patch) == offsetof(dnnl_version_t, patch));
static_assert(std::is_same_v<api::Dims, dnnl_dims_t>);
static_assert(api::kSuccess == dnnl_success);
static_assert(api::kF16 == dnnl_f16 && api::kBf16 == dnnl_bf16 && api::kF32 == dnnl_f32);
static_assert(api::kCpu == dnnl_cpu);
static_assert(api::kFormatAny == dnnl_format_tag_any);
static_assert(api::kScratchpadUser == dnnl_scratchpad_mode_user);
static_assert(api::kInOrder == dnnl_stream_in_order);
static_assert(api::kSrc == DNNL_ARG_SRC && api::kDst == DNNL_ARG_DST);
static_assert(api::kWeights == DNNL_ARG_WEIGHTS && api::kScratchpad == DNNL_ARG_SCRATCHPAD);
static_assert((api::kPostOp * 3 | api::kPostOpOperand) ==
              (DNNL_ARG_ATTR_MULTIPLE_POST_OP(2) | DNNL_ARG_SRC_1));
static_assert(api::kQueryWeights == dnnl_query_weights_md);
static_assert(api::kQueryScratchpad == dnnl_query_scratchpad_md);
static_assert(int{api::kRelu} == int{dnnl_eltwise_relu});
static_assert(int{api::kTanh} == int{dnnl_eltwise_tanh});
static_assert(int{api::kGeluErf} == int{dnnl_eltwise_gelu_erf});
static_assert(int{api::kAbs} == int{dnnl_eltwise_abs});
static_assert(int{api::kSqrt} == int{dnnl_eltwise_sqrt});
static_assert(int{api::kLinear} == int{dnnl_eltwise_linear});
static_assert(int{api::kSoftRelu} == int{dnnl_eltwise_soft_relu});
static_assert(int{api::kLogistic} == int{dnnl_eltwise_logistic});
static_assert(int{api::kExp} == int{dnnl_eltwise_exp});
static_assert(int{api::kGeluTanh} == int{dnnl_eltwise_gelu_tanh});
static_assert(int{api::kSwish} == int{dnnl_eltwise_swish});
static_assert(int{api::kClip} == int{dnnl_eltwise_clip});
static_assert(int{api::kBinaryAdd} == int{dnnl_binary_add});
static_assert(int{api::kBinaryMul} == int{dnnl_binary_mul});
static_assert(int{api::kBinaryMax} == int{dnnl_binary_max});
static_assert(int{api::kBinaryMin} == int{dnnl_binary_min});
static_assert(int{api::kBinaryDiv} == int{dnnl_binary_div});
static_assert(int{api::kBinarySub} == int{dnnl_binary_sub});
#endif

TEST(OneDnn, DeclaresWhatTheHeaderDeclares) {
#if !defined(LAPIDARY_HAS_ONEDNN_HEADER)
  GTEST_SKIP() << "oneapi/dnnl/dnnl.h of oneDNN 2.x is not installed (libdnnl-dev)";
#endif
}

const Backend* onednn_here() {
  for (const Backend* backend : all()) {
    if (backend->name() == "onednn" && backend->version()) return backend;
  }
  return nullptr;
}

/// Why the fused matmul does not serve the problem; "" when it does.
std::string fused_refusal(const Backend& backend, const std::string& json) {
  for (const Offer& offer : backend.candidates(problem_of(json), kDevice)) {
    if (offer.candidate.config.contains("fused")) return offer.refused;
  }
  return "no fused candidate";
}

TEST(OneDnn, MatchesProgramsInLinearTime) {
  const Backend* backend = onednn_here();
  if (backend == nullptr) GTEST_SKIP() << "oneDNN is not here";
  for (const char* start : {"acc + 0", "acc * 2", "1 + 1"}) {
    std::string program = fmt::format("h0 = {}; ", start);
    for (int i = 1; i <= 40; ++i) program += fmt::format("h{0} = h{1} + h{1}; ", i, i - 1);
    program += "d = acc + h40";
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_NE(
        fused_refusal(*backend, fmt::format(R"({{"m":4,"n":5,"k":6,"epilogue":"{}"}})", program)),
        "")
        << program;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << program;
  }
}

TEST(OneDnn, FusesNoOperandThatMayBeD) {
  const Backend* backend = onednn_here();
  if (backend == nullptr) GTEST_SKIP() << "oneDNN is not here";
  EXPECT_EQ(fused_refusal(*backend, R"j({"m":4,"n":5,"k":6,"epilogue":"d = acc + c[m,n]"})j"), "");
  EXPECT_EQ(fused_refusal(*backend,
                          R"j({"m":4,"n":5,"k":6,"alias":["c=d"],"epilogue":"d = acc + c[m,n]"})j"),
            "fused: c, read by a post-op, may share memory with d");
}

TEST(OneDnn, CountsScratchpadsInTheWorkspace) {
  const Backend* backend = onednn_here();
  if (backend == nullptr) GTEST_SKIP() << "oneDNN is not here";
  for (const char* json : {R"({"m":300,"n":600,"k":700,"a":"bf16","b":"bf16"})",
                           R"({"m":257,"n":1100,"k":33,"layout":"tn"})"}) {
    const GemmProblem problem = problem_of(json);
    for (const Offer& offer : backend->candidates(problem, kDevice)) {
      if (!offer.refused.empty()) continue;
      const auto made = backend->compile(problem, offer.candidate.config, kDevice);
      ASSERT_TRUE(made) << made.error();
      EXPECT_EQ((*made)->workspace_bytes(), offer.workspace_bytes) << text(offer.candidate);
    }
  }
}

}  // namespace
}  // namespace lapidary::backends
