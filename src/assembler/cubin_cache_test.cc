#include "assembler/cubin_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <thread>

#include "assembler/testing_tools.h"
#include "support/files.h"
#include "support/hash.h"

namespace lapidary::assembler {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Keys of one folder of the cache.
std::string key_of(int i) { return "ab" + sha256_hex(std::to_string(i)).substr(2); }

class Cache : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(folder_) << folder_.error(); }
  fs::path root() const { return folder_->path() / "cubins"; }
  fs::path file(const std::string& key) const {
    return root() / key.substr(0, 2) / (key.substr(2) + ".cubin");
  }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(root())) {
      if (entry.is_regular_file()) names.insert(entry.path().filename());
    }
    return names;
  }
  static void age(const fs::path& path, std::chrono::hours by) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - by);
  }

  Result<TempFolder> folder_ = TempFolder::make();
};

TEST_F(Cache, GivesBackWhatWasPut) {
  const CubinCache cache(root());
  const CubinEntry kEntries[] = {
      {"\177ELF image", "ptxas info    : 0 bytes gmem\n"},
      {"", ""},
      {std::string("\0\n\xff", 3), "7\n7\n"},
      {std::string(1 << 20, 'x'), std::string(1 << 16, 'y')},
  };
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(cache.find(key_of(i)));
    cache.put(key_of(i), kEntries[i]);
  }
  for (int i = 0; i < 4; ++i) EXPECT_EQ(cache.find(key_of(i)), kEntries[i]);
  cache.put(key_of(0), kEntries[1]);
  EXPECT_EQ(cache.find(key_of(0)), kEntries[1]) << "the last one holds";
  EXPECT_EQ(CubinCache(root()).find(key_of(0)), kEntries[1]) << "another process";
  EXPECT_EQ(files().size(), 4u) << "nothing unfinished stays";
}

TEST_F(Cache, WithoutAFolderKeepsNothing) {
  const CubinCache cache{fs::path()};
  cache.put(key_of(0), {"image", "log"});
  EXPECT_FALSE(cache.find(key_of(0)));
}

TEST_F(Cache, EveryDamagedByteIsAMiss) {
  const CubinCache cache(root());
  const CubinEntry entry{"\177ELF image", "a log\n"};
  cache.put(key_of(0), entry);
  const std::string sound = *read_file(file(key_of(0)));
  for (std::size_t i = 0; i < sound.size(); ++i) {
    for (const int flip : {1, 0x20, 0xff}) {
      std::string damaged = sound;
      damaged[i] = static_cast<char>(damaged[i] ^ flip);
      ASSERT_TRUE(write_file(file(key_of(0)), damaged, false));
      EXPECT_FALSE(cache.find(key_of(0))) << "byte " << i << " by " << flip;
    }
    ASSERT_TRUE(write_file(file(key_of(0)), sound.substr(0, i), false));
    EXPECT_FALSE(cache.find(key_of(0))) << "cut at " << i;
  }
  ASSERT_TRUE(write_file(file(key_of(0)), sound + "x", false));
  EXPECT_FALSE(cache.find(key_of(0)));
  ASSERT_TRUE(write_file(file(key_of(1)), sound, false));
  EXPECT_FALSE(cache.find(key_of(1))) << "the entry of another key";
  ASSERT_TRUE(write_file(file(key_of(0)), sound, false));
  EXPECT_EQ(cache.find(key_of(0)), entry);
  cache.put(key_of(1), entry);
  EXPECT_EQ(cache.find(key_of(1)), entry) << "a put mends";
}

TEST_F(Cache, KeysDifferInEveryPart) {
  const AssembleOptions base{.target = "sm_90a"};
  const Tool tool{.path = "/a/ptxas", .version = "13.0.88", .identity = "V13.0.88 build 1"};
  std::set<std::string> keys = {cubin_key("ptx", base, tool)};
  const auto expect_new = [&](const std::string& key, const char* what) {
    EXPECT_TRUE(keys.insert(key).second) << what;
    EXPECT_EQ(key.size(), 64u);
  };
  expect_new(cubin_key("ptx ", base, tool), "text");
  expect_new(cubin_key("ptx", {.target = "sm_90"}, tool), "target");
  expect_new(cubin_key("ptx", {.target = "sm_90a", .optimisation = 2}, tool), "optimisation");
  expect_new(cubin_key("ptx", {.target = "sm_90a", .line_info = true}, tool), "line_info");
  expect_new(cubin_key("ptx", base, {.identity = "V13.0.88 build 2"}), "ptxas");
  expect_new(cubin_key("4 ptx", {.target = "sm_90a"}, {.identity = ""}), "where parts end");
  // Where it lies and how long one waits for it does not matter.
  EXPECT_FALSE(
      keys.insert(cubin_key("ptx", {.target = "sm_90a", .timeout = std::chrono::seconds(1)},
                            {.path = "/b", .identity = "V13.0.88 build 1"}))
          .second);
}

TEST_F(Cache, TheOldestGoWhenItIsFull) {
  const CubinEntry entry{std::string(1000, 'x'), ""};
  const CubinCache all(root());
  for (int i = 0; i < 6; ++i) {
    all.put(key_of(i), entry);
    age(file(key_of(i)), std::chrono::hours(100 - i));
  }
  const auto one = static_cast<std::int64_t>(fs::file_size(file(key_of(0))));
  ASSERT_TRUE(all.find(key_of(1)));  // used: now the youngest
  const std::string other = "cd" + key_of(0).substr(2);
  all.put(other, entry);  // a folder of its own, with a limit of its own
  const fs::path mine = root() / "ab" / "notes.txt";
  ASSERT_TRUE(write_file(mine, "somebody's"));
  age(mine, std::chrono::hours(1000));

  const CubinCache full(root(), 256 * 4 * one);
  full.put(key_of(6), entry);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(full.find(key_of(i)).has_value(), i == 1 || i >= 4) << i;
  EXPECT_TRUE(full.find(other));
  EXPECT_TRUE(fs::exists(mine));
  // What is larger than the limit is kept all the same, alone.
  full.put(key_of(7), {std::string(10000, 'x'), ""});
  EXPECT_TRUE(full.find(key_of(7)));
  EXPECT_FALSE(full.find(key_of(6)));
}

TEST_F(Cache, WhatWasAbandonedIsSweptUp) {
  const CubinCache cache(root());
  cache.put(key_of(0), {"image", "log"});
  const fs::path left = file(key_of(1)).string() + ".123-0";
  ASSERT_TRUE(write_file(left, "half"));
  cache.put(key_of(2), {"image", "log"});
  EXPECT_TRUE(fs::exists(left)) << "somebody may be writing it";
  age(left, std::chrono::hours(2));
  cache.put(key_of(2), {"image", "log"});
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(cache.find(key_of(0)));
}

TEST_F(Cache, SaysOnceThatNothingCanBeWritten) {
  ASSERT_TRUE(write_file(root(), "a file, not a folder"));
  const Logged logged;
  for (int i = 0; i < 3; ++i) {
    const CubinCache cache(root());
    cache.put(key_of(i), {"image", "log"});
    EXPECT_FALSE(cache.find(key_of(i)));
  }
  ASSERT_EQ(logged.lines().size(), 1u);
  EXPECT_THAT(logged.lines()[0], HasSubstr(root().string()));
  EXPECT_THAT(logged.lines()[0], HasSubstr("LAPIDARY_CUBINS"));
}

TEST_F(Cache, AFullDiskIsAMiss) {
  const CubinCache cache(root());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {  // the limit on files' sizes in the place of a disk that is full
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 4096, .rlim_max = 4096};
    int lines = 0;
    set_log_sink([&](LogLevel, std::string_view) { ++lines; });
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(2);
    cache.put(key_of(0), {std::string(10000, 'x'), ""});
    cache.put(key_of(1), {std::string(10000, 'x'), ""});
    ::_exit(cache.find(key_of(0)) ? 3 : lines == 1 ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(files().empty()) << "nothing unfinished stays";
}

/// The only entry of a key that there may be.
CubinEntry entry_of(int i) {
  return {std::string(static_cast<std::size_t>(2000 + 37 * i), static_cast<char>('a' + i)),
          std::to_string(i)};
}

TEST_F(Cache, ProcessesShareAFolder) {
  // Some are killed in the middle; the folder is full all the time, so that everybody evicts.
  constexpr int kKeys = 8, kProcesses = 8;
  const CubinCache cache(root(), 256 * 4 * 2500);
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int n = 0; n < 400; ++n) {
        const int i = (n * 7 + p) % kKeys;
        cache.put(key_of(i), entry_of(i));
        const int j = (n * 5 + p) % kKeys;
        const auto found = cache.find(key_of(j));
        if (found && *found != entry_of(j)) ::_exit(1);
      }
      ::_exit(0);
    }
    children.push_back(child);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  for (int p = 0; p < kProcesses / 2; ++p) ::kill(children[static_cast<std::size_t>(p)], SIGKILL);
  for (int p = 0; p < kProcesses; ++p) {
    int status = 0;
    ASSERT_EQ(::waitpid(children[static_cast<std::size_t>(p)], &status, 0),
              children[static_cast<std::size_t>(p)]);
    if (p >= kProcesses / 2 || WIFEXITED(status)) {
      ASSERT_TRUE(WIFEXITED(status)) << "process " << p;
      EXPECT_EQ(WEXITSTATUS(status), 0) << "process " << p << " found a wrong entry";
    }
  }
  int found = 0;
  for (int i = 0; i < kKeys; ++i) {
    if (const auto entry = cache.find(key_of(i))) {
      EXPECT_EQ(*entry, entry_of(i));
      ++found;
    }
  }
  EXPECT_GE(found, 1);
  EXPECT_LE(found, 4);
}

TEST_F(Cache, TheFolderIsTheUsers) {
  const With cubins("LAPIDARY_CUBINS", ""), cache("XDG_CACHE_HOME", "/cache"),
      home("HOME", "/home/me");
  EXPECT_EQ(default_cubin_folder(), "/cache/lapidary/cubins");
  {
    const With relative("XDG_CACHE_HOME", "not/absolute");
    EXPECT_EQ(default_cubin_folder(), "/home/me/.cache/lapidary/cubins");
    const With nowhere("HOME", "");
    EXPECT_EQ(default_cubin_folder(), "");
  }
  const With asked("LAPIDARY_CUBINS", "/mine");
  EXPECT_EQ(default_cubin_folder(), "/mine");
  const With off("LAPIDARY_CUBINS", "OFF");
  EXPECT_EQ(default_cubin_folder(), "");
}

}  // namespace
}  // namespace lapidary::assembler
