#include "support/random.h"

#include <sys/random.h>

#include <chrono>

namespace lapidary {

std::uint64_t system_random() {
  std::uint64_t bits = 0;
  if (getrandom(&bits, sizeof bits, 0) == static_cast<ssize_t>(sizeof bits)) return bits;
  // A kernel without getrandom: good enough to tell temporary names apart, which is all we ask.
  return mix(
      static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()), 0);
}

}  // namespace lapidary
