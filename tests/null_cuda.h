#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "driver/cublaslt_api.h"
#include "driver/cuda_api.h"
#include "driver/nvml_api.h"

// What tests see of the null driver: the file that all of its processes share. What the library is,
// and how it is set, stands in null_cuda_core.h.
namespace lapidary::null_cuda {

/// All that the library stands in for, in the order of State::calls_of.
inline constexpr std::string_view kSymbols[] = {
#define LAPIDARY_CU(name, symbol, ...) #symbol,
#include "driver/cuda_api.inc"
#undef LAPIDARY_CU
#define LAPIDARY_LT(name, symbol, ...) #symbol,
    LAPIDARY_LT_ENTRIES(LAPIDARY_LT)
#undef LAPIDARY_LT
        "cublasLtGetVersion",
#define LAPIDARY_NVML(name, symbol, ...) #symbol,
    LAPIDARY_NVML_ENTRIES(LAPIDARY_NVML)
#undef LAPIDARY_NVML
};
inline constexpr int kSymbolCount = static_cast<int>(std::size(kSymbols));

/// Position in kSymbols; -1 when nothing has that name.
constexpr int symbol_index(std::string_view name) {
  for (int i = 0; i < kSymbolCount; ++i) {
    if (kSymbols[i] == name) return i;
  }
  return -1;
}

/// Objects that a program makes and must give back.
enum class Kind {
  allocation,
  pinned,
  stream,
  event,
  module,
  graph,
  exec,
  lt_desc,
  lt_layout,
  lt_preference,
};
inline constexpr std::string_view kKinds[] = {"allocations", "pinned ranges", "streams", "events",
                                              "modules",     "graphs",        "execs",   "Lt descs",
                                              "Lt layouts",  "Lt preferences"};
inline constexpr int kKindCount = static_cast<int>(std::size(kKinds));

/// What the processes of a run write together. All zeros at the start.
struct State {
  std::atomic<std::uint64_t> calls;  ///< of all entries but those that name errors
  std::atomic<std::uint64_t> calls_of[kSymbolCount];
  std::atomic<std::uint32_t> fault_fired;   ///< 0 or 1
  std::atomic<std::uint32_t> fault_symbol;  ///< position in kSymbols, plus 1
  std::atomic<std::uint64_t> fault_call;    ///< its number among `calls`
  /// Double and wild frees, unknown or destroyed handles, accesses outside of any allocation.
  std::atomic<std::uint64_t> misuses;
  char first_misuse[128];                      ///< in words
  std::atomic<std::uint32_t> started;          ///< processes that made a call
  std::atomic<std::uint32_t> ended;            ///< those of them that ended normally
  std::atomic<std::uint32_t> ended_lost;       ///< those of them whose context had been lost
  std::atomic<std::int64_t> left[kKindCount];  ///< objects alive when a process ended normally ...
  std::atomic<std::int64_t> left_lost[kKindCount];  ///< ... and when its context had been lost
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// The state in a file, which is made where it is missing. Null when it cannot be had.
inline State* map_state(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return nullptr;
  void* memory = MAP_FAILED;
  if (::ftruncate(file, sizeof(State)) == 0) {  // a new file reads as zeros
    memory = ::mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  ::close(file);
  return memory == MAP_FAILED ? nullptr : static_cast<State*>(memory);
}

/// A test's view of that file, current at every look.
class StateFile {
 public:
  explicit StateFile(const std::string& path) : state_(map_state(path)) {}
  StateFile(const StateFile&) = delete;
  StateFile& operator=(const StateFile&) = delete;
  ~StateFile() {
    if (state_ != nullptr) ::munmap(state_, sizeof(State));
  }
  explicit operator bool() const { return state_ != nullptr; }
  const State* operator->() const { return state_; }

  /// Calls of one entry; -1 when there is none of that name.
  std::int64_t calls_of(std::string_view symbol) const {
    const int i = symbol_index(symbol);
    return i < 0 ? -1 : static_cast<std::int64_t>(state_->calls_of[i].load());
  }
  bool fired() const { return state_->fault_fired != 0; }
  /// Where the fault fired; empty until it did.
  std::string_view fault_symbol() const {
    const std::uint32_t symbol = state_->fault_symbol;
    return symbol == 0 ? std::string_view() : kSymbols[symbol - 1];
  }
  /// What sound processes left behind: "2 allocations, 1 streams"; empty when nothing.
  std::string left() const {
    std::string text;
    for (int i = 0; i < kKindCount; ++i) {
      if (const std::int64_t count = state_->left[i]; count != 0) {
        text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + std::string(kKinds[i]);
      }
    }
    return text;
  }
  /// "", or the first misuse and how many there were.
  std::string misuses() const {
    const std::uint64_t count = state_->misuses;
    return count == 0 ? "" : std::to_string(count) + ", first: " + state_->first_misuse;
  }

 private:
  State* state_;
};

}  // namespace lapidary::null_cuda
