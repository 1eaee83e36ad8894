#include "driver/nvml_api.h"

#include "driver/library.h"
#include "support/env.h"

namespace lapidary::driver {
namespace {

Result<NvmlApi> load() {
  const std::string asked = env("LAPIDARY_NVML").value_or("");
  const Result<Library> library =
      Library::open_vendor(asked, {"libnvidia-ml.so.1"}, {"/usr/local/nvidia/lib64"});
  if (!library) {
    return fail(ErrorCode::unsupported,
                "no NVML: {}; it comes with the NVIDIA driver, or set LAPIDARY_NVML to its "
                "libnvidia-ml.so.1",
                library.error().message);
  }
  NvmlApi api;
  api.path = library->path();
#define LAPIDARY_NVML(name, symbol, ...)               \
  api.name = library->find<int(__VA_ARGS__)>(#symbol); \
  if (api.name == nullptr)                             \
    return fail(ErrorCode::unsupported, "NVML at {} is too old: it lacks " #symbol, api.path);
  LAPIDARY_NVML_ENTRIES(LAPIDARY_NVML)
#undef LAPIDARY_NVML
  if (const int status = api.init(); status != 0)
    return fail(ErrorCode::unsupported, "NVML at {} does not start: status {}", api.path, status);
  return api;
}

}  // namespace

Result<const NvmlApi*> nvml_api() {
  static const Result<NvmlApi> api = load();
  if (!api) return api.error();
  return &*api;
}

}  // namespace lapidary::driver
