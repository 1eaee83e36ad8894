#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/result.h"
#include "support/subprocess.h"
#include "worker/protocol.h"

namespace lapidary::worker {

struct ClientOptions {
  std::filesystem::path program;  ///< of lapidary-worker; see find_worker
  std::string device = "cpu";     ///< its argument
  std::vector<std::string> extra_env;
  std::chrono::milliseconds silence{10000};  ///< without a beat for so long: hung, and killed
  std::function<void(std::string_view step)> on_beat;  ///< progress
  std::function<bool()> cancelled;                     ///< asked ten times a second while waiting
};

/// The parent's end of a worker: starts it when first asked, and again after it was lost.
///
/// A call fails with the worker's own error; with `device_fault` when the process died ("killed by
/// SIGSEGV"), with `timeout` when it was silent for too long and was killed, with `cancelled`.
/// After the last three the worker's session is gone: `lives()` tells.
class Client {
 public:
  explicit Client(ClientOptions options) : options_(std::move(options)) {}

  Result<Reply> call(const Request& request);
  /// The same with another limit of silence, for a suspect that is tried again alone.
  Result<Reply> call(const Request& request, std::chrono::milliseconds silence);

  bool lives() const { return process_.has_value(); }
  /// Device and backends, as the first worker said.
  Result<Reply> hello();
  void stop();

 private:
  Status start();
  Result<Reply> exchange(const Request& request, std::chrono::milliseconds silence);
  Error lost(ErrorCode code, std::string_view why);
  ClientOptions options_;
  std::optional<Subprocess> process_;
  std::optional<Reply> hello_;
  std::string last_step_;
};

/// lapidary-worker: `flag`, $LAPIDARY_WORKER, beside this program, PATH, `installed`.
/// `device_fault` when it is nowhere.
Result<std::filesystem::path> find_worker(const std::string& flag = "",
                                          const std::string& installed = "");

}  // namespace lapidary::worker
