#include "cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "cli/cli.h"

namespace lapidary::cli {
namespace {

using Clock = std::chrono::steady_clock;
volatile std::sig_atomic_t g_interrupted = 0;

void on_interrupt(int) {
  if (g_interrupted != 0) ::_exit(kInterrupted);
  g_interrupted = 1;
}

std::size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

}  // namespace

bool interrupted() { return g_interrupted != 0; }

void watch_interrupt() {
  struct sigaction action{};
  action.sa_handler = on_interrupt;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

ProgressLine::ProgressLine(bool quiet)
    : quiet_(quiet),
      terminal_(::isatty(STDERR_FILENO) == 1),
      shown_(Clock::now()),
      started_(Clock::now()) {}

void ProgressLine::task(std::string text) {
  task_ = std::move(text);
  stage_.clear();
  step_.clear();
  show(terminal_);
}

void ProgressLine::stage(std::string text) {
  stage_ = std::move(text);
  step_.clear();
  show(false);
}

void ProgressLine::step(std::string_view text) {
  step_ = text;
  show(false);
}

void ProgressLine::show(bool at_once) {
  if (quiet_ || task_.empty()) return;
  const auto now = Clock::now();
  const auto pause = terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(10000);
  if (!at_once && now - shown_ < pause) return;
  shown_ = now;
  std::string line = task_;
  if (!stage_.empty()) line += "  " + stage_;
  if (!step_.empty()) line += "  (" + step_ + ")";
  if (terminal_) {
    line.resize(std::min(line.size(), terminal_columns() - 1));
    std::fprintf(stderr, "\r\033[K%s", line.c_str());
    visible_ = true;
  } else {
    const double seconds = std::chrono::duration<double>(now - started_).count();
    std::fprintf(stderr, "lapidary: %.0f s: %s\n", seconds, line.c_str());
  }
}

void ProgressLine::clear() {
  if (visible_) std::fputs("\r\033[K", stderr);
  visible_ = false;
}

}  // namespace lapidary::cli
