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

std::int64_t open_files() {
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  std::int64_t count = 0;
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

}  // namespace

Holdings Holdings::now() {
  Holdings holdings;
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

void LeakWatch::note(const Holdings& before, const Holdings& after) {
  ++runs_;
  const auto grown = [](std::int64_t from, std::int64_t to, int& in_a_row, std::int64_t& last) {
    last = to - from;
    in_a_row = last > 0 ? in_a_row + 1 : 0;
  };
  grown(before.heap_bytes, after.heap_bytes, heap_, last_heap_);
  grown(before.mapped_bytes, after.mapped_bytes, mapped_, last_mapped_);
  grown(before.files, after.files, files_, last_files_);
}

bool LeakWatch::suspicious(int runs) const {
  return heap_ >= runs || mapped_ >= runs || files_ >= runs;
}

std::string LeakWatch::text() const {
  if (files_ > 0)
    return fmt::format("each of the last {} runs kept files open: {} in the last", files_,
                       last_files_);
  const bool heap = heap_ >= mapped_;
  return fmt::format("each of the last {} runs kept memory: {} bytes in the last",
                     heap ? heap_ : mapped_, heap ? last_heap_ : last_mapped_);
}

}  // namespace lapidary::worker
