#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/cli.h"
#include "cli/report.h"
#include "cli/session.h"
#include "support/env.h"

namespace lapidary::cli {

int run_doctor(const Common& common) {
  Common quiet = common;
  quiet.quiet = true;
  nlohmann::ordered_json json = {{"version", 1}};
  std::string text;
  int code = kOk;
  const auto row = [&](const char* what, const std::string& state, const std::string& detail) {
    text += fmt::format("{:<17} {:<8} {}\n", what, state, detail);
    json["checks"].push_back({{"what", what}, {"state", state}, {"detail", detail}});
  };
  row("lapidary", "ok", LAPIDARY_VERSION);
  const Result<Session> session = open_session(quiet, false);
  if (!session) {
    row("worker", "missing", session.error().message);
    code = exit_code(session.error());
  } else {
    row("store", session->store->where() == "memory" ? "memory" : "ok", session->store->where());
    const Result<worker::Reply> hello = session->worker->hello();
    if (!hello) {
      row("worker", "failed", hello.error().message);
      code = exit_code(hello.error());
    } else {
      row("worker", "ok", worker::find_worker(common.worker)->string());
      row("cpu", "ok",
          fmt::format("{}; last-level cache {} MiB, memory {} GiB", hello->device.name,
                      hello->device.cache_bytes >> 20, hello->device.memory_bytes >> 30));
      for (const worker::BackendState& backend : hello->backends) {
        row(backend.name.c_str(), backend.missing.empty() ? "ok" : "missing",
            backend.missing.empty() ? backend.version : backend.missing);
      }
    }
  }
  for (const EnvVariable& variable : env_variables()) {
    if (const auto value = env(variable.name))
      row(std::string(variable.name).c_str(), "set", *value);
  }
  if (common.json) {
    const Status wrote = write_report(
        *common.json, json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    if (!wrote) {
      print_error(wrote.error());
      return kFailed;
    }
  }
  if (common.json != "-") std::fputs(text.c_str(), stdout);
  return code;
}

}  // namespace lapidary::cli
