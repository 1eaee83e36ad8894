// The arrows between rooms are the lapidary_room() lines of CMakeLists.txt; this test holds every
// #include to them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "support/files.h"

namespace lapidary {
namespace {

namespace fs = std::filesystem;
const fs::path kRoot = LAPIDARY_SOURCE_DIR;

/// Room -> the rooms it may include: itself, those behind its arrows, and what they may include.
std::map<std::string, std::set<std::string>> arrows() {
  std::map<std::string, std::set<std::string>> may;
  const std::string cmake = *read_file(kRoot / "CMakeLists.txt");
  const std::regex room(R"(\nlapidary_room\((\w+)(?: DEPS ([\w ]+))?\))");
  for (std::sregex_iterator it(cmake.begin(), cmake.end(), room), end; it != end; ++it) {
    std::set<std::string>& mine = may[(*it)[1]];
    mine = {(*it)[1], "support"};
    std::istringstream deps((*it)[2]);
    for (std::string dep; deps >> dep;) {
      // An arrow to a room further down would be an upward include.
      EXPECT_TRUE(may.contains(dep))
          << (*it)[1] << " depends on " << dep << ", which stands below it";
      mine.insert(may[dep].begin(), may[dep].end());
    }
  }
  return may;
}

/// Includes of one file that break the arrows. `room` is "" for include/lapidary.
std::vector<std::string> violations(const std::string& source, const std::string& room,
                                    const std::map<std::string, std::set<std::string>>& may) {
  std::vector<std::string> found;
  const std::regex include(R"re((?:^|\n)[ \t]*#[ \t]*include[ \t]*"([^"]+)")re");
  for (std::sregex_iterator it(source.begin(), source.end(), include), end; it != end; ++it) {
    const std::string path = (*it)[1];
    const std::string first = path.substr(0, path.find('/'));
    if (first == "lapidary") continue;
    if (room.empty() || !may.at(room).contains(first)) found.push_back(path);
  }
  return found;
}

TEST(Includes, GoOnlyUpward) {
  const auto may = arrows();
  ASSERT_GE(may.size(), 10u);
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "src")) {
    const std::string extension = entry.path().extension();
    if (extension != ".h" && extension != ".cc" && extension != ".inc") continue;
    const std::string room = *fs::relative(entry.path(), kRoot / "src").begin();
    ASSERT_TRUE(may.contains(room)) << entry.path() << " stands in no room of CMakeLists.txt";
    EXPECT_TRUE(violations(*read_file(entry.path()), room, may).empty())
        << entry.path() << " includes " << violations(*read_file(entry.path()), room, may).front()
        << ", which is not above it";
    ++files;
  }
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "include")) {
    if (!entry.is_regular_file()) continue;
    const std::string source = *read_file(entry.path());
    EXPECT_TRUE(violations(source, "", may).empty())
        << entry.path() << " includes something of src/";
    EXPECT_EQ(source.find("<fmt/"), std::string::npos) << entry.path() << " includes fmt";
  }
  EXPECT_GT(files, 10);
}

TEST(Includes, AnUpwardIncludeIsSeen) {
  const auto may = arrows();
  EXPECT_EQ(violations("#include \"tuner/tune.h\"\n", "store", may).size(), 1u);
  EXPECT_EQ(
      violations("#include \"problem/epilogue.h\"\n#include \"support/log.h\"\n", "store", may)
          .size(),
      0u);
  EXPECT_EQ(violations("  #  include \"support/log.h\"\n", "", may).size(), 1u);
}

}  // namespace
}  // namespace lapidary
