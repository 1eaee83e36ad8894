#pragma once

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

/// One fact with its full key. `value` is JSON text that only the writer and reader of that kind understand;
/// the store guards it with a digest over version, kind, key and value.
struct Entry {
  Kind kind = Kind::result;
  std::string key;            ///< device, problem and versions, in full
  std::string value;
  std::int64_t created_s = 0; ///< Unix time; on a merge the newer one stays
  bool operator==(const Entry&) const = default;
};

/// Winners and quarantined candidates that outlive a process. A row that is damaged, or of a version that we do
/// not know, is a miss and never an error. Safe for many processes at once.
class Store {
 public:
  virtual ~Store() = default;
  virtual Result<std::optional<Entry>> find(Kind kind, std::string_view key) = 0;
  /// Replaces the entry with that kind and key. Committed when it returns.
  virtual Status put(const Entry& entry) = 0;
  virtual Status erase(Kind kind, std::string_view key) = 0;
  /// Every sound entry in key order. `visit` returns false to stop.
  virtual Status each(const std::function<bool(const Entry&)>& visit) = 0;
  /// Where it lives, for messages: a path, or "memory".
  virtual std::string where() const = 0;
};

/// A store that ends with the process.
std::unique_ptr<Store> open_memory();

struct OpenOptions {
  bool create = true;         ///< make the file and its folders when missing
  bool read_only = false;
  bool fall_back = true;      ///< unusable: log one warning and work from memory; else the error `io`
};

/// SQLite file at `path`.
Result<std::unique_ptr<Store>> open_sqlite(const std::filesystem::path& path, const OpenOptions& options = {});

/// $LAPIDARY_STORE, else $XDG_CACHE_HOME/lapidary/store.db, else ~/.cache/lapidary/store.db.
std::filesystem::path default_path();

/// The key of a tuned problem on a device, and of a quarantined candidate of it.
std::string result_key(const DeviceInfo& device, const GemmProblem& problem);
std::string quarantine_key(const DeviceInfo& device, const GemmProblem& problem, const Candidate& candidate);

}  // namespace lapidary::store
