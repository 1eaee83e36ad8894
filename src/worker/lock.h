#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "support/result.h"

namespace lapidary::worker {

/// The one measuring worker of a device on this host: an advisory lock that the system drops with
/// its process.
class DeviceLock {
 public:
  /// Waits for the lock of `device` ("cpu", a GPU's UUID), calling `waiting(holder's pid)`
  /// about once a second. The file lies in $LAPIDARY_LOCKS, else /tmp, shared by all users.
  static Result<DeviceLock> acquire(std::string_view device,
                                    const std::function<void(std::string_view)>& waiting);
  DeviceLock(DeviceLock&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  DeviceLock& operator=(DeviceLock&&) = delete;
  ~DeviceLock();

 private:
  explicit DeviceLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace lapidary::worker
