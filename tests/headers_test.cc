// Our declarations of NVIDIA's entries against the headers of a CUDA toolkit: built where there are
// some (tests/CMakeLists.txt). The compiler does most of it.
#include <cuda.h>
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#define LAPIDARY_HAS_CUBLASLT 1
#endif
#if __has_include(<nvml.h>)
#include <nvml.h>
#define LAPIDARY_HAS_NVML 1
#endif
#include <gtest/gtest.h>

#include <cstddef>
#include <type_traits>

#include "driver/cublaslt_api.h"
#include "driver/cuda_api.h"
#include "driver/nvml_api.h"

namespace lapidary::driver {
namespace {

template <class T>
concept Complete = !std::is_void_v<T> && requires { sizeof(T); };

/// Do both have the same size, and are both pointers, numbers or neither? Handles are pointers to
/// structs that only the vendor knows, enumerations are numbers. What complete pointees are is
/// compared too, and whether they are const.
template <class Ours, class Theirs>
consteval bool alike() {
  if (sizeof(Ours) != sizeof(Theirs)) return false;
  if (std::is_pointer_v<Ours> != std::is_pointer_v<Theirs>) return false;
  if (std::is_floating_point_v<Ours> != std::is_floating_point_v<Theirs>) return false;
  if (std::is_integral_v<Ours> && std::is_integral_v<Theirs> &&
      std::is_signed_v<Ours> != std::is_signed_v<Theirs>) {
    return false;
  }
  if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    using OurPointee = std::remove_pointer_t<Ours>;
    using TheirPointee = std::remove_pointer_t<Theirs>;
    if (std::is_const_v<OurPointee> != std::is_const_v<TheirPointee>) return false;
    if (std::is_void_v<OurPointee> != std::is_void_v<TheirPointee>) return false;
    if constexpr (Complete<OurPointee> && Complete<TheirPointee>) {
      return alike<std::remove_const_t<OurPointee>, std::remove_const_t<TheirPointee>>();
    }
  }
  return true;
}

/// The same for the results and all parameters of two functions.
template <class R1, class... P1, class R2, class... P2>
consteval bool alike(R1 (*)(P1...), R2 (*)(P2...)) {
  if constexpr (sizeof...(P1) != sizeof...(P2)) {
    return false;
  } else {
    return alike<R1, R2>() && (alike<P1, P2>() && ...);
  }
}

// What the comparison must find, should it ever be needed.
using Sample = int (*)(int*, unsigned, const void*);
static_assert(alike(Sample(nullptr), Sample(nullptr)));
static_assert(!alike(Sample(nullptr), static_cast<int (*)(int*, unsigned)>(nullptr)));
static_assert(!alike(Sample(nullptr),
                     static_cast<int (*)(int*, std::size_t, const void*)>(nullptr)));
static_assert(!alike(Sample(nullptr), static_cast<int (*)(int*, float, const void*)>(nullptr)));
static_assert(!alike(Sample(nullptr), static_cast<int (*)(int*, int, const void*)>(nullptr)));
static_assert(!alike(Sample(nullptr), static_cast<int (*)(long*, unsigned, const void*)>(nullptr)));
static_assert(!alike(Sample(nullptr), static_cast<int (*)(int*, unsigned, void*)>(nullptr)));
static_assert(!alike(Sample(nullptr), static_cast<int (*)(int**, unsigned, const void*)>(nullptr)));

#define LAPIDARY_SAME(ours, theirs)                                             \
  static_assert(static_cast<long long>(ours) == static_cast<long long>(theirs), \
                #theirs " has another number")

// libcuda. A few symbols are macros of cuda.h that lead to a newer version of the entry; of those
// we call, the newer ones have the same parameters.
#define LAPIDARY_CU(name, symbol, ...)                                                \
  static_assert(alike(decltype(CudaApi::name)(nullptr), decltype (&symbol)(nullptr)), \
                #symbol " is declared otherwise in cuda.h");
#include "driver/cuda_api.inc"
#undef LAPIDARY_CU
static_assert(alike<CuResult, CUresult>());
static_assert(alike<CuDevice, CUdevice>());
static_assert(alike<CuPointer, CUdeviceptr>());
static_assert(sizeof(CuUuid) == sizeof(CUuuid));
LAPIDARY_SAME(kCuSuccess, CUDA_SUCCESS);
LAPIDARY_SAME(kCuOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
LAPIDARY_SAME(kCuNoDevice, CUDA_ERROR_NO_DEVICE);
LAPIDARY_SAME(kCuStreamCaptureInvalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
LAPIDARY_SAME(kCuClockRate, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
LAPIDARY_SAME(kCuSmCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
LAPIDARY_SAME(kCuL2Bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
LAPIDARY_SAME(kCuMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
LAPIDARY_SAME(kCuMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
LAPIDARY_SAME(kCuStreamNonBlocking, CU_STREAM_NON_BLOCKING);
LAPIDARY_SAME(kCuCaptureThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);

TEST(CudaHeaders, ResultsThatEndAContextAreThoseThatSaySo) {
  // Whose text in cuda.h says that the process must be relaunched or that the context is gone...
  for (const CUresult result :
       {CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE, CUDA_ERROR_ILLEGAL_ADDRESS,
        CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_ASSERT,
        CUDA_ERROR_HARDWARE_STACK_ERROR, CUDA_ERROR_ILLEGAL_INSTRUCTION,
        CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_ERROR_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_PC,
        CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_MPS_CLIENT_TERMINATED, CUDA_ERROR_EXTERNAL_DEVICE,
        CUDA_ERROR_UNKNOWN}) {
    EXPECT_TRUE(ends_context(result)) << result;
  }
#if CUDA_VERSION >= 12080
  EXPECT_TRUE(ends_context(CUDA_ERROR_CONTAINED));
#endif
#if CUDA_VERSION >= 13000
  EXPECT_TRUE(ends_context(CUDA_ERROR_TENSOR_MEMORY_LEAK));
#endif
  // ... and those that a caller may go on after.
  for (const CUresult result :
       {CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_IMAGE,
        CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_INVALID_PTX, CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
        CUDA_ERROR_UNSUPPORTED_PTX_VERSION, CUDA_ERROR_JIT_COMPILATION_DISABLED,
        CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_NOT_FOUND, CUDA_ERROR_NOT_READY,
        CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_NOT_SUPPORTED,
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        CUDA_ERROR_INVALID_CLUSTER_SIZE}) {
    EXPECT_FALSE(ends_context(result)) << result;
  }
}

#ifdef LAPIDARY_HAS_CUBLASLT
#define LAPIDARY_LT(name, symbol, ...)                                              \
  static_assert(alike(decltype(LtApi::name)(nullptr), decltype (&symbol)(nullptr)), \
                #symbol " is declared otherwise in cublasLt.h");
LAPIDARY_LT_ENTRIES(LAPIDARY_LT)
#undef LAPIDARY_LT
static_assert(alike(decltype(LtApi::version)(nullptr), decltype (&cublasLtGetVersion)(nullptr)));
static_assert(sizeof(LtAlgo) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(LtHeuristicResult) == sizeof(cublasLtMatmulHeuristicResult_t));
#define LAPIDARY_SAME_MEMBER(ours, theirs)                               \
  static_assert(offsetof(LtHeuristicResult, ours) ==                     \
                    offsetof(cublasLtMatmulHeuristicResult_t, theirs) && \
                alike<decltype(LtHeuristicResult::ours),                 \
                      decltype(cublasLtMatmulHeuristicResult_t::theirs)>())
LAPIDARY_SAME_MEMBER(algo, algo);
LAPIDARY_SAME_MEMBER(workspace_bytes, workspaceSize);
LAPIDARY_SAME_MEMBER(state, state);
LAPIDARY_SAME_MEMBER(waves, wavesCount);
LAPIDARY_SAME_MEMBER(reserved, reserved);
LAPIDARY_SAME(kLtSuccess, CUBLAS_STATUS_SUCCESS);
LAPIDARY_SAME(kLtInvalidValue, CUBLAS_STATUS_INVALID_VALUE);
LAPIDARY_SAME(kLtNotSupported, CUBLAS_STATUS_NOT_SUPPORTED);
LAPIDARY_SAME(LtType::f32, CUDA_R_32F);
LAPIDARY_SAME(LtType::f16, CUDA_R_16F);
LAPIDARY_SAME(LtType::bf16, CUDA_R_16BF);
LAPIDARY_SAME(LtType::e4m3, CUDA_R_8F_E4M3);
LAPIDARY_SAME(LtType::e5m2, CUDA_R_8F_E5M2);
LAPIDARY_SAME(LtCompute::f16, CUBLAS_COMPUTE_16F);
LAPIDARY_SAME(LtCompute::f32, CUBLAS_COMPUTE_32F);
LAPIDARY_SAME(LtCompute::tf32, CUBLAS_COMPUTE_32F_FAST_TF32);
LAPIDARY_SAME(LtDesc::pointer_mode, CUBLASLT_MATMUL_DESC_POINTER_MODE);
LAPIDARY_SAME(LtDesc::trans_a, CUBLASLT_MATMUL_DESC_TRANSA);
LAPIDARY_SAME(LtDesc::trans_b, CUBLASLT_MATMUL_DESC_TRANSB);
LAPIDARY_SAME(LtDesc::epilogue, CUBLASLT_MATMUL_DESC_EPILOGUE);
LAPIDARY_SAME(LtDesc::bias_pointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
LAPIDARY_SAME(LtDesc::bias_batch_stride, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE);
LAPIDARY_SAME(LtDesc::aux_pointer, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER);
LAPIDARY_SAME(LtDesc::aux_ld, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD);
LAPIDARY_SAME(LtDesc::aux_batch_stride, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE);
LAPIDARY_SAME(LtDesc::sm_count, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET);
LAPIDARY_SAME(LtDesc::a_scale_pointer, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
LAPIDARY_SAME(LtDesc::b_scale_pointer, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
LAPIDARY_SAME(LtDesc::d_scale_pointer, CUBLASLT_MATMUL_DESC_D_SCALE_POINTER);
LAPIDARY_SAME(LtDesc::amax_d_pointer, CUBLASLT_MATMUL_DESC_AMAX_D_POINTER);
LAPIDARY_SAME(LtDesc::aux_type, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE);
LAPIDARY_SAME(LtDesc::fast_accumulation, CUBLASLT_MATMUL_DESC_FAST_ACCUM);
LAPIDARY_SAME(LtDesc::bias_type, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
LAPIDARY_SAME(kLtPointerHost, CUBLASLT_POINTER_MODE_HOST);
LAPIDARY_SAME(kLtPointerDevice, CUBLASLT_POINTER_MODE_DEVICE);
LAPIDARY_SAME(kLtOpN, CUBLAS_OP_N);
LAPIDARY_SAME(kLtOpT, CUBLAS_OP_T);
LAPIDARY_SAME(LtLayoutAttribute::batch_count, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
LAPIDARY_SAME(LtLayoutAttribute::batch_stride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
LAPIDARY_SAME(LtPref::workspace_bytes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
LAPIDARY_SAME(LtPref::reduction_schemes, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
LAPIDARY_SAME(LtPref::alignment_a, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
LAPIDARY_SAME(LtPref::alignment_b, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
LAPIDARY_SAME(LtPref::alignment_c, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
LAPIDARY_SAME(LtPref::alignment_d, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
LAPIDARY_SAME(kLtReduceInPlace, CUBLASLT_REDUCTION_SCHEME_INPLACE);
LAPIDARY_SAME(kLtReduceComputeType, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
LAPIDARY_SAME(kLtReduceOutputType, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE);
LAPIDARY_SAME(LtConfig::id, CUBLASLT_ALGO_CONFIG_ID);
LAPIDARY_SAME(LtConfig::tile, CUBLASLT_ALGO_CONFIG_TILE_ID);
LAPIDARY_SAME(LtConfig::split_k, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
LAPIDARY_SAME(LtConfig::reduction, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
LAPIDARY_SAME(LtConfig::swizzle, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING);
LAPIDARY_SAME(LtConfig::custom, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION);
LAPIDARY_SAME(LtConfig::stages, CUBLASLT_ALGO_CONFIG_STAGES_ID);
LAPIDARY_SAME(LtConfig::inner_shape, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID);
LAPIDARY_SAME(LtConfig::cluster, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID);
LAPIDARY_SAME(kLtEpilogueDefault, CUBLASLT_EPILOGUE_DEFAULT);
LAPIDARY_SAME(kLtEpilogueRelu, CUBLASLT_EPILOGUE_RELU);
LAPIDARY_SAME(kLtEpilogueBias, CUBLASLT_EPILOGUE_BIAS);
LAPIDARY_SAME(kLtEpilogueGelu, CUBLASLT_EPILOGUE_GELU);
LAPIDARY_SAME(kLtEpilogueRelu | kLtEpilogueBias, CUBLASLT_EPILOGUE_RELU_BIAS);
LAPIDARY_SAME(kLtEpilogueGelu | kLtEpilogueBias, CUBLASLT_EPILOGUE_GELU_BIAS);
LAPIDARY_SAME(kLtEpilogueGelu | kLtEpilogueAux, CUBLASLT_EPILOGUE_GELU_AUX);
LAPIDARY_SAME(kLtEpilogueGelu | kLtEpilogueAux | kLtEpilogueBias, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
LAPIDARY_SAME(kLtEpilogueDgelu, CUBLASLT_EPILOGUE_DGELU);
LAPIDARY_SAME(kLtEpilogueDgeluBgrad, CUBLASLT_EPILOGUE_DGELU_BGRAD);
#if CUDA_VERSION >= 12090  // older ones have no scales but one for a tensor
LAPIDARY_SAME(LtDesc::a_scale_mode, CUBLASLT_MATMUL_DESC_A_SCALE_MODE);
LAPIDARY_SAME(LtDesc::b_scale_mode, CUBLASLT_MATMUL_DESC_B_SCALE_MODE);
LAPIDARY_SAME(kLtScaleScalar, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F);
LAPIDARY_SAME(kLtScaleOuterVector, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
LAPIDARY_SAME(kLtScaleVector128, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
LAPIDARY_SAME(kLtScaleBlock128, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F);
#endif
#endif  // LAPIDARY_HAS_CUBLASLT

#ifdef LAPIDARY_HAS_NVML
#define LAPIDARY_NVML(name, symbol, ...)                                              \
  static_assert(alike(decltype(NvmlApi::name)(nullptr), decltype (&symbol)(nullptr)), \
                #symbol " is declared otherwise in nvml.h");
LAPIDARY_NVML_ENTRIES(LAPIDARY_NVML)
#undef LAPIDARY_NVML
LAPIDARY_SAME(0, NVML_SUCCESS);
LAPIDARY_SAME(kNvmlClockSm, NVML_CLOCK_SM);
#endif

}  // namespace
}  // namespace lapidary::driver
