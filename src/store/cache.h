#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "store/key_text.h"
#include "store/store.h"

// What the `cache` verbs do: look at a store, carry it elsewhere, check it, clear it out.
namespace lapidary::store {

/// Which entries; every member that is set must hold.
struct Selection {
  std::optional<Kind> kind = {};
  std::string device = {};    ///< part of the device's key
  std::string contains = {};  ///< part of the key's text
  std::optional<std::int64_t> created_before_s = {};
};

/// The sound entries that a selection names, in order of kind and key.
Result<std::vector<Entry>> list(Store& store, const Selection& selection);

/// Receives one line, without its line end; an error stops the export.
using LineSink = std::function<Status(std::string_view line)>;

/// Every sound entry as one line of JSON with these members in this order; gives their number.
///   {"version":1,"kind":"result","key":"...","value":"...","created":1700000000,"digest":"..."}
Result<std::int64_t> export_jsonl(Store& store, const LineSink& sink);

struct MergeReport {
  std::int64_t added = 0, newer = 0;  ///< taken: there was none, or an older one
  std::int64_t older = 0;             ///< not taken: the present one is newer, or the same
  struct Refusal {
    std::int64_t line = 0;  ///< from 1
    std::string why;
    bool operator==(const Refusal&) const = default;
  };
  std::vector<Refusal> refused = {};  ///< lines that are no sound entry
  bool operator==(const MergeReport&) const = default;
};

/// Puts every sound line into the store with put_newer. Lines that are not sound are refused, each
/// with the reason, and do not stop the others; empty lines are skipped. An error is the store's.
Result<MergeReport> import_jsonl(std::string_view text, Store& store);

/// Puts every entry of `from` into `into` with put_newer: merging in any order, or twice, ends
/// alike.
Result<MergeReport> merge(Store& from, Store& into);

struct VerifyReport {
  std::int64_t sound = 0;
  std::int64_t unknown_versions = 0;  ///< rows of another version; left alone
  std::vector<std::string> damaged =
      {};                       ///< per damaged row its kind, key digest and what is wrong
  bool unknown_schema = false;  ///< the whole file is of another version; nothing else was read
  std::string integrity = {};   ///< SQLite's own check: "ok", or its findings, a line each
  bool ok() const { return damaged.empty() && (integrity == "ok" || unknown_schema); }
};

/// Reads every row and has SQLite check the file; changes nothing. `io` when it is no store of
/// ours, or so damaged that it cannot be opened.
Result<VerifyReport> verify(const std::filesystem::path& path);

struct GcReport {
  std::int64_t removed = 0;                        ///< entries that the selection named
  std::int64_t damaged = 0;                        ///< damaged rows, removed whatever the selection
  std::int64_t bytes_before = 0, bytes_after = 0;  ///< of the file
};

/// Removes the entries that the selection names (none when it is empty) and damaged rows, then
/// gives the space back. Rows of another version stay. A file whose pages are damaged is refused
/// with `io` and left as it is: export what can be read of it into a new one.
Result<GcReport> gc(const std::filesystem::path& path, const Selection& selection);

}  // namespace lapidary::store
