#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lapidary::worker {

/// What this process holds, to see what runs keep.
struct Holdings {
  std::int64_t heap_bytes =
      0;  ///< allocated and not freed; 0 under a sanitizer, whose allocator does not say
  std::int64_t mapped_bytes = 0;  ///< of address space; 0 under a sanitizer
  std::int64_t files = 0;         ///< open descriptors
  static Holdings now();
};

/// Looks for growth over consecutive runs. Caches of the allocator and of libraries fill up and
/// stop; a leak goes on.
class LeakWatch {
 public:
  void note(const Holdings& before, const Holdings& after);
  /// Did heap, mappings or files grow in each of the last `runs` runs?
  bool suspicious(int runs) const;
  std::string text() const;  ///< "each of the last 12 runs kept memory: 4096 bytes in the last"
  int runs() const { return runs_; }

 private:
  int runs_ = 0, heap_ = 0, mapped_ = 0, files_ = 0;  // consecutive runs that grew
  std::int64_t last_heap_ = 0, last_mapped_ = 0, last_files_ = 0;
};

}  // namespace lapidary::worker
