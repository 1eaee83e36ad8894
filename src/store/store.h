#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lapidary/candidate.h"
#include "support/result.h"

namespace lapidary::store {

/// What kind of fact a row holds.
enum class Kind : int { result = 1, quarantine = 2 };
/// "result", "quarantine".
std::string_view name(Kind kind);
std::optional<Kind> kind_from_name(std::string_view name);

/// One fact with its full key. `value` is JSON text that only the writer and reader of that kind
/// understand; the store guards it with a digest over version, kind, key, value and time.
struct Entry {
  Kind kind = Kind::result;
  std::string key;  ///< device, problem and versions, in full
  std::string value;
  std::int64_t created_s = 0;  ///< Unix time; on a merge the newer one stays
  bool operator==(const Entry&) const = default;
};

/// Key and value together may be this long; real ones have a few kilobytes.
inline constexpr std::size_t kMaxEntryBytes = 16 << 20;

/// What put_newer did: there was none, it replaced an older one, or the present one stays.
enum class Merged { added, newer, older };

/// Winners and quarantined candidates that outlive a process. A row that is damaged, or of a
/// version that we do not know, is a miss and never an error. Safe for many threads and processes
/// at once.
class Store {
 public:
  virtual ~Store() = default;
  virtual Result<std::optional<Entry>> find(Kind kind, std::string_view key) = 0;
  /// Replaces the entry with that kind and key. Committed when it returns: it outlives a kill -9 of
  /// this process. `invalid_argument` when key or value is not UTF-8, holds a NUL or is too long.
  virtual Status put(const Entry& entry) = 0;
  /// Puts it unless the present one is newer (of one second: has the larger digest, so that stores
  /// that merge in any order end up alike). One step for other processes.
  virtual Result<Merged> put_newer(const Entry& entry) = 0;
  virtual Status erase(Kind kind, std::string_view key) = 0;
  /// Every sound entry in order of kind and key, as they were when it was called: `visit` may use
  /// the store. It returns false to stop.
  virtual Status each(const std::function<bool(const Entry&)>& visit) = 0;
  /// Where it lives, for messages: a path, or "memory".
  virtual std::string where() const = 0;
};

/// A store that ends with the process.
std::unique_ptr<Store> open_memory();

struct OpenOptions {
  bool create = true;  ///< make the file and its folders when missing
  bool read_only = false;
  bool fall_back = true;  ///< unusable: log one warning and work from memory; else the error `io`
};

/// SQLite file at `path`. With fall_back, what can be read of a file is read even where it cannot
/// be written; new entries then live in memory. A file that is damaged, not ours, or of an unknown
/// schema version is left as it is. The last of these opens with a warning whatever was asked:
/// nothing is found in it, and without fall_back a change is an error.
Result<std::unique_ptr<Store>> open_sqlite(const std::filesystem::path& path,
                                           const OpenOptions& options = {});

/// $LAPIDARY_STORE, else $XDG_CACHE_HOME/lapidary/store.db, else ~/.cache/lapidary/store.db.
/// Empty, which open_sqlite calls unusable, when none of these is set.
std::filesystem::path default_path();

/// The key of a tuned problem on a device, and of a quarantined candidate of it.
std::string result_key(const DeviceInfo& device, const GemmProblem& problem);
std::string quarantine_key(const DeviceInfo& device, const GemmProblem& problem,
                           const Candidate& candidate);

}  // namespace lapidary::store
