#include "support/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "support/env.h"

namespace lapidary {
namespace {

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// About 50 us of pauses: longer than the gap between two products of a layer, shorter than anyone
// notices.
constexpr int kSpins = 1000;

}  // namespace

int default_threads() {
  if (const auto text = env("LAPIDARY_THREADS")) {
    int threads = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), threads);
    if (error == std::errc() && end == text->data() + text->size() && threads >= 1)
      return std::min(threads, 1024);
  }
  return usable_cpus();
}

int usable_cpus() {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) return std::max(1, CPU_COUNT(&mask));
  return std::max(1u, std::thread::hardware_concurrency());
}

struct ThreadPool::State {
  static constexpr std::uint64_t kHelpers = 0xffff;
  std::mutex busy;  // held by the caller whose range is being worked on
  // Changes when a range is ready, or at the end: a count, and in the low 16 bits how many helpers
  // take part. In one word, so that a helper that wakes late cannot mix two rounds.
  std::atomic<std::uint64_t> round{0};
  std::atomic<int> active{0};  // helpers that have not finished the round
  std::atomic<std::int64_t> next{0};
  std::atomic<bool> stop{false};
  std::int64_t count = 0, grain = 1;
  Call call = nullptr;
  const void* body = nullptr;
  std::mutex sleep;
  std::condition_variable wake;
  std::vector<std::jthread> helpers;

  void work() {
    for (;;) {
      const std::int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      call(body, begin, std::min(begin + grain, count));
    }
  }

  void help(std::uint64_t number) {
    std::uint64_t seen = 0;
    for (;;) {
      for (int i = 0; i < kSpins && round.load(std::memory_order_acquire) == seen; ++i) relax();
      if (round.load(std::memory_order_acquire) == seen) {
        std::unique_lock lock(sleep);
        wake.wait(lock, [&] { return round.load(std::memory_order_acquire) != seen; });
      }
      seen = round.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_relaxed)) return;
      if (number >= (seen & kHelpers)) continue;  // fewer pieces than helpers
      work();
      active.fetch_sub(1, std::memory_order_release);
    }
  }

  void announce(std::uint64_t taking_part) {
    {
      const std::lock_guard lock(sleep);
      const std::uint64_t before = round.load(std::memory_order_relaxed);
      round.store(((before | kHelpers) + 1) | taking_part, std::memory_order_release);
    }
    wake.notify_all();
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  for (int i = 1; i < threads; ++i)
    state_->helpers.emplace_back(
        [state = state_.get(), i] { state->help(static_cast<std::uint64_t>(i - 1)); });
}

ThreadPool::~ThreadPool() {
  state_->stop = true;
  state_->announce(0);
}

int ThreadPool::threads() const { return static_cast<int>(state_->helpers.size()) + 1; }

void ThreadPool::run(std::int64_t count, std::int64_t grain, Call call, const void* body) {
  grain = std::max<std::int64_t>(1, grain);
  std::unique_lock busy(state_->busy, std::try_to_lock);
  if (count <= grain || state_->helpers.empty() || !busy.owns_lock()) {
    for (std::int64_t begin = 0; begin < count; begin += grain)
      call(body, begin, std::min(begin + grain, count));
    return;
  }
  state_->count = count;
  state_->grain = grain;
  state_->call = call;
  state_->body = body;
  state_->next.store(0, std::memory_order_relaxed);
  // One piece is the caller's; a helper without one would only have to be waited for.
  const std::int64_t helpers = std::min<std::int64_t>(
      static_cast<std::int64_t>(state_->helpers.size()), (count - 1) / grain);
  state_->active.store(static_cast<int>(helpers), std::memory_order_relaxed);
  state_->announce(static_cast<std::uint64_t>(helpers));
  state_->work();
  for (int i = 0; state_->active.load(std::memory_order_acquire) != 0; ++i) {
    if (i < kSpins)
      relax();
    else
      std::this_thread::yield();
  }
}

ThreadPool& shared_pool() {
  static ThreadPool pool(default_threads());
  return pool;
}

}  // namespace lapidary
