#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "null_cuda.h"

// The null driver: one shared library in the place of libcuda, libcublasLt and libnvidia-ml:
// programs run unmodified on a machine without a GPU, and any call can be made to fail. Device
// memory is host memory, kernels are host functions, work is done when it is launched, and a
// program is held to more than the real libraries would notice: see State::misuses and State::left.
//
// It is set by the environment, read at the first call of a process:
//   NULL_CUDA_DEVICES   number of devices, default 1; with 0 cuInit says so
//   NULL_CUDA_SM        compute capability, default 90
//   NULL_CUDA_L2        bytes of cache, default 60 MiB: a small one makes for small rotations
//   NULL_CUDA_MEMORY    bytes of memory of a device, default 8 GiB
//   NULL_CUDA_DRIVER    what cuDriverGetVersion says, default 13000
//   NULL_CUDA_LT        what cublasLtGetVersion says, default 130100
//   NULL_CUDA_WAITS     microseconds by which algorithms 66, 24 and 20 take longer, default
//                       20,40,60
//   NULL_CUDA_STATE     file that the processes of a run share (null_cuda.h); default: none
//   NULL_CUDA_FAULT     <where>:<what>, once over all processes that share a state
// A fault's <where> is the number of a call, from 1, over all entries but those that name errors,
// or <symbol>#<nth call of it>. Its <what> is one of
//   error=<code>  the call does nothing and returns the code, for cuBLASLt and NVML a status of
//                 theirs. A code that ends a context is returned by later calls of the process,
//                 too. A call that gives something back does so all the same; cublasLtGetVersion
//                 returns the code as its version
//   hang          the call never returns
//   delay=<ms>    it takes longer
// A value that cannot be understood aborts: a test must not pass because of a slip of the pen.

#define LAPIDARY_NULL_EXPORT extern "C" __attribute__((visibility("default")))

namespace lapidary::driver {
// Declared from the tables of the real interface: a definition that differs is an error here, and a
// missing one where null_cuda_entries is linked.
#define LAPIDARY_CU(name, symbol, ...) LAPIDARY_NULL_EXPORT CuResult symbol(__VA_ARGS__);
#include "driver/cuda_api.inc"
#undef LAPIDARY_CU
#define LAPIDARY_LT(name, symbol, ...) LAPIDARY_NULL_EXPORT LtStatus symbol(__VA_ARGS__);
LAPIDARY_LT_ENTRIES(LAPIDARY_LT)
#undef LAPIDARY_LT
LAPIDARY_NULL_EXPORT std::size_t cublasLtGetVersion();
#define LAPIDARY_NVML(name, symbol, ...) LAPIDARY_NULL_EXPORT int symbol(__VA_ARGS__);
LAPIDARY_NVML_ENTRIES(LAPIDARY_NVML)
#undef LAPIDARY_NVML
}  // namespace lapidary::driver

/// Addresses in the order of kSymbols.
LAPIDARY_NULL_EXPORT const void* const null_cuda_entries[lapidary::null_cuda::kSymbolCount];

namespace lapidary::null_cuda {

struct Fault {
  enum class What { none, error, hang, delay };
  What what = What::none;
  int value = 0;           ///< a code, or milliseconds
  int symbol = -1;         ///< position in kSymbols; -1 counts the calls of all
  std::uint64_t call = 0;  ///< from 1
};

struct Settings {
  int devices = 1, sm = 90, l2_bytes = 60 << 20, driver = 13000;
  std::size_t memory_bytes = std::size_t{8} << 30, lt_version = 130100;
  std::array<int, 3> waits_us = {20, 40, 60};
  Fault fault;
};
const Settings& settings();

/// What every entry does first: counts, and lets the fault fire that is due. Gives the code of an
/// injected error.
std::optional<int> enter(int symbol);

/// A program did what it must never do.
void misuse(const std::string& what);

/// Objects of a kind that are alive in this process.
std::atomic<std::int64_t>& alive(Kind kind);

/// Handles are never used twice, so that a stale one is always found out.
std::uintptr_t next_handle();

/// Living objects behind handles. `kind` is what State::left counts them as.
template <class T>
class Table {
 public:
  explicit Table(Kind kind) : kind_(kind) {}
  template <class Handle>
  Handle add(T object) {
    const std::uintptr_t handle = next_handle();
    objects_.emplace(handle, std::move(object));
    ++alive(kind_);
    return reinterpret_cast<Handle>(handle);
  }
  /// Null, and a misuse, when the handle is of no living object.
  T* find(const void* handle, std::string_view who) {
    if (T* found = peek(handle)) return found;
    misuse(std::string(who) + ": no living object of the " +
           std::string(kKinds[static_cast<int>(kind_)]));
    return nullptr;
  }
  T* peek(const void* handle) {
    const auto found = objects_.find(reinterpret_cast<std::uintptr_t>(handle));
    return found == objects_.end() ? nullptr : &found->second;
  }
  bool remove(const void* handle, std::string_view who) {
    if (find(handle, who) == nullptr) return false;
    objects_.erase(reinterpret_cast<std::uintptr_t>(handle));
    --alive(kind_);
    return true;
  }
  auto begin() { return objects_.begin(); }
  auto end() { return objects_.end(); }

 private:
  Kind kind_;
  std::map<std::uintptr_t, T> objects_;
};

// The device, as the three libraries see it. One lock guards all of it, and work runs under it.

std::mutex& mutex();

struct Stream;
using Work = std::function<void(Stream&)>;

/// Does work in the order of a stream: now, or whenever the graph is launched that the stream
/// captures. The lock is held.
driver::CuResult submit(driver::CuStream stream, Work work, std::string_view who);

/// Is all of this device memory? If not the work that touches it has lost the context (700), as the
/// next synchronising call will tell. The lock is held.
bool touch(const void* memory, std::size_t bytes, std::string_view who);

/// The error that ended the context of this process; 0 while there is none.
driver::CuResult lost();

/// Bytes of a UUID: "null gpu" and the ordinal.
driver::CuUuid uuid(int ordinal);

}  // namespace lapidary::null_cuda
