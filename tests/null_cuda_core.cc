#include "null_cuda_core.h"

#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

const void* const null_cuda_entries[] = {
#define LAPIDARY_CU(name, symbol, ...) reinterpret_cast<const void*>(&lapidary::driver::symbol),
#include "driver/cuda_api.inc"
#undef LAPIDARY_CU
#define LAPIDARY_LT(name, symbol, ...) reinterpret_cast<const void*>(&lapidary::driver::symbol),
    LAPIDARY_LT_ENTRIES(LAPIDARY_LT)
#undef LAPIDARY_LT
        reinterpret_cast<const void*>(&lapidary::driver::cublasLtGetVersion),
#define LAPIDARY_NVML(name, symbol, ...) reinterpret_cast<const void*>(&lapidary::driver::symbol),
    LAPIDARY_NVML_ENTRIES(LAPIDARY_NVML)
#undef LAPIDARY_NVML
};

namespace lapidary::null_cuda {
namespace {

[[noreturn]] void refuse(const char* variable, std::string_view text, const char* needed) {
  std::fprintf(stderr, "null driver: %s is '%.*s', not %s\n", variable,
               static_cast<int>(text.size()), text.data(), needed);
  std::abort();
}

template <class T>
T number(const char* variable, std::string_view text, const char* needed = "a number") {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || std::cmp_less(value, 0)) {
    refuse(variable, text, needed);
  }
  return value;
}

template <class T>
void read(const char* variable, T& value) {
  if (const char* text = std::getenv(variable)) value = number<T>(variable, text);
}

Fault parse_fault(std::string_view text) {
  constexpr const char* kVariable = "NULL_CUDA_FAULT";
  constexpr const char* kNeeded =
      "<call or symbol#nth>:<error=code, hang or delay=ms> with numbers from 1";
  Fault fault;
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) refuse(kVariable, text, kNeeded);
  std::string_view where = text.substr(0, colon);
  const std::string_view what = text.substr(colon + 1);
  if (const std::size_t hash = where.find('#'); hash != std::string_view::npos) {
    fault.symbol = symbol_index(where.substr(0, hash));
    if (fault.symbol < 0) refuse(kVariable, text, "of a symbol that there is");
    where.remove_prefix(hash + 1);
  }
  fault.call = number<std::uint64_t>(kVariable, where, kNeeded);
  const std::size_t equals = what.find('=');
  const std::string_view word = what.substr(0, equals);
  fault.what = word == "error"   ? Fault::What::error
               : word == "hang"  ? Fault::What::hang
               : word == "delay" ? Fault::What::delay
                                 : Fault::What::none;
  const bool has_value = equals != std::string_view::npos;
  if (has_value) fault.value = number<int>(kVariable, what.substr(equals + 1), kNeeded);
  if (fault.what == Fault::What::none || fault.call == 0 ||
      has_value == (fault.what == Fault::What::hang) || (has_value && fault.value == 0)) {
    refuse(kVariable, text, kNeeded);
  }
  return fault;
}

Settings parse_settings() {
  Settings settings;
  read("NULL_CUDA_DEVICES", settings.devices);
  read("NULL_CUDA_SM", settings.sm);
  read("NULL_CUDA_L2", settings.l2_bytes);
  read("NULL_CUDA_MEMORY", settings.memory_bytes);
  read("NULL_CUDA_DRIVER", settings.driver);
  read("NULL_CUDA_LT", settings.lt_version);
  if (const char* waits = std::getenv("NULL_CUDA_WAITS")) {
    std::string_view rest = waits;
    for (int& wait : settings.waits_us) {
      const std::size_t comma = rest.find(',');
      wait = number<int>("NULL_CUDA_WAITS", rest.substr(0, comma), "three numbers and two commas");
      const bool last = &wait == &settings.waits_us.back();
      if (last != (comma == std::string_view::npos)) {
        refuse("NULL_CUDA_WAITS", waits, "three numbers and two commas");
      }
      if (!last) rest.remove_prefix(comma + 1);
    }
  }
  if (const char* fault = std::getenv("NULL_CUDA_FAULT")) settings.fault = parse_fault(fault);
  return settings;
}

/// What this process adds to the state, and when it began.
struct Process {
  State* state = nullptr;
  pid_t pid = 0;
  std::atomic<std::int64_t> alive[kKindCount] = {};
  std::atomic<std::uintptr_t> handles{0};
};

/// Null until the first call. Never freed: objects of a program may be given back while it exits.
std::atomic<Process*> g_process{nullptr};

Process& process() {
  static Process* const one = [] {
    auto* made = new Process;
    made->pid = ::getpid();
    if (const char* path = std::getenv("NULL_CUDA_STATE")) {
      made->state = map_state(path);
      if (made->state == nullptr) refuse("NULL_CUDA_STATE", path, "a file that can be written");
    } else {
      made->state = new State{};
    }
    ++made->state->started;
    g_process = made;
    return made;
  }();
  return *one;
}

/// Runs when a process ends normally, behind the destructors of the program's static objects: the
/// loader's turn comes last.
__attribute__((destructor)) void count_what_is_left() {
  Process* one = g_process;
  // A fork that never ran another program has nothing of its own.
  if (one == nullptr || one->pid != ::getpid()) return;
  const bool was_lost = lost() != 0;
  ++one->state->ended;
  if (was_lost) ++one->state->ended_lost;
  for (int i = 0; i < kKindCount; ++i) {
    (was_lost ? one->state->left_lost : one->state->left)[i] += one->alive[i];
  }
}

}  // namespace

const Settings& settings() {
  static const Settings* const one = new Settings(parse_settings());
  return *one;
}

std::optional<int> enter(int symbol) {
  State& state = *process().state;
  const Fault& fault = settings().fault;
  const std::uint64_t call = state.calls.fetch_add(1) + 1;
  const std::uint64_t nth = state.calls_of[symbol].fetch_add(1) + 1;
  const bool due =
      fault.symbol < 0 ? call == fault.call : symbol == fault.symbol && nth == fault.call;
  if (fault.what == Fault::What::none || !due) return std::nullopt;
  // Counts of a state only grow: no other call, of whatever process, is due.
  state.fault_fired = 1;
  state.fault_symbol = static_cast<std::uint32_t>(symbol + 1);
  state.fault_call = call;
  switch (fault.what) {
    case Fault::What::error:
      return fault.value;
    case Fault::What::hang:
      for (;;) ::pause();
    case Fault::What::delay:
      std::this_thread::sleep_for(std::chrono::milliseconds(fault.value));
      break;
    case Fault::What::none:
      break;
  }
  return std::nullopt;
}

void misuse(const std::string& what) {
  State& state = *process().state;
  if (state.misuses.fetch_add(1) == 0) {
    std::strncpy(state.first_misuse, what.c_str(), sizeof state.first_misuse - 1);
  }
}

std::atomic<std::int64_t>& alive(Kind kind) { return process().alive[static_cast<int>(kind)]; }

std::uintptr_t next_handle() {
  // No address of x86-64 or AArch64: whoever follows one crashes.
  return (std::uintptr_t{0x4e55} << 48) + 16 * ++process().handles;
}

}  // namespace lapidary::null_cuda
