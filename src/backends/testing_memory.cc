#include "backends/testing_memory.h"

#include <atomic>
#include <cstdlib>
#include <new>

// A file of their own: where the compiler sees both operators it takes malloc and delete for a
// mismatched pair.
namespace {
std::atomic<bool> refused{false};
}

void lapidary::backends::refuse_memory(bool refuse) { refused = refuse; }

void* operator new(std::size_t bytes) {
  void* made = refused ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
  if (made == nullptr) throw std::bad_alloc();
  return made;
}
void operator delete(void* at) noexcept { std::free(at); }
void operator delete(void* at, std::size_t) noexcept { std::free(at); }
