#include "ir/kernel.h"

#include <algorithm>

namespace lapidary::ir {
namespace {

constexpr OpInfo row(std::string_view name, std::string_view signature, std::string_view doc) {
  if (name.ends_with('_')) name.remove_suffix(1);
  return {name, signature, doc};
}
constexpr OpInfo kTable[] = {
#define LAPIDARY_OP(name, signature, doc) row(#name, signature, doc),
#include "ir/ops.inc"
#undef LAPIDARY_OP
};

}  // namespace

const OpInfo& info(Opcode code) { return kTable[static_cast<std::size_t>(code)]; }
std::span<const OpInfo> op_table() { return kTable; }

std::int64_t Kernel::shared_bytes() const {
  std::int64_t end = 0;
  for (const SharedArray& array : shared)
    end = std::max(end, array.offset_bytes + array.count * size_bytes(array.element));
  return end;
}

}  // namespace lapidary::ir
