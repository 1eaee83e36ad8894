#include "worker/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "support/env.h"

namespace lapidary::worker {

Result<DeviceLock> DeviceLock::acquire(std::string_view device,
                                       const std::function<void(std::string_view)>& waiting) {
  const std::string path =
      fmt::format("{}/lapidary-{}.lock", env("LAPIDARY_LOCKS").value_or("/tmp"), device);
  // Without O_CREAT first: in a sticky folder the kernel may refuse O_CREAT on another user's file.
  int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0 && errno == ENOENT) {
    fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd >= 0)
      (void)::fchmod(fd, 0666);  // the umask may have narrowed it; others take the lock too
  }
  if (fd < 0)
    return fail(ErrorCode::device_fault, "worker: cannot open the device lock {}: {}", path,
                std::strerror(errno));
  for (int round = 0; ::flock(fd, LOCK_EX | LOCK_NB) != 0; ++round) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      const int why = errno;
      ::close(fd);
      return fail(ErrorCode::device_fault, "worker: cannot lock {}: {}", path, std::strerror(why));
    }
    if (round % 50 == 0) {
      char holder[32] = {};
      const ssize_t got = ::pread(fd, holder, sizeof holder - 1, 0);
      waiting(got > 0 ? std::string_view(holder, static_cast<std::size_t>(got)) : "unknown");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, pid.data(), pid.size(), 0) < 0) {
    // The name in the file is for messages alone; the lock holds without it.
  }
  return DeviceLock(fd);
}

DeviceLock::~DeviceLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace lapidary::worker
