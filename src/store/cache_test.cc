#include "store/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "store/row.h"
#include "store/testing_store.h"
#include "support/text.h"

namespace lapidary::store {
namespace {

using testing::all;
using ::testing::ElementsAre;
using testing::entry;
using ::testing::HasSubstr;
using testing::temp_folder;

std::string exported(Store& store) {
  std::string text;
  const auto count = export_jsonl(store, [&](std::string_view line) {
    text.append(line).append("\n");
    return Status();
  });
  EXPECT_TRUE(count);
  EXPECT_EQ(*count, std::ranges::count(text, '\n'));
  return text;
}

TEST(List, TakesWhatTheSelectionNames) {
  const auto store = open_memory();
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(store->put(entry(i, i)));
  const auto count = [&](const Selection& selection) { return list(*store, selection)->size(); };
  EXPECT_EQ(count({}), 30u);
  EXPECT_EQ(count({.kind = Kind::quarantine}), 6u);
  EXPECT_EQ(count({.device = "cpu 1 avx512"}), 10u);
  EXPECT_EQ(count({.device = "6144"}), 0u) << "stands in the problem alone";
  EXPECT_EQ(count({.contains = "6144"}), 30u);
  EXPECT_EQ(count({.contains = "\"m\":29,"}), 1u);
  EXPECT_EQ(count({.created_before_s = 7}), 7u);
  EXPECT_EQ(count({.kind = Kind::result, .device = "cpu 0", .created_before_s = 7}), 3u);
}

TEST(Jsonl, ALineIsAsDocumented) {
  const auto store = open_memory();
  const Entry e{Kind::quarantine, "k\n\"\\", "{\"a\":\"\xe2\x82\xac\"}", -5};
  ASSERT_TRUE(store->put(e));
  EXPECT_EQ(
      exported(*store),
      "{\"version\":1,\"kind\":\"quarantine\",\"key\":\"k\\n\\\"\\\\\",\"value\":\"{\\\"a\\\":"
      "\\\"\xe2\x82\xac\\\"}\",\"created\":-5,\"digest\":\"" +
          digest(e) + "\"}\n");
}

TEST(Jsonl, ImportGivesTheSameStore) {
  const auto from = open_memory();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(from->put(entry(i, i - 10)));
  ASSERT_TRUE(
      from->put({Kind::result, "\x01\t\xf0\x9f\x92\x8e", std::string(10'000, '"'), INT64_MIN}));
  ASSERT_TRUE(from->put({Kind::result, "late", "", INT64_MAX}));
  const std::string text = exported(*from);
  const TempFolder folder = temp_folder();
  const auto into = testing::open(folder.path() / "s.db");
  EXPECT_EQ(*import_jsonl(text, *into), (MergeReport{.added = 22}));
  EXPECT_EQ(all(*into), all(*from));
  EXPECT_EQ(exported(*into), text);
  EXPECT_EQ(*import_jsonl("\n \r\n" + text.substr(0, text.size() - 1), *into),
            (MergeReport{.older = 22}))
      << "again";
}

TEST(Jsonl, NewerWinsOlderStays) {
  const auto store = open_memory();
  ASSERT_TRUE(store->put(entry(1, 100, "stays")));
  ASSERT_TRUE(store->put(entry(2, 100, "goes")));
  const auto other = open_memory();
  ASSERT_TRUE(other->put(entry(1, 99, "old")));
  ASSERT_TRUE(other->put(entry(2, 101, "new")));
  ASSERT_TRUE(other->put(entry(3, 1, "none")));
  EXPECT_EQ(*import_jsonl(exported(*other), *store),
            (MergeReport{.added = 1, .newer = 1, .older = 1}));
  EXPECT_EQ((*store->find(entry(1).kind, entry(1).key))->value, "stays");
  EXPECT_EQ((*store->find(entry(2).kind, entry(2).key))->value, "new");
}

TEST(Jsonl, RefusesUnsoundLinesAndTakesTheRest) {
  const auto from = open_memory();
  ASSERT_TRUE(from->put(entry(1)));
  const std::string good = exported(*from);
  const auto with = [&](std::string_view what, std::string_view by) {
    std::string line = good;
    const std::size_t at = line.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return line.replace(at, what.size(), by);
  };
  const std::pair<std::string, std::string> cases[] = {
      {"{\n", "not JSON"},
      {"[1]\n", "not a JSON object"},
      {"{}\n", "'version' is missing or not an integer"},
      {std::string(100'000, '[') + "\n", "not JSON"},
      {with("\"version\":1", "\"version\":2"), "version 2 is unknown; this program knows 1"},
      {with("\"version\":1", "\"version\":1.0"), "'version' is missing or not an integer"},
      {with("\"result\"", "\"winner\""), "kind 'winner' is unknown; use result or quarantine"},
      {with("\"created\":17", "\"created\":18"), "its digest does not fit its contents"},
      {with("\"created\":1700000000", "\"created\":18446744073709551615"),
       "'created' is missing or not an integer"},
      {with("\"created\":1700000000", "\"created\":1e300"),
       "'created' is missing or not an integer"},
      {with("\"time_us\\\"", "\"time_ns\\\""), "its digest does not fit its contents"},
      {with("\"kind\":\"result\"", "\"kind\":\"quarantine\""),
       "its digest does not fit its contents"},
      {with("\"digest\":\"", "\"digest\":\"0"), "its digest does not fit its contents"},
      {with("{\"version\"", "{\"extra\":0,\"version\""), "it has members that no entry has"},
      {with("\"value\":", "\"valve\":"), "'value' is missing or not a string"},
      {with("avx512", "\xff"), "not JSON"},
  };
  std::string text;
  std::vector<MergeReport::Refusal> expected;
  for (const auto& [line, why] : cases) {
    text += line;
    expected.push_back({.line = static_cast<std::int64_t>(expected.size()) + 1, .why = why});
  }
  // What put would refuse is refused here too, though its digest fits.
  const Entry nul{Kind::result, std::string("a\0b", 3), "v", 0};
  text +=
      "{\"version\":1,\"kind\":\"result\",\"key\":\"a\\u0000b\",\"value\":\"v\",\"created\":0,"
      "\"digest\":\"" +
      digest(nul) + "\"}\n";
  expected.push_back(
      {.line = static_cast<std::int64_t>(expected.size()) + 1,
       .why = "store: key or value is not UTF-8 text, holds a NUL, or the key is empty"});
  text += good;
  const auto store = open_memory();
  const auto report = import_jsonl(text, *store);
  ASSERT_TRUE(report) << report.error();
  EXPECT_EQ(report->added, 1);
  for (std::size_t i = 0; i < std::min(expected.size(), report->refused.size()); ++i) {
    EXPECT_EQ(report->refused[i].line, expected[i].line);
    EXPECT_EQ(report->refused[i].why, expected[i].why) << "line " << expected[i].line;
  }
  EXPECT_EQ(report->refused.size(), expected.size());
  EXPECT_EQ(all(*store), all(*from));
}

TEST(Jsonl, EveryFlippedByteOfALineIsRefusedOrHarmless) {
  const auto from = open_memory();
  ASSERT_TRUE(from->put(entry(1)));
  const std::string good = exported(*from);
  for (std::size_t i = 0; i + 1 < good.size(); ++i) {
    for (const int pattern : {0x01, 0x02, 0x20, 0x80}) {
      std::string line = good;
      line[i] = static_cast<char>(line[i] ^ pattern);
      const auto store = open_memory();
      const auto report = import_jsonl(line, *store);
      ASSERT_TRUE(report) << report.error();
      for (const Entry& e : all(*store)) EXPECT_EQ(e, entry(1)) << "byte " << i;
      EXPECT_EQ(report->added, 0) << "no byte of a line is idle: " << i;
    }
  }
}

TEST(Jsonl, AnErrorOfTheSinkOrTheStoreEndsIt) {
  const auto store = open_memory();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(store->put(entry(i)));
  int lines = 0;
  const auto count = export_jsonl(*store, [&](std::string_view) -> Status {
    return ++lines < 3 ? Status() : Status(fail(ErrorCode::io, "disk full"));
  });
  EXPECT_EQ(count.error().message, "disk full");
  EXPECT_EQ(lines, 3);
  const TempFolder folder = temp_folder();
  {
    const auto made = testing::open(folder.path() / "s.db");
  }
  const auto read_only =
      testing::open(folder.path() / "s.db", {.read_only = true, .fall_back = false});
  EXPECT_EQ(import_jsonl(exported(*store), *read_only).error().code, ErrorCode::io);
  EXPECT_EQ(merge(*store, *read_only).error().code, ErrorCode::io);
}

TEST(Merge, AnyOrderGivesTheSameStore) {
  // Three stores with overlapping keys, equal and different times, equal times with different
  // values.
  const auto fill = [](Store& store, int which) {
    for (int i = 0; i < 40; ++i) {
      if ((i + which) % 4 == 0) continue;
      ASSERT_TRUE(store.put(
          entry(i, 100 + (i * (which + 1)) % 3, fmt::format("from {}", i % 2 == 0 ? which : 0))));
    }
  };
  std::string result;
  std::array<int, 3> order = {0, 1, 2};
  do {
    const TempFolder folder = temp_folder();
    const auto into = testing::open(folder.path() / "s.db");
    for (const int which : order) {
      const auto from = open_memory();
      fill(*from, which);
      const auto report = merge(*from, *into);
      ASSERT_TRUE(report) << report.error();
      EXPECT_EQ(report->added + report->newer + report->older, 30);
      EXPECT_EQ(*merge(*from, *into), (MergeReport{.older = 30})) << "again";
    }
    EXPECT_EQ(*merge(*into, *into), (MergeReport{.older = 40})) << "into itself";
    if (result.empty()) result = exported(*into);
    EXPECT_EQ(exported(*into), result);
  } while (std::ranges::next_permutation(order).found);
}

TEST(Verify, CountsAndNamesWhatIsDamaged) {
  const TempFolder folder = temp_folder();
  const auto path = folder.path() / "s.db";
  EXPECT_THAT(verify(path).error().message, HasSubstr("no such file"));
  {
    const auto store = testing::open(path);
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(store->put(entry(i)));
    const auto report = verify(path);  // also while it is in use
    ASSERT_TRUE(report) << report.error();
    EXPECT_EQ(report->sound, 10);
    EXPECT_EQ(report->integrity, "ok");
  }
  testing::sql(path, "UPDATE entries SET value='x' WHERE key='" + entry(3).key + "'");
  testing::sql(path, "UPDATE entries SET key='x' WHERE key='" + entry(5).key + "'");
  const auto report = verify(path);
  ASSERT_TRUE(report) << report.error();
  EXPECT_EQ(report->sound, 8);
  EXPECT_FALSE(report->ok());
  EXPECT_THAT(
      report->damaged,
      ::testing::UnorderedElementsAre(
          "kind 1 key " + to_row(entry(3)).key_digest + ": its digest does not fit its contents",
          "kind 1 key " + to_row(entry(5)).key_digest + ": its digest does not fit its contents"));
}

TEST(Gc, RemovesTheSelectionAndGivesTheSpaceBack) {
  const TempFolder folder = temp_folder();
  const auto path = folder.path() / "s.db";
  const auto store = testing::open(path);
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(store->put(entry(i, i)));
  const auto nothing = gc(path, {});
  ASSERT_TRUE(nothing) << nothing.error();
  EXPECT_EQ(nothing->removed, 0) << "an empty selection names nothing";
  EXPECT_EQ(gc(path, {.kind = Kind::quarantine})->removed, 60);
  EXPECT_EQ(gc(path, {.device = "cpu 1 "})->removed, 80);
  const auto old = gc(path, {.created_before_s = 290});
  EXPECT_EQ(old->removed, 155);
  EXPECT_LT(old->bytes_after, old->bytes_before / 4);
  EXPECT_EQ(old->bytes_after, static_cast<std::int64_t>(std::filesystem::file_size(path)));
  EXPECT_EQ(all(*store).size(), 5u) << "the open store sees it";
  for (const Entry& e : all(*store)) EXPECT_GE(e.created_s, 290);
  ASSERT_TRUE(store->put(entry(1))) << "and goes on";
  EXPECT_TRUE(verify(path)->ok());
  EXPECT_FALSE(gc(folder.path() / "none.db", {}));
}

}  // namespace
}  // namespace lapidary::store
