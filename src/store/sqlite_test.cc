// Files that cannot be used as they should: what is left is a miss and a warning, never a wrong
// entry.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "store/cache.h"
#include "store/database.h"
#include "store/row.h"
#include "store/testing_store.h"
#include "support/log.h"
#include "support/subprocess.h"
#include "support/text.h"

namespace lapidary::store {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::all;
using ::testing::ElementsAre;
using testing::entry;
using ::testing::HasSubstr;
using testing::sql;
using testing::temp_folder;
using testing::Warnings;

constexpr OpenOptions kStrict{.fall_back = false};

/// A closed store with entries 0 to count - 1.
void make_store(const fs::path& path, int count) {
  const auto store = testing::open(path);
  for (int i = 0; i < count; ++i) ASSERT_TRUE(store->put(entry(i)));
}

std::optional<Entry> find(Store& store, const Entry& wanted) {
  const auto found = store.find(wanted.kind, wanted.key);
  EXPECT_TRUE(found) << "find gives no errors";
  return found ? *found : std::nullopt;
}

/// Puts, finds and erases in a store that is expected to live in memory.
void expect_works(Store& store) {
  EXPECT_TRUE(store.put(entry(500)));
  EXPECT_EQ(find(store, entry(500)), entry(500));
  EXPECT_EQ(*store.put_newer(entry(500, 1)), Merged::older);
  EXPECT_EQ(*store.put_newer(entry(500, 2'000'000'000)), Merged::newer);
  EXPECT_TRUE(store.erase(entry(500).kind, entry(500).key));
  EXPECT_EQ(find(store, entry(500)), std::nullopt);
}

TEST(Sqlite, EntriesOutliveTheStore) {
  const TempFolder folder = temp_folder();
  const fs::path path = folder.path() / "deep" / "er" / "a b?#%.db";
  const Warnings warnings;
  make_store(path, 12);
  const auto store = testing::open(path);
  EXPECT_EQ(all(*store).size(), 12u);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(find(*store, entry(i)), entry(i));
  EXPECT_EQ(store->where(), path.string());
  EXPECT_THAT(warnings.lines(), ElementsAre());
}

TEST(Sqlite, TwoStoresOnOneFileSeeEachOther) {
  const TempFolder folder = temp_folder();
  const auto a = testing::open(folder.path() / "s.db"), b = testing::open(folder.path() / "s.db");
  ASSERT_TRUE(a->put(entry(1)));
  EXPECT_EQ(find(*b, entry(1)), entry(1));
  ASSERT_TRUE(b->erase(entry(1).kind, entry(1).key));
  EXPECT_EQ(find(*a, entry(1)), std::nullopt);
}

TEST(Sqlite, ANameThatSqliteWouldReadAsSomethingElse) {
  const TempFolder folder = temp_folder();
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  for (const char* name : {":memory:", "file:x.db?mode=memory"}) {
    make_store(name, 1);
    EXPECT_TRUE(fs::is_regular_file(folder.path() / name)) << name;
  }
  fs::current_path(before);
}

TEST(Sqlite, NetworkFileSystemsGetARollbackJournal) {
  EXPECT_EQ(journal_for(0x6969), Journal::rollback) << "NFS";
  EXPECT_EQ(journal_for(0xffffffffff534d42), Journal::rollback) << "CIFS, sign-extended";
  EXPECT_EQ(journal_for(0xef53), Journal::log) << "ext4";
  EXPECT_EQ(journal_for(0x01021994), Journal::log) << "tmpfs";

  const TempFolder folder = temp_folder();
  const fs::path path = folder.path() / "s.db";
  make_store(path, 5);  // with a log, as if it were copied from a local disk
  const Opened a = open_database(path, Access::write, true, Journal::rollback);
  const Opened b = open_database(path, Access::write, true, Journal::rollback);
  ASSERT_TRUE(a.writable && b.writable);
  for (int i = 5; i < 20; ++i) ASSERT_TRUE((i % 2 == 0 ? a : b).database->put(to_row(entry(i))));
  for (const Opened* from : {&a, &b}) {
    int sound = 0;
    EXPECT_TRUE(from->database->scan(
        false, [&](const Row& row) { sound += state(row) == RowState::sound ? 1 : 0; }));
    EXPECT_EQ(sound, 20);
  }
  EXPECT_FALSE(fs::exists(path.string() + "-wal"));
  EXPECT_FALSE(fs::exists(path.string() + "-shm"));
}

// ------------------------------------------------------------------------------------------------------
// Unusable files. `make` prepares the path; nothing of it may have changed afterwards.

struct Unusable {
  const char* name;
  const char* problem;  // part of the message
  void (*make)(const fs::path& path);
};

constexpr Unusable kUnusable[] = {
    {"Folder", "it is a folder", [](const fs::path& path) { fs::create_directories(path); }},
    {"Text", "it is not a store of ours",
     [](const fs::path& path) { ASSERT_TRUE(write_file(path, "this is a text file\n")); }},
    {"LongText", "it is not a store of ours",
     [](const fs::path& path) { ASSERT_TRUE(write_file(path, std::string(10'000, 'x'))); }},
    {"Foreign", "it is not a store of ours",
     [](const fs::path& path) {
       sql(path, "PRAGMA journal_mode=WAL; CREATE TABLE cookies(x); INSERT INTO cookies VALUES(1)");
     }},
    {"OtherTable", "its tables are not the ones that we make",
     [](const fs::path& path) {
       make_store(path, 3);
       sql(path, "CREATE TABLE more(x)");
     }},
    {"Trigger", "its tables are not the ones that we make",
     [](const fs::path& path) {
       make_store(path, 3);
       sql(path, "CREATE TRIGGER t AFTER INSERT ON entries BEGIN DELETE FROM entries; END");
     }},
    {"View", "its tables are not the ones that we make",
     [](const fs::path& path) {
       make_store(path, 3);
       sql(path,
           "ALTER TABLE entries RENAME TO hidden; CREATE VIEW entries AS SELECT * FROM hidden");
     }},
    {"DamagedHeader", "it is not a store of ours",
     [](const fs::path& path) {
       make_store(path, 3);
       std::string bytes = *read_file(path);
       bytes[3] = 'x';
       ASSERT_TRUE(write_file(path, bytes));
     }},
    {"DamagedSchema", "malformed",
     [](const fs::path& path) {
       make_store(path, 3);
       std::string bytes = *read_file(path);
       bytes.replace(100, 8, 8, '\xff');
       ASSERT_TRUE(write_file(path, bytes));
     }},
};

class UnusableFile : public ::testing::TestWithParam<Unusable> {};
INSTANTIATE_TEST_SUITE_P(Is, UnusableFile, ::testing::ValuesIn(kUnusable),
                         [](const auto& which) { return std::string(which.param.name); });

TEST_P(UnusableFile, IsLeftAsItIs) {
  const TempFolder folder = temp_folder();
  const fs::path path = folder.path() / "s.db";
  GetParam().make(path);
  const bool file = fs::is_regular_file(path);
  const std::string before = file ? *read_file(path) : "";

  const auto strict = open_sqlite(path, kStrict);
  ASSERT_FALSE(strict);
  EXPECT_EQ(strict.error().code, ErrorCode::io);
  EXPECT_THAT(strict.error().message, HasSubstr("store: " + path.string() + ": "));
  EXPECT_THAT(strict.error().message, HasSubstr(GetParam().problem));
  {
    const Warnings warnings;
    const auto store = testing::open(path, {});
    expect_works(*store);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(find(*store, entry(i)), std::nullopt);
    EXPECT_EQ(store->where(), "memory");
    EXPECT_THAT(warnings.lines(), ElementsAre(HasSubstr(GetParam().problem)));
  }
  EXPECT_FALSE(verify(path));
  EXPECT_FALSE(gc(path, {}));
  if (file) {
    EXPECT_TRUE(*read_file(path) == before) << "the file has changed";
  }
}

TEST(Sqlite, MissingFilesAreMadeOnlyWhenAsked) {
  const TempFolder folder = temp_folder();
  const fs::path path = folder.path() / "none" / "s.db";
  EXPECT_THAT(open_sqlite(path, {.create = false, .fall_back = false}).error().message,
              HasSubstr("no such file"));
  EXPECT_FALSE(open_sqlite(path, {.read_only = true, .fall_back = false}));
  EXPECT_FALSE(fs::exists(path.parent_path()));
  ASSERT_TRUE(write_file(folder.path() / "file", "x"));
  EXPECT_THAT(open_sqlite(folder.path() / "file" / "s.db", kStrict).error().message,
              HasSubstr("cannot make its folder"));
  EXPECT_THAT(open_sqlite("", kStrict).error().message, HasSubstr("LAPIDARY_STORE"));
  EXPECT_THAT(open_sqlite("/dev/null", kStrict).error().message, HasSubstr("not a regular file"));
  ASSERT_EQ(::mkfifo((folder.path() / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(open_sqlite(folder.path() / "fifo", kStrict).error().message,
              HasSubstr("not a regular file"));
}

TEST(Sqlite, AnEmptyFileBecomesAStore) {
  const TempFolder folder = temp_folder();
  ASSERT_TRUE(write_file(folder.path() / "s.db", ""));
  make_store(folder.path() / "s.db", 2);
  EXPECT_EQ(all(*testing::open(folder.path() / "s.db")).size(), 2u);
}

TEST(Sqlite, ReadOnlyReadsAndKeepsNewEntriesInMemory) {
  const TempFolder folder = temp_folder();
  const fs::path path = folder.path() / "s.db";
  make_store(path, 5);
  const std::string before = *read_file(path);
  {
    const Warnings warnings;
    const auto store = testing::open(path, {.read_only = true});
    expect_works(*store);
    EXPECT_TRUE(store->erase(entry(1).kind, entry(1).key));
    EXPECT_TRUE(store->put(entry(2, 5, "over")));
    EXPECT_EQ(find(*store, entry(0)), entry(0));
    EXPECT_EQ(find(*store, entry(1)), std::nullopt);
    EXPECT_EQ(find(*store, entry(2))->value, "over");
    EXPECT_EQ(all(*store).size(), 4u);
    EXPECT_THAT(warnings.lines(), ElementsAre()) << "it was asked for";
    const auto strict = testing::open(path, {.read_only = true, .fall_back = false});
    EXPECT_EQ(strict->put(entry(9)).error().code, ErrorCode::io);
    EXPECT_EQ(strict->put_newer(entry(9)).error().code, ErrorCode::io);
    EXPECT_EQ(find(*strict, entry(1)), entry(1));
  }
  EXPECT_TRUE(*read_file(path) == before);
}

/// What a child says that may not write `path`; it checks the rest itself.
std::vector<std::string> locked_child(const TempFolder& folder, const fs::path& path) {
  EXPECT_EQ(::chmod(folder.path().c_str(), 0755),
            0);  // mkdtemp makes it private, and the child may be another user
  const auto ran = run_process(testing::child_command({"locked", path.string()}), "", 60s);
  EXPECT_TRUE(ran && ran->state.ok()) << (ran ? ran->err : ran.error().message);
  std::vector<std::string> lines;
  if (ran) {
    for (const std::string_view line : split(trim(ran->out), '\n')) lines.emplace_back(line);
  }
  return lines;
}

TEST(Sqlite, WriteProtectedFilesAndFoldersAreRead) {
  for (const auto& [file_mode, folder_mode] :
       {std::pair(0444, 0755), std::pair(0666, 0555), std::pair(0444, 0555)}) {
    SCOPED_TRACE(fmt::format("{:o} in {:o}", file_mode, folder_mode));
    const TempFolder folder = temp_folder();
    const fs::path inner = folder.path() / "in";
    make_store(inner / "s.db", 10);
    const std::string before = *read_file(inner / "s.db");
    ASSERT_EQ(::chmod((inner / "s.db").c_str(), static_cast<mode_t>(file_mode)), 0);
    ASSERT_EQ(::chmod(inner.c_str(), static_cast<mode_t>(folder_mode)), 0);
    const auto lines = locked_child(folder, inner / "s.db");
    ASSERT_EQ(lines.size(), 11u) << "ten entries and one warning";
    for (int i = 0; i < 10; ++i) EXPECT_EQ(lines[static_cast<std::size_t>(i)], "found") << i;
    EXPECT_THAT(lines[10],
                HasSubstr("write-protected; it is read, and new entries live in memory"));
    EXPECT_TRUE(*read_file(inner / "s.db") == before);
    EXPECT_FALSE(fs::exists(inner / "s.db-wal"));
    ::chmod(inner.c_str(), 0755);
  }
}

TEST(Sqlite, AFolderThatTakesNoNewFile) {
  const TempFolder folder = temp_folder();
  const fs::path inner = folder.path() / "in";
  fs::create_directory(inner);
  ::chmod(inner.c_str(), 0555);
  for (const fs::path& path : {inner / "s.db", inner / "more" / "s.db"}) {
    const auto lines = locked_child(folder, path);
    ASSERT_EQ(lines.size(), 11u);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(lines[static_cast<std::size_t>(i)], "missed") << i;
    EXPECT_THAT(lines[10], HasSubstr("entries live in memory and end with this process"));
  }
  ::chmod(inner.c_str(), 0755);
}

TEST(Sqlite, AFullDiskMovesNewEntriesToMemory) {
  // One size at which nothing can be made, some at which the log fills, one at which the file
  // itself does.
  for (const int bytes : {0, 1000, 20'000, 100'000}) {
    SCOPED_TRACE(bytes);
    const TempFolder folder = temp_folder();
    const fs::path path = folder.path() / "s.db";
    if (bytes > 1000) make_store(path, 1);
    const auto ran = run_process(
        testing::child_command({"full", path.string(), std::to_string(bytes)}), "", 60s);
    ASSERT_TRUE(ran) << ran.error();
    EXPECT_TRUE(ran->state.ok()) << ran->err;
    EXPECT_THAT(ran->out, HasSubstr("end with this process"));
    if (bytes <= 1000) continue;
    // What was committed before is there and sound, and the file is not harmed.
    const auto report = verify(path);
    ASSERT_TRUE(report) << report.error();
    EXPECT_TRUE(report->ok()) << report->integrity;
    EXPECT_GE(report->sound, 1);
    EXPECT_EQ(find(*testing::open(path), entry(0)), entry(0));
  }
}

// ------------------------------------------------------------------------------------------------------
// Versions.

TEST(Versions, AnotherSchemaIsAMissAndIsNeverModified) {
  for (const int version : {0, 2, 77}) {
    SCOPED_TRACE(version);
    const TempFolder folder = temp_folder();
    const fs::path path = folder.path() / "s.db";
    make_store(path, 5);
    // Another version may have other tables as well.
    sql(path, fmt::format("PRAGMA user_version={}; CREATE TABLE more(x)", version));
    const std::string before = *read_file(path);
    for (const bool fall_back : {true, false}) {
      const Warnings warnings;
      const auto store = testing::open(path, {.fall_back = fall_back});
      for (int i = 0; i < 5; ++i) EXPECT_EQ(find(*store, entry(i)), std::nullopt);
      EXPECT_EQ(all(*store).size(), 0u);
      if (fall_back) {
        expect_works(*store);
      } else {
        // Who needs the file must not believe that it holds what it does not take.
        EXPECT_EQ(store->put(entry(7)).error().code, ErrorCode::io);
        EXPECT_THAT(store->put_newer(entry(7)).error().message, HasSubstr("another version of"));
      }
      EXPECT_THAT(warnings.lines(), ElementsAre(HasSubstr("another version of Lapidary")));
    }
    const auto report = verify(path);
    ASSERT_TRUE(report) << report.error();
    EXPECT_TRUE(report->unknown_schema && report->ok());
    EXPECT_FALSE(gc(path, {}));
    EXPECT_TRUE(*read_file(path) == before) << "the file has changed";
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1)
        << "something was left beside it";
  }
}

TEST(Versions, AChangeOfVersionThatIsStillInTheLogIsSeen) {
  const TempFolder folder = temp_folder();
  const fs::path path = folder.path() / "s.db";
  make_store(path, 2);
  // Copied while open, so that the new version stands in the log alone.
  const TempFolder copy = temp_folder();
  {
    const auto keeps_the_log = testing::open(path);
    sql(path, "PRAGMA user_version=2");
    for (const char* suffix : {"", "-wal"})
      fs::copy(path.string() + suffix, (copy.path() / "s.db").string() + suffix);
  }
  const std::string before = *read_file(copy.path() / "s.db"),
                    log = *read_file(copy.path() / "s.db-wal");
  {
    const Warnings warnings;
    const auto store = testing::open(copy.path() / "s.db", {});
    EXPECT_EQ(find(*store, entry(0)), std::nullopt);
    EXPECT_THAT(warnings.lines(), ElementsAre(HasSubstr("another version of Lapidary")));
  }
  EXPECT_TRUE(*read_file(copy.path() / "s.db") == before);
  EXPECT_TRUE(*read_file(copy.path() / "s.db-wal") == log);
}

TEST(Versions, ARowOfAnotherVersionOrKindIsAMissAndStays) {
  const TempFolder folder = temp_folder();
  const fs::path path = folder.path() / "s.db";
  make_store(path, 4);
  sql(path, "UPDATE entries SET version=2 WHERE key='" + entry(1).key + "'");
  {
    const Warnings warnings;
    const auto store = testing::open(path);
    EXPECT_EQ(find(*store, entry(1)), std::nullopt);
    EXPECT_EQ(all(*store).size(), 3u);
    EXPECT_THAT(warnings.lines(), ElementsAre()) << "it is nobody's fault";
  }
  EXPECT_EQ(verify(path)->unknown_versions, 1);
  EXPECT_TRUE(verify(path)->ok());
  EXPECT_TRUE(gc(path, {.created_before_s = 4'000'000'000}));
  EXPECT_EQ(verify(path)->unknown_versions, 1) << "gc leaves it";
  EXPECT_EQ(verify(path)->sound, 0);
}

// ------------------------------------------------------------------------------------------------------
// Damaged rows and pages.

TEST(Damage, ASpoiledRowIsAMissUntilItIsPutAgain) {
  const char* spoilers[] = {"value='{}'",  "created=created+1", "digest='0'", "value=x'00'",
                            "created='x'", "key='another key'", "kind=2",     "version=version"};
  for (const std::string spoiler : spoilers) {
    SCOPED_TRACE(spoiler);
    const TempFolder folder = temp_folder();
    const fs::path path = folder.path() / "s.db";
    make_store(path, 4);
    // STRICT tables refuse wrong types, so those are smuggled in.
    sql(path,
        "PRAGMA writable_schema=1; UPDATE sqlite_schema SET sql=replace(sql, 'STRICT, ', '');");
    sql(path, "UPDATE entries SET " + spoiler + " WHERE key='" + entry(1).key + "'");
    sql(path,
        "PRAGMA writable_schema=1; UPDATE sqlite_schema SET sql=replace(sql, 'WITHOUT', 'STRICT, "
        "WITHOUT');");
    const bool harmless = spoiler == "version=version";
    {
      const Warnings warnings;
      const auto store = testing::open(path);
      EXPECT_EQ(find(*store, entry(1)), harmless ? std::optional(entry(1)) : std::nullopt);
      EXPECT_EQ(find(*store, {Kind::quarantine, entry(1).key, "", 0}), std::nullopt);
      EXPECT_EQ(find(*store, {Kind::result, "another key", "", 0}), std::nullopt);
      EXPECT_EQ(all(*store).size(), harmless ? 4u : 3u);
      for (const int i : {0, 2, 3}) EXPECT_EQ(find(*store, entry(i)), entry(i));
      EXPECT_EQ(warnings.lines().size(), harmless ? 0u : 1u);
    }
    EXPECT_EQ(verify(path)->damaged.size(), harmless ? 0u : 1u);
    {
      const auto store = testing::open(path);
      EXPECT_EQ(*store->put_newer(entry(1)), harmless ? Merged::older : Merged::added);
      EXPECT_EQ(find(*store, entry(1)), entry(1));
    }
    const auto collected = gc(path, {});
    ASSERT_TRUE(collected) << collected.error();
    EXPECT_EQ(collected->removed, 0);
    EXPECT_EQ(verify(path)->damaged.size(), 0u);
    EXPECT_EQ(verify(path)->sound, 4);
  }
}

TEST(Damage, ALostPageLosesItsEntriesAndStopsWriting) {
  const TempFolder folder = temp_folder();
  const fs::path path = folder.path() / "s.db";
  make_store(path, 200);
  std::string bytes = *read_file(path);
  ASSERT_GT(bytes.size(), 8u * 4096);
  // A leaf in the middle: both ends can still be read.
  const std::size_t page = bytes.size() / 4096 / 2;
  bytes.replace(page * 4096, 4096, 4096, '\xa5');
  ASSERT_TRUE(write_file(path, bytes));

  const Warnings warnings;
  {
    const auto store = testing::open(path, {});
    int found = 0;
    for (int i = 0; i < 200; ++i) {
      const auto got = find(*store, entry(i));
      EXPECT_EQ(got.value_or(entry(i)), entry(i));
      found += got ? 1 : 0;
    }
    EXPECT_GT(found, 100);
    EXPECT_LT(found, 200);
    // From both ends: the scan also sees the row that parts the lost page from its neighbour, for
    // which a search must look into the page.
    const auto listed = all(*store);
    EXPECT_GE(listed.size(), static_cast<std::size_t>(found));
    EXPECT_LE(listed.size(), static_cast<std::size_t>(found) + 2);
    for (const Entry& e : listed) EXPECT_EQ(e, entry(std::stoi(e.value.substr(10))));
    expect_works(*store);
    EXPECT_THAT(warnings.lines(), ElementsAre(HasSubstr("cannot read all of it"),
                                              HasSubstr("damaged and left as it is")));
  }
  {
    const auto strict = testing::open(path);
    EXPECT_GT(all(*strict).size(), 100u);
    EXPECT_THAT(strict->put(entry(500)).error().message, HasSubstr("damaged and left as it is"));
  }
  EXPECT_FALSE(verify(path)->ok());
  const auto refused = gc(path, {});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("it is damaged"));
  EXPECT_TRUE(*read_file(path) == bytes) << "the file has changed";
}

/// One damaged copy of a store: opens it and asks for everything. Nothing wrong may come back, and
/// new entries must work. Gives the number of entries that are still found.
int probe(const fs::path& path, const std::vector<Entry>& originals, bool put) {
  const auto opened = open_sqlite(path, {});
  if (!opened) {
    ADD_FAILURE() << opened.error();
    return 0;
  }
  int found = 0;
  for (const Entry& original : originals) {
    const auto got = find(**opened, original);
    EXPECT_EQ(got.value_or(original), original);
    found += got ? 1 : 0;
  }
  const auto listed = all(**opened);
  for (const Entry& e : listed)
    EXPECT_NE(std::ranges::find(originals, e), originals.end()) << e.key << " is wrong";
  if (put) {
    EXPECT_TRUE((**opened).put(entry(900)));
    EXPECT_EQ(find(**opened, entry(900)), entry(900));
  }
  return found;
}

/// A small store whose files are flipped byte by byte: the main file, or a log with half of the
/// entries.
struct Flips {
  TempFolder folder = temp_folder();
  fs::path path = folder.path() / "s.db";
  std::vector<Entry> originals;
  std::string main, log;

  explicit Flips(bool with_log) {
    make_store(path, 8);
    for (int i = 0; i < (with_log ? 12 : 8); ++i) originals.push_back(entry(i));
    if (with_log) {
      const auto store = testing::open(path);
      for (int i = 8; i < 12; ++i) EXPECT_TRUE(store->put(entry(i)));
      main = *read_file(path);
      log = *read_file(path.string() + "-wal");
    } else {
      main = *read_file(path);
    }
  }

  /// Position counts through the main file and on into the log.
  std::size_t size() const { return main.size() + log.size(); }

  int probe_flipped(std::size_t position, char pattern, bool put) const {
    std::string file = main, wal = log;
    char& byte = position < file.size() ? file[position] : wal[position - file.size()];
    byte = static_cast<char>(byte ^ pattern);
    for (const char* suffix : {"", "-wal", "-shm", "-journal"}) fs::remove(path.string() + suffix);
    std::ofstream(path, std::ios::binary) << file;
    if (!wal.empty()) std::ofstream(path.string() + "-wal", std::ios::binary) << wal;
    return probe(path, originals, put);
  }
};

/// Flips every `step`th byte in turn with each pattern.
void flip_all(bool with_log, std::size_t step, std::initializer_list<int> patterns) {
  const Flips flips(with_log);
  ASSERT_GT(flips.size(), with_log ? 20'000u : 8'000u);
  const Warnings quiet;
  std::int64_t found = 0, asked = 0;
  std::size_t position = 0;
  for (std::size_t turn = 0; position < flips.size(); ++turn, position += step) {
    for (const int pattern : patterns) {
      found += flips.probe_flipped(position, static_cast<char>(pattern), turn % 16 == 0);
      asked += static_cast<std::int64_t>(flips.originals.size());
      if (::testing::Test::HasFailure()) FAIL() << "byte " << position << " ^ " << pattern;
    }
  }
  // Most flips hit free space or one row: a store that finds nothing would pass everything above.
  EXPECT_GT(found, asked / 2);
  EXPECT_LT(found, asked);
}

TEST(Damage, SomeFlippedBytesGiveNoWrongEntry) {
  flip_all(false, 61, {0xff});
  flip_all(true, 211, {0x10});
}
TEST(SlowDamage, EveryFlippedByteGivesNoWrongEntry) { flip_all(false, 1, {0x01, 0x80, 0xff}); }
TEST(SlowDamage, EveryFlippedByteWithALogGivesNoWrongEntry) { flip_all(true, 1, {0x24, 0xff}); }

TEST(Damage, ACutFileGivesNoWrongEntry) {
  const Flips flips(true);
  const Warnings quiet;
  for (std::size_t length = 0; length <= flips.size(); length += length % 512 == 0 ? 1 : 511) {
    for (const char* suffix : {"", "-wal", "-shm"}) fs::remove(flips.path.string() + suffix);
    std::ofstream(flips.path, std::ios::binary) << flips.main.substr(0, length);
    const std::size_t in_log = length > flips.main.size() ? length - flips.main.size() : 0;
    std::ofstream(flips.path.string() + "-wal", std::ios::binary) << flips.log.substr(0, in_log);
    probe(flips.path, flips.originals, true);
    ASSERT_FALSE(::testing::Test::HasFailure()) << "cut at " << length;
  }
}

}  // namespace
}  // namespace lapidary::store
