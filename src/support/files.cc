#include "support/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

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

Status write_file(const std::filesystem::path& path, std::string_view contents) {
  std::string temporary = path.string() + ".XXXXXX";
  const int fd = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0)
    return fail(ErrorCode::io, "{}: cannot write beside it: {}", path.string(),
                std::strerror(errno));
  const auto give_up = [&](const char* what) {
    const int why = errno;
    ::close(fd);
    ::unlink(temporary.c_str());
    return fail(ErrorCode::io, "{}: cannot {}: {}", path.string(), what, std::strerror(why));
  };
  for (std::size_t done = 0; done < contents.size();) {
    const ssize_t wrote = ::write(fd, contents.data() + done, contents.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return give_up("write");
    done += static_cast<std::size_t>(wrote);
  }
  // mkostemp makes the file private; a written file has the permissions that the user's umask
  // gives.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  if (::fchmod(fd, 0666 & ~mask) != 0) return give_up("set its permissions");
  if (::fsync(fd) != 0) return give_up("sync");
  if (::rename(temporary.c_str(), path.c_str()) != 0) return give_up("rename onto it");
  ::close(fd);
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
