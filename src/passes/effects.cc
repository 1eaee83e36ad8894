#include "passes/effects.h"

namespace lapidary::passes {

using ir::Opcode;

bool is_pure(Opcode code) {
  switch (code) {
    case Opcode::constant:
    case Opcode::param:
    case Opcode::special:
    case Opcode::add:
    case Opcode::sub:
    case Opcode::mul:
    case Opcode::fma:
    case Opcode::div:
    case Opcode::rem:
    case Opcode::neg:
    case Opcode::min:
    case Opcode::max:
    case Opcode::and_:
    case Opcode::or_:
    case Opcode::xor_:
    case Opcode::not_:
    case Opcode::shl:
    case Opcode::shr:
    case Opcode::exp2:
    case Opcode::log2:
    case Opcode::rsqrt:
    case Opcode::sqrt:
    case Opcode::abs:
    case Opcode::lt:
    case Opcode::le:
    case Opcode::eq:
    case Opcode::ne:
    case Opcode::select:
    case Opcode::cast:
    case Opcode::bitcast:
    case Opcode::shared:
    case Opcode::advance:
      return true;
    case Opcode::load:
    case Opcode::store:
    case Opcode::load_tile:
    case Opcode::store_tile:
    case Opcode::atomic_add:
    case Opcode::atomic_max:
    case Opcode::tile:
    case Opcode::get:  // of a tile that may have been written since
    case Opcode::set:
    case Opcode::barrier:
    case Opcode::shuffle_xor:  // the whole warp takes part
    case Opcode::shuffle:
    case Opcode::ballot:
    case Opcode::copy_async:
    case Opcode::commit_copies:
    case Opcode::wait_copies:
    case Opcode::load_matrix:
    case Opcode::mma:
    case Opcode::if_:
    case Opcode::for_:
    case Opcode::turn:
    case Opcode::check:
    case Opcode::print:
      return false;
  }
  return false;
}

ir::Kernel without_operations(const ir::Kernel& kernel) {
  return {.name = kernel.name,
          .arch = kernel.arch,
          .threads = kernel.threads,
          .params = kernel.params,
          .shared = kernel.shared,
          .ops = {},
          .regions = std::vector<ir::Region>(kernel.regions.size()),
          .locations = kernel.locations,
          .strings = kernel.strings};
}

}  // namespace lapidary::passes
