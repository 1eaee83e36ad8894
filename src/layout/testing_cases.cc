#include "layout/testing_cases.h"

#include "support/files.h"
#include "support/text.h"

namespace lapidary {

std::vector<LayoutCase> layout_cases(const std::string& path) {
  std::vector<LayoutCase> cases;
  const auto file = read_file(path);
  if (!file) return cases;
  for (const std::string_view line : split(*file, '\n')) {
    if (trim(line).empty()) continue;
    LayoutCase one;
    std::string key;
    bool in_list = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (line[i] == '[') in_list = true;
      if (line[i] == ']') in_list = false, key.clear();
      if (line[i] != '"') continue;
      const std::size_t end = line.find('"', i + 1);
      std::string word(line.substr(i + 1, end - i - 1));
      i = end;
      if (key.empty()) {
        key = std::move(word);
        continue;
      }
      if (in_list) {
        one.inputs.push_back(std::move(word));
        continue;
      }
      (key == "op"         ? one.op
       : key == "expected" ? one.expected
       : key == "source"   ? one.source
                           : one.property) = std::move(word);
      key.clear();
    }
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace lapidary
