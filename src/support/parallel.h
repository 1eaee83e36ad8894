#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace lapidary {

/// The number of CPUs that this process may use; at least 1.
int usable_cpus();

/// $LAPIDARY_THREADS, else usable_cpus().
int default_threads();

/// A few threads that wait, spinning briefly and then asleep, for ranges to work on. One range runs
/// at a time; a second caller meanwhile works through its own range alone.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  /// Calls body(begin, end) over pieces of [0, count) of `grain` indices, the last one maybe
  /// shorter. Returns when all are done. The body must not throw.
  template <class Body>
  void each(std::int64_t count, std::int64_t grain, const Body& body) {
    run(
        count, grain,
        [](const void* self, std::int64_t begin, std::int64_t end) {
          (*static_cast<const Body*>(self))(begin, end);
        },
        &body);
  }

 private:
  using Call = void (*)(const void* body, std::int64_t begin, std::int64_t end);
  void run(std::int64_t count, std::int64_t grain, Call call, const void* body);
  struct State;
  std::unique_ptr<State> state_;
};

/// The pool of default_threads() threads that all CPU work of this process shares; made at first
/// use.
ThreadPool& shared_pool();

}  // namespace lapidary
