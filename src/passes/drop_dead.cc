#include <algorithm>

#include "passes/effects.h"
#include "passes/passes.h"

namespace lapidary::passes {
namespace {

using ir::Id;
using ir::kNone;
using ir::Op;
using ir::Opcode;

/// Marks what is used from the last operation to the first: a value is made before it is used.
class Dropper {
 public:
  explicit Dropper(const ir::Kernel& from)
      : from_(from),
        to_(without_operations(from)),
        live_(from.ops.size(), false),
        names_(from.ops.size(), kNone) {}

  ir::Kernel run() {
    mark(0);
    copy(0);
    return std::move(to_);
  }

 private:
  /// Whether the block does anything.
  bool mark(std::uint32_t region) {
    bool any = false;
    const std::vector<Id>& ops = from_.regions[region].ops;
    for (auto id = ops.rbegin(); id != ops.rend(); ++id) {
      const Op& op = from_.op(*id);
      bool needed = live_[*id] || !droppable(op.code);
      if (!op.regions.empty()) {
        needed = false;
        for (const std::uint32_t inner : op.regions) needed |= mark(inner);
      }
      if (op.code == Opcode::turn) continue;  // it lives with its loop
      if (!needed) continue;
      live_[*id] = any = true;
      for (const Id arg : op.args) live_[arg] = true;
    }
    return any;
  }
  static bool droppable(Opcode code) {
    return is_pure(code) || code == Opcode::tile || code == Opcode::get;
  }
  void copy(std::uint32_t region) {
    for (const Id id : from_.regions[region].ops) {
      if (!live_[id] && from_.op(id).code != Opcode::turn) continue;
      Op op = from_.op(id);
      for (Id& arg : op.args) arg = names_[arg];
      for (const std::uint32_t inner : op.regions) copy(inner);
      to_.ops.push_back(std::move(op));
      names_[id] = static_cast<Id>(to_.ops.size() - 1);
      to_.regions[region].ops.push_back(names_[id]);
    }
  }

  const ir::Kernel& from_;
  ir::Kernel to_;
  std::vector<bool> live_;
  std::vector<Id> names_;
};

}  // namespace

ir::Kernel drop_dead(const ir::Kernel& kernel) { return Dropper(kernel).run(); }

}  // namespace lapidary::passes
