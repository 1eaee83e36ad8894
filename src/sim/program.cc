#include "sim/program.h"

#include <algorithm>

namespace lapidary::sim {
namespace {

using ir::Id;
using ir::Op;
using ir::Opcode;
using ir::Type;

class Flattener {
 public:
  explicit Flattener(const ir::Kernel& kernel) : k_(kernel), slots_(kernel.ops.size(), -1) {}

  Program run() {
    region(0);
    emit({.flow = Flow::end});
    return std::move(p_);
  }

 private:
  std::int32_t emit(Instruction instruction) {
    p_.code.push_back(instruction);
    return static_cast<std::int32_t>(p_.code.size() - 1);
  }
  std::int32_t here() const { return static_cast<std::int32_t>(p_.code.size()); }
  std::int32_t slot_for(Id id) {
    const Type& type = k_.op(id).type;
    if (type.kind == Type::Kind::none) return -1;
    slots_[id] = p_.slots;
    p_.slots += type.kind == Type::Kind::tile ? type.count : 1;
    return slots_[id];
  }
  void region(std::uint32_t index) {
    for (const Id id : k_.regions[index].ops) one(id);
  }
  Instruction plain(Id id) {
    const Op& op = k_.op(id);
    Instruction in{.code = op.code, .type = op.type.scalar, .location = op.location, .id = id};
    for (std::size_t i = 0; i < std::min<std::size_t>(3, op.args.size()); ++i) {
      in.args[i] = slots_[op.args[i]];
      in.operand_types[i] = k_.op(op.args[i]).type.scalar;
    }
    for (std::size_t i = 0; i < op.attributes.size(); ++i) in.attributes[i] = op.attributes[i];
    if (!op.args.empty()) {
      const Type& first = k_.op(op.args[0]).type;
      in.from = first.scalar;
      in.space = first.space;
      if (op.type.kind == Type::Kind::none || op.type.is(Scalar::pred)) in.type = first.scalar;
    }
    if (op.code == Opcode::advance) in.from = k_.op(op.args[1]).type.scalar;
    return in;
  }
  void one(Id id) {
    const Op& op = k_.op(id);
    Instruction in = plain(id);
    switch (op.code) {
      case Opcode::turn:
        return;  // the loop's
      case Opcode::if_:
        return if_(op, in);
      case Opcode::for_:
        return for_(op, in);
      case Opcode::print:
        in.attributes[1] = std::ssize(p_.lists);
        p_.lists.emplace_back();
        p_.list_types.emplace_back();
        for (const Id arg : op.args) {
          p_.lists.back().push_back(slots_[arg]);
          p_.list_types.back().push_back(k_.op(arg).type.scalar);
        }
        break;
      default:
        break;
    }
    in.slot = slot_for(id);
    emit(in);
  }
  void if_(const Op& op, Instruction in) {
    in.flow = Flow::if_begin;
    const std::int32_t begin = emit(in);
    region(op.regions[0]);
    in.flow = Flow::if_else;
    const std::int32_t otherwise = emit(in);
    p_.code[std::size_t(begin)].jump = otherwise;
    region(op.regions[1]);
    in.flow = Flow::if_end;
    p_.code[std::size_t(otherwise)].jump = emit(in);
  }
  void for_(const Op& op, Instruction in) {
    const Id turn = k_.regions[op.regions[0]].ops.front();
    in.slot = slot_for(turn);
    in.type = k_.op(turn).type.scalar;
    in.flow = Flow::for_begin;
    const std::int32_t begin = emit(in);
    region(op.regions[0]);
    in.flow = Flow::for_next;
    in.jump = begin + 1;
    emit(in);
    in.flow = Flow::for_end;
    in.jump = -1;
    p_.code[std::size_t(begin)].jump = emit(in);
  }

  const ir::Kernel& k_;
  std::vector<std::int32_t> slots_;
  Program p_;
};

}  // namespace

Program flatten(const ir::Kernel& kernel) { return Flattener(kernel).run(); }

}  // namespace lapidary::sim
