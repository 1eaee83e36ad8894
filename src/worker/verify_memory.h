#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "driver/device.h"
#include "support/result.h"

namespace lapidary::worker {

/// What this process holds, to see what runs keep.
struct Holdings {
  std::int64_t heap_bytes =
      0;  ///< allocated and not freed; 0 under a sanitizer, whose allocator does not say
  std::int64_t mapped_bytes = 0;  ///< of address space; 0 under a sanitizer
  std::int64_t files = 0;         ///< open descriptors
  std::int64_t device_bytes = 0;  ///< of a GPU's memory, whoever holds them; 0 on a CPU
  static Result<Holdings> now(driver::Device& device);
};

/// Looks for growth over consecutive runs. Caches of the allocator and of libraries fill up and
/// stop; a leak goes on. glibc counts what lies in its threads' caches as allocated: up to 7 chunks
/// of each of 64 sizes a thread. What one thread allocates and another frees fills them slowly
/// (oneDNN 2.6: 176 bytes a run for 28 runs), so small growth is a leak only after long.
class LeakWatch {
 public:
  void note(const Holdings& before, const Holdings& after);
  /// Did heap, mappings, files or the device's memory grow in each of the last `runs` runs?
  bool suspicious(int runs) const;
  /// Growth in each of 12 runs: of files, of mappings, of the device's memory, or of the heap by 2
  /// KiB each; or of the heap by anything in each of 500.
  bool certain() const;
  std::string text() const;  ///< "each of the last 12 runs kept memory: 4096 bytes in the last"
  int runs() const { return runs_; }

 private:
  struct Growth {
    int in_a_row = 0, much_in_a_row = 0;  // runs
    std::int64_t last = 0;
    void note(std::int64_t before, std::int64_t after);
  };
  int runs_ = 0;
  Growth heap_, mapped_, files_, device_;
};

}  // namespace lapidary::worker
