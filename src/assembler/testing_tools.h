#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/log.h"
#include "support/result.h"

// Helpers of this room's tests.
namespace lapidary::assembler {

/// A variable of the environment for as long as it lives; "" unsets it.
class With {
 public:
  With(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    if (value.empty()) {
      ::unsetenv(name_.c_str());
    } else {
      ::setenv(name_.c_str(), value.c_str(), 1);
    }
  }
  With(const With&) = delete;
  With& operator=(const With&) = delete;
  ~With() {
    if (before_) {
      ::setenv(name_.c_str(), before_->c_str(), 1);
    } else {
      ::unsetenv(name_.c_str());
    }
  }

 private:
  std::string name_;
  std::optional<std::string> before_;
};

/// All log lines for as long as it lives. One thread at a time.
class Logged {
 public:
  Logged() {
    before_ = set_log_sink([this](LogLevel, std::string_view line) { lines_.emplace_back(line); });
  }
  Logged(const Logged&) = delete;
  Logged& operator=(const Logged&) = delete;
  ~Logged() { set_log_sink(before_); }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  LogSink before_;
  std::vector<std::string> lines_;
};

/// Writes a program of the shell.
std::filesystem::path script(const std::filesystem::path& path, const std::string& body);

/// One that answers to --version as a ptxas of that version does, and else runs `body`.
std::filesystem::path fake_tool(const std::filesystem::path& path, const std::string& version,
                                const std::string& body);

/// Contents of a file below testdata.
std::string testdata(const std::string& name);

/// The -arch of the first line of a file below testdata.
std::string target_of(const std::string& ptx);

}  // namespace lapidary::assembler
