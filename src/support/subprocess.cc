#include "support/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

extern char** environ;

namespace lapidary {
namespace {

using Clock = std::chrono::steady_clock;

/// A descriptor of ours, closed at the end of its scope.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

/// Milliseconds for poll: rounded up, so that a poll never ends before the deadline; -1 without
/// one.
int poll_timeout(Deadline deadline) {
  if (deadline == kNoDeadline) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
}

/// True when `fd` is ready (or broken, which the next call on it tells), false at the deadline.
Result<bool> ready(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{.fd = fd, .events = events, .revents = 0};
    const int count = ::poll(&entry, 1, poll_timeout(deadline));
    if (count > 0) return true;
    if (count == 0 && Clock::now() >= deadline) return false;
    if (count < 0 && errno != EINTR) {
      return fail(ErrorCode::io, "pipe: cannot poll: {}", std::strerror(errno));
    }
  }
}

/// SIGPIPE held back in this thread for a scope and taken away if a write of ours raised it. The
/// process's disposition is the user's, so a library leaves it alone.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigset_t pending;
    sigpending(&pending);
    if (sigismember(&pending, SIGPIPE)) return;  // not ours: it stays pending
    sigemptyset(&set_);
    sigaddset(&set_, SIGPIPE);
    active_ = pthread_sigmask(SIG_BLOCK, &set_, &before_) == 0;
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;
  ~NoSigpipe() {
    if (!active_) return;
    const int error = errno;
    const timespec now{.tv_sec = 0, .tv_nsec = 0};
    while (raised && sigtimedwait(&set_, nullptr, &now) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  bool raised = false;  ///< set on EPIPE

 private:
  sigset_t set_, before_;
  bool active_ = false;
};

/// One write without SIGPIPE; errno as write leaves it.
ssize_t write_some(int fd, const void* bytes, std::size_t count) {
  NoSigpipe guard;
  const ssize_t wrote = ::write(fd, bytes, count);
  guard.raised = wrote < 0 && errno == EPIPE;
  return wrote;
}

struct Pipe {
  Fd read, write;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return fail(ErrorCode::resource_limit, "pipe: cannot make one: {}", std::strerror(errno));
  }
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

/// The attributes and file actions of one spawn. Every descriptor a child gets is first copied
/// above all the numbers the child will use, so that no dup2 can overwrite the source of a later
/// one.
class Spawn {
 public:
  Spawn() {
    posix_spawnattr_init(&attributes_);
    posix_spawn_file_actions_init(&actions_);
  }
  Spawn(const Spawn&) = delete;
  Spawn& operator=(const Spawn&) = delete;
  ~Spawn() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }

  Status give(int child_fd, int ours, int above) {
    Fd copy(::fcntl(ours, F_DUPFD_CLOEXEC, above));
    if (copy.get() < 0) {
      return fail(ErrorCode::resource_limit, "subprocess: cannot pass descriptor {} on: {}", ours,
                  std::strerror(errno));
    }
    posix_spawn_file_actions_adddup2(&actions_, copy.get(), child_fd);
    copies_.push_back(std::move(copy));
    return {};
  }
  void open_null(int child_fd, int flags) {
    posix_spawn_file_actions_addopen(&actions_, child_fd, "/dev/null", flags, 0);
  }
  /// Libraries open descriptors without close-on-exec; they are no business of the child's.
  void close_from(int lowest) { posix_spawn_file_actions_addclosefrom_np(&actions_, lowest); }

  int start(pid_t& pid, bool own_group, char** argv, char** env) {
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setpgroup(&attributes_, 0);
    const int flags =
        POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | (own_group ? POSIX_SPAWN_SETPGROUP : 0);
    posix_spawnattr_setflags(&attributes_, static_cast<short>(flags));
    return ::posix_spawnp(&pid, argv[0], &actions_, &attributes_, argv, env);
  }

 private:
  posix_spawnattr_t attributes_;
  posix_spawn_file_actions_t actions_;
  std::vector<Fd> copies_;
};

std::string_view name_of(std::string_view assignment) {
  return assignment.substr(0, assignment.find('='));
}

/// The environment of this process with `extra` over it, as exec wants it.
std::vector<char*> environment(std::vector<std::string>& extra) {
  std::vector<char*> env;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const auto replaced = [&](const std::string& e) { return name_of(e) == name_of(*entry); };
    if (std::ranges::none_of(extra, replaced)) env.push_back(*entry);
  }
  for (std::string& entry : extra) env.push_back(entry.data());
  env.push_back(nullptr);
  return env;
}

/// What is there to read now is appended; true at the end of the stream.
Result<bool> drain(int fd, std::string& into) {
  char buffer[1 << 14];
  const ssize_t got = ::read(fd, buffer, sizeof buffer);
  if (got > 0) into.append(buffer, static_cast<std::size_t>(got));
  if (got < 0 && errno != EINTR && errno != EAGAIN) {
    return fail(ErrorCode::io, "pipe: cannot read: {}", std::strerror(errno));
  }
  return got == 0;
}

}  // namespace

std::string text(const ExitState& state) {
  if (state.signal == 0) return fmt::format("exit code {}", state.code);
  const char* name = ::sigabbrev_np(state.signal);
  return name != nullptr ? fmt::format("killed by SIG{}", name)
                         : fmt::format("killed by signal {}", state.signal);
}

Result<Subprocess> Subprocess::spawn(const SpawnOptions& options) {
  if (options.argv.empty() || options.argv[0].empty()) {
    return fail(ErrorCode::invalid_argument, "subprocess: an empty command; name a program");
  }
  int top = 2;
  for (const auto& [child, ours] : options.inherit) {
    if (child < 3) {
      return fail(ErrorCode::invalid_argument,
                  "subprocess: descriptor {} is one of the standard three; inherit onto 3 or above",
                  child);
    }
    top = std::max(top, child);
  }

  Spawn how;
  Pipe in, out, err;
  if (options.pipe_stdin) {
    LAPIDARY_TRY(in, make_pipe());
    LAPIDARY_TRY_STATUS(how.give(0, in.read.get(), top + 1));
    // Ours alone: the reading end is another file description. A full pipe then cannot hold us for
    // ever.
    ::fcntl(in.write.get(), F_SETFL, O_NONBLOCK);
  } else {
    how.open_null(0, O_RDONLY);
  }
  if (options.pipe_stdout) {
    LAPIDARY_TRY(out, make_pipe());
    LAPIDARY_TRY_STATUS(how.give(1, out.write.get(), top + 1));
  } else {
    how.open_null(1, O_WRONLY);
  }
  if (options.capture_stderr) {
    LAPIDARY_TRY(err, make_pipe());
    LAPIDARY_TRY_STATUS(how.give(2, err.write.get(), top + 1));
  }
  for (const auto& [child, ours] : options.inherit)
    LAPIDARY_TRY_STATUS(how.give(child, ours, top + 1));
  how.close_from(top + 1);

  std::vector<std::string> arguments = options.argv, extra = options.extra_env;
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::vector<char*> env = environment(extra);

  Subprocess child;
  if (const int error = how.start(child.pid_, options.own_group, argv.data(), env.data());
      error != 0) {
    child.pid_ = -1;
    return fail(ErrorCode::io, "{}: cannot be started: {}", options.argv[0], std::strerror(error));
  }
  child.own_group_ = options.own_group;
  child.stdin_ = in.write.release();
  child.stdout_ = out.read.release();
  child.stderr_ = err.read.release();
  return child;
}

Subprocess& Subprocess::operator=(Subprocess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(stdin_, other.stdin_);
  std::swap(stdout_, other.stdout_);
  std::swap(stderr_, other.stderr_);
  std::swap(own_group_, other.own_group_);
  std::swap(ended_, other.ended_);
  return *this;
}

Subprocess::~Subprocess() {
  if (pid_ > 0) kill();
  for (const int fd : {stdin_, stdout_, stderr_}) {
    if (fd >= 0) ::close(fd);
  }
}

void Subprocess::close_stdin() {
  if (stdin_ >= 0) ::close(std::exchange(stdin_, -1));
}

std::optional<ExitState> Subprocess::reap(bool block) {
  if (ended_ || pid_ <= 0) return ended_;
  siginfo_t info{};
  const int flags = WEXITED | WNOWAIT | (block ? 0 : WNOHANG);
  int got;
  while ((got = ::waitid(P_PID, static_cast<id_t>(pid_), &info, flags)) != 0 && errno == EINTR) {
  }
  if (got == 0 && info.si_pid == 0) return std::nullopt;
  // While the leader is a zombie its number cannot be given to anyone else, so this reaches its
  // group alone.
  if (got == 0 && own_group_) ::kill(-pid_, SIGKILL);
  int status = 0;
  pid_t reaped;
  while ((reaped = ::waitpid(pid_, &status, 0)) < 0 && errno == EINTR) {
  }
  if (reaped != pid_) {
    ended_ = ExitState{.code = -1,
                       .signal = 0};  // the user's process ignores SIGCHLD: how it ended is lost
  } else if (WIFSIGNALED(status)) {
    ended_ = ExitState{.code = -1, .signal = WTERMSIG(status)};
  } else {
    ended_ = ExitState{.code = WEXITSTATUS(status), .signal = 0};
  }
  return ended_;
}

std::optional<ExitState> Subprocess::wait(Deadline deadline) {
  if (deadline == kNoDeadline) return reap(true);
  // Short naps rather than a pidfd: that would need a newer glibc or kernel than we ask for.
  auto nap = std::chrono::microseconds(50);
  for (;;) {
    if (auto state = reap(false)) return state;
    const auto now = Clock::now();
    if (now >= deadline) return std::nullopt;
    std::this_thread::sleep_for(std::min<Clock::duration>(nap, deadline - now));
    nap = std::min(nap * 2, std::chrono::microseconds(2000));
  }
}

ExitState Subprocess::kill() {
  if (!ended_ && pid_ > 0) {
    if (own_group_) ::kill(-pid_, SIGKILL);
    ::kill(pid_, SIGKILL);
    // A process inside an uninterruptible call, such as a driver that tears a broken context down,
    // dies only when the call returns: it is left to its parent's end rather than waited for.
    if (!wait(Clock::now() + kKillPatience)) ended_ = ExitState{.code = -1, .signal = SIGKILL};
  }
  return ended_.value_or(ExitState{.code = -1, .signal = 0});
}

Result<RunOutput> run_process(const std::vector<std::string>& argv, std::string_view stdin_text,
                              std::chrono::milliseconds timeout) {
  return run_process(SpawnOptions{.argv = argv}, stdin_text, timeout, {});
}

Result<RunOutput> run_process(SpawnOptions options, std::string_view stdin_text,
                              std::chrono::milliseconds timeout, const std::stop_token& stop) {
  const Deadline deadline = Clock::now() + timeout;
  options.pipe_stdin = options.pipe_stdout = options.capture_stderr = true;
  LAPIDARY_TRY(Subprocess child, Subprocess::spawn(options));
  RunOutput result;
  if (stdin_text.empty()) child.close_stdin();

  const std::string& program = options.argv[0];
  bool out_open = true, err_open = true;
  while (out_open || err_open) {
    if (stop.stop_requested()) {
      child.kill();
      return fail(ErrorCode::cancelled, "{}: killed, as its work is no longer wanted", program);
    }
    if (Clock::now() >= deadline) {
      child.kill();
      return fail(ErrorCode::timeout, "{}: still running after {} ms; killed", program,
                  timeout.count());
    }
    pollfd fds[3] = {{.fd = out_open ? child.stdout_fd() : -1, .events = POLLIN, .revents = 0},
                     {.fd = err_open ? child.stderr_fd() : -1, .events = POLLIN, .revents = 0},
                     {.fd = child.stdin_fd(), .events = POLLOUT, .revents = 0}};
    // A grandchild may hold the pipes open: look every 20 ms whether the child itself has ended,
    // which ends both.
    const int limit = std::min(poll_timeout(deadline), 20);
    const int count = ::poll(fds, 3, limit);
    if (count < 0 && errno != EINTR) {
      return fail(ErrorCode::io, "{}: cannot poll its pipes: {}", program, std::strerror(errno));
    }
    if (count == 0) child.wait(Clock::now());
    if (count <= 0) continue;
    if (fds[0].revents != 0) {
      LAPIDARY_TRY(const bool end, drain(child.stdout_fd(), result.out));
      out_open = !end;
    }
    if (fds[1].revents != 0) {
      LAPIDARY_TRY(const bool end, drain(child.stderr_fd(), result.err));
      err_open = !end;
    }
    if (fds[2].revents != 0) {
      const ssize_t wrote = write_some(child.stdin_fd(), stdin_text.data(), stdin_text.size());
      if (wrote > 0) stdin_text.remove_prefix(static_cast<std::size_t>(wrote));
      const bool gone = wrote < 0 && errno != EINTR && errno != EAGAIN;
      if (gone || stdin_text.empty()) child.close_stdin();
    }
  }
  child.close_stdin();
  const auto state = child.wait(deadline);
  if (!state) {
    child.kill();
    return fail(ErrorCode::timeout, "{}: still running after {} ms; killed", program,
                timeout.count());
  }
  result.state = *state;
  return result;
}

Status write_all(int fd, std::span<const std::byte> bytes, Deadline deadline) {
  const std::size_t all = bytes.size();
  while (!bytes.empty()) {
    const ssize_t wrote = write_some(fd, bytes.data(), bytes.size());
    if (wrote > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(wrote));
      continue;
    }
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno != EAGAIN) {
      return fail(ErrorCode::io, "pipe: cannot write byte {} of {}: {}", all - bytes.size(), all,
                  std::strerror(errno));
    }
    LAPIDARY_TRY(const bool more, ready(fd, POLLOUT, deadline));
    if (!more) {
      return fail(ErrorCode::timeout, "pipe: the reader took {} of {} bytes until the deadline",
                  all - bytes.size(), all);
    }
  }
  return {};
}

Status write_all(int fd, std::string_view text, Deadline deadline) {
  return write_all(fd, std::as_bytes(std::span(text)), deadline);
}

Result<bool> read_exact(int fd, std::span<std::byte> bytes, Deadline deadline) {
  for (std::size_t done = 0; done < bytes.size();) {
    LAPIDARY_TRY(const bool more, ready(fd, POLLIN, deadline));
    if (!more) {
      return fail(ErrorCode::timeout, "pipe: {} of {} bytes came until the deadline", done,
                  bytes.size());
    }
    const ssize_t got = ::read(fd, bytes.data() + done, bytes.size() - done);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return fail(ErrorCode::io, "pipe: cannot read: {}", std::strerror(errno));
    if (got == 0 && done == 0) return false;
    if (got == 0)
      return fail(ErrorCode::io, "pipe: ended after {} of {} bytes", done, bytes.size());
    done += static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace lapidary
