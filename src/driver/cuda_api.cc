#include "driver/cuda_api.h"

#include "driver/library.h"
#include "support/env.h"

namespace lapidary::driver {
namespace {

Result<CudaApi> load() {
  const std::string asked = env("LAPIDARY_LIBCUDA").value_or("");
  // The driver's library comes with the kernel module; containers mount it here.
  const Result<Library> library =
      Library::open_vendor(asked, {"libcuda.so.1"}, {"/usr/local/nvidia/lib64"});
  if (!library) {
    return fail(ErrorCode::unsupported,
                "no NVIDIA driver: {}; install the driver, or set LAPIDARY_LIBCUDA to its "
                "libcuda.so.1",
                library.error().message);
  }
  CudaApi api;
  api.path = library->path();
#define LAPIDARY_CU(name, symbol, ...)                                  \
  api.name = library->find<CuResult(__VA_ARGS__)>(#symbol);             \
  if (api.name == nullptr) {                                            \
    return fail(ErrorCode::unsupported,                                 \
                "the NVIDIA driver at {} is too old: it lacks " #symbol \
                "; install one for "                                    \
                "CUDA 12 or later",                                     \
                api.path);                                              \
  }
#include "driver/cuda_api.inc"
#undef LAPIDARY_CU
  if (const CuResult result = api.init(0); result != kCuSuccess) {
    return fail(ErrorCode::unsupported, "the NVIDIA driver at {} finds no usable GPU: {}", api.path,
                text(api, result));
  }
  return api;
}

}  // namespace

Result<const CudaApi*> cuda_api() {
  static const Result<CudaApi> api = load();
  if (!api) return api.error();
  return &*api;
}

std::string version_text(int version) {
  return fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
}

bool ends_context(CuResult result) {
  switch (result) {
    case 201:  // invalid context: it was lost before
    case 214:  // uncorrectable ECC error
    case 220:  // uncorrectable NVLink error
    case 226:  // contained error
    case 700:  // illegal address
    case 702:  // launch timeout
    case 709:  // context is destroyed
    case 710:  // assert
    case 714:  // hardware stack error
    case 715:  // illegal instruction
    case 716:  // misaligned address
    case 717:  // invalid address space
    case 718:  // invalid program counter
    case 719:  // launch failed
    case 721:  // tensor memory leak
    case 810:  // MPS client terminated
    case 911:  // external device
    case 999:  // unknown
      return true;
    default:
      return false;
  }
}

std::string text(const CudaApi& api, CuResult result) {
  const char *name = nullptr, *words = nullptr;
  // The library's own names; one that it does not know leaves the pointers null.
  (void)api.error_name(result, &name);
  (void)api.error_text(result, &words);
  return fmt::format("{} ({}){}{}", name != nullptr ? name : "CUDA error", result,
                     words != nullptr ? ": " : "", words != nullptr ? words : "");
}

Status cuda_status(const CudaApi& api, CuResult result, std::string_view what) {
  if (result == kCuSuccess) return {};
  const ErrorCode code = result == kCuOutOfMemory ? ErrorCode::resource_limit
                         : ends_context(result)   ? ErrorCode::device_fault
                                                  : ErrorCode::launch_failed;
  return fail(code, "{}: {}", what, text(api, result));
}

}  // namespace lapidary::driver
