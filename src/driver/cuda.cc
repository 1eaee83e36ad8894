#include "driver/cuda.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "driver/cuda_api.h"
#include "driver/kernels.h"
#include "driver/nvml_api.h"
#include "driver/owned.h"

namespace lapidary::driver {
namespace {

using Clock = std::chrono::steady_clock;

/// Between timed replays the card rests three times as long as it worked, so that its power limit
/// does not hold the clock down (an H200 under a large bf16 product falls from 1980 to 1456 MHz
/// within a tenth of a second); at most so long, for a tune must end.
constexpr double kRestFactor = 3, kLongestRestUs = 20e3;
/// After work of unknown length, such as a verification: what an H200 took to give large products
/// their full clock again was up to 45 ms (2026-12-01; their replays until then up to 15 % slow).
constexpr double kSettleUs = 150e3;

CuPointer address(const void* memory) { return reinterpret_cast<CuPointer>(memory); }

/// The same bytes with as few rows as possible: dense ones become one row.
Region collapsed(Region r) {
  if (r.rows == 1 || r.pitch_bytes == r.row_bytes) {
    r.row_bytes *= r.rows;
    r.rows = 1;
    r.pitch_bytes = r.row_bytes;
    if (r.entries == 1 || r.entry_bytes == r.row_bytes) {
      r.row_bytes *= r.entries;
      r.entries = 1;
    }
  }
  return r;
}

class CudaDevice;

/// A kernel and the module that holds it.
class CudaKernel : public LoadedKernel {
 public:
  explicit CudaKernel(const CudaDevice& device) : device_(device) {}
  Status launch(const LaunchShape& shape, std::span<const void* const> arguments) override;

  Owned<CuModule> module;
  CuFunction function = nullptr;

 private:
  const CudaDevice& device_;
};

/// A graph of many launches between two events.
class CudaReplay : public Replay {
 public:
  CudaReplay(CudaDevice& device, std::int64_t repeats) : device_(device), repeats_(repeats) {}
  Result<double> run() override;
  Status launch() const;

  Owned<CuGraphExec> exec;

 private:
  CudaDevice& device_;
  std::int64_t repeats_;
};

class CudaDevice : public Device {
 public:
  CudaDevice(const CudaApi& api, DeviceInfo info) : cu_(api), info_(std::move(info)) {}
  ~CudaDevice() override {
    if (sum_ != 0) (void)cu_.free(sum_);
  }

  Status open(int ordinal) {
    LAPIDARY_TRY_STATUS(check(cu_.device_get(&device_, ordinal), "cuDeviceGet"));
    // The primary context, which libraries and the caller's own code use too.
    LAPIDARY_TRY_STATUS(check(cu_.context_retain(&context_, device_), "cuDevicePrimaryCtxRetain"));
    LAPIDARY_TRY_STATUS(check(cu_.context_set(context_), "cuCtxSetCurrent"));
    CuStream stream = nullptr;
    LAPIDARY_TRY_STATUS(check(cu_.stream_create(&stream, kCuStreamNonBlocking), "cuStreamCreate"));
    stream_ = {stream, cu_.stream_destroy};
    for (Owned<CuEvent>& event : events_) {
      CuEvent made = nullptr;
      LAPIDARY_TRY_STATUS(check(cu_.event_create(&made, 0), "cuEventCreate"));
      event = {made, cu_.event_destroy};
    }
    CuModule module = nullptr;
    LAPIDARY_TRY_STATUS(check(cu_.module_load(&module, kernel_image("device", info_.sm).data()),
                              "cuModuleLoadData of our kernels"));
    module_ = {module, cu_.module_unload};
    for (const auto& [function, name] :
         {std::pair(&empty_, "lapidary_empty"), std::pair(&fill_, "lapidary_fill"),
          std::pair(&garbage_, "lapidary_garbage"), std::pair(&hash_, "lapidary_hash")}) {
      LAPIDARY_TRY_STATUS(check(cu_.module_function(function, module, name), name));
    }
    LAPIDARY_TRY_STATUS(check(cu_.alloc(&sum_, sizeof(std::uint64_t)), "cuMemAlloc"));
    LAPIDARY_TRY_STATUS(check_hash());
    // Watts are left out where there is no NVML.
    if (const auto nvml = nvml_api()) {
      nvml_ = *nvml;
      if (nvml_->device_by_uuid(info_.uuid.c_str(), &power_) != 0) nvml_ = nullptr;
    }
    return {};
  }

  const DeviceInfo& info() const override { return info_; }
  bool is_host() const override { return false; }

  Result<void*> allocate(std::int64_t bytes) override {
    if (bytes == 0) return nullptr;
    CuPointer pointer = 0;
    const CuResult result = cu_.alloc(&pointer, static_cast<std::size_t>(bytes));
    if (result == kCuOutOfMemory) {
      return fail(ErrorCode::resource_limit, "{}: {} bytes of device memory cannot be had",
                  info_.id, bytes);
    }
    LAPIDARY_TRY_STATUS(check(result, "cuMemAlloc"));
    return reinterpret_cast<void*>(pointer);
  }
  void release(void* memory) override {
    if (memory != nullptr) (void)cu_.free(address(memory));
  }
  Status pin(void* memory, std::int64_t bytes) override {
    return check(cu_.pin(memory, static_cast<std::size_t>(bytes), 0), "cuMemHostRegister");
  }
  void unpin(void* memory) override { (void)cu_.unpin(memory); }
  Result<std::int64_t> free_bytes() override {
    std::size_t free = 0, total = 0;
    LAPIDARY_TRY_STATUS(check(cu_.memory_info(&free, &total), "cuMemGetInfo"));
    return static_cast<std::int64_t>(free);
  }

  Status upload(void* to, const void* from, std::int64_t bytes) override {
    if (bytes == 0) return {};
    LAPIDARY_TRY_STATUS(check(
        cu_.upload(address(to), from, static_cast<std::size_t>(bytes), stream_.get()), "upload"));
    return wait();
  }
  Status download(void* to, const void* from, std::int64_t bytes) override {
    if (bytes == 0) return {};
    LAPIDARY_TRY_STATUS(
        check(cu_.download(to, address(from), static_cast<std::size_t>(bytes), stream_.get()),
              "download"));
    return wait();
  }
  Status copy(void* to, const void* from, std::int64_t bytes) override {
    if (bytes == 0) return {};
    LAPIDARY_TRY_STATUS(
        check(cu_.copy(address(to), address(from), static_cast<std::size_t>(bytes), stream_.get()),
              "copy"));
    return wait();
  }

  Status fill(void* first, const Region& region, std::uint32_t element,
              int element_bytes) override {
    auto size = static_cast<std::uint32_t>(element_bytes);
    // Each row begins with a whole element: rows that end within one are no part of a longer row.
    const bool whole = region.row_bytes % element_bytes == 0;
    return launch_over(fill_, "fill", first, whole ? collapsed(region) : region, {&element, &size});
  }
  Status fill_garbage(void* first, std::int64_t bytes, std::uint64_t seed) override {
    if (bytes == 0) return {};
    CuPointer at = address(first);
    auto count = static_cast<std::uint64_t>(bytes);
    void* parameters[] = {&at, &count, &seed};
    LAPIDARY_TRY_STATUS(launch(garbage_, "garbage", blocks_for(bytes), 1, parameters));
    return wait();
  }
  Result<std::uint64_t> hash(const void* first, const Region& region,
                             std::int64_t offset) override {
    std::uint64_t sum = 0;
    auto start = static_cast<std::uint64_t>(offset);
    LAPIDARY_TRY_STATUS(upload(reinterpret_cast<void*>(sum_), &sum, sizeof sum));
    LAPIDARY_TRY_STATUS(launch_over(hash_, "hash", first, collapsed(region), {&start, &sum_}));
    LAPIDARY_TRY_STATUS(download(&sum, reinterpret_cast<void*>(sum_), sizeof sum));
    return sum;
  }

  Result<std::unique_ptr<LoadedKernel>> load(std::string_view cubin, const std::string& entry,
                                             std::int64_t shared_bytes) override {
    CuModule module = nullptr;
    LAPIDARY_TRY_STATUS(
        check(cu_.module_load(&module, cubin.data()), "cuModuleLoadData of " + entry));
    auto kernel = std::make_unique<CudaKernel>(*this);
    kernel->module = {module, cu_.module_unload};
    LAPIDARY_TRY_STATUS(
        check(cu_.module_function(&kernel->function, module, entry.c_str()), entry));
    // More than 48 KB a block must be asked for (CUDA C++ Programming Guide, shared memory of 7.x
    // and later).
    if (shared_bytes > 48 << 10) {
      LAPIDARY_TRY_STATUS(check(cu_.function_attribute(kernel->function, kCuMaxDynamicShared,
                                                       static_cast<int>(shared_bytes)),
                                entry + ": shared memory"));
    }
    return std::unique_ptr<LoadedKernel>(std::move(kernel));
  }
  Status launch_kernel(CuFunction function, const LaunchShape& shape, void** arguments) const {
    return check(
        cu_.launch(function, static_cast<unsigned>(shape.grid[0]),
                   static_cast<unsigned>(shape.grid[1]), static_cast<unsigned>(shape.grid[2]),
                   static_cast<unsigned>(shape.threads), 1, 1,
                   static_cast<unsigned>(shape.shared_bytes), stream_.get(), arguments, nullptr),
        "cuLaunchKernel");
  }

  void* stream() const override { return stream_.get(); }
  Status synchronize() override {
    Status done = wait();
    settle();
    return done;
  }

  Result<std::unique_ptr<Replay>> record(const std::function<Status(std::int64_t)>& launch,
                                         std::int64_t repeats) override {
    LAPIDARY_TRY_STATUS(
        check(cu_.capture_begin(stream_.get(), kCuCaptureThreadLocal), "cuStreamBeginCapture"));
    Status launched;
    try {
      for (std::int64_t i = 0; i < repeats && launched; ++i) launched = launch(i);
    } catch (const std::bad_alloc&) {  // the capture must end all the same
      launched = fail(ErrorCode::resource_limit, "{}: out of memory while recording", info_.id);
    }
    CuGraph captured = nullptr;
    const CuResult ended = cu_.capture_end(stream_.get(), &captured);
    const Owned<CuGraph> graph(captured, cu_.graph_destroy);
    LAPIDARY_TRY_STATUS(launched);
    LAPIDARY_TRY_STATUS(check(ended, "cuStreamEndCapture"));
    auto replay = std::make_unique<CudaReplay>(*this, repeats);
    CuGraphExec exec = nullptr;
    LAPIDARY_TRY_STATUS(check(cu_.graph_instantiate(&exec, graph.get(), 0), "cuGraphInstantiate"));
    replay->exec = {exec, cu_.graph_exec_destroy};
    // The first launch of a graph also brings it to the device.
    const Clock::time_point start = Clock::now();
    LAPIDARY_TRY_STATUS(replay->launch());
    LAPIDARY_TRY_STATUS(wait());
    rest_after(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    return std::unique_ptr<Replay>(std::move(replay));
  }

  /// Microseconds between two events around the launch of a graph, from a rested card.
  Result<double> timed(const CudaReplay& replay) {
    rest();
    LAPIDARY_TRY_STATUS(mark(0));
    LAPIDARY_TRY_STATUS(replay.launch());
    LAPIDARY_TRY_STATUS(mark(1));
    LAPIDARY_TRY_STATUS(check(cu_.event_synchronize(events_[1].get()), "run"));
    LAPIDARY_TRY(const double us, between(0, 1));
    rest_after(us);
    return us;
  }

  Result<Effort> sustain(Replay& replay, std::int64_t repeats, double seconds,
                         const std::function<void()>& progress) override {
    const auto& graph = static_cast<const CudaReplay&>(replay);
    const Clock::time_point start = Clock::now();
    const auto elapsed = [&] {
      return std::chrono::duration<double>(Clock::now() - start).count();
    };
    // Two replays are always queued, so that the card never waits for us: events 2 and 3 end them
    // in turn.
    std::vector<double> clocks;
    std::optional<double> joules_before;
    std::int64_t counted = 0;
    bool counting = false;
    double reported = 0;
    for (std::int64_t i = 0; elapsed() < seconds || counted < 2; ++i) {
      if (!counting && elapsed() > seconds / 2) {
        counting = true;
        joules_before = joules();
        LAPIDARY_TRY_STATUS(mark(0));
      }
      LAPIDARY_TRY_STATUS(graph.launch());
      if (counting) ++counted;
      LAPIDARY_TRY_STATUS(mark(2 + i % 2));
      if (i > 0) {
        LAPIDARY_TRY_STATUS(
            check(cu_.event_synchronize(events_[std::size_t(2 + (i + 1) % 2)].get()), "run"));
      }
      if (elapsed() - reported > 0.1) {
        reported = elapsed();
        if (progress) progress();
        if (counting) clocks.push_back(clock_mhz());
      }
    }
    LAPIDARY_TRY_STATUS(mark(1));
    LAPIDARY_TRY_STATUS(check(cu_.event_synchronize(events_[1].get()), "run"));
    const std::optional<double> joules_after = joules();
    LAPIDARY_TRY(const double us, between(0, 1));
    const double launches = static_cast<double>(counted * repeats);
    Effort effort{.time_us = us / launches};
    if (!clocks.empty()) {
      std::ranges::sort(clocks);
      effort.clock_mhz = clocks[clocks.size() / 2];
    }
    if (joules_before && joules_after) {
      effort.joules = (*joules_after - *joules_before) / launches;
      effort.watts = (*joules_after - *joules_before) / (us * 1e-6);
    }
    settle();
    return effort;
  }

  Status probe() override {
    LAPIDARY_TRY_STATUS(launch(empty_, "probe", 1, 1, nullptr));
    return wait();
  }

  Status launch_graph(CuGraphExec exec) const {
    return check(cu_.graph_launch(exec, stream_.get()), "cuGraphLaunch");
  }

 private:
  /// What verification rests on, once on this device: the kernel may have been compiled by its
  /// driver.
  Status check_hash() {
    constexpr std::int64_t kBytes = 101, kOffset = 7;
    std::uint8_t bytes[kBytes];
    std::uint64_t right = 0;
    for (std::int64_t i = 0; i < kBytes; ++i) {
      bytes[i] = garbage_byte(1, static_cast<std::uint64_t>(i));
      right += byte_hash(static_cast<std::uint64_t>(kOffset + i), bytes[i]);
    }
    LAPIDARY_TRY(const Memory memory, Memory::make(*this, kBytes));
    LAPIDARY_TRY_STATUS(upload(memory.data(), bytes, kBytes));
    LAPIDARY_TRY(const std::uint64_t sum, hash(memory.data(), {.row_bytes = kBytes}, kOffset));
    if (sum == right) return {};
    return fail(ErrorCode::device_fault, "{}: our hash kernel gives {:#x} where {:#x} is right",
                info_.id, sum, right);
  }

  Status check(CuResult result, std::string_view what) const {
    if (result == kCuSuccess) return {};
    return cuda_status(cu_, result, fmt::format("{}: {}", info_.id, what));
  }

  Status launch(CuFunction function, const char* what, std::int64_t grid_x, std::int64_t grid_y,
                void** parameters) {
    return check(cu_.launch(function, static_cast<unsigned>(grid_x), static_cast<unsigned>(grid_y),
                            1, kThreads, 1, 1, 0, stream_.get(), parameters, nullptr),
                 what);
  }

  /// Blocks that keep the card busy with so many bytes, 16 for each thread at a time.
  std::int64_t blocks_for(std::int64_t bytes) const {
    return std::clamp<std::int64_t>(bytes / (16 * kThreads) + 1, 1, 16 * info_.threads);
  }

  Status launch_over(CuFunction function, const char* what, const void* first, const Region& region,
                     std::initializer_list<void*> more) {
    if (region.row_bytes <= 0 || region.rows <= 0 || region.entries <= 0) return {};
    CuPointer at = address(first);
    std::uint64_t extents[] = {
        static_cast<std::uint64_t>(region.row_bytes), static_cast<std::uint64_t>(region.rows),
        static_cast<std::uint64_t>(region.pitch_bytes), static_cast<std::uint64_t>(region.entries),
        static_cast<std::uint64_t>(region.entry_bytes)};
    std::vector<void*> parameters = {&at};
    for (std::uint64_t& extent : extents) parameters.push_back(&extent);
    parameters.insert(parameters.end(), more);
    const std::int64_t rows = std::min<std::int64_t>(region.rows * region.entries, 65535);
    LAPIDARY_TRY_STATUS(
        launch(function, what, blocks_for(region.row_bytes), rows, parameters.data()));
    return wait();
  }

  Status mark(std::int64_t event) {
    return check(cu_.event_record(events_[std::size_t(event)].get(), stream_.get()),
                 "cuEventRecord");
  }
  Result<double> between(std::size_t start, std::size_t end) const {
    float milliseconds = 0;
    LAPIDARY_TRY_STATUS(
        check(cu_.event_elapsed(&milliseconds, events_[start].get(), events_[end].get()),
              "cuEventElapsedTime"));
    return static_cast<double>(milliseconds) * 1e3;
  }

  Status wait() const { return check(cu_.stream_synchronize(stream_.get()), "run"); }

  /// Lets the card rest as the work before asks for.
  void rest() const { std::this_thread::sleep_until(rested_); }
  void rest_after(double busy_us) { rest_for(std::min(kRestFactor * busy_us, kLongestRestUs)); }
  /// The same after work of unknown length.
  void settle() { rest_for(kSettleUs); }
  /// What earlier work asked for still counts.
  void rest_for(double us) {
    const std::chrono::duration<double, std::micro> pause(us);
    rested_ = std::max(rested_, Clock::now() + std::chrono::duration_cast<Clock::duration>(pause));
  }

  double clock_mhz() const {
    unsigned mhz = 0;
    return nvml_ != nullptr && nvml_->clock(power_, kNvmlClockSm, &mhz) == 0 ? mhz : 0;
  }
  std::optional<double> joules() const {
    unsigned long long millijoules = 0;
    if (nvml_ == nullptr || nvml_->energy(power_, &millijoules) != 0) return std::nullopt;
    return static_cast<double>(millijoules) * 1e-3;
  }

  static constexpr unsigned kThreads = 256;
  const CudaApi& cu_;
  DeviceInfo info_;
  CuDevice device_ = 0;
  CuContext context_ = nullptr;  // the primary one: it stays with the process
  Owned<CuStream> stream_;
  Owned<CuEvent> events_[4];
  Owned<CuModule> module_;
  CuFunction empty_ = nullptr, fill_ = nullptr, garbage_ = nullptr, hash_ = nullptr;
  CuPointer sum_ = 0;
  const NvmlApi* nvml_ = nullptr;
  NvmlDevice power_ = nullptr;
  Clock::time_point rested_ = Clock::now();  // when the card will have rested
};

Status CudaReplay::launch() const { return device_.launch_graph(exec.get()); }

Status CudaKernel::launch(const LaunchShape& shape, std::span<const void* const> arguments) {
  // The driver only reads them.
  std::vector<void*> pointers;
  for (const void* argument : arguments) pointers.push_back(const_cast<void*>(argument));
  return device_.launch_kernel(function, shape, pointers.data());
}

Result<double> CudaReplay::run() {
  LAPIDARY_TRY(const double us, device_.timed(*this));
  return us / static_cast<double>(repeats_);
}

}  // namespace

Result<int> cuda_devices() {
  LAPIDARY_TRY(const CudaApi* cu, cuda_api());
  int count = 0;
  LAPIDARY_TRY_STATUS(cuda_status(*cu, cu->device_count(&count), "cuDeviceGetCount"));
  return count;
}

Result<DeviceInfo> describe_cuda(int ordinal) {
  LAPIDARY_TRY(const CudaApi* cu, cuda_api());
  LAPIDARY_TRY(const int count, cuda_devices());
  if (ordinal < 0 || ordinal >= count) {
    return fail(ErrorCode::invalid_argument, "cuda:{} is not there; this machine has {}", ordinal,
                count == 1 ? "cuda:0" : fmt::format("cuda:0 to cuda:{}", count - 1));
  }
  const auto check = [&](CuResult result, const char* what) {
    return cuda_status(*cu, result, fmt::format("cuda:{}: {}", ordinal, what));
  };
  CuDevice device = 0;
  LAPIDARY_TRY_STATUS(check(cu->device_get(&device, ordinal), "cuDeviceGet"));
  char name[256] = "";
  LAPIDARY_TRY_STATUS(check(cu->device_name(name, sizeof name, device), "cuDeviceGetName"));
  CuUuid uuid{};
  LAPIDARY_TRY_STATUS(check(cu->device_uuid(&uuid, device), "cuDeviceGetUuid"));
  std::size_t memory = 0;
  LAPIDARY_TRY_STATUS(check(cu->device_memory(&memory, device), "cuDeviceTotalMem"));
  int sms = 0, l2 = 0, khz = 0, major = 0, minor = 0, version = 0;
  for (const auto& [value, attribute] :
       {std::pair(&sms, kCuSmCount), std::pair(&l2, kCuL2Bytes), std::pair(&khz, kCuClockRate),
        std::pair(&major, kCuMajor), std::pair(&minor, kCuMinor)}) {
    LAPIDARY_TRY_STATUS(
        check(cu->device_attribute(value, attribute, device), "cuDeviceGetAttribute"));
  }
  LAPIDARY_TRY_STATUS(check(cu->driver_version(&version), "cuDriverGetVersion"));

  DeviceInfo info{.id = fmt::format("cuda:{}", ordinal)};
  info.name = fmt::format("{}, {} SMs", name, sms);
  info.sm = 10 * major + minor;
  info.key = fmt::format("cuda|{}|sm_{}|sms={}", name, info.sm, sms);
  info.uuid = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) info.uuid += '-';
    info.uuid += fmt::format("{:02x}", uuid.bytes[i]);
  }
  info.threads = sms;
  info.cache_bytes = l2;
  info.memory_bytes = static_cast<std::int64_t>(memory);
  info.max_clock_mhz = khz * 1e-3;
  info.driver = version_text(version);
  if (const auto nvml = nvml_api()) {
    char text[96] = "";
    if ((*nvml)->driver_version(text, sizeof text) == 0)
      info.driver = fmt::format("{}, {}", text, info.driver);
    NvmlDevice power = nullptr;
    unsigned milliwatts = 0;
    if ((*nvml)->device_by_uuid(info.uuid.c_str(), &power) == 0 &&
        (*nvml)->power_limit(power, &milliwatts) == 0) {
      info.power_limit_w = milliwatts * 1e-3;
    }
  }
  return info;
}

Result<std::unique_ptr<Device>> open_cuda(int ordinal) {
  LAPIDARY_TRY(const DeviceInfo info, describe_cuda(ordinal));
  LAPIDARY_TRY(const CudaApi* cu, cuda_api());
  auto device = std::make_unique<CudaDevice>(*cu, info);
  LAPIDARY_TRY_STATUS(device->open(ordinal));
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace lapidary::driver
