#include "support/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "support/env.h"

namespace lapidary {

Result<std::string> read_file(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return fail(ErrorCode::io, "{}: cannot open: {}", path.string(), std::strerror(errno));
  std::string contents;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int why = errno;
      ::close(fd);
      return fail(ErrorCode::io, "{}: cannot read: {}", path.string(), std::strerror(why));
    }
    if (got == 0) break;
    contents.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(fd);
  return contents;
}

namespace {

Status write_all(int fd, std::string_view contents) {
  while (!contents.empty()) {
    const ssize_t wrote = ::write(fd, contents.data(), contents.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return fail(ErrorCode::io, "cannot write: {}", std::strerror(errno));
    contents.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return {};
}

/// Into what `path` names as it is: a device, a pipe, a link to a file that is not there yet.
/// Appends, since /dev/stdout may be a file that others write too.
Status write_in_place(const std::filesystem::path& path, std::string_view contents) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666);
  if (fd < 0)
    return fail(ErrorCode::io, "{}: cannot open to write: {}", path.string(), std::strerror(errno));
  const Status wrote = write_all(fd, contents);
  ::close(fd);
  if (!wrote) return fail(ErrorCode::io, "{}: {}", path.string(), wrote.error().message);
  return {};
}

/// The regular file that is to be replaced when `path` is written, through any links; empty when
/// `path` has to be opened as it is.
std::filesystem::path replaceable(const std::filesystem::path& path) {
  struct stat entry{};
  if (::lstat(path.c_str(), &entry) != 0) return path;  // not there, or not to be reached
  if (S_ISREG(entry.st_mode)) return path;
  // A link below /dev or /proc leads to an open file of a process, which must stay the same file.
  const std::string name = path.lexically_normal().string();
  if (name.starts_with("/dev/") || name.starts_with("/proc/")) return {};
  std::error_code failed;
  if (!S_ISLNK(entry.st_mode) || !std::filesystem::is_regular_file(path, failed)) return {};
  std::filesystem::path target = std::filesystem::canonical(path, failed);
  return failed ? std::filesystem::path() : target;
}

/// A fresh file beside `target`, open for writing; -1 with errno when there can be none. Not by
/// mkostemp, whose files are private: what the user's umask leaves of 0666 only open() can tell
/// without changing the umask for all threads.
int open_beside(const std::filesystem::path& target, std::string& name) {
  static std::atomic<unsigned> count = 0;
  for (;;) {
    name = fmt::format("{}.{}-{}", target.string(), ::getpid(), count++);
    const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
}

}  // namespace

Status write_file(const std::filesystem::path& path, std::string_view contents, bool sync) {
  const std::filesystem::path target = replaceable(path);
  if (target.empty()) return write_in_place(path, contents);
  std::string temporary;
  const int fd = open_beside(target, temporary);
  if (fd < 0)
    return fail(ErrorCode::io, "{}: cannot write beside it: {}", path.string(),
                std::strerror(errno));
  const auto give_up = [&](const std::string& what) {
    ::close(fd);
    ::unlink(temporary.c_str());
    return fail(ErrorCode::io, "{}: {}", path.string(), what);
  };
  const auto cannot = [&](const char* what) {
    return give_up(fmt::format("cannot {}: {}", what, std::strerror(errno)));
  };
  if (const Status wrote = write_all(fd, contents); !wrote) return give_up(wrote.error().message);
  // A written file has the permissions of the one it replaces.
  struct stat old{};
  if (::stat(target.c_str(), &old) == 0 && ::fchmod(fd, old.st_mode & mode_t{0777}) != 0)
    return cannot("set its permissions");
  if (sync && ::fsync(fd) != 0) return cannot("sync");
  if (::rename(temporary.c_str(), target.c_str()) != 0) return cannot("rename onto it");
  ::close(fd);
  return {};
}

std::filesystem::path cache_folder() {
  // The base directory specification: a relative path there is to be ignored.
  const std::filesystem::path cache = system_env("XDG_CACHE_HOME").value_or("");
  if (cache.is_absolute()) return cache / "lapidary";
  if (const auto home = system_env("HOME")) return std::filesystem::path(*home) / ".cache/lapidary";
  return {};
}

Result<TempFolder> TempFolder::make() {
  std::string path = system_env("TMPDIR").value_or("/tmp") + "/lapidary.XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) {
    return fail(ErrorCode::io, "{}: cannot make a temporary folder: {}", path,
                std::strerror(errno));
  }
  return TempFolder(path);
}

TempFolder::TempFolder(TempFolder&& other) noexcept : path_(std::move(other.path_)) {
  other.path_.clear();
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace lapidary
