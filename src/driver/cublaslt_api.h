#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "driver/cuda_api.h"
#include "support/result.h"

// The entries of cuBLASLt that we call, declared by us and found at run time. Numbers are those of
// cublasLt.h and library_types.h since CUDA 12.9; tests/headers_test.cc compares them with a
// toolkit's headers where there are some.
namespace lapidary::driver {

using LtHandle = struct LtHandleOpaque*;
using LtMatmulDesc = struct LtMatmulDescOpaque*;
using LtLayout = struct LtLayoutOpaque*;
using LtPreference = struct LtPreferenceOpaque*;
using LtStatus = int;  // cublasStatus_t
inline constexpr LtStatus kLtSuccess = 0, kLtInvalidValue = 7, kLtNotSupported = 15;

/// An algorithm with its configuration. May be kept, and is valid for the same version of the
/// library.
struct LtAlgo {
  std::array<std::uint64_t, 8> data{};
  bool operator==(const LtAlgo&) const = default;
};
struct LtHeuristicResult {
  LtAlgo algo;
  std::size_t workspace_bytes;
  LtStatus state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(LtHeuristicResult) == 96);

/// cudaDataType_t
enum class LtType : int { f32 = 0, f16 = 2, bf16 = 14, e4m3 = 28, e5m2 = 29 };
/// cublasComputeType_t
enum class LtCompute : int { f16 = 64, f32 = 68, tf32 = 77 };
/// cublasLtMatmulDescAttributes_t
enum class LtDesc : int {
  pointer_mode = 2,
  trans_a = 3,
  trans_b = 4,
  epilogue = 7,
  bias_pointer = 8,
  bias_batch_stride = 10,
  aux_pointer = 11,
  aux_ld = 12,
  aux_batch_stride = 13,
  sm_count = 15,
  a_scale_pointer = 17,
  b_scale_pointer = 18,
  d_scale_pointer = 20,
  amax_d_pointer = 21,
  aux_type = 22,
  fast_accumulation = 25,
  bias_type = 26,
  a_scale_mode = 31,
  b_scale_mode = 32,
};
inline constexpr std::int32_t kLtScaleScalar = 0, kLtScaleOuterVector = 3, kLtScaleVector128 = 4,
                              kLtScaleBlock128 = 5;
inline constexpr std::int32_t kLtPointerHost = 0, kLtPointerDevice = 1;
inline constexpr std::int32_t kLtOpN = 0, kLtOpT = 1;
/// cublasLtMatrixLayoutAttribute_t
enum class LtLayoutAttribute : int { batch_count = 5, batch_stride = 6 };
/// cublasLtMatmulPreferenceAttributes_t
enum class LtPref : int {
  workspace_bytes = 1,
  reduction_schemes = 3,
  alignment_a = 5,
  alignment_b = 6,
  alignment_c = 7,
  alignment_d = 8,
};
inline constexpr std::uint32_t kLtReduceInPlace = 1, kLtReduceComputeType = 2,
                               kLtReduceOutputType = 4;
/// cublasLtMatmulAlgoConfigAttributes_t; inner_shape and cluster are 16 bits wide, the others 32.
enum class LtConfig : int {
  id = 0,
  tile = 1,
  split_k = 2,
  reduction = 3,
  swizzle = 4,
  custom = 5,
  stages = 6,
  inner_shape = 7,
  cluster = 8,
};
/// cublasLtEpilogue_t
inline constexpr std::int32_t kLtEpilogueDefault = 1, kLtEpilogueRelu = 2, kLtEpilogueBias = 4,
                              kLtEpilogueGelu = 32, kLtEpilogueAux = 128,
                              kLtEpilogueDgelu = 64 | 128, kLtEpilogueDgeluBgrad = 64 | 128 | 16;

// LAPIDARY_LT(name, symbol, parameters...); all return cublasStatus_t.
#define LAPIDARY_LT_ENTRIES(LAPIDARY_LT)                                                           \
  LAPIDARY_LT(create, cublasLtCreate, LtHandle* handle)                                            \
  LAPIDARY_LT(desc_create, cublasLtMatmulDescCreate, LtMatmulDesc* desc, int compute_type,         \
              int scale_type)                                                                      \
  LAPIDARY_LT(desc_set, cublasLtMatmulDescSetAttribute, LtMatmulDesc desc, int attribute,          \
              const void* value, std::size_t bytes)                                                \
  LAPIDARY_LT(desc_destroy, cublasLtMatmulDescDestroy, LtMatmulDesc desc)                          \
  LAPIDARY_LT(layout_create, cublasLtMatrixLayoutCreate, LtLayout* layout, int type,               \
              std::uint64_t rows, std::uint64_t cols, std::int64_t ld)                             \
  LAPIDARY_LT(layout_set, cublasLtMatrixLayoutSetAttribute, LtLayout layout, int attribute,        \
              const void* value, std::size_t bytes)                                                \
  LAPIDARY_LT(layout_destroy, cublasLtMatrixLayoutDestroy, LtLayout layout)                        \
  LAPIDARY_LT(preference_create, cublasLtMatmulPreferenceCreate, LtPreference* preference)         \
  LAPIDARY_LT(preference_set, cublasLtMatmulPreferenceSetAttribute, LtPreference preference,       \
              int attribute, const void* value, std::size_t bytes)                                 \
  LAPIDARY_LT(preference_destroy, cublasLtMatmulPreferenceDestroy, LtPreference preference)        \
  LAPIDARY_LT(heuristic, cublasLtMatmulAlgoGetHeuristic, LtHandle handle, LtMatmulDesc desc,       \
              LtLayout a, LtLayout b, LtLayout c, LtLayout d, LtPreference preference, int asked,  \
              LtHeuristicResult* results, int* found)                                              \
  LAPIDARY_LT(algo_init, cublasLtMatmulAlgoInit, LtHandle handle, int compute_type,                \
              int scale_type, int a_type, int b_type, int c_type, int d_type, int id,              \
              LtAlgo* algo)                                                                        \
  LAPIDARY_LT(algo_check, cublasLtMatmulAlgoCheck, LtHandle handle, LtMatmulDesc desc, LtLayout a, \
              LtLayout b, LtLayout c, LtLayout d, const LtAlgo* algo, LtHeuristicResult* result)   \
  LAPIDARY_LT(config_get, cublasLtMatmulAlgoConfigGetAttribute, const LtAlgo* algo, int attribute, \
              void* value, std::size_t bytes, std::size_t* written)                                \
  LAPIDARY_LT(config_set, cublasLtMatmulAlgoConfigSetAttribute, LtAlgo* algo, int attribute,       \
              const void* value, std::size_t bytes)                                                \
  LAPIDARY_LT(matmul, cublasLtMatmul, LtHandle handle, LtMatmulDesc desc, const void* alpha,       \
              const void* a, LtLayout a_layout, const void* b, LtLayout b_layout,                  \
              const void* beta, const void* c, LtLayout c_layout, void* d, LtLayout d_layout,      \
              const LtAlgo* algo, void* workspace, std::size_t workspace_bytes, CuStream stream)

struct LtApi {
#define LAPIDARY_LT(name, symbol, ...) LtStatus (*name)(__VA_ARGS__) = nullptr;
  LAPIDARY_LT_ENTRIES(LAPIDARY_LT)
#undef LAPIDARY_LT
  std::size_t (*version)() = nullptr;  ///< cublasLtGetVersion: 130100 is 13.1.0
  std::string path{};
};

/// The process's cuBLASLt; loaded at the first call. `unsupported` with what is missing and what to
/// do.
Result<const LtApi*> cublaslt_api();

}  // namespace lapidary::driver
