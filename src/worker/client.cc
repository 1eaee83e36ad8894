#include "worker/client.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "support/env.h"
#include "support/parallel.h"
#include "support/text.h"

namespace lapidary::worker {
namespace {

using Clock = std::chrono::steady_clock;

// A fresh worker may have to load a device's libraries first.
constexpr std::chrono::milliseconds kHelloSilence{30000};

/// Waits until `fd` can be read; false at the deadline.
bool readable(int fd, Deadline deadline) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    const int got = ::poll(&entry, 1, static_cast<int>(std::max<long long>(0, left)));
    if (got > 0) return true;
    if (got == 0 || errno != EINTR) return false;
  }
}

}  // namespace

Status Client::start() {
  SpawnOptions spawn{.argv = {options_.program.string(), options_.device},
                     .extra_env = options_.extra_env,
                     .pipe_stdin = true,
                     .pipe_stdout = true};
  // Libraries that bring their own threads take as many as ours.
  spawn.extra_env.push_back("OMP_NUM_THREADS=" + std::to_string(default_threads()));
  Result<Subprocess> process = Subprocess::spawn(spawn);
  if (!process) return Error{ErrorCode::device_fault, "worker: " + process.error().message};
  process_.emplace(*std::move(process));
  last_step_ = "start";
  // Says hello before anything else: the probe of a device that is used again.
  Result<Reply> hello =
      exchange({.ask = Ask::hello, .problem = "", .candidate = {}}, kHelloSilence);
  if (!hello) {
    if (process_) stop();
    // Whatever keeps it from its device: the device cannot be had.
    const bool interrupted = hello.error().code == ErrorCode::cancelled;
    return interrupted ? hello.error() : Error{ErrorCode::device_fault, hello.error().message};
  }
  hello_ = *std::move(hello);
  return {};
}

Error Client::lost(ErrorCode code, std::string_view why) {
  process_->kill();
  process_.reset();
  return fail(code, "{}", why);
}

Result<Reply> Client::call(const Request& request) { return call(request, options_.silence); }

Result<Reply> Client::call(const Request& request, std::chrono::milliseconds silence) {
  if (!process_) LAPIDARY_TRY_STATUS(start());
  return exchange(request, silence);
}

Result<Reply> Client::exchange(const Request& request, std::chrono::milliseconds silence) {
  const auto died = [&] {
    const std::optional<ExitState> state =
        process_->wait(Clock::now() + std::chrono::milliseconds(500));
    return lost(ErrorCode::device_fault,
                fmt::format("the worker ended ({}) during: {}",
                            state ? text(*state) : "its pipe closed", last_step_));
  };
  if (!send_frame(process_->stdin_fd(), encode(request), Clock::now() + silence)) return died();
  Deadline deadline = Clock::now() + silence;
  for (;;) {
    if (options_.cancelled && options_.cancelled())
      return lost(ErrorCode::cancelled, "interrupted");
    // Short waits, so that Ctrl-C is answered while a kernel runs.
    const Deadline slice =
        std::min<Deadline>(deadline, Clock::now() + std::chrono::milliseconds(100));
    if (!readable(process_->stdout_fd(), slice)) {
      if (Clock::now() < deadline) continue;
      return lost(ErrorCode::timeout,
                  fmt::format("no sign of life for {:.1f} s during: {}",
                              std::chrono::duration<double>(silence).count(), last_step_));
    }
    const auto frame = receive_frame(process_->stdout_fd(), deadline);
    if (!frame || !frame->has_value()) return died();
    Result<Reply> reply = decode_reply(**frame);
    if (!reply) return lost(ErrorCode::internal, reply.error().message);
    if (reply->beat) {
      last_step_ = *reply->beat;
      if (options_.on_beat) options_.on_beat(last_step_);
      deadline = Clock::now() + silence;
      continue;
    }
    // Its context is lost, and it ends.
    if (reply->error && reply->error->code == ErrorCode::device_fault)
      return lost(ErrorCode::device_fault, reply->error->message);
    if (reply->error) return *reply->error;
    return reply;
  }
}

Result<Reply> Client::hello() {
  if (!process_) LAPIDARY_TRY_STATUS(start());
  return *hello_;
}

void Client::stop() {
  if (!process_) return;
  process_->close_stdin();
  if (!process_->wait(Clock::now() + std::chrono::milliseconds(500))) process_->kill();
  process_.reset();
}

Result<std::filesystem::path> find_worker(const std::string& flag, const std::string& installed) {
  namespace fs = std::filesystem;
  const auto usable = [](const fs::path& path) {
    return ::access(path.c_str(), X_OK) == 0 && !fs::is_directory(path);
  };
  const std::string asked = !flag.empty() ? flag : env("LAPIDARY_WORKER").value_or("");
  if (!asked.empty()) {
    if (usable(asked)) return fs::path(asked);
    return fail(ErrorCode::invalid_argument,
                "worker: '{}' cannot be executed; give the path of lapidary-worker", asked);
  }
  std::vector<fs::path> places;
  std::error_code ignored;
  if (const fs::path self = fs::read_symlink("/proc/self/exe", ignored); !self.empty())
    places.push_back(self.parent_path());
  const std::string path = system_env("PATH").value_or("");
  for (const std::string_view folder : split(path, ':')) places.emplace_back(folder);
  for (const fs::path& folder : places) {
    if (usable(folder / "lapidary-worker")) return folder / "lapidary-worker";
  }
  if (!installed.empty() && usable(installed)) return fs::path(installed);
  return fail(ErrorCode::device_fault,
              "worker: lapidary-worker is neither beside this program nor in PATH; set "
              "LAPIDARY_WORKER to its path");
}

}  // namespace lapidary::worker
