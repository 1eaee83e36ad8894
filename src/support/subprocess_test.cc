#include "support/subprocess.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <thread>

#include "support/files.h"

namespace lapidary {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

std::vector<std::string> sh(const std::string& script) { return {"/bin/sh", "-c", script}; }

Subprocess spawn(const SpawnOptions& options) {
  auto child = Subprocess::spawn(options);
  if (!child) {
    ADD_FAILURE() << child.error();
    std::exit(1);
  }
  return *std::move(child);
}

bool gone(pid_t pid) {
  for (int i = 0; i < 500; ++i) {
    if (::kill(pid, 0) != 0) return true;
    // Dead, though whoever adopted it has not reaped it yet.
    const auto stat = read_file(fmt::format("/proc/{}/stat", pid));
    if (!stat || stat->find(") Z ") != std::string::npos) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

TEST(RunProcess, GivesOutputsAndExitState) {
  const struct {
    const char* script;
    std::string out, err;
    ExitState state;
    const char* text;
  } cases[] = {
      {"echo a; echo b >&2", "a\n", "b\n", {0, 0}, "exit code 0"},
      {"exit 3", "", "", {3, 0}, "exit code 3"},
      {"kill -SEGV $$", "", "", {-1, SIGSEGV}, "killed by SIGSEGV"},
      {"kill -9 $$", "", "", {-1, SIGKILL}, "killed by SIGKILL"},
      {"cat", "in", "", {0, 0}, "exit code 0"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.script);
    const auto ran = run_process(sh(c.script), "in", 10s);
    ASSERT_TRUE(ran) << ran.error();
    EXPECT_EQ(ran->out, c.out);
    EXPECT_EQ(ran->err, c.err);
    EXPECT_EQ(ran->state, c.state);
    EXPECT_EQ(text(ran->state), c.text);
  }
}

TEST(RunProcess, LargeStreamsInAllDirectionsDoNotDeadlock) {
  // 8 MiB each way at once, many times what pipes hold.
  const std::string big(8 << 20, 'x');
  const auto ran = run_process(sh("tee /dev/stderr"), big, 60s);
  ASSERT_TRUE(ran) << ran.error();
  EXPECT_TRUE(ran->state.ok());
  EXPECT_TRUE(ran->out == big);
  EXPECT_TRUE(ran->err == big);
}

TEST(RunProcess, AChildThatReadsNothingIsNoError) {
  const auto ran = run_process(sh("exit 0"), std::string(1 << 20, 'x'), 10s);
  ASSERT_TRUE(ran) << ran.error();
  EXPECT_TRUE(ran->state.ok());
}

TEST(RunProcess, TimeLimitKills) {
  const auto begin = steady_clock::now();
  const auto ran = run_process(sh("sleep 100"), "", 100ms);
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().code, ErrorCode::timeout);
  EXPECT_THAT(ran.error().message, testing::HasSubstr("/bin/sh: still running after 100 ms"));
  EXPECT_LT(steady_clock::now() - begin, 5s);
}

TEST(RunProcess, AGrandchildThatHoldsThePipesDoesNotHoldUs) {
  const auto begin = steady_clock::now();
  const auto ran = run_process(sh("sleep 100 & echo $!"), "", 50s);
  ASSERT_TRUE(ran) << ran.error();
  EXPECT_LT(steady_clock::now() - begin, 20s);
  EXPECT_TRUE(gone(std::stoi(ran->out))) << ran->out;
}

TEST(RunProcess, AMissingProgramIsNamed) {
  const auto ran = run_process({"/nowhere/ptxas"}, "", 1s);
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().code, ErrorCode::io);
  EXPECT_EQ(ran.error().message, "/nowhere/ptxas: cannot be started: No such file or directory");
  EXPECT_EQ(run_process({}, "", 1s).error().code, ErrorCode::invalid_argument);
}

TEST(Subprocess, TalksOverItsPipes) {
  SpawnOptions options{.argv = sh("while read line; do echo \"got $line\"; done")};
  options.pipe_stdin = options.pipe_stdout = true;
  Subprocess child = spawn(options);
  ASSERT_TRUE(write_all(child.stdin_fd(), "one\n"));
  std::array<char, 8> reply{};
  const auto bytes = std::as_writable_bytes(std::span(reply));
  EXPECT_TRUE(*read_exact(child.stdout_fd(), bytes, steady_clock::now() + 10s));
  EXPECT_EQ(std::string_view(reply.data(), 8), "got one\n");

  const auto late = read_exact(child.stdout_fd(), bytes, steady_clock::now() + 30ms);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::timeout);
  EXPECT_EQ(child.wait(steady_clock::now()), std::nullopt);

  ASSERT_TRUE(write_all(child.stdin_fd(), "x\n"));
  child.close_stdin();
  const auto cut = read_exact(child.stdout_fd(), bytes, steady_clock::now() + 10s);
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().message, "pipe: ended after 6 of 8 bytes");
  EXPECT_FALSE(*read_exact(child.stdout_fd(), bytes, steady_clock::now() + 10s));
  EXPECT_EQ(child.wait(), (ExitState{0, 0}));
  EXPECT_EQ(child.wait(), (ExitState{0, 0})) << "asked again";
  EXPECT_EQ(child.kill(), (ExitState{0, 0})) << "it ended before";
}

TEST(Subprocess, AReaderThatIsGoneIsAnErrorAndNoSignal) {
  SpawnOptions options{.argv = sh("exit 0")};
  options.pipe_stdin = true;
  Subprocess child = spawn(options);
  child.wait();
  const Status wrote = write_all(child.stdin_fd(), "hello");
  ASSERT_FALSE(wrote);
  EXPECT_EQ(wrote.error().message, "pipe: cannot write byte 0 of 5: Broken pipe");
  sigset_t pending;
  sigpending(&pending);
  EXPECT_FALSE(sigismember(&pending, SIGPIPE));
}

TEST(Subprocess, AReaderThatSleepsRunsIntoTheDeadline) {
  SpawnOptions options{.argv = sh("sleep 100")};
  options.pipe_stdin = true;
  Subprocess child = spawn(options);
  const std::string big(4 << 20, 'x');
  const Status wrote = write_all(child.stdin_fd(), big, steady_clock::now() + 50ms);
  ASSERT_FALSE(wrote);
  EXPECT_EQ(wrote.error().code, ErrorCode::timeout);
}

TEST(Subprocess, StartsInItsOwnGroupWithDefaultSignals) {
  // The parent ignores SIGINT and blocks SIGTERM; the child must feel both.
  const auto before = ::signal(SIGINT, SIG_IGN);
  sigset_t block, mask;
  sigemptyset(&block);
  sigaddset(&block, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &block, &mask);
  EXPECT_EQ(run_process(sh("kill -INT $$; echo alive"), "", 10s)->state, (ExitState{-1, SIGINT}));
  EXPECT_EQ(run_process(sh("kill -TERM $$; echo alive"), "", 10s)->state, (ExitState{-1, SIGTERM}));
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  ::signal(SIGINT, before);

  for (const bool own : {true, false}) {
    SpawnOptions options{.argv = sh("sleep 100")};
    options.own_group = own;
    const Subprocess child = spawn(options);
    EXPECT_EQ(::getpgid(child.pid()), own ? child.pid() : ::getpgrp());
  }
}

TEST(Subprocess, DestructorKillsTheWholeGroup) {
  pid_t grandchild = 0;
  {
    SpawnOptions options{.argv = sh("sleep 100 & printf '%09d' $!; wait")};
    options.pipe_stdout = true;
    const Subprocess child = spawn(options);
    std::array<char, 9> digits{};
    const auto bytes = std::as_writable_bytes(std::span(digits));
    ASSERT_TRUE(*read_exact(child.stdout_fd(), bytes, steady_clock::now() + 10s));
    std::from_chars(digits.data(), digits.data() + digits.size(), grandchild);
    ASSERT_EQ(::kill(grandchild, 0), 0);
  }
  EXPECT_TRUE(gone(grandchild));
}

TEST(Subprocess, MovingMovesTheChild) {
  Subprocess first = spawn({.argv = sh("sleep 100")});
  const pid_t pid = first.pid();
  Subprocess second = std::move(first);
  EXPECT_EQ(second.pid(), pid);
  second = spawn({.argv = sh("exit 4")});
  EXPECT_EQ(second.wait()->code, 4);
}

TEST(Subprocess, PassesOnlyTheNamedDescriptors) {
  // Crossed numbers (our x becomes its y and the other way round), and a leaky one that must not
  // arrive.
  const int leak = ::open("/dev/null", O_RDONLY);  // no O_CLOEXEC
  int a[2], b[2];
  ASSERT_EQ(::pipe2(a, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(b, O_CLOEXEC), 0);
  const int x = a[1], y = b[1];
  ASSERT_LT(std::max(x, y), 10) << "sh knows one digit";
  SpawnOptions options{.argv = sh(fmt::format("echo A >&{}; echo B >&{}", y, x))};
  options.inherit = {{y, x}, {x, y}};
  EXPECT_EQ(spawn(options).wait()->code, 0);
  std::array<char, 2> line{};
  const auto bytes = std::as_writable_bytes(std::span(line));
  for (const auto& [fd, letter] : {std::pair(a[0], 'A'), std::pair(b[0], 'B')}) {
    const auto got = read_exact(fd, bytes, steady_clock::now() + 10s);
    ASSERT_TRUE(got && *got);
    EXPECT_EQ(line[0], letter);
  }
  for (const int fd : {a[0], a[1], b[0], b[1]}) ::close(fd);

  // sh with nothing extra: 0, 1, 2 (and the one ls has open on the folder).
  const auto ran = run_process(sh("ls /proc/self/fd | wc -l"), "", 10s);
  EXPECT_EQ(std::stoi(ran->out), 4);
  ::close(leak);

  SpawnOptions wrong{.argv = sh("true")};
  wrong.inherit = {{1, 1}};
  EXPECT_EQ(Subprocess::spawn(wrong).error().code, ErrorCode::invalid_argument);
}

TEST(Subprocess, ExtraEnvironmentReplaces) {
  ::setenv("LAPIDARY_SUBPROCESS_TEST", "old", 1);
  SpawnOptions options{.argv = sh("test \"$LAPIDARY_SUBPROCESS_TEST\" = new"),
                       .extra_env = {"LAPIDARY_SUBPROCESS_TEST=new"}};
  EXPECT_EQ(spawn(options).wait()->code, 0);
  options.extra_env.clear();
  EXPECT_EQ(spawn(options).wait()->code, 1);
}

TEST(RunProcess, EndsWithItsChildrenWhenNoLongerWanted) {
  std::stop_source source;
  std::jthread stopper([&] {
    std::this_thread::sleep_for(20ms);
    source.request_stop();
  });
  const auto ran =
      run_process(SpawnOptions{.argv = sh("sleep 600 & sleep 600")}, "", 60s, source.get_token());
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().code, ErrorCode::cancelled);
}

TEST(RunProcess, PassesDescriptorsOn) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  SpawnOptions options{.argv = sh("cat; echo err >&2; echo three >&3")};
  options.inherit = {{3, ends[1]}};
  const auto ran = run_process(options, "in", 60s, {});
  ::close(ends[1]);
  ASSERT_TRUE(ran) << ran.error();
  EXPECT_EQ(ran->out, "in");
  EXPECT_EQ(ran->err, "err\n");
  char text[16] = {};
  EXPECT_EQ(::read(ends[0], text, sizeof text), 6);
  EXPECT_STREQ(text, "three\n");
  ::close(ends[0]);
}

}  // namespace
}  // namespace lapidary
