#include <cstdio>
#include <nlohmann/json.hpp>

#include "assembler/tools.h"
#include "cli/cli.h"
#include "cli/report.h"
#include "cli/session.h"
#include "driver/cuda.h"
#include "driver/cuda_api.h"
#include "driver/device.h"
#include "driver/nvml_api.h"
#include "support/env.h"

namespace lapidary::cli {
namespace {

/// What was found, a line each, and the gravest of its exit codes.
class Findings {
 public:
  void add(std::string_view what, const std::string& state, const std::string& detail,
           int code = kOk) {
    text_ += fmt::format("{:<17} {:<8} {}\n", what, state, detail);
    json_["checks"].push_back({{"what", what}, {"state", state}, {"detail", detail}});
    codes_.push_back(code);
  }
  const std::string& text() const { return text_; }
  std::string json() const {
    return json_.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  int code() const { return gravest(codes_); }

 private:
  std::string text_;
  nlohmann::ordered_json json_ = {{"version", 1}};
  std::vector<int> codes_;
};

std::string facts(const DeviceInfo& d) {
  std::string line = fmt::format("{}; last-level cache {} MiB, memory {} GiB", d.name,
                                 d.cache_bytes >> 20, d.memory_bytes >> 30);
  if (d.sm > 0) {
    line += fmt::format(", sm_{}, up to {:.0f} MHz", d.sm, d.max_clock_mhz);
    if (d.power_limit_w > 0) line += fmt::format(" and {:.0f} W", d.power_limit_w);
    line += ", " + d.uuid;
  }
  return line;
}

void check_tool(const char* what, const Result<assembler::Tool>& tool, Findings& found) {
  if (tool) {
    found.add(what, "ok", fmt::format("{} at {}", tool->version, tool->path.string()));
  } else {
    found.add(what, "missing", tool.error().message);
  }
}

/// A worker on the device: does it start, is the device usable, and which backends serve it?
void check_device(const std::string& id, const std::filesystem::path& worker, Findings& found) {
  const Result<DeviceInfo> device = driver::describe_device(id);
  if (!device) {
    found.add(id, "missing", device.error().message,
              device.error().code == ErrorCode::invalid_argument ? kUsage : kDeviceFault);
    return;
  }
  worker::Client client({.program = worker, .device = id, .extra_env = {}});
  const Result<worker::Reply> hello = client.hello();
  client.stop();
  if (!hello) {
    found.add(id, "failed", hello.error().message, exit_code(hello.error()));
    return;
  }
  found.add(id, "ok", facts(hello->device));
  for (const worker::BackendState& backend : hello->backends) {
    found.add("  " + backend.name, backend.missing.empty() ? "ok" : "missing",
              backend.missing.empty() ? backend.version : backend.missing);
  }
}

}  // namespace

int run_doctor(const Common& common) {
  Findings found;
  found.add("lapidary", "ok", LAPIDARY_VERSION);
  const auto store = store::open_sqlite(store_path(common), {});
  if (store) {
    const std::string where = (*store)->where();
    found.add("store", where == "memory" ? "memory" : "ok", where);
  } else {
    found.add("store", "failed", store.error().message, kStore);
  }
  const Result<const driver::CudaApi*> cuda = driver::cuda_api();
  if (cuda) {
    int version = 0;
    (void)(*cuda)->driver_version(&version);
    found.add("cuda driver", "ok",
              fmt::format("{} at {}", driver::version_text(version), (*cuda)->path));
    const Result<const driver::NvmlApi*> nvml = driver::nvml_api();
    found.add("nvml", nvml ? "ok" : "missing", nvml ? (*nvml)->path : nvml.error().message);
  } else {
    found.add("cuda driver", "missing", cuda.error().message);
  }
  check_tool("ptxas", assembler::find_ptxas(), found);
  check_tool("disassembler", assembler::find_disassembler(), found);

  const Result<std::filesystem::path> worker = worker::find_worker(common.worker);
  if (!worker) {
    found.add("worker", "missing", worker.error().message, exit_code(worker.error()));
  } else {
    found.add("worker", "ok", worker->string());
    const std::string asked =
        !common.device.empty() ? common.device : env("LAPIDARY_DEVICE").value_or("");
    std::vector<std::string> devices = {"cpu"};
    const Result<int> gpus = driver::cuda_devices();
    for (int i = 0; gpus && i < *gpus; ++i) devices.push_back(fmt::format("cuda:{}", i));
    if (!asked.empty()) devices = {asked};
    for (const std::string& device : devices) check_device(device, *worker, found);
  }
  for (const EnvVariable& variable : env_variables()) {
    if (const auto value = env(variable.name)) found.add(variable.name, "set", *value);
  }
  if (common.json) {
    if (const Status wrote = write_report(*common.json, found.json()); !wrote) {
      print_error(wrote.error());
      return kFailed;
    }
  }
  if (common.json != "-") std::fputs(found.text().c_str(), stdout);
  return found.code();
}

}  // namespace lapidary::cli
