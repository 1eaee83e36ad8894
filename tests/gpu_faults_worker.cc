// A worker that offers, beside cuBLASLt, kernels that break a GPU in the ways that kernels do:
// those of LAPIDARY_PLANTED.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <vector>

#include "driver/cuda_api.h"
#include "driver/kernels.h"
#include "support/text.h"
#include "worker/server.h"

namespace lapidary {
namespace {

/// What goes wrong; the kernels are driver/kernels/faults.ptx.
struct Fault {
  std::string_view name;
  const char* kernel;     // none: it asks for more workspace than any card has
  std::uint64_t address;  // that it stores to
};
constexpr Fault kFaults[] = {
    {"spins", "lapidary_spin", 0},       {"illegal address", "lapidary_store", 16},
    {"misaligned", "lapidary_store", 1}, {"assert", "lapidary_assert", 0},
    {"trap", "lapidary_trap", 0},        {"out of memory", nullptr, 0},
};

class FaultyExecutable : public backends::Executable {
 public:
  FaultyExecutable(const driver::CudaApi& cu, const Fault& fault) : cu_(cu), fault_(fault) {}

  Status load() {
    if (fault_.kernel == nullptr) return {};
    driver::CuModule module = nullptr;  // stays: its context ends soon
    int device = 0, major = 0, minor = 0;
    LAPIDARY_TRY_STATUS(check(cu_.device_get(&device, 0)));
    LAPIDARY_TRY_STATUS(check(cu_.device_attribute(&major, driver::kCuMajor, device)));
    LAPIDARY_TRY_STATUS(check(cu_.device_attribute(&minor, driver::kCuMinor, device)));
    LAPIDARY_TRY_STATUS(
        check(cu_.module_load(&module, driver::kernel_image("faults", 10 * major + minor).data())));
    return check(cu_.module_function(&function_, module, fault_.kernel));
  }
  std::int64_t workspace_bytes() const override {
    return fault_.kernel == nullptr ? std::int64_t(1) << 50 : 0;
  }
  Status run(const backends::Arguments& arguments) const override {
    std::uint64_t address = fault_.address, value = 1;
    // A real address, off by one byte.
    if (fault_.address == 1) address += reinterpret_cast<std::uint64_t>(arguments.operands.back());
    void* parameters[] = {&address, &value};
    return check(cu_.launch(function_, 1, 1, 1, 32, 1, 1, 0,
                            static_cast<driver::CuStream>(arguments.stream), parameters, nullptr));
  }

 private:
  Status check(driver::CuResult result) const { return driver::cuda_status(cu_, result, "faults"); }
  const driver::CudaApi& cu_;
  const Fault& fault_;
  driver::CuFunction function_ = nullptr;
};

class FaultsBackend : public backends::Backend {
 public:
  std::string_view name() const override { return "faults"; }
  bool serves(const DeviceInfo& device) const override { return device.id.starts_with("cuda:"); }
  Result<std::string> version() const override { return std::string("planted"); }
  std::vector<Offer> candidates(const GemmProblem&, const DeviceInfo&) const override {
    std::vector<Offer> offers;
    const char* planted = std::getenv("LAPIDARY_PLANTED");
    for (const std::string_view name : split(planted != nullptr ? planted : "", ',')) {
      if (name.empty()) continue;
      offers.push_back({.candidate = {"faults", {{"fault", std::string(name)}}},
                        .predicted_us = 1e3,
                        .workspace_bytes = 0});
    }
    return offers;
  }
  Result<std::unique_ptr<backends::Executable>> compile(const GemmProblem&, const Config& config,
                                                        const DeviceInfo&) const override {
    LAPIDARY_TRY(const driver::CudaApi* cu, driver::cuda_api());
    for (const Fault& fault : kFaults) {
      if (config.at("fault") != ConfigValue(std::string(fault.name))) continue;
      auto executable = std::make_unique<FaultyExecutable>(*cu, fault);
      LAPIDARY_TRY_STATUS(executable->load());
      return std::unique_ptr<backends::Executable>(std::move(executable));
    }
    return fail(ErrorCode::invalid_argument, "faults: no such fault");
  }
};

}  // namespace
}  // namespace lapidary

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const int out = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (out < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return 1;
  const lapidary::FaultsBackend faults;
  std::vector<const lapidary::backends::Backend*> backends(lapidary::backends::all().begin(),
                                                           lapidary::backends::all().end());
  backends.push_back(&faults);
  const lapidary::Status status = lapidary::worker::serve(STDIN_FILENO, out, argv[1], backends);
  if (!status) std::fprintf(stderr, "gpu-faults-worker: %s\n", status.error().message.c_str());
  return status ? 0 : 1;
}
