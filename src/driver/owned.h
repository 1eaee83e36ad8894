#pragma once

#include <utility>

namespace lapidary::driver {

/// An object of a vendor's C library, given back with one of the library's calls. All of them
/// return a status as an int, and none is looked at: nothing can be done about it, and what is lost
/// with a device's context needs no freeing.
template <class Handle>
class Owned {
 public:
  using Destroy = int (*)(Handle);
  Owned() = default;
  Owned(Handle handle, Destroy destroy) : handle_(handle), destroy_(destroy) {}
  Owned(Owned&& other) noexcept
      : handle_(std::exchange(other.handle_, Handle{})), destroy_(other.destroy_) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(destroy_, other.destroy_);
    return *this;
  }
  ~Owned() {
    if (handle_ != Handle{}) (void)destroy_(handle_);
  }
  Handle get() const { return handle_; }

 private:
  Handle handle_{};
  Destroy destroy_ = nullptr;
};

}  // namespace lapidary::driver
