#include "worker/verify_memory.h"

#include <dirent.h>
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "support/files.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LAPIDARY_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LAPIDARY_SANITIZED 1
#endif
#endif

namespace lapidary::worker {
namespace {

constexpr std::int64_t kMuch = 2048;  // bytes that one run keeps

std::int64_t open_files() {
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  std::int64_t count = 0;
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

}  // namespace

Result<Holdings> Holdings::now(driver::Device& device) {
  Holdings holdings;
  if (!device.is_host()) {
    LAPIDARY_TRY(const std::int64_t free, device.free_bytes());
    holdings.device_bytes = -free;  // only differences are looked at
  }
#if !defined(LAPIDARY_SANITIZED)
  if (const auto statm = read_file("/proc/self/statm")) {
    holdings.mapped_bytes = std::strtoll(statm->c_str(), nullptr, 10) * ::sysconf(_SC_PAGESIZE);
  }
  const auto heap = ::mallinfo2();
  // Mapped chunks are counted apart from those of the arenas.
  holdings.heap_bytes = std::int64_t(heap.uordblks) + std::int64_t(heap.hblkhd);
#endif
  holdings.files = open_files();
  return holdings;
}

void LeakWatch::Growth::note(std::int64_t before, std::int64_t after) {
  last = after - before;
  in_a_row = last > 0 ? in_a_row + 1 : 0;
  much_in_a_row = last >= kMuch ? much_in_a_row + 1 : 0;
}

void LeakWatch::note(const Holdings& before, const Holdings& after) {
  ++runs_;
  heap_.note(before.heap_bytes, after.heap_bytes);
  mapped_.note(before.mapped_bytes, after.mapped_bytes);
  files_.note(before.files, after.files);
  device_.note(before.device_bytes, after.device_bytes);
}

bool LeakWatch::suspicious(int runs) const {
  return heap_.in_a_row >= runs || mapped_.in_a_row >= runs || files_.in_a_row >= runs ||
         device_.in_a_row >= runs;
}

bool LeakWatch::certain() const {
  constexpr int kRuns = 12, kManyRuns = 500;
  return files_.in_a_row >= kRuns || mapped_.in_a_row >= kRuns || device_.in_a_row >= kRuns ||
         heap_.much_in_a_row >= kRuns || heap_.in_a_row >= kManyRuns;
}

std::string LeakWatch::text() const {
  if (files_.in_a_row > 0) {
    return fmt::format("each of the last {} runs kept files open: {} in the last", files_.in_a_row,
                       files_.last);
  }
  if (device_.in_a_row > 0) {
    return fmt::format("each of the last {} runs kept device memory: {} bytes in the last",
                       device_.in_a_row, device_.last);
  }
  const Growth& memory = heap_.in_a_row >= mapped_.in_a_row ? heap_ : mapped_;
  return fmt::format("each of the last {} runs kept memory: {} bytes in the last", memory.in_a_row,
                     memory.last);
}

}  // namespace lapidary::worker
