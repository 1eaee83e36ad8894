#include "support/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

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

TEST_F(WriteFile, ThreadsGetWhatTheUmaskLeavesAndKeepTheUmask) {
  const mode_t before = ::umask(027);
  {
    std::vector<std::jthread> writers;
    for (int thread = 0; thread < 8; ++thread) {
      writers.emplace_back([this, thread] {
        for (int i = 0; i < 50; ++i)
          EXPECT_TRUE(write_file(path(fmt::format("{}-{}", thread, i).c_str()), "x", false));
      });
    }
  }
  EXPECT_EQ(::umask(before), 027u);
  EXPECT_EQ(entries(), 400u);
  for (const auto& entry : fs::directory_iterator(folder_->path())) {
    struct stat file{};
    ASSERT_EQ(::stat(entry.path().c_str(), &file), 0);
    EXPECT_EQ(file.st_mode & 0777, 0640u) << entry.path();
  }
}

TEST_F(WriteFile, ThreadsThatWriteOneFileLeaveOneOfTheirs) {
  {
    std::vector<std::jthread> writers;
    for (int thread = 0; thread < 8; ++thread) {
      writers.emplace_back([this, thread] {
        for (int i = 0; i < 50; ++i)
          EXPECT_TRUE(
              write_file(path("one"), std::string(5000, static_cast<char>('a' + thread)), false));
      });
    }
  }
  const std::string got = *read_file(path("one"));
  EXPECT_EQ(got, std::string(5000, got.front()));
  EXPECT_EQ(entries(), 1u);
}

TEST_F(WriteFile, WhatAnotherLeftUnfinishedStays) {
  // Files of a process of the same number, on another host or before: whatever name comes next.
  constexpr int kLeft = 5000;
  const auto left = [&](int i) { return fmt::format("x.{}-{}", ::getpid(), i); };
  for (int i = 0; i < kLeft; ++i) {
    const int fd = ::open(path(left(i).c_str()).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(::write(fd, "theirs", 6), 6);
    ::close(fd);
  }
  EXPECT_TRUE(write_file(path("x"), "ours"));
  EXPECT_EQ(*read_file(path("x")), "ours");
  EXPECT_EQ(entries(), kLeft + 1u);
  for (int i = 0; i < kLeft; ++i) EXPECT_EQ(fs::file_size(path(left(i).c_str())), 6u) << left(i);
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
