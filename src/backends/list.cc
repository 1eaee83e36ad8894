#include "backends/backend.h"

namespace lapidary::backends {

#define LAPIDARY_BACKEND(name) const Backend& name();
#include "backends/list.inc"
#undef LAPIDARY_BACKEND

std::span<const Backend* const> all() {
  static const Backend* const list[] = {
#define LAPIDARY_BACKEND(name) &name(),
#include "backends/list.inc"
#undef LAPIDARY_BACKEND
  };
  return list;
}

}  // namespace lapidary::backends
