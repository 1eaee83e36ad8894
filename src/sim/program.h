#pragma once

#include <vector>

#include "ir/kernel.h"

// A kernel flattened for the interpreter: regions become jumps, values become slots of a warp's
// registers.
namespace lapidary::sim {

/// What an instruction does with the mask of active lanes, besides the operations of the IR.
enum class Flow : std::uint8_t {
  none,
  if_begin,   ///< lanes where arg 0 holds go on; without any, jump
  if_else,    ///< the other lanes go on; without any, jump
  if_end,     ///< all that came go on
  for_begin,  ///< slot = arg 0; lanes where slot < arg 1 go on; without any, jump
  for_next,   ///< slot += arg 2; lanes where slot < arg 1 jump; without any, go on
  for_end,
  end,
};

struct Instruction {
  ir::Opcode code = ir::Opcode::constant;
  Flow flow = Flow::none;
  Scalar type = Scalar::s32;  ///< of the result; of what is stored, compared or accessed otherwise
  Scalar from = Scalar::s32;  ///< of operand 0
  Space space = Space::global;  ///< of an access
  std::int32_t slot = -1;       ///< of the result; a tile's first
  std::int32_t args[3] = {-1, -1, -1};
  Scalar operand_types[3] = {};
  std::int64_t attributes[3] = {};
  std::int32_t jump = -1;
  std::uint32_t location = 0;
  ir::Id id = ir::kNone;
};

struct Program {
  std::vector<Instruction> code;
  std::vector<std::vector<std::int32_t>> lists;  ///< operands of `print`; attribute 1 is the index
  std::vector<std::vector<Scalar>> list_types;
  std::int32_t slots = 0;
};

Program flatten(const ir::Kernel& kernel);

}  // namespace lapidary::sim
