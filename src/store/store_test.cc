// What every store does, whatever it lives in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "store/key_text.h"
#include "store/row.h"
#include "store/testing_store.h"

namespace lapidary::store {
namespace {

using testing::all;
using testing::entry;
using testing::temp_folder;

class AnyStore : public ::testing::TestWithParam<const char*> {
 protected:
  AnyStore() {
    store_ = std::string_view(GetParam()) == "memory"
                 ? open_memory()
                 : testing::open(folder_.path() / "a" / "store.db");
  }
  TempFolder folder_ = temp_folder();
  std::unique_ptr<Store> store_;
};
INSTANTIATE_TEST_SUITE_P(In, AnyStore, ::testing::Values("memory", "sqlite"),
                         [](const auto& which) { return std::string(which.param); });

TEST_P(AnyStore, FindsWhatWasPutAndNothingElse) {
  EXPECT_EQ(*store_->find(Kind::result, entry(1).key), std::nullopt);
  ASSERT_TRUE(store_->put(entry(1)));
  EXPECT_EQ(*store_->find(Kind::result, entry(1).key), entry(1));
  EXPECT_EQ(*store_->find(Kind::quarantine, entry(1).key), std::nullopt) << "another kind";
  EXPECT_EQ(*store_->find(Kind::result, entry(1).key + " "), std::nullopt);
  ASSERT_TRUE(store_->put(entry(1, 5, "new value")));
  EXPECT_EQ((*store_->find(Kind::result, entry(1).key))->value, "new value");
  ASSERT_TRUE(store_->erase(Kind::result, entry(1).key));
  EXPECT_EQ(*store_->find(Kind::result, entry(1).key), std::nullopt);
  ASSERT_TRUE(store_->erase(Kind::result, entry(1).key)) << "again: nothing to do";
}

TEST_P(AnyStore, EachGoesInOrderAndMayUseTheStore) {
  std::vector<Entry> expected;
  for (const int i : {3, 9, 4, 1, 14, 2}) {
    ASSERT_TRUE(store_->put(entry(i)));
    expected.push_back(entry(i));
  }
  std::ranges::sort(expected, {}, [](const Entry& e) { return std::pair(e.kind, e.key); });
  EXPECT_EQ(all(*store_), expected);

  int visited = 0;
  ASSERT_TRUE(store_->each([&](const Entry& e) {
    EXPECT_TRUE(store_->erase(e.kind, e.key));
    return ++visited < 4;
  }));
  EXPECT_EQ(visited, 4);
  EXPECT_EQ(all(*store_).size(), 2u);
}

TEST_P(AnyStore, PutNewerKeepsTheNewerWhateverTheOrder) {
  EXPECT_EQ(*store_->put_newer(entry(1, 10, "ten")), Merged::added);
  EXPECT_EQ(*store_->put_newer(entry(1, 9, "nine")), Merged::older);
  EXPECT_EQ(*store_->put_newer(entry(1, 10, "ten")), Merged::older) << "the same";
  EXPECT_EQ((*store_->find(Kind::result, entry(1).key))->value, "ten");
  EXPECT_EQ(*store_->put_newer(entry(1, 11, "eleven")), Merged::newer);
  EXPECT_EQ((*store_->find(Kind::result, entry(1).key))->value, "eleven");

  // Of one second: the same one wins in both orders.
  const Entry a = entry(2, 10, "a"), b = entry(2, 10, "b");
  ASSERT_NE(wins(a, b), wins(b, a));
  for (const auto& [first, second] : {std::pair(a, b), std::pair(b, a)}) {
    ASSERT_TRUE(store_->erase(Kind::result, a.key));
    ASSERT_TRUE(store_->put_newer(first));
    ASSERT_TRUE(store_->put_newer(second));
    EXPECT_EQ(*store_->find(Kind::result, a.key), wins(a, b) ? a : b);
  }
}

TEST_P(AnyStore, RefusesWhatIsNoText) {
  const std::string nul("a\0b", 3);
  const std::pair<const char*, std::string> bad[] = {{"stray tail", "\x80"},
                                                     {"overlong", "\xc0\xaf"},
                                                     {"overlong of three", "\xe0\x9f\xbf"},
                                                     {"surrogate", "\xed\xa0\x80"},
                                                     {"cut", "\xe2\x82"},
                                                     {"beyond U+10FFFF", "\xf4\x90\x80\x80"},
                                                     {"no such lead", "\xf5\x80\x80\x80"},
                                                     {"NUL", nul}};
  for (const auto& [why, text] : bad) {
    SCOPED_TRACE(why);
    EXPECT_EQ(store_->put({Kind::result, text, "v", 0}).error().code, ErrorCode::invalid_argument);
    EXPECT_EQ(store_->put_newer({Kind::result, "k", text, 0}).error().code,
              ErrorCode::invalid_argument);
  }
  for (const std::string good : {"\x7f", "\xc3\xa9", "\xe2\x82\xac", "\xed\x9f\xbf",
                                 "\xf0\x9f\x92\x8e", "\xf4\x8f\xbf\xbf"}) {
    ASSERT_TRUE(store_->put({Kind::result, good, good, -1})) << good;
    EXPECT_EQ((*store_->find(Kind::result, good))->value, good);
  }
  EXPECT_FALSE(store_->put({Kind::result, "", "v", 0})) << "an empty key";
  EXPECT_FALSE(store_->put({Kind(3), "k", "v", 0}));
  EXPECT_FALSE(store_->put({Kind::result, "k", std::string(kMaxEntryBytes, 'v'), 0}));
  ASSERT_TRUE(store_->put({Kind::result, "k", std::string(kMaxEntryBytes - 1, 'v'), 0}))
      << "the largest";
  EXPECT_EQ((*store_->find(Kind::result, "k"))->value.size(), kMaxEntryBytes - 1);
}

TEST_P(AnyStore, ThreadsShareIt) {
  constexpr int kThreads = 8, kEach = 60;
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        const Entry own = entry(1000 * t + i),
                    shared = entry(999'999, 1, fmt::format("{} {}", t, t));
        EXPECT_TRUE(store_->put(own));
        EXPECT_EQ(*store_->find(own.kind, own.key), own);
        EXPECT_TRUE(store_->put(shared));
        const auto read = *store_->find(shared.kind, shared.key);
        ASSERT_TRUE(read.has_value());
        EXPECT_EQ(read->value[0], read->value[2]);
      }
    });
  }
  threads.clear();
  EXPECT_EQ(all(*store_).size(), static_cast<std::size_t>(kThreads * kEach + 1));
}

TEST(Digest, TellsFieldsApart) {
  const Entry base{Kind::result, "ab", "cd", 7};
  const Entry others[] = {{Kind::quarantine, "ab", "cd", 7},
                          {Kind::result, "abc", "d", 7},
                          {Kind::result, "a", "bcd", 7},
                          {Kind::result, "ab", "cd", 8},
                          {Kind::result, "ab", "ce", 7}};
  for (const Entry& other : others) EXPECT_NE(digest(base), digest(other));
  // Written down: a change of what is digested makes every stored entry damaged, and needs a new
  // kRowVersion.
  EXPECT_EQ(digest(base), "2754691537bea46cb8f92043e695601755f28bf634f2c4dc1af3c5de0488be1c");
}

TEST(Digest, StateOfARow) {
  const Row good = to_row(entry(1));
  EXPECT_EQ(state(good), RowState::sound);
  EXPECT_EQ(to_entry(good), entry(1));
  const struct {
    const char* what;
    RowState expected;
    void (*spoil)(Row&);
  } cases[] = {
      {"value", RowState::damaged, [](Row& row) { row.value += " "; }},
      {"key", RowState::damaged, [](Row& row) { row.key += " "; }},
      {"key digest", RowState::damaged, [](Row& row) { row.key_digest[0] ^= 1; }},
      {"digest", RowState::damaged, [](Row& row) { row.digest[0] ^= 1; }},
      {"time", RowState::damaged, [](Row& row) { ++row.created; }},
      {"kind", RowState::damaged, [](Row& row) { row.kind = 2; }},
      {"types", RowState::damaged, [](Row& row) { row.typed = false; }},
      {"a newer version", RowState::unknown_version, [](Row& row) { row.version = 2; }},
      {"a newer kind", RowState::unknown_version,
       [](Row& row) {
         row.kind = 3;
         row.digest = digest(to_entry(row));
       }},
  };
  for (const auto& c : cases) {
    Row row = good;
    c.spoil(row);
    EXPECT_EQ(state(row), c.expected) << c.what;
  }
}

TEST(KeyText, PartsComeBackWhateverTheyHold) {
  const KeyParts cases[] = {{1, "cpu avx2 threads=4", "{\"m\":1}", ""},
                            {1, "cpu", "{\"m\":1}", "onednn {\"fused\":1}"},
                            {1, "two\nproblem lines", "back\\slash\\n", "\n"},
                            {12, "", "", "\\"}};
  std::vector<std::string> texts;
  for (const KeyParts& parts : cases) {
    const std::string text = key_text(parts);
    EXPECT_EQ(key_parts(text), parts) << text;
    texts.push_back(text);
  }
  std::ranges::sort(texts);
  EXPECT_EQ(std::ranges::adjacent_find(texts), texts.end());
  for (const char* no :
       {"", "lapidary 1", "lapidary 1\ndevice x", "lapidary x\ndevice a\nproblem b",
        "lapidary 1\ndevice a\nproblem b\nmore", "lapidary 1\ndevice a\\\nproblem b",
        "lapidary 1\ndevice a\nproblem b\ncandidate c\ncandidate d",
        "lapidaryx 1\ndevice a\nproblem b"}) {
    EXPECT_EQ(key_parts(no), std::nullopt) << no;
  }
}

TEST(DefaultPath, LooksInThreePlaces) {
  ::unsetenv("LAPIDARY_STORE");
  ::unsetenv("XDG_CACHE_HOME");
  ::setenv("HOME", "/home/u", 1);
  EXPECT_EQ(default_path(), "/home/u/.cache/lapidary/store.db");
  ::setenv("XDG_CACHE_HOME", "relative/is/ignored", 1);
  EXPECT_EQ(default_path(), "/home/u/.cache/lapidary/store.db");
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(default_path(), "/cache/lapidary/store.db");
  ::setenv("LAPIDARY_STORE", "mine.db", 1);
  EXPECT_EQ(default_path(), "mine.db");
  ::unsetenv("LAPIDARY_STORE");
  ::unsetenv("XDG_CACHE_HOME");
  ::unsetenv("HOME");
  EXPECT_EQ(default_path(), "");
}

}  // namespace
}  // namespace lapidary::store
