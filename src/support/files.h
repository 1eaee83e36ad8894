#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "support/result.h"

namespace lapidary {

/// Whole file as bytes; `io` names the path and the system's reason.
Result<std::string> read_file(const std::filesystem::path& path);

/// Writes through a temporary file and a rename, so that a reader sees the old or the new contents.
/// Links are followed and stay. What is there and is no regular file (a pipe, a device) is opened
/// and written as it is, and so are /dev/stdout and its like.
/// `sync` also waits until the contents are on the disk: a loss of power then leaves the one or the
/// other, not an empty file.
Status write_file(const std::filesystem::path& path, std::string_view contents, bool sync = true);

/// Where results that can be made again are kept: $XDG_CACHE_HOME/lapidary, else
/// ~/.cache/lapidary; empty without a home.
std::filesystem::path cache_folder();

/// A fresh folder below $TMPDIR, removed with all it holds in the destructor.
class TempFolder {
 public:
  static Result<TempFolder> make();
  TempFolder(TempFolder&& other) noexcept;
  TempFolder& operator=(TempFolder&&) = delete;
  ~TempFolder();
  const std::filesystem::path& path() const { return path_; }

 private:
  explicit TempFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

}  // namespace lapidary
