#pragma once

namespace lapidary::backends {

/// While set, operator new throws std::bad_alloc on every thread of this test program.
void refuse_memory(bool refuse);

}  // namespace lapidary::backends
