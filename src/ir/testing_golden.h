#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/files.h"

// Texts that are kept in files of the repository, for tests of this room and of those that print.
namespace lapidary::testing {

/// Holds `got` to the text of the file at `path` below the repository. With LAPIDARY_REGENERATE=1
/// in the environment the file is written instead: read its diff.
inline void expect_golden(const std::string& path, const std::string& got) {
  const std::filesystem::path file = std::filesystem::path(LAPIDARY_SOURCE_DIR) / path;
  if (std::getenv("LAPIDARY_REGENERATE") != nullptr) {
    std::filesystem::create_directories(file.parent_path());
    const Status written = write_file(file, got, false);
    ASSERT_TRUE(written) << written.error();
    return;
  }
  const Result<std::string> expected = read_file(file);
  ASSERT_TRUE(expected) << expected.error();
  EXPECT_EQ(got, *expected) << path << " is stale: run this test with LAPIDARY_REGENERATE=1";
}

}  // namespace lapidary::testing
