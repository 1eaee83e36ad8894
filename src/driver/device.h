#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "lapidary/device.h"
#include "support/result.h"

namespace lapidary::driver {

/// Bytes of memory that are not contiguous: `entries` blocks, `entry_bytes` apart, of `rows` rows,
/// `pitch_bytes` apart, of `row_bytes`.
struct Region {
  std::int64_t row_bytes = 0, rows = 1, pitch_bytes = 0, entries = 1, entry_bytes = 0;
};

/// Work that was recorded once and is timed as often as wanted.
class Replay {
 public:
  virtual ~Replay() = default;
  /// Runs it all and gives microseconds of one launch.
  virtual Result<double> run() = 0;
};

/// How a kernel is launched: blocks along three axes, threads of a block, bytes of shared memory
/// that the launch asks for.
struct LaunchShape {
  std::array<int, 3> grid{1, 1, 1};
  int threads = 1;
  std::int64_t shared_bytes = 0;
};

/// A kernel of a cubin that is on the device; it must not outlive it.
class LoadedKernel {
 public:
  virtual ~LoadedKernel() = default;
  /// Queues one launch on the device's stream; `arguments[i]` points to parameter i.
  virtual Status launch(const LaunchShape& shape, std::span<const void* const> arguments) = 0;
};

/// What a device did over a while of work.
struct Effort {
  double time_us = 0;    ///< of one launch
  double clock_mhz = 0;  ///< of SMs, in the middle; 0 when unknown, as the next two
  double watts = 0;
  double joules = 0;  ///< of one launch
  bool operator==(const Effort&) const = default;
};

/// A device as the worker uses it: memory, and work that is launched and timed. Errors:
/// `resource_limit` for memory; `device_fault` when the context is lost and only another process
/// can go on; else `launch_failed`. One thread at a time.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  /// True when kernels work in this process's own memory: nothing needs to be copied.
  virtual bool is_host() const = 0;

  /// 256-byte aligned, contents undefined; null for 0 bytes.
  virtual Result<void*> allocate(std::int64_t bytes) = 0;
  virtual void release(void* memory) = 0;
  /// Host memory that uploads and downloads will use often; an error is only a lost chance.
  virtual Status pin(void* memory, std::int64_t bytes) = 0;
  virtual void unpin(void* memory) = 0;
  virtual Result<std::int64_t> free_bytes() = 0;

  // These take addresses of the device, run in order behind what was launched, and have ended when
  // they return.
  virtual Status upload(void* to, const void* from, std::int64_t bytes) = 0;
  virtual Status download(void* to, const void* from, std::int64_t bytes) = 0;
  virtual Status copy(void* to, const void* from, std::int64_t bytes) = 0;
  /// Every row of the region gets repeats of the `element_bytes` (1, 2 or 4) low bytes of
  /// `element`.
  virtual Status fill(void* first, const Region& region, std::uint32_t element,
                      int element_bytes) = 0;
  /// garbage_byte(seed, i) for every byte i.
  virtual Status fill_garbage(void* first, std::int64_t bytes, std::uint64_t seed) = 0;
  /// Sum modulo 2^64 of byte_hash(offset, byte) over the bytes of the region, where the first has
  /// `offset`. Regions that do not overlap may be added and taken away.
  virtual Result<std::uint64_t> hash(const void* first, const Region& region,
                                     std::int64_t offset) = 0;

  /// The kernel `entry` of a cubin, allowed so much shared memory. `unsupported` on a CPU.
  virtual Result<std::unique_ptr<LoadedKernel>> load(std::string_view cubin,
                                                     const std::string& entry,
                                                     std::int64_t shared_bytes) = 0;

  /// Where kernels are launched: a CUstream; null on a CPU.
  virtual void* stream() const = 0;
  /// Waits for all that was launched, and gives its error.
  virtual Status synchronize() = 0;
  /// Records launch(0) .. launch(repeats - 1), to be timed together.
  virtual Result<std::unique_ptr<Replay>> record(const std::function<Status(std::int64_t)>& launch,
                                                 std::int64_t repeats) = 0;
  /// Replays without a rest for so long and measures the second half.
  virtual Result<Effort> sustain(Replay& replay, std::int64_t repeats, double seconds,
                                 const std::function<void()>& progress) = 0;
  /// A kernel that does nothing, waited for: is the device usable?
  virtual Status probe() = 0;
};

/// Memory of a device, given back at the end; the device must outlive it.
class Memory {
 public:
  static Result<Memory> make(Device& device, std::int64_t bytes) {
    LAPIDARY_TRY(void* const memory, device.allocate(bytes));
    return Memory(device, memory);
  }
  Memory() = default;
  Memory(Memory&& other) noexcept
      : device_(other.device_), data_(std::exchange(other.data_, nullptr)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~Memory() {
    if (data_ != nullptr) device_->release(data_);
  }
  void* data() const { return data_; }

 private:
  Memory(Device& device, void* data) : device_(&device), data_(data) {}
  Device* device_ = nullptr;
  void* data_ = nullptr;
};

/// Opens "cpu" or "cuda:N" for work: a CUDA device gets its context. `invalid_argument` for a name
/// that is none; `unsupported` with what is missing.
Result<std::unique_ptr<Device>> open_device(std::string_view id);

/// The same facts without a context: what a parent knows of the device of its worker.
Result<DeviceInfo> describe_device(std::string_view id);

/// "cuda:0" where a driver finds a GPU, else "cpu".
std::string default_device();

/// The device that is asked for: `flag`, else $LAPIDARY_DEVICE, else the default.
std::string chosen_device(const std::string& flag);

/// Makes a GPU's primary context current in this thread, as NVIDIA's libraries expect it, and what
/// was current before again at its end. Nothing happens for a CPU.
class Current {
 public:
  static Result<Current> make(std::string_view id);
  Current(Current&& other) noexcept
      : restore_(std::exchange(other.restore_, false)), before_(other.before_) {}
  Current& operator=(Current&&) = delete;
  ~Current();

 private:
  Current() = default;
  bool restore_ = false;
  void* before_ = nullptr;
};

/// A byte of garbage; every other 8-byte word is all ones, a NaN whatever the type.
constexpr std::uint8_t garbage_byte(std::uint64_t seed, std::uint64_t i);
/// What a byte at an offset adds to a hash.
constexpr std::uint64_t byte_hash(std::uint64_t offset, std::uint8_t byte);

/// The finalizer of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
/// 2014).
constexpr std::uint64_t scramble(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
constexpr std::uint8_t garbage_byte(std::uint64_t seed, std::uint64_t i) {
  const std::uint64_t word = i >> 3;
  return (word & 1) != 0 ? 0xff : std::uint8_t(scramble(seed + word) >> (8 * (i & 7)));
}
constexpr std::uint64_t byte_hash(std::uint64_t offset, std::uint8_t byte) {
  return scramble((offset << 8 | byte) + 0x9e3779b97f4a7c15u);
}

}  // namespace lapidary::driver
