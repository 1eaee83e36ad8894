// Many processes on one file, and processes that are killed while they write.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <thread>

#include "store/cache.h"
#include "store/testing_store.h"
#include "support/random.h"
#include "support/subprocess.h"
#include "support/text.h"

namespace lapidary::store {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::child_command;
using testing::entry;
using testing::temp_folder;

Subprocess spawn(std::vector<std::string> arguments) {
  SpawnOptions options{.argv = child_command(std::move(arguments))};
  options.pipe_stdout = true;
  auto child = Subprocess::spawn(options);
  if (!child) {
    ADD_FAILURE() << child.error();
    std::exit(1);
  }
  return *std::move(child);
}

/// All that a child still says, up to its end.
std::string rest_of(const Subprocess& child) {
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = ::read(child.stdout_fd(), buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(got));
  }
  return text;
}

/// Processes that put, erase, merge and read own and shared keys at once: every answer is right, no
/// `put` fails for being locked out, and in the end every own key holds what its process left.
void run_mixed(int processes, int operations) {
  const TempFolder folder = temp_folder();
  const fs::path path = folder.path() / "s.db";
  std::vector<Subprocess> children;
  for (int p = 0; p < processes; ++p) {
    children.push_back(
        spawn({"mixed", path.string(), std::to_string(p), std::to_string(operations)}));
  }
  std::map<std::string, std::string> expected;
  for (Subprocess& child : children) {
    const std::string said = rest_of(child);
    EXPECT_EQ(child.wait(), (ExitState{0, 0}));
    for (const std::string_view line : split(said, '\n')) {
      if (line.empty()) continue;
      const std::size_t tab = line.find('\t');
      ASSERT_NE(tab, std::string::npos);
      expected[std::string(line.substr(0, tab))] = line.substr(tab + 1);
    }
  }
  ASSERT_GT(expected.size(), static_cast<std::size_t>(processes * std::min(operations, 50) / 4));
  const auto store = testing::open(path);
  std::size_t present = 0;
  for (const auto& [key, value] : expected) {
    const auto found = store->find(Kind::result, key);
    ASSERT_TRUE(found);
    EXPECT_EQ(*found ? (**found).value : "", value) << key;
    present += value.empty() ? 0 : 1;
  }
  std::size_t own = 0;
  for (const Entry& e : testing::all(*store)) own += e.key.starts_with("own ") ? 1 : 0;
  EXPECT_EQ(own, present) << "and no others";
  const auto report = verify(path);
  ASSERT_TRUE(report) << report.error();
  EXPECT_TRUE(report->ok()) << report->integrity;
}

TEST(Processes, MixedOperationsLoseNothing) { run_mixed(8, 100); }
TEST(SlowProcesses, SixtyFourWithAThousandMixedOperationsEach) { run_mixed(64, 1000); }

/// Kills a writing child at some moment `kills` times. What it had said before it died was
/// committed.
void run_kills(int kills) {
  const TempFolder folder = temp_folder();
  std::int64_t acknowledged = 0, idle = 0;
  int file = 0;
  fs::path path;
  std::vector<int> in_file;
  const auto check = [&](const std::vector<int>& numbers) {
    const auto store = testing::open(path);
    for (const int i : numbers) {
      const auto found = store->find(entry(i).kind, entry(i).key);
      ASSERT_TRUE(found && *found == entry(i)) << "entry " << i << " was committed and is lost";
    }
  };
  for (int kill = 0; kill < kills; ++kill) {
    if (kill % 20 == 0) {  // a new file, so that making it is interrupted as well
      path = folder.path() / fmt::format("{}.db", file++);
      in_file.clear();
    }
    Subprocess child = spawn({"write", path.string(), std::to_string(1000 * kill), "1000"});
    // Half of them while they start and make the file, half after their first acknowledged entry.
    if (kill % 2 == 0) {
      pollfd first{.fd = child.stdout_fd(), .events = POLLIN, .revents = 0};
      ASSERT_EQ(::poll(&first, 1, 60'000), 1);
    }
    std::this_thread::sleep_for(
        std::chrono::microseconds(mix(3, static_cast<std::uint64_t>(kill)) % 8000));
    child.kill();
    std::string said = rest_of(child);
    said.resize(said.rfind('\n') + 1);  // a last line without its end was never said
    std::vector<int> numbers;
    for (const std::string_view line : split(said, '\n')) {
      if (!line.empty()) numbers.push_back(std::stoi(std::string(line)));
    }
    acknowledged += static_cast<std::int64_t>(numbers.size());
    idle += numbers.empty() ? 1 : 0;
    in_file.insert(in_file.end(), numbers.begin(), numbers.end());
    check(numbers);
    if (kill % 20 == 19 || kill + 1 == kills) {
      check(in_file);
      const auto report = verify(path);
      ASSERT_TRUE(report) << report.error();
      EXPECT_TRUE(report->ok()) << report->integrity;
    }
    if (::testing::Test::HasFailure()) FAIL() << "kill " << kill;
  }
  EXPECT_LE(idle, (kills + 1) / 2);
  EXPECT_GE(acknowledged, kills / 2);
  fmt::print("{} kills, {} before a first entry, {} entries acknowledged\n", kills, idle,
             acknowledged);
}

TEST(Kill, CommittedEntriesSurvive) { run_kills(40); }
TEST(SlowKill, AThousandTimesCommittedEntriesSurvive) { run_kills(1000); }

}  // namespace
}  // namespace lapidary::store
