#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/result.h"

// Child processes and the pipes to them. Children are made by posix_spawn, never by fork: a forked
// copy of a process with threads may hang on a lock that some other thread held.
namespace lapidary {

using Deadline = std::chrono::steady_clock::time_point;
inline constexpr Deadline kNoDeadline = Deadline::max();

/// How a process ended: by itself with `code`, or by `signal` (then not 0, and code is -1).
struct ExitState {
  int code = 0;
  int signal = 0;
  bool ok() const { return code == 0 && signal == 0; }
  bool operator==(const ExitState&) const = default;
};

/// "exit code 3", "killed by SIGSEGV".
std::string text(const ExitState& state);

/// How long `Subprocess::kill` waits for the end of what it killed.
inline constexpr std::chrono::seconds kKillPatience{2};

struct SpawnOptions {
  std::vector<std::string> argv = {};       ///< argv[0] without a slash is searched in PATH
  std::vector<std::string> extra_env = {};  ///< "NAME=value", over what this process has
  bool pipe_stdin = false;                  ///< else the child reads /dev/null
  bool pipe_stdout = false;                 ///< else what it prints is dropped
  bool capture_stderr = false;              ///< else it writes to our stderr
  bool own_group = true;                    ///< Ctrl-C in the terminal then reaches only us
  /// Child's descriptor (3 and up) -> ours; no other is passed on.
  std::map<int, int> inherit = {};
};

/// A running child, its default signal mask and dispositions, and our ends of its pipes
/// (close-on-exec; writing ends do not block, see write_all). When it has ended, its whole group is
/// killed, so nothing it started outlives it. The destructor kills and reaps. One thread at a time.
class Subprocess {
 public:
  /// `io` with the program's name and the system's reason when it cannot be started.
  static Result<Subprocess> spawn(const SpawnOptions& options);
  Subprocess(Subprocess&& other) noexcept { *this = std::move(other); }
  Subprocess& operator=(Subprocess&& other) noexcept;
  ~Subprocess();

  pid_t pid() const { return pid_; }
  int stdin_fd() const { return stdin_; }    ///< -1 without a pipe, or once closed
  int stdout_fd() const { return stdout_; }  ///< -1 without a pipe
  int stderr_fd() const { return stderr_; }  ///< -1 without a pipe
  void close_stdin();                        ///< the child reads end of file

  /// How it ended; empty when it still runs at the deadline. May be asked again.
  std::optional<ExitState> wait(Deadline deadline = kNoDeadline);
  /// SIGKILL to it and its group, then reaps it; one that the kernel does not end within
  /// `kKillPatience` is left alone. Nothing happens when it has ended before.
  ExitState kill();

 private:
  Subprocess() = default;
  std::optional<ExitState> reap(bool block);
  pid_t pid_ = -1;
  int stdin_ = -1, stdout_ = -1, stderr_ = -1;
  bool own_group_ = false;
  std::optional<ExitState> ended_;
};

struct RunOutput {
  ExitState state;
  std::string out, err;  ///< all it wrote to stdout and stderr
};

/// Runs a program to its end. An exit code is no error; `timeout` when it had to be killed, `io`
/// when it could not be started. A child that ends without reading all of `stdin_text` is no error
/// either.
Result<RunOutput> run_process(const std::vector<std::string>& argv, std::string_view stdin_text,
                              std::chrono::milliseconds timeout);

/// The same for a child with options of its own (its three pipes are made in any case), which is
/// killed soon after `stop` is asked for: `cancelled` then.
Result<RunOutput> run_process(SpawnOptions options, std::string_view stdin_text,
                              std::chrono::milliseconds timeout, const std::stop_token& stop);

/// Writes all bytes to a pipe, socket or file. `io` when the reader is gone (no SIGPIPE is raised),
/// `timeout` when a descriptor that does not block takes no more until the deadline.
Status write_all(int fd, std::span<const std::byte> bytes, Deadline deadline = kNoDeadline);
Status write_all(int fd, std::string_view text, Deadline deadline = kNoDeadline);

/// Fills `bytes`; false when the stream ends before the first of them. `io` when it ends in the
/// middle, `timeout` at the deadline (bytes read until then are lost).
Result<bool> read_exact(int fd, std::span<std::byte> bytes, Deadline deadline = kNoDeadline);

}  // namespace lapidary
