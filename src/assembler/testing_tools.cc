#include "assembler/testing_tools.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/files.h"

namespace lapidary::assembler {

namespace fs = std::filesystem;

fs::path script(const fs::path& path, const std::string& body) {
  fs::create_directories(path.parent_path());
  EXPECT_TRUE(write_file(path, "#!/bin/sh\n" + body + "\n"));
  fs::permissions(path, fs::perms::owner_all);
  return path;
}

fs::path fake_tool(const fs::path& path, const std::string& version, const std::string& body) {
  return script(path, fmt::format("if [ \"$1\" = --version ]; then\n"
                                  "  echo 'ptxas: NVIDIA (R) Ptx optimizing assembler'\n"
                                  "  echo 'Cuda compilation tools, release 0.0, V{}'\n"
                                  "  exit 0\nfi\n{}",
                                  version, body));
}

std::string testdata(const std::string& name) {
  const auto contents = read_file(fs::path(LAPIDARY_SOURCE_DIR) / "src/assembler/testdata" / name);
  EXPECT_TRUE(contents) << contents.error();
  return contents ? *contents : std::string();
}

std::string target_of(const std::string& ptx) {
  const std::string first = ptx.substr(0, ptx.find('\n'));
  const std::size_t at = first.find("-arch=");
  EXPECT_NE(at, std::string::npos) << first;
  return first.substr(at + 6);
}

}  // namespace lapidary::assembler
