#include "driver/cublaslt_api.h"

#include "driver/cuda_api.h"
#include "driver/library.h"
#include "support/cuda_folders.h"
#include "support/env.h"

namespace lapidary::driver {
namespace {

/// Whether the driver here is one for CUDA `version` (13000 is 13.0) or later; so is one that
/// nobody can ask, for the library then says itself what it lacks.
bool driver_serves(int version) {
  const Result<const CudaApi*> cuda = cuda_api();
  int has = 0;
  return !cuda || (*cuda)->driver_version(&has) != kCuSuccess || has >= version;
}

Result<LtApi> load() {
  const std::string asked = env("LAPIDARY_CUBLASLT").value_or("");
  const std::vector<std::filesystem::path> folders = cuda_library_folders();
  // A library of CUDA 13 loads beside a driver of CUDA 12, and then fails at its first call.
  const Result<Library> library =
      driver_serves(13000)
          ? Library::open_vendor(asked, {"libcublasLt.so.13", "libcublasLt.so.12"}, folders)
          : Library::open_vendor(asked, {"libcublasLt.so.12"}, folders);
  if (!library) {
    return fail(
        ErrorCode::unsupported,
        "no cuBLASLt: {}; install NVIDIA's PyPI package nvidia-cublas or a CUDA toolkit, or "
        "set LAPIDARY_CUBLASLT to libcublasLt.so",
        library.error().message);
  }
  LtApi api;
  api.path = library->path();
  const auto missing = [&](const char* symbol) {
    return fail(ErrorCode::unsupported,
                "cuBLASLt at {} is too old: it lacks {}; install one of CUDA 12.9 or later",
                api.path, symbol);
  };
  api.version = library->find<std::size_t()>("cublasLtGetVersion");
  if (api.version == nullptr) return missing("cublasLtGetVersion");
#define LAPIDARY_LT(name, symbol, ...)                      \
  api.name = library->find<LtStatus(__VA_ARGS__)>(#symbol); \
  if (api.name == nullptr) return missing(#symbol);
  LAPIDARY_LT_ENTRIES(LAPIDARY_LT)
#undef LAPIDARY_LT
  return api;
}

}  // namespace

Result<const LtApi*> cublaslt_api() {
  static const Result<LtApi> api = load();
  if (!api) return api.error();
  return &*api;
}

}  // namespace lapidary::driver
