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
Status write_file(const std::filesystem::path& path, std::string_view contents);

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
