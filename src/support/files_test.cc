#include "support/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

namespace lapidary {
namespace {

namespace fs = std::filesystem;

class WriteFile : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(folder_) << folder_.error(); }
  fs::path path(const char* name) const { return folder_->path() / name; }
  std::size_t entries() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_->path()), fs::directory_iterator()));
  }
  Result<TempFolder> folder_ = TempFolder::make();
};

TEST_F(WriteFile, APipeIsWrittenAndStays) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const int reader = ::open(path("pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(reader, 0);
  EXPECT_TRUE(write_file(path("pipe"), "report"));
  char got[16] = {};
  EXPECT_EQ(::read(reader, got, sizeof got), 6);
  EXPECT_STREQ(got, "report");
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
  EXPECT_EQ(entries(), 1u);
}

TEST_F(WriteFile, ALinkStaysAndItsTargetIsReplaced) {
  ASSERT_TRUE(write_file(path("target"), "a longer text than the next"));
  fs::create_symlink("target", path("link"));
  EXPECT_TRUE(write_file(path("link"), "new"));
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(*read_file(path("target")), "new");
  EXPECT_EQ(entries(), 2u);
}

TEST_F(WriteFile, ALinkToNothingMakesItsTarget) {
  fs::create_symlink("later", path("link"));
  EXPECT_TRUE(write_file(path("link"), "new"));
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(*read_file(path("later")), "new");
}

TEST_F(WriteFile, KeepsThePermissionsOfWhatItReplaces) {
  ASSERT_TRUE(write_file(path("x"), "old"));
  ASSERT_EQ(::chmod(path("x").c_str(), 0640), 0);
  EXPECT_TRUE(write_file(path("x"), "new"));
  struct stat entry{};
  ASSERT_EQ(::stat(path("x").c_str(), &entry), 0);
  EXPECT_EQ(entry.st_mode & 0777, 0640u);
}

TEST_F(WriteFile, AFolderIsAnErrorAndStays) {
  fs::create_directory(path("folder"));
  const Status wrote = write_file(path("folder"), "x");
  ASSERT_FALSE(wrote);
  EXPECT_EQ(wrote.error().code, ErrorCode::io);
  EXPECT_TRUE(fs::is_directory(path("folder")));
  EXPECT_EQ(entries(), 1u);
}

TEST_F(WriteFile, AnOpenFileOfThisProcessIsWrittenAsItIs) {
  const int fd = ::open(path("out").c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::write(fd, "table\n", 6), 6);
  EXPECT_TRUE(write_file("/proc/self/fd/" + std::to_string(fd), "report\n"));
  ::close(fd);
  EXPECT_EQ(*read_file(path("out")), "table\nreport\n");
}

}  // namespace
}  // namespace lapidary
