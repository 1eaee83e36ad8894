#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>

#include "driver/cpu.h"
#include "driver/device.h"
#include "support/parallel.h"

namespace lapidary::driver {
namespace {

using Clock = std::chrono::steady_clock;

double micros_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// Waits until this process's threads sleep. Libraries let theirs spin for milliseconds after a
/// product (libgomp, OpenBLAS), and that would be taken from whoever is timed next.
void settle() {
  const auto cpu_ns = [] {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
  };
  for (int turn = 0; turn < 100; ++turn) {
    const std::int64_t before = cpu_ns();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (cpu_ns() - before < 200'000) return;
  }
}

/// Calls body(address, count) for every row of a region.
template <class Body>
void each_row(const Region& region, const Body& body) {
  for (std::int64_t entry = 0; entry < region.entries; ++entry) {
    for (std::int64_t row = 0; row < region.rows; ++row)
      body(entry * region.entry_bytes + row * region.pitch_bytes);
  }
}

class CpuReplay : public Replay {
 public:
  CpuReplay(std::function<Status(std::int64_t)> launch, std::int64_t repeats)
      : launch_(std::move(launch)), repeats_(repeats) {}

  Result<double> run() override {
    settle();
    // Its own threads are awake when the clock starts, as they are in a row of products.
    LAPIDARY_TRY_STATUS(launch_(next_++));
    const Clock::time_point start = Clock::now();
    for (std::int64_t i = 0; i < repeats_; ++i) LAPIDARY_TRY_STATUS(launch_(next_++));
    return micros_since(start) / static_cast<double>(repeats_);
  }

 private:
  std::function<Status(std::int64_t)> launch_;
  std::int64_t repeats_;
  std::int64_t next_ = 0;  // goes on from replay to replay, so that all buffers take their turn
};

class CpuDevice : public Device {
 public:
  const DeviceInfo& info() const override { return info_; }
  bool is_host() const override { return true; }

  Result<void*> allocate(std::int64_t bytes) override {
    if (bytes == 0) return nullptr;
    void* memory = std::aligned_alloc(256, static_cast<std::size_t>((bytes + 255) / 256 * 256));
    if (memory == nullptr)
      return fail(ErrorCode::resource_limit, "cpu: {} bytes of memory cannot be had", bytes);
    return memory;
  }
  void release(void* memory) override { std::free(memory); }
  Status pin(void*, std::int64_t) override { return {}; }
  void unpin(void*) override {}
  Result<std::int64_t> free_bytes() override { return info_.memory_bytes; }

  Status upload(void* to, const void* from, std::int64_t bytes) override {
    return copy(to, from, bytes);
  }
  Status download(void* to, const void* from, std::int64_t bytes) override {
    return copy(to, from, bytes);
  }
  Status copy(void* to, const void* from, std::int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return {};
  }
  Status fill(void* first, const Region& region, std::uint32_t element,
              int element_bytes) override {
    each_row(region, [&](std::int64_t row) {
      auto* bytes = static_cast<std::uint8_t*>(first) + row;
      for (std::int64_t i = 0; i < region.row_bytes; ++i)
        bytes[i] = static_cast<std::uint8_t>(element >> (8 * (i % element_bytes)));
    });
    return {};
  }
  Status fill_garbage(void* first, std::int64_t bytes, std::uint64_t seed) override {
    for (std::int64_t i = 0; i < bytes; ++i)
      static_cast<std::uint8_t*>(first)[i] = garbage_byte(seed, static_cast<std::uint64_t>(i));
    return {};
  }
  Result<std::uint64_t> hash(const void* first, const Region& region,
                             std::int64_t offset) override {
    std::uint64_t sum = 0;
    each_row(region, [&](std::int64_t row) {
      const auto* bytes = static_cast<const std::uint8_t*>(first) + row;
      for (std::int64_t i = 0; i < region.row_bytes; ++i)
        sum += byte_hash(static_cast<std::uint64_t>(offset + row + i), bytes[i]);
    });
    return sum;
  }

  Result<std::unique_ptr<LoadedKernel>> load(std::string_view, const std::string& entry,
                                             std::int64_t) override {
    return fail(ErrorCode::unsupported, "cpu: {} is a kernel for a GPU; simulate it here", entry);
  }
  void* stream() const override { return nullptr; }
  Status synchronize() override { return {}; }
  Result<std::unique_ptr<Replay>> record(const std::function<Status(std::int64_t)>& launch,
                                         std::int64_t repeats) override {
    return std::unique_ptr<Replay>(std::make_unique<CpuReplay>(launch, repeats));
  }
  Result<Effort> sustain(Replay& replay, std::int64_t /*repeats*/, double seconds,
                         const std::function<void()>& progress) override {
    const Clock::time_point start = Clock::now();
    double total_us = 0;
    int counted = 0;
    while (counted == 0 || micros_since(start) < seconds * 1e6) {
      const bool counting = micros_since(start) >= seconds * 0.5e6;
      LAPIDARY_TRY(const double us, replay.run());
      if (progress) progress();
      if (!counting) continue;
      total_us += us;
      ++counted;
    }
    return Effort{.time_us = total_us / counted};
  }
  Status probe() override { return {}; }

 private:
  DeviceInfo info_ = cpu_info();
};

}  // namespace

DeviceInfo cpu_info() {
  static const DeviceInfo device = [] {
    const CpuFacts facts = cpu_facts();
    const int threads = default_threads();
    return DeviceInfo{
        .id = "cpu",
        .name = fmt::format("{}, {} thread{}", facts.model, threads, threads == 1 ? "" : "s"),
        .key = fmt::format("cpu|{}|{}|threads={}", facts.model, facts.features, threads),
        .threads = threads,
        .cache_bytes = facts.cache_bytes,
        .memory_bytes = facts.memory_bytes};
  }();
  return device;
}

std::unique_ptr<Device> open_cpu() { return std::make_unique<CpuDevice>(); }

}  // namespace lapidary::driver
