#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace lapidary::cli {

/// What is being done, on stderr: one line that is written over on a terminal, a line every ten
/// seconds elsewhere.
class ProgressLine {
 public:
  explicit ProgressLine(bool quiet);
  ~ProgressLine() { clear(); }
  /// "[3/36] llama3-8b.qkv m=4": what the following steps belong to.
  void task(std::string text);
  void stage(std::string text);
  void step(std::string_view text);
  /// Takes the line off a terminal, before something else is printed.
  void clear();

 private:
  void show(bool at_once);
  bool quiet_, terminal_;
  std::string task_, stage_, step_;
  std::chrono::steady_clock::time_point shown_, started_;
  bool visible_ = false;
};

}  // namespace lapidary::cli
