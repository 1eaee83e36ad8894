// Bytes from outside: lines to import, and files that were written over. Whatever they are, nothing
// crashes, and what is given out is sound.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <span>

#include "store/cache.h"
#include "store/row.h"
#include "support/files.h"

namespace lapidary::store {
namespace {

namespace fs = std::filesystem;

void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz_store: %s\n", what);
  std::abort();
}

std::vector<Entry> all(Store& store) {
  std::vector<Entry> entries;
  expect(store.each([&](const Entry& e) { return entries.push_back(e), true; }).has_value(),
         "each gave an error");
  return entries;
}

void fuzz_import(std::string_view text) {
  const auto store = open_memory();
  const auto report = import_jsonl(text, *store);
  expect(report.has_value(), "the memory store refused an entry that import took");
  const auto entries = all(*store);
  expect(static_cast<std::int64_t>(entries.size()) == report->added, "counts do not fit");
  for (const Entry& e : entries) expect(check(e).has_value(), "an entry that put refuses");
  // What came in goes out and in again.
  std::string lines;
  expect(export_jsonl(*store,
                      [&](std::string_view line) { return lines.append(line) += '\n', Status(); })
             .has_value(),
         "export");
  const auto again = open_memory();
  expect(import_jsonl(lines, *again).has_value() && all(*again) == entries,
         "export and import differ");
}

/// A sound store, made once: the file, and its log with later entries.
struct Image {
  TempFolder folder = *TempFolder::make();
  fs::path path = folder.path() / "s.db";
  std::vector<Entry> entries;
  std::string main, log;
  Image() {
    const auto put = [&](Store& store, int from, int to) {
      for (int i = from; i < to; ++i) {
        const Entry e{i % 2 == 0 ? Kind::result : Kind::quarantine,
                      fmt::format("lapidary 1\ndevice d\nproblem {}", i),
                      std::string(static_cast<std::size_t>(i) * 400, 'v'), i};
        expect(store.put(e).has_value(), "cannot make the seed");
        entries.push_back(e);
      }
    };
    put(**open_sqlite(path), 0, 12);
    const auto store = *open_sqlite(path);
    put(*store, 12, 16);
    main = *read_file(path);
    log = *read_file(path.string() + "-wal");
  }
};

void probe(const Image& image, const std::string& main, const std::string& log, bool ours) {
  for (const char* suffix : {"", "-wal", "-shm", "-journal"})
    fs::remove(image.path.string() + suffix);
  std::ofstream(image.path, std::ios::binary) << main;
  if (!log.empty()) std::ofstream(image.path.string() + "-wal", std::ios::binary) << log;
  const auto opened = open_sqlite(image.path);
  expect(opened.has_value(), "falling back gave an error");
  Store& store = **opened;
  for (const Entry& e : image.entries) {
    const auto found = store.find(e.kind, e.key);
    expect(found.has_value(), "find gave an error");
    if (ours) expect(!*found || **found == e, "a wrong entry");
  }
  for (const Entry& e : all(store)) {
    expect(state(to_row(e)) == RowState::sound, "an unsound entry");
    if (ours)
      expect(std::ranges::find(image.entries, e) != image.entries.end(),
             "an entry that nobody put");
  }
  const Entry fresh{Kind::result, "fresh", "value", 1};
  expect(store.put(fresh).has_value() && *store.find(fresh.kind, fresh.key) == fresh,
         "what was put is not there");
  (void)verify(image.path).has_value();
}

/// Edits of the sound store, four bytes each: three of position, one of value.
void fuzz_edits(std::span<const std::uint8_t> bytes) {
  static const Image image;
  std::string main = image.main, log = image.log;
  for (; bytes.size() >= 4; bytes = bytes.subspan(4)) {
    const std::size_t at = (bytes[0] | bytes[1] << 8 | bytes[2] << 16) % (main.size() + log.size());
    (at < main.size() ? main[at] : log[at - main.size()]) = static_cast<char>(bytes[3]);
  }
  probe(image, main, log, true);
}

/// Bytes laid over the beginning of the file, which is cut after them.
void fuzz_file(std::span<const std::uint8_t> bytes) {
  static const Image image;
  const bool header = !bytes.empty() && bytes[0] % 2 == 0;
  std::string main = header ? image.main.substr(0, 100) : "";
  main.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  probe(image, main, "", false);
}

}  // namespace
}  // namespace lapidary::store

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lapidary::store;
  if (size == 0) return 0;
  const std::span<const std::uint8_t> rest(data + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      fuzz_import({reinterpret_cast<const char*>(rest.data()), rest.size()});
      break;
    case 1:
      fuzz_edits(rest);
      break;
    default:
      fuzz_file(rest);
  }
  return 0;
}
