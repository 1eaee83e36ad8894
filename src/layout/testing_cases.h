#pragma once

#include <string>
#include <vector>

namespace lapidary {

/// A line of cute_layout_cases.jsonl.
struct LayoutCase {
  std::string op;
  std::vector<std::string> inputs;
  std::string expected, source, property;
};

/// All of the file at `path`; empty when it cannot be read. Its values are strings without escapes
/// and lists of such: the whole of what this reads of JSON.
std::vector<LayoutCase> layout_cases(const std::string& path);

}  // namespace lapidary
