#include <bit>

#include "ir/kernel.h"
#include "ir/signature.h"
#include "support/result.h"

namespace lapidary {

std::string_view name(Scalar type) {
  constexpr std::string_view kNames[] = {"pred", "s32",  "u32", "s64", "u64",
                                         "f16",  "bf16", "f32", "f64"};
  return kNames[static_cast<std::size_t>(type)];
}
std::string_view name(Space space) { return space == Space::global ? "global" : "shared"; }
std::string_view name(Arch arch) {
  constexpr std::string_view kNames[] = {"sm_80", "sm_89", "sm_90a"};
  return kNames[static_cast<std::size_t>(arch)];
}
std::optional<Arch> arch_for(int sm) {
  if (sm == 90) return Arch::sm_90a;
  if (sm == 89) return Arch::sm_89;
  if (sm >= 80 && sm < 89) return Arch::sm_80;
  return std::nullopt;
}
std::string_view Kernel::name() const { return body_->name; }
std::string Kernel::text() const { return ir::text(*body_); }

}  // namespace lapidary

namespace lapidary::ir {

std::string text(const Type& type) {
  switch (type.kind) {
    case Type::Kind::none:
      return "none";
    case Type::Kind::scalar:
      return std::string(name(type.scalar));
    case Type::Kind::pointer:
      return fmt::format("ptr {} {}", name(type.space), name(type.scalar));
    case Type::Kind::tile:
      return fmt::format("tile {} x {}", type.count, name(type.scalar));
  }
  return "";
}

std::string_view name(Special which) {
  constexpr std::string_view kNames[] = {"thread",  "lane",   "warp",   "block_x", "block_y",
                                         "block_z", "grid_x", "grid_y", "grid_z"};
  return kNames[static_cast<std::size_t>(which)];
}

std::string text(const Location& location) {
  const std::string_view file = location.file;
  return fmt::format("{}:{}", file.substr(file.rfind('/') + 1), location.line);
}

namespace {

/// Prints regions, indented; a comment at the end of a line names the source line where it changes.
class Printer {
 public:
  explicit Printer(const Kernel& kernel) : k_(kernel) {}

  std::string print() {
    out_ = fmt::format("kernel {} on {}, {} threads\n", k_.name, name(k_.arch), k_.threads);
    for (std::size_t i = 0; i < k_.params.size(); ++i)
      out_ += fmt::format("param {}: {} {}\n", i, text(k_.params[i].type), k_.params[i].name);
    for (std::size_t i = 0; i < k_.shared.size(); ++i) {
      const SharedArray& array = k_.shared[i];
      out_ += fmt::format("shared {}: {} x {} {} at byte {}\n", i, array.count, name(array.element),
                          array.name, array.offset_bytes);
    }
    region(0, 1);
    return std::move(out_);
  }

 private:
  void region(std::uint32_t index, int depth) {
    for (const Id id : k_.regions[index].ops) line(id, depth);
  }
  void line(Id id, int depth) {
    const Op& op = k_.op(id);
    std::string text(static_cast<std::size_t>(2 * depth), ' ');
    if (op.type.kind != Type::Kind::none) text += fmt::format("%{}: {} = ", id, ir::text(op.type));
    text += info(op.code).name;
    for (const Id arg : op.args) text += fmt::format(" %{}", arg);
    if (!op.attributes.empty()) text += " {" + attributes(op) + "}";
    if (op.location != where_ && op.location < k_.locations.size()) {
      where_ = op.location;
      text += fmt::format("  // {}", ir::text(k_.locations[where_]));
    }
    out_ += text + "\n";
    const std::vector<std::string_view>& names = signature(op.code).regions;
    for (std::size_t i = 0; i < op.regions.size(); ++i) {
      if (k_.regions[op.regions[i]].ops.empty()) continue;
      if (i > 0) out_ += fmt::format("{:{}}{}\n", "", 2 * depth, names[i]);
      region(op.regions[i], depth + 1);
    }
  }
  std::string attributes(const Op& op) const {
    const std::vector<std::string_view>& names = signature(op.code).attributes;
    std::string all;
    for (std::size_t i = 0; i < op.attributes.size(); ++i) {
      if (i > 0) all += ", ";
      all += fmt::format("{} {}", i < names.size() ? names[i] : "?", attribute(op, i));
    }
    return all;
  }
  std::string attribute(const Op& op, std::size_t i) const {
    const std::int64_t value = op.attributes[i];
    // A kernel that is not sound prints as well.
    const std::vector<std::string_view>& names = signature(op.code).attributes;
    const std::string_view name = i < names.size() ? names[i] : "?";
    if (op.code == Opcode::constant && op.type.is(Scalar::f32))
      return fmt::format("{}", std::bit_cast<float>(static_cast<std::uint32_t>(value)));
    if (op.code == Opcode::constant && op.type.is(Scalar::f64))
      return fmt::format("{}", std::bit_cast<double>(value));
    if (op.code == Opcode::special && value >= 0 &&
        value <= static_cast<std::int64_t>(Special::grid_z))
      return std::string(ir::name(Special(value)));
    if (name == "message" && value >= 0 && value < std::ssize(k_.strings))
      return fmt::format("'{}'", k_.strings[static_cast<std::size_t>(value)]);
    return std::to_string(value);
  }

  const Kernel& k_;
  std::string out_;
  std::uint32_t where_ = ~0u;
};

}  // namespace

std::string text(const Kernel& kernel) { return Printer(kernel).print(); }

}  // namespace lapidary::ir
