#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "assembler/assembler.h"

namespace lapidary::assembler {

/// What a run of ptxas gave: its log is kept as it was, so that a message that gets a meaning later
/// has it in old entries too.
struct CubinEntry {
  std::string image, log;
  bool operator==(const CubinEntry&) const = default;
};

/// SHA-256 over all that decides about the bytes: the text, the options, the ptxas.
std::string cubin_key(std::string_view ptx, const AssembleOptions& options, const Tool& ptxas);

/// Cubins on disk, a file an entry, named by its key: FOLDER/3f/9a...cubin. Any number of processes
/// may use one folder: entries appear by a rename, and one that does not check out is a miss.
/// Nothing here is an error: what cannot be written is not kept, and a warning says so once a
/// process.
class CubinCache {
 public:
  static constexpr std::int64_t kDefaultLimit = std::int64_t{1} << 30;

  /// An empty folder: nothing is kept. Past `limit_bytes` in all, the entries unused longest go:
  /// each of the 256 folders keeps to its 256th, so that a put lists a few dozen files.
  explicit CubinCache(std::filesystem::path folder, std::int64_t limit_bytes = kDefaultLimit);

  std::optional<CubinEntry> find(std::string_view key) const;
  void put(std::string_view key, const CubinEntry& entry) const;

 private:
  std::filesystem::path file(std::string_view key) const;
  void evict(const std::filesystem::path& folder, const std::filesystem::path& kept) const;
  std::filesystem::path folder_;
  std::int64_t limit_bytes_;
};

/// $LAPIDARY_CUBINS (OFF: empty), else `cubins` in cache_folder().
std::filesystem::path default_cubin_folder();

}  // namespace lapidary::assembler
