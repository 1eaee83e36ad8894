#include "assembler/cubin_cache.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "support/env.h"
#include "support/files.h"
#include "support/hash.h"
#include "support/log.h"

namespace lapidary::assembler {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "lapidary-cubin 1\n";
constexpr std::size_t kDigest = 64;
constexpr std::size_t kFolders = 256;
/// A file whose use was noted within this time is not touched again.
constexpr std::time_t kFresh = 3600;
/// Only a process that died while it wrote leaves an unfinished file for so long.
constexpr std::chrono::hours kAbandoned{1};

/// magic, digest of the rest, key, length of the log, log, image.
std::string written(std::string_view key, const CubinEntry& entry) {
  const std::string rest =
      fmt::format("{}\n{}\n{}{}", key, entry.log.size(), entry.log, entry.image);
  return fmt::format("{}{}\n{}", kMagic, sha256_hex(rest), rest);
}

std::optional<CubinEntry> read(std::string_view key, std::string_view bytes) {
  const auto take = [&](std::string_view prefix) {
    if (!bytes.starts_with(prefix)) return false;
    bytes.remove_prefix(prefix.size());
    return true;
  };
  if (!take(kMagic) || bytes.size() < kDigest + 1) return std::nullopt;
  const std::string_view digest = bytes.substr(0, kDigest);
  bytes.remove_prefix(kDigest);
  if (!take("\n") || sha256_hex(bytes) != digest || !take(key) || !take("\n")) return std::nullopt;
  std::size_t length = 0;
  const auto [end, error] = std::from_chars(bytes.data(), bytes.data() + bytes.size(), length);
  if (error != std::errc()) return std::nullopt;
  bytes.remove_prefix(static_cast<std::size_t>(end - bytes.data()));
  if (!take("\n") || length > bytes.size()) return std::nullopt;
  return CubinEntry{.image = std::string(bytes.substr(length)),
                    .log = std::string(bytes.substr(0, length))};
}

/// Says once for each folder that nothing can be kept in it.
void complain(const fs::path& folder, std::string_view why) {
  static std::mutex mutex;
  static std::set<fs::path> told;
  const std::lock_guard lock(mutex);
  if (!told.insert(folder).second) return;
  log(LogLevel::warning, "cubin cache: {}; cubins are not kept (LAPIDARY_CUBINS names a folder)",
      why);
}

/// Notes that an entry was used, for those that look for the oldest.
void touch(const fs::path& file) {
  struct stat entry{};
  if (::stat(file.c_str(), &entry) == 0 && std::time(nullptr) - entry.st_mtime > kFresh)
    ::utimensat(AT_FDCWD, file.c_str(), nullptr, 0);
}

}  // namespace

std::string cubin_key(std::string_view ptx, const AssembleOptions& options, const Tool& ptxas) {
  // Each part with its length, so that no two sets of parts give the same text.
  std::string text =
      fmt::format("{}O{} lineinfo {}\n", kMagic, options.optimisation, options.line_info ? 1 : 0);
  for (const std::string_view part :
       {std::string_view(options.target), std::string_view(ptxas.identity), ptx}) {
    text += fmt::format("{} ", part.size());
    text += part;
  }
  return sha256_hex(text);
}

CubinCache::CubinCache(fs::path folder, std::int64_t limit_bytes)
    : folder_(std::move(folder)), limit_bytes_(limit_bytes) {}

fs::path CubinCache::file(std::string_view key) const {
  return folder_ / key.substr(0, 2) / fmt::format("{}.cubin", key.substr(2));
}

std::optional<CubinEntry> CubinCache::find(std::string_view key) const {
  if (folder_.empty()) return std::nullopt;
  const fs::path path = file(key);
  const Result<std::string> bytes = read_file(path);
  if (!bytes) return std::nullopt;
  std::optional<CubinEntry> entry = read(key, *bytes);
  if (entry) touch(path);
  return entry;
}

void CubinCache::put(std::string_view key, const CubinEntry& entry) const {
  if (folder_.empty()) return;
  const fs::path path = file(key);
  std::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  if (failed) {
    complain(folder_,
             fmt::format("{}: cannot be made: {}", path.parent_path().string(), failed.message()));
    return;
  }
  // Unsynced: after a loss of power a file may be empty, which is a miss.
  if (const Status wrote = write_file(path, written(key, entry), /*sync=*/false); !wrote) {
    complain(folder_, wrote.error().message);
    return;
  }
  evict(path.parent_path(), path);
}

/// Other processes may do the same at the same time: a file that is gone is no concern.
void CubinCache::evict(const fs::path& folder, const fs::path& kept) const {
  struct File {
    fs::path path;
    fs::file_time_type time;
    std::int64_t bytes;
  };
  std::vector<File> files;
  std::int64_t total = 0;
  const fs::file_time_type now = fs::file_time_type::clock::now();
  std::error_code ended;
  for (fs::directory_iterator it(folder, ended), end; !ended && it != end; it.increment(ended)) {
    std::error_code gone;
    File file{it->path(), it->last_write_time(gone), 0};
    if (gone) continue;
    file.bytes = static_cast<std::int64_t>(it->file_size(gone));
    if (gone) continue;
    const std::string name = file.path.filename().string();
    const std::size_t suffix = name.find(".cubin");
    if (suffix != kDigest - 2) continue;  // not ours
    const bool finished = suffix + 6 == name.size();
    if (!finished && now - file.time > kAbandoned) {
      fs::remove(file.path, gone);
      continue;
    }
    total += file.bytes;
    if (finished && file.path != kept) files.push_back(std::move(file));
  }
  const std::int64_t limit = limit_bytes_ / static_cast<std::int64_t>(kFolders);
  if (total <= limit) return;
  std::ranges::sort(files, {}, &File::time);
  for (const File& file : files) {
    if (total <= limit) return;
    std::error_code gone;
    fs::remove(file.path, gone);
    total -= file.bytes;
  }
}

fs::path default_cubin_folder() {
  if (const auto folder = env("LAPIDARY_CUBINS"))
    return *folder == "OFF" ? fs::path() : fs::path(*folder);
  const fs::path cache = cache_folder();
  return cache.empty() ? cache : cache / "cubins";
}

}  // namespace lapidary::assembler
