#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "support/result.h"

// The entries of NVIDIA's driver library that we call, declared by us and found at run time: the
// same program starts on a machine without a driver. tests/headers_test.cc compares these
// declarations with a toolkit's headers where there are some.
namespace lapidary::driver {

using CuResult = int;             // CUresult
using CuDevice = int;             // CUdevice
using CuPointer = std::uint64_t;  // CUdeviceptr
using CuContext = struct CuContextHandle*;
using CuStream = struct CuStreamHandle*;
using CuEvent = struct CuEventHandle*;
using CuModule = struct CuModuleHandle*;
using CuFunction = struct CuFunctionHandle*;
using CuGraph = struct CuGraphHandle*;
using CuGraphExec = struct CuGraphExecHandle*;
struct CuUuid {
  unsigned char bytes[16];
};

// CUresult
/// CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
inline constexpr int kCuMaxDynamicShared = 8;
inline constexpr CuResult kCuSuccess = 0, kCuOutOfMemory = 2, kCuNoDevice = 100,
                          kCuStreamCaptureInvalidated = 901;
// CUdevice_attribute
inline constexpr int kCuClockRate = 13, kCuSmCount = 16, kCuL2Bytes = 38, kCuMajor = 75,
                     kCuMinor = 76;
inline constexpr unsigned kCuStreamNonBlocking = 1;
/// Calls of other threads that would be unsafe in a capture stay allowed.
inline constexpr int kCuCaptureThreadLocal = 1;

struct CudaApi {
#define LAPIDARY_CU(name, symbol, ...) CuResult (*name)(__VA_ARGS__) = nullptr;
#include "driver/cuda_api.inc"
#undef LAPIDARY_CU
  std::string path{};  ///< of the library
};

/// The process's libcuda, initialised; loaded at the first call. `unsupported` with what is missing
/// and what to do: no driver, no device, a driver that is too old. The search order is
/// find_library()'s.
Result<const CudaApi*> cuda_api();

/// "CUDA 13.0" of what `driver_version` gives.
std::string version_text(int version);

/// Does this result end the context, so that only another process can go on? (CUDA Driver API,
/// CUresult: "the process ... must be terminated and relaunched".)
bool ends_context(CuResult result);

/// "CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered".
std::string text(const CudaApi& api, CuResult result);

/// `launch_failed` for an ordinary error, `resource_limit` for memory, `device_fault` for one that
/// ends the context; the message begins with `what`.
Status cuda_status(const CudaApi& api, CuResult result, std::string_view what);

}  // namespace lapidary::driver
