// The driver API on host memory. Each entry begins with ENTER, which counts it and lets a fault
// fire; those that give something back do so even when they are made to fail.
#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "driver/device.h"
#include "null_cuda_core.h"

namespace lapidary::null_cuda {

using driver::CuContext;
using driver::CuPointer;
using driver::CuResult;
using Clock = std::chrono::steady_clock;

// CUresult
constexpr CuResult kInvalidValue = 1, kOutOfMemory = 2, kNotInitialised = 3, kNoDevice = 100,
                   kInvalidDevice = 101, kInvalidImage = 200, kInvalidContext = 201,
                   kInvalidHandle = 400, kIllegalState = 401, kNotFound = 500, kNotReady = 600,
                   kIllegalAddress = 700, kAlreadyRegistered = 712, kNotRegistered = 713,
                   kMisaligned = 716, kCaptureUnsupported = 900, kCaptureInvalidated = 901,
                   kCapturedEvent = 907, kCaptureWrongThread = 908;
constexpr int kModeGlobal = 0, kModeRelaxed = 2;  // CUstreamCaptureMode

struct Capture {
  int mode = 0;
  std::thread::id thread;
  bool valid = true;
  std::vector<Work> work;
};

struct Stream {
  bool spins = false;                      // a kernel on it never ends
  std::uint64_t recorded = 0, waited = 0;  // events, numbered
  std::optional<Capture> capture;
};

namespace {

struct Event {
  bool timed = true, captured = false, hangs = false;
  driver::CuStream stream = nullptr;
  std::uint64_t number = 0;  // among those of its stream; 0 until it is recorded
  Clock::time_point time;
};
struct Module {
  std::string image;
};
/// A graph, and one that can be launched: what was captured, in order.
struct Graph {
  std::shared_ptr<const std::vector<Work>> work;
};
struct Kernel;
struct Allocation {
  std::size_t bytes = 0;
  int device = 0;
};

struct Driver {
  std::mutex mutex;
  std::atomic<bool> initialised{false};
  std::atomic<CuResult> lost{0};
  CuResult pending = 0;  // what the next synchronising call will find
  bool spins = false;    // any stream
  std::map<CuPointer, Allocation> allocations;
  std::map<std::uintptr_t, std::size_t> pinned;
  std::vector<std::size_t> used =
      std::vector<std::size_t>(static_cast<std::size_t>(settings().devices));
  Stream legacy;
  Table<Stream> streams{Kind::stream};
  Table<Event> events{Kind::event};
  Table<Module> modules{Kind::module};
  std::map<std::uintptr_t, std::pair<const void*, const Kernel*>> functions;  // of which module
  Table<Graph> graphs{Kind::graph};
  Table<Graph> execs{Kind::exec};
};

Driver& the_driver() {
  static Driver* const one = new Driver;  // never freed: see Process
  return *one;
}

using Lock = std::unique_lock<std::mutex>;
Lock locked() { return Lock(the_driver().mutex); }

[[noreturn]] void never_return(Lock& lock) {
  lock.unlock();
  for (;;) ::pause();
}

/// "This leaves the process in an inconsistent state and any further CUDA work will return the same
/// error", and kin (CUDA Driver API, CUresult).
bool ends_context(CuResult code) {
  return code == 214 || code == 220 || code == 226 || code == 700 || code == 702 || code == 709 ||
         code == 710 || (code >= 714 && code <= 719) || code == 721 || code == 999;
}

/// The code of a fault that fires here, else 0.
template <int Symbol>
CuResult injected() {
  static_assert(Symbol >= 0, "not an entry of the driver");
  const std::optional<int> fault = enter(Symbol);
  if (!fault) return 0;
  if (ends_context(*fault)) the_driver().lost = *fault;
  return *fault;
}

/// The first step of an entry: not 0 when it has to fail.
template <int Symbol>
CuResult enter_checked() {
  const CuResult fault = injected<Symbol>();
  return fault != 0 ? fault : the_driver().lost.load();
}
#define ENTER(symbol)                                                                \
  const char* const who = #symbol;                                                   \
  if (const CuResult refused = enter_checked<symbol_index(#symbol)>(); refused != 0) \
    return refused;                                                                  \
  (void)who
#define ENTER_READY(symbol) \
  ENTER(symbol);            \
  if (!the_driver().initialised) return kNotInitialised

// ---- memory

/// The allocation that holds an address; end() when none does.
std::map<CuPointer, Allocation>::iterator around(CuPointer pointer) {
  auto& allocations = the_driver().allocations;
  auto next = allocations.upper_bound(pointer);
  if (next == allocations.begin()) return allocations.end();
  --next;
  return pointer - next->first < next->second.bytes ? next : allocations.end();
}

bool is_allocated(CuPointer pointer, std::size_t bytes) {
  const auto found = around(pointer);
  return found != the_driver().allocations.end() &&
         bytes <= found->second.bytes - (pointer - found->first);
}

void fail_later(CuResult code) {
  CuResult& pending = the_driver().pending;
  if (pending == 0) pending = code;
}

/// The device whose context is current in this thread; -1 for none.
thread_local int t_device = -1;

// ---- captures

/// Calls that may not run while a stream captures end the capture and fail, in all threads or in
/// its own as its mode says.
CuResult refuse_unsafe() {
  const auto end = [](Stream& stream) {
    if (!stream.capture || stream.capture->mode == kModeRelaxed) return false;
    const bool concerned =
        stream.capture->mode == kModeGlobal || stream.capture->thread == std::this_thread::get_id();
    if (concerned) stream.capture->valid = false;
    return concerned;
  };
  bool any = false;
  for (auto& [handle, stream] : the_driver().streams) any |= end(stream);
  return any ? kCaptureUnsupported : 0;
}

Stream* find_stream(driver::CuStream handle, std::string_view who) {
  Driver& driver = the_driver();
  return handle == nullptr ? &driver.legacy : driver.streams.find(handle, who);
}

/// Null when it was destroyed since, which it may be.
Stream* stream_of(const Event& event) {
  Driver& driver = the_driver();
  return event.stream == nullptr ? &driver.legacy : driver.streams.peek(event.stream);
}

void run(const Work& work, Stream& stream) {
  // Nothing runs behind a kernel that failed, or that does not end.
  if (the_driver().pending == 0 && !stream.spins) work(stream);
}

/// What a synchronising call finds out. Does not come back from a kernel that never ends.
CuResult outcome(Lock& lock, bool spins) {
  Driver& driver = the_driver();
  if (driver.pending != 0) driver.lost = driver.pending;
  if (driver.lost == 0 && spins) never_return(lock);
  return driver.lost;
}

// ---- kernels

using Parameters = const std::uint64_t*;

template <class T = std::uint8_t>
T* at(std::uint64_t address) {
  return reinterpret_cast<T*>(address);
}

/// The rows of a region, after one look at whether all of it may be touched.
template <class Row>
void each_row(Parameters p, std::string_view who, Row row) {
  const auto [first, row_bytes, rows, pitch, entries, stride] =
      std::array{p[0], p[1], p[2], p[3], p[4], p[5]};
  if (row_bytes == 0 || rows == 0 || entries == 0) return;
  const std::uint64_t bytes = (entries - 1) * stride + (rows - 1) * pitch + row_bytes;
  if (!touch(at(first), bytes, who)) return;
  for (std::uint64_t entry = 0; entry < entries; ++entry) {
    for (std::uint64_t r = 0; r < rows; ++r) row(at(first + entry * stride + r * pitch), row_bytes);
  }
}

void run_empty(Stream&, Parameters) {}

void run_fill(Stream&, Parameters p) {
  const auto element = static_cast<std::uint32_t>(p[6]);
  const std::uint64_t size = p[7];
  if (size != 1 && size != 2 && size != 4) {
    misuse("lapidary_fill: elements of " + std::to_string(size) + " bytes");
    return fail_later(kIllegalAddress);
  }
  each_row(p, "lapidary_fill", [&](std::uint8_t* row, std::uint64_t bytes) {
    std::uint8_t pattern[4];
    std::memcpy(pattern, &element, sizeof pattern);
    for (std::uint64_t i = 0; i < bytes; ++i) row[i] = pattern[i % size];
  });
}

void run_garbage(Stream&, Parameters p) {
  const auto [first, bytes, seed] = std::array{p[0], p[1], p[2]};
  if (!touch(at(first), bytes, "lapidary_garbage")) return;
  for (std::uint64_t i = 0; i < bytes; ++i) at(first)[i] = driver::garbage_byte(seed, i);
}

void run_hash(Stream&, Parameters p) {
  const auto [first, offset, sum] = std::array{p[0], p[6], p[7]};
  if (sum % sizeof(std::uint64_t) != 0) return fail_later(kMisaligned);
  if (!touch(at(sum), sizeof(std::uint64_t), "lapidary_hash")) return;
  std::uint64_t total = 0;
  each_row(p, "lapidary_hash", [&](const std::uint8_t* row, std::uint64_t bytes) {
    const std::uint64_t start = offset + (reinterpret_cast<std::uintptr_t>(row) - first);
    for (std::uint64_t i = 0; i < bytes; ++i) total += driver::byte_hash(start + i, row[i]);
  });
  *at<std::uint64_t>(sum) += total;
}

void run_spin(Stream& stream, Parameters) { the_driver().spins = stream.spins = true; }

/// Made to fail: where it does, that is no misuse.
void run_store(Stream&, Parameters p) {
  const auto value = static_cast<std::uint32_t>(p[1]);
  if (p[0] % sizeof value != 0) return fail_later(kMisaligned);
  if (!is_allocated(p[0], sizeof value)) return fail_later(kIllegalAddress);
  std::memcpy(at(p[0]), &value, sizeof value);
}

void run_assert(Stream&, Parameters) { fail_later(710); }
void run_trap(Stream&, Parameters) { fail_later(719); }

/// `sizes`: bytes of each parameter, a digit each.
struct Kernel {
  std::string_view name, sizes;
  void (*run)(Stream&, Parameters);
};
constexpr std::size_t kMostParameters = 8;
constexpr Kernel kKernels[] = {
    {"lapidary_empty", "", run_empty},        {"lapidary_fill", "88888844", run_fill},
    {"lapidary_garbage", "888", run_garbage}, {"lapidary_hash", "88888888", run_hash},
    {"lapidary_spin", "", run_spin},          {"lapidary_store", "88", run_store},
    {"lapidary_assert", "", run_assert},      {"lapidary_trap", "", run_trap},
};

/// The bytes of a cubin or of PTX text; empty when it is neither.
std::string image_bytes(const void* image) {
  const auto* bytes = static_cast<const char*>(image);
  if (std::memcmp(bytes, ELFMAG, SELFMAG) != 0) {
    const std::string_view text = bytes;
    return text.find(".version") == std::string_view::npos ? "" : std::string(text);
  }
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_CUDA) return "";
  std::uint64_t end = sizeof header;
  for (int i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    const std::uint64_t start = header.e_shoff + static_cast<std::uint64_t>(i) * header.e_shentsize;
    std::memcpy(&section, bytes + start, sizeof section);
    end = std::max(end, start + sizeof section);
    if (section.sh_type != SHT_NOBITS) end = std::max(end, section.sh_offset + section.sh_size);
  }
  return {bytes, end};
}

/// A section of a cubin is named after the kernel whose code it holds; PTX says .entry.
bool holds(const std::string& image, const std::string& name) {
  if (image.starts_with(ELFMAG)) {
    return image.find(".text." + name + '\0') != std::string::npos;
  }
  const std::size_t found = image.find(".entry " + name);
  if (found == std::string::npos) return false;
  const char next = image[found + 7 + name.size()];
  return next == '(' || next == ' ' || next == '\n';
}

struct Words {
  CuResult code;
  const char *name, *text;
};
constexpr Words kWords[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "the device is busy or unavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image for this device"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the PTX is of an unsupported version"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in this state"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {710, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of it is mapped already"},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not belong to a registration"},
    {714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "hardware stack error"},
    {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", "operation not supported on this address space"},
    {718, "CUDA_ERROR_INVALID_PC", "invalid program counter"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not permitted while a stream captures"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "the capture failed earlier"},
    {907, "CUDA_ERROR_CAPTURED_EVENT", "not permitted on an event of a capture"},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "the capture began in another thread"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

CuResult say(CuResult error, const char** out, const char* Words::* member) {
  if (out == nullptr) return kInvalidValue;
  const auto* found = std::ranges::find(kWords, error, &Words::code);
  *out = found == std::end(kWords) ? nullptr : found->*member;
  return found == std::end(kWords) ? kInvalidValue : 0;
}

CuContext context_of(int device) {
  return reinterpret_cast<CuContext>((std::uintptr_t{0x4e54} << 48) +
                                     16 * (static_cast<std::uintptr_t>(device) + 1));
}
bool is_device(int device) { return device >= 0 && device < settings().devices; }

}  // namespace

std::mutex& mutex() { return the_driver().mutex; }
CuResult lost() { return the_driver().lost; }

driver::CuUuid uuid(int ordinal) {
  driver::CuUuid id{{'n', 'u', 'l', 'l', ' ', 'g', 'p', 'u'}};
  id.bytes[15] = static_cast<unsigned char>(ordinal);
  return id;
}

CuResult submit(driver::CuStream handle, Work work, std::string_view who) {
  Stream* stream = find_stream(handle, who);
  if (stream == nullptr) return kInvalidHandle;
  if (!stream->capture) {
    run(work, *stream);
    return 0;
  }
  if (!stream->capture->valid) return kCaptureInvalidated;
  stream->capture->work.push_back(std::move(work));
  return 0;
}

bool touch(const void* memory, std::size_t bytes, std::string_view who) {
  if (bytes == 0 || is_allocated(reinterpret_cast<CuPointer>(memory), bytes)) return true;
  misuse(std::string(who) + ": touches " + std::to_string(bytes) +
         " bytes that are not of one allocation");
  fail_later(kIllegalAddress);
  return false;
}

}  // namespace lapidary::null_cuda

namespace lapidary::driver {

using namespace null_cuda;  // NOLINT: this is its face

// ---- the device

CuResult cuInit(unsigned flags) {
  ENTER(cuInit);
  if (flags != 0) return kInvalidValue;
  if (settings().devices == 0) return kNoDevice;
  the_driver().initialised = true;
  return 0;
}

CuResult cuDriverGetVersion(int* version) {
  // No work of a context: it answers when that is lost.
  const CuResult fault = injected<symbol_index("cuDriverGetVersion")>();
  if (fault != 0) return fault;
  if (version == nullptr) return kInvalidValue;
  *version = settings().driver;
  return 0;
}

CuResult cuGetErrorName(CuResult error, const char** name) {
  return say(error, name, &Words::name);
}
CuResult cuGetErrorString(CuResult error, const char** text) {
  return say(error, text, &Words::text);
}

CuResult cuDeviceGetCount(int* count) {
  ENTER_READY(cuDeviceGetCount);
  if (count == nullptr) return kInvalidValue;
  *count = settings().devices;
  return 0;
}

CuResult cuDeviceGet(CuDevice* device, int ordinal) {
  ENTER_READY(cuDeviceGet);
  if (device == nullptr) return kInvalidValue;
  if (!is_device(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return 0;
}

CuResult cuDeviceGetName(char* name, int bytes, CuDevice device) {
  ENTER_READY(cuDeviceGetName);
  if (name == nullptr || bytes <= 0) return kInvalidValue;
  if (!is_device(device)) return kInvalidDevice;
  std::strncpy(name, "Null GPU", static_cast<std::size_t>(bytes));
  name[bytes - 1] = '\0';
  return 0;
}

CuResult cuDeviceGetUuid_v2(CuUuid* out, CuDevice device) {
  ENTER_READY(cuDeviceGetUuid_v2);
  if (out == nullptr) return kInvalidValue;
  if (!is_device(device)) return kInvalidDevice;
  *out = uuid(device);
  return 0;
}

CuResult cuDeviceTotalMem_v2(std::size_t* bytes, CuDevice device) {
  ENTER_READY(cuDeviceTotalMem_v2);
  if (bytes == nullptr) return kInvalidValue;
  if (!is_device(device)) return kInvalidDevice;
  *bytes = settings().memory_bytes;
  return 0;
}

CuResult cuDeviceGetAttribute(int* value, int attribute, CuDevice device) {
  ENTER_READY(cuDeviceGetAttribute);
  if (value == nullptr) return kInvalidValue;
  if (!is_device(device)) return kInvalidDevice;
  switch (attribute) {
    case 1:  // threads per block
      *value = 1024;
      return 0;
    case 8:  // bytes of shared memory per block
      *value = 48 << 10;
      return 0;
    case 10:  // threads per warp
      *value = 32;
      return 0;
    case kCuClockRate:
      *value = 1980000;
      return 0;
    case kCuSmCount:
      *value = 132;
      return 0;
    case kCuL2Bytes:
      *value = settings().l2_bytes;
      return 0;
    case kCuMajor:
      *value = settings().sm / 10;
      return 0;
    case kCuMinor:
      *value = settings().sm % 10;
      return 0;
    case 97:  // bytes of shared memory per block, for those who ask
      *value = 227 << 10;
      return 0;
    default:
      return kInvalidValue;
  }
}

CuResult cuDevicePrimaryCtxRetain(CuContext* context, CuDevice device) {
  ENTER_READY(cuDevicePrimaryCtxRetain);
  if (context == nullptr) return kInvalidValue;
  if (!is_device(device)) return kInvalidDevice;
  *context = context_of(device);
  return 0;
}

CuResult cuCtxSetCurrent(CuContext context) {
  ENTER_READY(cuCtxSetCurrent);
  int device = -1;
  for (int i = 0; i < settings().devices; ++i) {
    if (context == context_of(i)) device = i;
  }
  if (context != nullptr && device < 0) {
    misuse("cuCtxSetCurrent: no such context");
    return kInvalidContext;
  }
  t_device = device;
  return 0;
}

CuResult cuCtxGetCurrent(CuContext* context) {
  ENTER_READY(cuCtxGetCurrent);
  if (context == nullptr) return kInvalidValue;
  *context = t_device < 0 ? nullptr : context_of(t_device);
  return 0;
}

// ---- memory

CuResult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  ENTER_READY(cuMemGetInfo_v2);
  if (free == nullptr || total == nullptr) return kInvalidValue;
  if (t_device < 0) return kInvalidContext;
  const Lock lock = locked();
  *total = settings().memory_bytes;
  *free = *total - the_driver().used[static_cast<std::size_t>(t_device)];
  return 0;
}

CuResult cuMemAlloc_v2(CuPointer* pointer, std::size_t bytes) {
  ENTER_READY(cuMemAlloc_v2);
  if (pointer == nullptr || bytes == 0) return kInvalidValue;
  if (t_device < 0) return kInvalidContext;
  const Lock lock = locked();
  if (const CuResult refused = refuse_unsafe(); refused != 0) return refused;
  std::size_t& used = the_driver().used[static_cast<std::size_t>(t_device)];
  if (bytes > settings().memory_bytes - used) return kOutOfMemory;
  void* memory = nullptr;
  if (::posix_memalign(&memory, 256, bytes) != 0) return kOutOfMemory;
  // Not what a fresh page holds, which zeros would be mistaken for; not all of it, for speed.
  std::memset(memory, 0xa5, std::min<std::size_t>(bytes, 1 << 20));
  used += bytes;
  *pointer = reinterpret_cast<CuPointer>(memory);
  the_driver().allocations[*pointer] = {bytes, t_device};
  ++alive(Kind::allocation);
  return 0;
}

CuResult cuMemFree_v2(CuPointer pointer) {
  const CuResult refused = enter_checked<symbol_index("cuMemFree_v2")>();
  if (pointer == 0) return refused;
  Driver& driver = the_driver();
  Lock lock = locked();
  if (const CuResult unsafe = refuse_unsafe(); unsafe != 0) return refused != 0 ? refused : unsafe;
  const auto found = driver.allocations.find(pointer);
  if (found == driver.allocations.end()) {
    misuse("cuMemFree_v2: no allocation begins at this address");
    return refused != 0 ? refused : kInvalidValue;
  }
  // The real one waits for the device.
  if (refused == 0 && driver.spins && driver.pending == 0) never_return(lock);
  driver.used[static_cast<std::size_t>(found->second.device)] -= found->second.bytes;
  driver.allocations.erase(found);
  --alive(Kind::allocation);
  std::free(reinterpret_cast<void*>(pointer));
  return refused;
}

CuResult cuMemHostRegister_v2(void* memory, std::size_t bytes, unsigned) {
  ENTER_READY(cuMemHostRegister_v2);
  if (memory == nullptr || bytes == 0) return kInvalidValue;
  if (t_device < 0) return kInvalidContext;
  const Lock lock = locked();
  if (const CuResult refused = refuse_unsafe(); refused != 0) return refused;
  auto& pinned = the_driver().pinned;
  const auto first = reinterpret_cast<std::uintptr_t>(memory);
  const auto behind = pinned.lower_bound(first + bytes);
  if (behind != pinned.begin()) {
    const auto& [start, length] = *std::prev(behind);
    if (start + length > first) return kAlreadyRegistered;
  }
  pinned[first] = bytes;
  ++alive(Kind::pinned);
  return 0;
}

CuResult cuMemHostUnregister(void* memory) {
  const CuResult refused = enter_checked<symbol_index("cuMemHostUnregister")>();
  const Lock lock = locked();
  if (the_driver().pinned.erase(reinterpret_cast<std::uintptr_t>(memory)) == 0) {
    misuse("cuMemHostUnregister: no registration begins at this address");
    return refused != 0 ? refused : kNotRegistered;
  }
  --alive(Kind::pinned);
  return refused;
}

namespace {

/// A copy whose device sides are looked at twice: when it is asked for, as the real one does, and
/// when it runs, for a graph may outlive an allocation.
CuResult copy(void* to, const void* from, std::size_t bytes, bool to_device, bool from_device,
              CuStream stream, std::string_view who) {
  if (bytes == 0) return 0;
  if (to == nullptr || from == nullptr) return kInvalidValue;
  const Lock lock = locked();
  if ((to_device && !is_allocated(reinterpret_cast<CuPointer>(to), bytes)) ||
      (from_device && !is_allocated(reinterpret_cast<CuPointer>(from), bytes))) {
    misuse(std::string(who) + ": " + std::to_string(bytes) +
           " bytes that are not of one allocation");
    return kInvalidValue;
  }
  return submit(
      stream,
      [=, name = std::string(who)](Stream&) {
        if (to_device && !touch(to, bytes, name)) return;
        if (from_device && !touch(from, bytes, name)) return;
        std::memmove(to, from, bytes);
      },
      who);
}

}  // namespace

CuResult cuMemcpyHtoDAsync_v2(CuPointer to, const void* from, std::size_t bytes, CuStream stream) {
  ENTER_READY(cuMemcpyHtoDAsync_v2);
  return copy(at(to), from, bytes, true, false, stream, who);
}
CuResult cuMemcpyDtoHAsync_v2(void* to, CuPointer from, std::size_t bytes, CuStream stream) {
  ENTER_READY(cuMemcpyDtoHAsync_v2);
  return copy(to, at(from), bytes, false, true, stream, who);
}
CuResult cuMemcpyDtoDAsync_v2(CuPointer to, CuPointer from, std::size_t bytes, CuStream stream) {
  ENTER_READY(cuMemcpyDtoDAsync_v2);
  return copy(at(to), at(from), bytes, true, true, stream, who);
}

// ---- streams and graphs

CuResult cuStreamCreate(CuStream* stream, unsigned flags) {
  ENTER_READY(cuStreamCreate);
  if (stream == nullptr || flags > kCuStreamNonBlocking) return kInvalidValue;
  if (t_device < 0) return kInvalidContext;
  const Lock lock = locked();
  *stream = the_driver().streams.add<CuStream>(Stream{});
  return 0;
}

CuResult cuStreamDestroy_v2(CuStream stream) {
  const CuResult refused = enter_checked<symbol_index("cuStreamDestroy_v2")>();
  const Lock lock = locked();
  auto& streams = the_driver().streams;
  Stream* found = streams.find(stream, "cuStreamDestroy_v2");
  if (found == nullptr) return refused != 0 ? refused : kInvalidHandle;
  if (found->capture) misuse("cuStreamDestroy_v2: the stream still captures");
  streams.remove(stream, "cuStreamDestroy_v2");
  return refused;
}

CuResult cuStreamSynchronize(CuStream stream) {
  ENTER_READY(cuStreamSynchronize);
  Lock lock = locked();
  Stream* found = find_stream(stream, who);
  if (found == nullptr) return kInvalidHandle;
  if (found->capture) {
    found->capture->valid = false;
    return kCaptureUnsupported;
  }
  found->waited = found->recorded;
  return outcome(lock, found->spins);
}

CuResult cuStreamBeginCapture_v2(CuStream stream, int mode) {
  ENTER_READY(cuStreamBeginCapture_v2);
  if (mode < kModeGlobal || mode > kModeRelaxed) return kInvalidValue;
  if (stream == nullptr) return kCaptureUnsupported;  // the legacy stream
  const Lock lock = locked();
  Stream* found = find_stream(stream, who);
  if (found == nullptr) return kInvalidHandle;
  if (found->capture) return kIllegalState;
  found->capture = Capture{.mode = mode, .thread = std::this_thread::get_id()};
  return 0;
}

CuResult cuStreamEndCapture(CuStream stream, CuGraph* graph) {
  const char* const who = "cuStreamEndCapture";
  const CuResult refused = enter_checked<symbol_index("cuStreamEndCapture")>();
  if (graph == nullptr) return refused != 0 ? refused : kInvalidValue;
  const Lock lock = locked();
  Stream* found = find_stream(stream, who);
  if (found == nullptr) return refused != 0 ? refused : kInvalidHandle;
  if (!found->capture) return refused != 0 ? refused : kIllegalState;
  if (found->capture->mode != kModeRelaxed &&
      found->capture->thread != std::this_thread::get_id()) {
    return refused != 0 ? refused : kCaptureWrongThread;
  }
  Capture capture = std::move(*found->capture);
  found->capture.reset();
  *graph = nullptr;
  if (refused != 0) return refused;
  if (!capture.valid) return kCaptureInvalidated;
  *graph = the_driver().graphs.add<CuGraph>(
      {std::make_shared<const std::vector<Work>>(std::move(capture.work))});
  return 0;
}

CuResult cuGraphInstantiateWithFlags(CuGraphExec* exec, CuGraph graph, unsigned long long flags) {
  ENTER_READY(cuGraphInstantiateWithFlags);
  if (exec == nullptr || flags > 15) return kInvalidValue;
  const Lock lock = locked();
  const Graph* found = the_driver().graphs.find(graph, who);
  if (found == nullptr) return kInvalidValue;
  *exec = the_driver().execs.add<CuGraphExec>(*found);
  return 0;
}

CuResult cuGraphLaunch(CuGraphExec exec, CuStream stream) {
  ENTER_READY(cuGraphLaunch);
  const Lock lock = locked();
  const Graph* found = the_driver().execs.find(exec, who);
  if (found == nullptr) return kInvalidValue;
  return submit(
      stream,
      [work = found->work](Stream& on) {
        for (const Work& one : *work) run(one, on);
      },
      who);
}

CuResult cuGraphExecDestroy(CuGraphExec exec) {
  const CuResult refused = enter_checked<symbol_index("cuGraphExecDestroy")>();
  const Lock lock = locked();
  const bool found = the_driver().execs.remove(exec, "cuGraphExecDestroy");
  return refused != 0 ? refused : found ? 0 : kInvalidValue;
}

CuResult cuGraphDestroy(CuGraph graph) {
  const CuResult refused = enter_checked<symbol_index("cuGraphDestroy")>();
  const Lock lock = locked();
  const bool found = the_driver().graphs.remove(graph, "cuGraphDestroy");
  return refused != 0 ? refused : found ? 0 : kInvalidValue;
}

// ---- events

CuResult cuEventCreate(CuEvent* event, unsigned flags) {
  ENTER_READY(cuEventCreate);
  constexpr unsigned kBlocking = 1, kNoTiming = 2;
  if (event == nullptr || flags > (kBlocking | kNoTiming)) return kInvalidValue;
  if (t_device < 0) return kInvalidContext;
  const Lock lock = locked();
  *event = the_driver().events.add<CuEvent>({.timed = (flags & kNoTiming) == 0});
  return 0;
}

CuResult cuEventDestroy_v2(CuEvent event) {
  const CuResult refused = enter_checked<symbol_index("cuEventDestroy_v2")>();
  const Lock lock = locked();
  const bool found = the_driver().events.remove(event, "cuEventDestroy_v2");
  return refused != 0 ? refused : found ? 0 : kInvalidHandle;
}

CuResult cuEventRecord(CuEvent event, CuStream stream) {
  ENTER_READY(cuEventRecord);
  const Lock lock = locked();
  Event* found = the_driver().events.find(event, who);
  Stream* on = find_stream(stream, who);
  if (found == nullptr || on == nullptr) return kInvalidHandle;
  if (on->capture && !on->capture->valid) return kCaptureInvalidated;
  found->captured = on->capture.has_value();
  if (found->captured) return 0;
  found->hangs = on->spins;
  found->stream = stream;
  found->number = ++on->recorded;
  found->time = Clock::now();
  return 0;
}

CuResult cuEventSynchronize(CuEvent event) {
  ENTER_READY(cuEventSynchronize);
  Lock lock = locked();
  const Event* found = the_driver().events.find(event, who);
  if (found == nullptr) return kInvalidHandle;
  if (found->captured) return kCapturedEvent;
  if (found->number == 0) return 0;  // never recorded: nothing to wait for
  if (Stream* on = stream_of(*found)) {
    on->waited = std::max(on->waited, found->number);
  }
  return outcome(lock, found->hangs);
}

CuResult cuEventElapsedTime(float* milliseconds, CuEvent start, CuEvent end) {
  ENTER_READY(cuEventElapsedTime);
  if (milliseconds == nullptr) return kInvalidValue;
  const Lock lock = locked();
  Driver& driver = the_driver();
  const Event *first = driver.events.find(start, who), *last = driver.events.find(end, who);
  if (first == nullptr || last == nullptr) return kInvalidHandle;
  for (const Event* event : {first, last}) {
    if (event->captured) return kCapturedEvent;
    if (!event->timed || event->number == 0) return kInvalidHandle;
    // The work is done, but a program may not know that before it has waited.
    const Stream* on = stream_of(*event);
    if (event->hangs || (on != nullptr && on->waited < event->number)) return kNotReady;
  }
  const std::chrono::duration<float, std::milli> elapsed = last->time - first->time;
  *milliseconds = std::max(elapsed.count(), 0.001f);
  return 0;
}

// ---- kernels

CuResult cuModuleLoadData(CuModule* module, const void* image) {
  ENTER_READY(cuModuleLoadData);
  if (module == nullptr || image == nullptr) return kInvalidValue;
  if (t_device < 0) return kInvalidContext;
  std::string bytes = image_bytes(image);
  if (bytes.empty()) return kInvalidImage;
  const Lock lock = locked();
  if (const CuResult refused = refuse_unsafe(); refused != 0) return refused;
  *module = the_driver().modules.add<CuModule>({std::move(bytes)});
  return 0;
}

CuResult cuModuleUnload(CuModule module) {
  const CuResult refused = enter_checked<symbol_index("cuModuleUnload")>();
  Driver& driver = the_driver();
  const Lock lock = locked();
  if (!driver.modules.remove(module, "cuModuleUnload")) {
    return refused != 0 ? refused : kInvalidHandle;
  }
  std::erase_if(driver.functions, [&](const auto& entry) { return entry.second.first == module; });
  return refused;
}

CuResult cuModuleGetFunction(CuFunction* function, CuModule module, const char* name) {
  ENTER_READY(cuModuleGetFunction);
  if (function == nullptr || name == nullptr) return kInvalidValue;
  const Lock lock = locked();
  Driver& driver = the_driver();
  const Module* found = driver.modules.find(module, who);
  if (found == nullptr) return kInvalidHandle;
  const auto* kernel = std::ranges::find(kKernels, std::string_view(name), &Kernel::name);
  if (kernel == std::end(kKernels) || !holds(found->image, name)) return kNotFound;
  const std::uintptr_t handle = next_handle();
  driver.functions[handle] = {module, kernel};
  *function = reinterpret_cast<CuFunction>(handle);
  return 0;
}

CuResult cuFuncSetAttribute(CuFunction function, int attribute, int value) {
  ENTER_READY(cuFuncSetAttribute);
  constexpr int kMostShared = 227 << 10;
  const Lock lock = locked();
  Driver& driver = the_driver();
  if (!driver.functions.contains(reinterpret_cast<std::uintptr_t>(function))) return kInvalidHandle;
  return attribute == 8 && value >= 0 && value <= kMostShared ? 0 : kInvalidValue;
}

CuResult cuLaunchKernel(CuFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CuStream stream, void** parameters, void** extra) {
  ENTER_READY(cuLaunchKernel);
  const auto within = [](unsigned value, unsigned most) { return value >= 1 && value <= most; };
  if (!within(grid_x, 0x7fffffff) || !within(grid_y, 65535) || !within(grid_z, 65535) ||
      !within(block_x, 1024) || !within(block_y, 1024) || !within(block_z, 64) ||
      block_x * block_y * block_z > 1024 || shared_bytes > 48 << 10 || extra != nullptr) {
    return kInvalidValue;
  }
  const Lock lock = locked();
  Driver& driver = the_driver();
  const auto found = driver.functions.find(reinterpret_cast<std::uintptr_t>(function));
  if (found == driver.functions.end()) {
    misuse("cuLaunchKernel: no function of a loaded module");
    return kInvalidHandle;
  }
  const Kernel* kernel = found->second.second;
  std::array<std::uint64_t, kMostParameters> values{};
  for (std::size_t i = 0; i < kernel->sizes.size(); ++i) {
    if (parameters == nullptr || parameters[i] == nullptr) return kInvalidValue;
    std::memcpy(&values[i], parameters[i], static_cast<std::size_t>(kernel->sizes[i] - '0'));
  }
  return submit(stream, [kernel, values](Stream& on) { kernel->run(on, values.data()); }, who);
}

}  // namespace lapidary::driver
