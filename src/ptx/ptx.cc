#include "ptx/ptx.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace lapidary::ptx {
namespace {

using ir::Id;
using ir::Op;
using ir::Opcode;
using ir::Type;

/// Where the type matters to an instruction: "s32", "f32". f16 and bf16 are moved as bits.
std::string_view typed(Scalar type) {
  return size_bytes(type) == 2 ? std::string_view("b16") : name(type);
}
/// Where only the size does.
std::string_view bits(Scalar type) {
  switch (size_bytes(type)) {
    case 0:
      return "pred";
    case 2:
      return "b16";
    case 8:
      return "b64";
    default:
      return "b32";
  }
}
/// Register files as we name them: one for each kind that PTX tells apart.
enum class File { pred, b16, b32, b64, f32, f64 };
File file_of(Scalar type) {
  switch (type) {
    case Scalar::pred:
      return File::pred;
    case Scalar::f32:
      return File::f32;
    case Scalar::f64:
      return File::f64;
    default:
      return size_bytes(type) == 2 ? File::b16 : size_bytes(type) == 8 ? File::b64 : File::b32;
  }
}
constexpr const char* kPrefix[] = {"%p", "%h", "%r", "%d", "%f", "%g"};
constexpr const char* kDeclared[] = {".pred", ".b16", ".b32", ".b64", ".f32", ".f64"};

std::string escaped(std::string_view text) {
  std::string bytes;
  for (const char c : text) bytes += fmt::format("{}, ", static_cast<unsigned char>(c));
  return bytes + "0";
}

class Printer {
 public:
  Printer(const ir::Kernel& kernel, const Options& options)
      : k_(kernel), options_(options), names_(kernel.ops.size()) {}

  std::string print() {
    region(0);
    line("ret;");
    std::string text =
        fmt::format("// {}, printed by lapidary\n.version 8.0\n.target {}\n.address_size 64\n",
                    k_.name, name(options_.target.value_or(k_.arch)));
    if (!strings_.empty()) {
      text +=
          "\n.extern .func (.param .b32 printed) vprintf (.param .b64 format, .param .b64 "
          "values);\n";
      text += strings_;
    }
    if (k_.shared_bytes() > 0) text += "\n.extern .shared .align 1024 .b8 $shared_memory[];\n";
    text += fmt::format("\n.visible .entry {}(", k_.name);
    for (std::size_t i = 0; i < k_.params.size(); ++i) {
      const auto& [name, type] = k_.params[i];
      text += fmt::format("\n  .param .{} {}{}  // {}",
                          type.kind == Type::Kind::pointer ? "u64" : typed(type.scalar), param(i),
                          i + 1 < k_.params.size() ? "," : "", name);
    }
    text += fmt::format("\n)\n.maxntid {}, 1, 1\n{{\n", k_.threads);
    for (std::size_t f = 0; f < std::size(kPrefix); ++f) {
      if (count_[f] > 0)
        text += fmt::format("  .reg {} {}<{}>;\n", kDeclared[f], kPrefix[f], count_[f]);
    }
    if (print_bytes_ > 0)
      text += fmt::format("  .local .align 8 .b8 printed_values[{}];\n", print_bytes_);
    text += out_ + "}\n";
    for (std::size_t i = 0; i < files_.size(); ++i)
      text += fmt::format(".file {} \"{}\"\n", i + 1, files_[i]);
    return text;
  }

 private:
  // Names
  std::string fresh(File file) {
    return fmt::format("{}{}", kPrefix[int(file)], count_[int(file)]++);
  }
  std::string param(std::size_t i) const { return fmt::format("{}_param_{}", k_.name, i); }
  const std::string& r(Id id) const { return names_[id].front(); }
  const std::string& arg(const Op& op, std::size_t i) const { return r(op.args[i]); }
  Type type_of(const Op& op, std::size_t i) const { return k_.op(op.args[i]).type; }
  /// The result's register.
  std::string make(Id id) {
    const Type& type = k_.op(id).type;
    File file = file_of(type.scalar);
    if (type.kind == Type::Kind::pointer)
      file = type.space == Space::global ? File::b64 : File::b32;
    names_[id] = {fresh(file)};
    return names_[id].front();
  }

  template <class... Args>
  void line(fmt::format_string<Args...> text, Args&&... args) {
    out_ += std::string(static_cast<std::size_t>(2 * depth_), ' ');
    fmt::format_to(std::back_inserter(out_), text, std::forward<Args>(args)...);
    out_ += '\n';
  }
  void label(const std::string& name) { out_ += name + ":\n"; }
  std::string new_label() { return fmt::format("$L{}", labels_++); }

  void region(std::uint32_t index) {
    for (const Id id : k_.regions[index].ops) {
      const Op& op = k_.op(id);
      place(op);
      one(id, op);
    }
  }
  void place(const Op& op) {
    if (!options_.lines || op.location == where_) return;
    where_ = op.location;
    const ir::Location& at = k_.locations[op.location];
    if (at.line == 0) return;
    auto file = std::ranges::find(files_, at.file);
    if (file == files_.end()) file = files_.insert(file, at.file);
    line(".loc {} {} 0", file - files_.begin() + 1, at.line);
  }

  void one(Id id, const Op& op) {
    const Scalar type = op.type.scalar;
    const auto a = [&](std::size_t i) -> const std::string& { return arg(op, i); };
    switch (op.code) {
      case Opcode::constant:
        return constant(id, op);
      case Opcode::param:
        return parameter(id, op);
      case Opcode::special:
        return line("mov.u32 {}, {};", make(id), special(op));
      case Opcode::add:
        return binary(id, op, "add");
      case Opcode::sub:
        return binary(id, op, "sub");
      case Opcode::mul:
        return binary(id, op, is_integer(type) ? "mul.lo" : "mul");
      case Opcode::fma:
        return line("fma.rn.{} {}, {}, {}, {};", typed(type), make(id), a(0), a(1), a(2));
      case Opcode::div:
        return binary(id, op, "div");
      case Opcode::rem:
        return line("rem.{} {}, {}, {};", typed(type), make(id), a(0), a(1));
      case Opcode::neg:
        return line("neg.{} {}, {};",
                    is_integer(type) ? (size_bytes(type) == 8 ? "s64" : "s32") : typed(type),
                    make(id), a(0));
      case Opcode::min:
        return line("min{}.{} {}, {}, {};", type == Scalar::f32 ? ".NaN" : "", typed(type),
                    make(id), a(0), a(1));
      case Opcode::max:
        return line("max{}.{} {}, {}, {};", type == Scalar::f32 ? ".NaN" : "", typed(type),
                    make(id), a(0), a(1));
      case Opcode::and_:
        return line("and.{} {}, {}, {};", bits(type), make(id), a(0), a(1));
      case Opcode::or_:
        return line("or.{} {}, {}, {};", bits(type), make(id), a(0), a(1));
      case Opcode::xor_:
        return line("xor.{} {}, {}, {};", bits(type), make(id), a(0), a(1));
      case Opcode::not_:
        return line("not.{} {}, {};", bits(type), make(id), a(0));
      case Opcode::shl:
        return line("shl.{} {}, {}, {};", bits(type), make(id), a(0), a(1));
      case Opcode::shr:
        return line("shr.{} {}, {}, {};", typed(type), make(id), a(0), a(1));
      case Opcode::exp2:
        return line("ex2.approx.f32 {}, {};", make(id), a(0));
      case Opcode::log2:
        return line("lg2.approx.f32 {}, {};", make(id), a(0));
      case Opcode::rsqrt:
        return line("rsqrt.approx.f32 {}, {};", make(id), a(0));
      case Opcode::sqrt:
        return line("sqrt.rn.{} {}, {};", typed(type), make(id), a(0));
      case Opcode::abs:
        return line("abs.{} {}, {};", typed(type), make(id), a(0));
      case Opcode::lt:
        return compare(id, op, "lt");
      case Opcode::le:
        return compare(id, op, "le");
      case Opcode::eq:
        return compare(id, op, "eq");
      case Opcode::ne:
        return compare(id, op, is_integer(type_of(op, 0).scalar) ? "ne" : "neu");
      case Opcode::select:
        return select(id, op);
      case Opcode::cast:
        return cast(id, op);
      case Opcode::bitcast:
        return line("mov.{} {}, {};", bits(type), make(id), a(0));
      case Opcode::shared:
        return shared(id, op);
      case Opcode::advance:
        return advance(id, op);
      case Opcode::load:
        return line("ld.{}.{} {}, [{}];", space(op), typed(type), make(id), a(0));
      case Opcode::store:
        return line("st.{}.{} [{}], {};", space(op), typed(type_of(op, 1).scalar), a(0), a(1));
      case Opcode::load_tile:
        return tile_access(op, true);
      case Opcode::store_tile:
        return tile_access(op, false);
      case Opcode::atomic_add:
        return line("atom.relaxed.gpu.{}.add.{} {}, [{}], {};", space(op), typed(type), make(id),
                    a(0), a(1));
      case Opcode::atomic_max:
        return line("atom.relaxed.gpu.{}.max.{} {}, [{}], {};", space(op), typed(type), make(id),
                    a(0), a(1));
      case Opcode::tile:
        return tile(id, op);
      case Opcode::get:
        return get(id, op);
      case Opcode::set:
        return set(op);
      case Opcode::barrier:
        return line("barrier.sync.aligned {}, {};", op.attributes[0], op.attributes[1]);
      case Opcode::shuffle_xor:
        return line("shfl.sync.bfly.b32 {}, {}, {}, 31, 0xffffffff;", make(id), a(0),
                    op.attributes[0]);
      case Opcode::shuffle:
        return line("shfl.sync.idx.b32 {}, {}, {}, 31, 0xffffffff;", make(id), a(0), a(1));
      case Opcode::ballot:
        return line("vote.sync.ballot.b32 {}, {}, 0xffffffff;", make(id), a(0));
      case Opcode::copy_async:
        return copy_async(op);
      case Opcode::commit_copies:
        return line("cp.async.commit_group;");
      case Opcode::wait_copies:
        return line("cp.async.wait_group {};", op.attributes[0]);
      case Opcode::load_matrix:
        return load_matrix(op);
      case Opcode::mma:
        return mma(op);
      case Opcode::if_:
        return if_(op);
      case Opcode::for_:
        return for_(op);
      case Opcode::turn:
        return;  // the loop's
      case Opcode::check:
        return line("@!{} trap;", a(0));
      case Opcode::print:
        return printed(op);
    }
  }

  const char* space(const Op& op) const {
    return type_of(op, 0).space == Space::global ? "global" : "shared";
  }

  void constant(Id id, const Op& op) {
    const std::int64_t value = op.attributes[0];
    switch (op.type.scalar) {
      case Scalar::pred:
        return line("setp.eq.s32 {}, {}, 1;", make(id), value);
      case Scalar::f32:
        return line("mov.f32 {}, 0f{:08X};", make(id), static_cast<std::uint32_t>(value));
      case Scalar::f64:
        return line("mov.f64 {}, 0d{:016X};", make(id), static_cast<std::uint64_t>(value));
      default:
        return line("mov.{} {}, {};", bits(op.type.scalar), make(id), value);
    }
  }
  void parameter(Id id, const Op& op) {
    const std::string from = param(static_cast<std::size_t>(op.attributes[0]));
    if (op.type.kind != Type::Kind::pointer)
      return line("ld.param.{} {}, [{}];", typed(op.type.scalar), make(id), from);
    const std::string to = make(id);
    line("ld.param.u64 {}, [{}];", to, from);
    line("cvta.to.global.u64 {}, {};", to, to);
  }
  std::string special(const Op& op) {
    switch (ir::Special(op.attributes[0])) {
      case ir::Special::thread:
        return "%tid.x";
      case ir::Special::lane:
        return "%laneid";
      case ir::Special::warp: {
        // %warpid may change while a kernel runs (PTX ISA); a thread's number does not.
        const std::string thread = fresh(File::b32), warp = fresh(File::b32);
        line("mov.u32 {}, %tid.x;", thread);
        line("shr.u32 {}, {}, 5;", warp, thread);
        return warp;
      }
      case ir::Special::block_x:
        return "%ctaid.x";
      case ir::Special::block_y:
        return "%ctaid.y";
      case ir::Special::block_z:
        return "%ctaid.z";
      case ir::Special::grid_x:
        return "%nctaid.x";
      case ir::Special::grid_y:
        return "%nctaid.y";
      case ir::Special::grid_z:
        return "%nctaid.z";
    }
    return "";
  }
  /// `.rn` says that no multiplication and addition are contracted.
  void binary(Id id, const Op& op, const char* what) {
    const Scalar type = op.type.scalar;
    line("{}{}.{} {}, {}, {};", what, is_integer(type) ? "" : ".rn", typed(type), make(id),
         arg(op, 0), arg(op, 1));
  }
  void compare(Id id, const Op& op, const char* how) {
    line("setp.{}.{} {}, {}, {};", how, typed(type_of(op, 0).scalar), make(id), arg(op, 0),
         arg(op, 1));
  }
  void select(Id id, const Op& op) {
    if (op.type.scalar != Scalar::pred)
      return line("selp.{} {}, {}, {}, {};", bits(op.type.scalar), make(id), arg(op, 1), arg(op, 2),
                  arg(op, 0));
    const std::string to = make(id);
    line("@{} mov.pred {}, {};", arg(op, 0), to, arg(op, 1));
    line("@!{} mov.pred {}, {};", arg(op, 0), to, arg(op, 2));
  }
  void cast(Id id, const Op& op) {
    const Scalar from = type_of(op, 0).scalar, to = op.type.scalar;
    if (from == Scalar::bf16) {
      const std::string wide = fresh(File::b32);
      line("cvt.u32.u16 {}, {};", wide, arg(op, 0));
      line("shl.b32 {}, {}, 16;", wide, wide);
      return line("mov.b32 {}, {};", make(id), wide);
    }
    const std::string_view mode =
        is_integer(to) && !is_integer(from)                                          ? ".rzi"
        : !is_integer(to) && (is_integer(from) || size_bytes(to) < size_bytes(from)) ? ".rn"
                                                                                     : "";
    line("cvt{}.{}.{} {}, {};", mode, name(to), name(from), make(id), arg(op, 0));
  }
  void shared(Id id, const Op& op) {
    const std::string to = make(id);
    line("mov.u32 {}, $shared_memory;", to);
    const std::int64_t offset = k_.shared[static_cast<std::size_t>(op.attributes[0])].offset_bytes;
    if (offset > 0) line("add.s32 {}, {}, {};", to, to, offset);
  }
  void advance(Id id, const Op& op) {
    const Scalar by = type_of(op, 1).scalar;
    const int size = size_bytes(op.type.scalar);
    const std::string to = make(id);
    if (op.type.space == Space::global) {
      if (size_bytes(by) == 4)
        return line("mad.wide.{} {}, {}, {}, {};", typed(by), to, arg(op, 1), size, arg(op, 0));
      return line("mad.lo.{} {}, {}, {}, {};", typed(by), to, arg(op, 1), size, arg(op, 0));
    }
    std::string index = arg(op, 1);
    if (size_bytes(by) == 8) {
      index = fresh(File::b32);
      line("cvt.u32.u64 {}, {};", index, arg(op, 1));
    }
    line("mad.lo.s32 {}, {}, {}, {};", to, index, size, arg(op, 0));
  }

  // Tiles: a register an element; of 16-bit elements two share one.
  static bool packed(Scalar type) { return size_bytes(type) == 2; }
  void tile(Id id, const Op& op) {
    const bool pairs = packed(op.type.scalar);
    const int registers = pairs ? (op.type.count + 1) / 2 : op.type.count;
    names_[id].clear();
    for (int i = 0; i < registers; ++i)
      names_[id].push_back(fresh(pairs ? File::b32 : file_of(op.type.scalar)));
  }
  void get(Id id, const Op& op) {
    const auto index = static_cast<std::size_t>(op.attributes[0]);
    const std::vector<std::string>& registers = names_[op.args[0]];
    if (!packed(op.type.scalar))
      return line("mov.{} {}, {};", bits(op.type.scalar), make(id), registers[index]);
    std::string word = registers[index / 2];
    if (index % 2 != 0) {
      const std::string high = fresh(File::b32);
      line("shr.u32 {}, {}, 16;", high, word);
      word = high;
    }
    line("cvt.u16.u32 {}, {};", make(id), word);
  }
  void set(const Op& op) {
    const auto index = static_cast<std::size_t>(op.attributes[0]);
    const Scalar type = type_of(op, 0).scalar;
    const std::vector<std::string>& registers = names_[op.args[0]];
    if (!packed(type)) return line("mov.{} {}, {};", bits(type), registers[index], arg(op, 1));
    const std::string wide = fresh(File::b32);
    line("cvt.u32.u16 {}, {};", wide, arg(op, 1));
    line("bfi.b32 {}, {}, {}, {}, 16;", registers[index / 2], wide, registers[index / 2],
         index % 2 * 16);
  }
  void tile_access(const Op& op, bool load) {
    const Scalar type = type_of(op, 1).scalar;
    const std::int64_t shrink = packed(type) ? 2 : 1;
    const auto first = static_cast<std::size_t>(op.attributes[0] / shrink);
    const auto count = static_cast<std::size_t>(op.attributes[1] / shrink);
    std::string list;
    for (std::size_t i = first; i < first + count; ++i)
      list += (i == first ? "" : ", ") + names_[op.args[1]][i];
    const std::string vector = count == 1 ? "" : fmt::format(".v{}", count);
    if (count > 1) list = "{" + list + "}";
    const std::string_view word = packed(type) ? "b32" : typed(type);
    if (load) return line("ld.{}{}.{} {}, [{}];", space(op), vector, word, list, arg(op, 0));
    line("st.{}{}.{} [{}], {};", space(op), vector, word, arg(op, 0), list);
  }

  void copy_async(const Op& op) {
    const std::int64_t bytes = op.attributes[0];
    const std::string size = fresh(File::b32);
    line("selp.b32 {}, {}, 0, {};", size, bytes, arg(op, 2));
    // .cg leaves the L1 cache out, and takes 16 bytes alone.
    line("cp.async.{}.shared.global [{}], [{}], {}, {};", bytes == 16 ? "cg" : "ca", arg(op, 0),
         arg(op, 1), bytes, size);
  }
  /// "{%r4, %r5}": registers of a tile, from an element on; two elements of 16 bits share one.
  std::string list(Id tile, std::int64_t first, int count) {
    const std::int64_t shrink = packed(k_.op(tile).type.scalar) ? 2 : 1;
    std::string all;
    for (std::int64_t i = first / shrink; i < (first + count) / shrink; ++i)
      all += (all.empty() ? "" : ", ") + names_[tile][static_cast<std::size_t>(i)];
    return "{" + all + "}";
  }
  void load_matrix(const Op& op) {
    line("ldmatrix.sync.aligned.m8n8.x{}{}.shared.b16 {}, [{}];", op.attributes[1],
         op.attributes[2] != 0 ? ".trans" : "",
         list(op.args[1], op.attributes[0], static_cast<int>(2 * op.attributes[1])), arg(op, 0));
  }
  void mma(const Op& op) {
    const Scalar type = type_of(op, 1).scalar;
    const bool halves = packed(type);
    // tf32 operands are 32-bit registers without a type.
    const auto operand = [&](std::size_t i, int count) {
      if (halves) return list(op.args[i], op.attributes[i], count);
      std::string words;
      for (int j = 0; j < count; ++j) {
        const std::string word = fresh(File::b32);
        line("mov.b32 {}, {};", word,
             names_[op.args[i]][static_cast<std::size_t>(op.attributes[i] + j)]);
        words += (j == 0 ? "" : ", ") + word;
      }
      return "{" + words + "}";
    };
    const std::string a = operand(1, halves ? 8 : 4), b = operand(2, halves ? 4 : 2);
    const std::string d = list(op.args[0], op.attributes[0], 4);
    const std::string_view kind = halves ? name(type) : "tf32";
    line("mma.sync.aligned.m16n8k{}.row.col.f32.{}.{}.f32 {}, {}, {}, {};", halves ? 16 : 8, kind,
         kind, d, a, b, d);
  }

  void if_(const Op& op) {
    const bool has_else = !k_.regions[op.regions[1]].ops.empty();
    const std::string otherwise = new_label(), end = has_else ? new_label() : otherwise;
    line("@!{} bra {};", arg(op, 0), otherwise);
    body(op.regions[0]);
    if (has_else) {
      line("bra {};", end);
      label(otherwise);
      body(op.regions[1]);
    }
    label(end);
  }
  void for_(const Op& op) {
    const Id turn = k_.regions[op.regions[0]].ops.front();
    const Scalar type = k_.op(turn).type.scalar;
    const std::string i = make(turn), more = fresh(File::pred), begin = new_label(),
                      end = new_label();
    line("mov.{} {}, {};", bits(type), i, arg(op, 0));
    line("setp.ge.{} {}, {}, {};", typed(type), more, i, arg(op, 1));
    line("@{} bra {};", more, end);
    label(begin);
    body(op.regions[0]);
    line("add.{} {}, {}, {};", typed(type), i, i, arg(op, 2));
    line("setp.lt.{} {}, {}, {};", typed(type), more, i, arg(op, 1));
    line("@{} bra {};", more, begin);
    label(end);
  }
  void body(std::uint32_t index) {
    ++depth_;
    region(index);
    --depth_;
  }

  /// vprintf takes a format in global memory and values in local memory, floats as f64.
  void printed(const Op& op) {
    std::string format = k_.strings[static_cast<std::size_t>(op.attributes[0])];
    std::replace(format.begin(), format.end(), '%', ' ');
    int offset = 0;
    std::string stores;
    for (std::size_t i = 0; i < op.args.size(); ++i) {
      const Scalar type = type_of(op, i).scalar;
      const bool real = !is_integer(type) && type != Scalar::pred;
      format += real                    ? " %g"
                : size_bytes(type) == 8 ? (is_signed(type) ? " %lld" : " %llu")
                : type == Scalar::u32   ? " %u"
                                        : " %d";
      const std::string value = widened(op, i);
      if (real || size_bytes(type) == 8) offset = (offset + 7) / 8 * 8;
      line("st.local.{} [printed_values+{}], {};",
           real                    ? "f64"
           : size_bytes(type) == 8 ? "b64"
                                   : "b32",
           offset, value);
      offset += real || size_bytes(type) == 8 ? 8 : 4;
    }
    const std::string text = fmt::format("{}_text_{}", k_.name, texts_++);
    strings_ += fmt::format(".global .align 1 .b8 {}[{}] = {{{}}};\n", text, format.size() + 2,
                            escaped(format + "\n"));
    print_bytes_ = std::max({print_bytes_, offset, 8});
    const std::string where = fresh(File::b64), values = fresh(File::b64);
    line("mov.u64 {}, {};", where, text);
    line("cvta.global.u64 {}, {};", where, where);
    line("mov.u64 {}, printed_values;", values);
    line("cvta.local.u64 {}, {};", values, values);
    line("{{");
    line("  .param .b64 in0;");
    line("  st.param.b64 [in0], {};", where);
    line("  .param .b64 in1;");
    line("  st.param.b64 [in1], {};", values);
    line("  .param .b32 out;");
    line("  call.uni (out), vprintf, (in0, in1);");
    line("}}");
  }
  std::string widened(const Op& op, std::size_t i) {
    const Scalar type = type_of(op, i).scalar;
    switch (type) {
      case Scalar::pred: {
        const std::string word = fresh(File::b32);
        line("selp.b32 {}, 1, 0, {};", word, arg(op, i));
        return word;
      }
      case Scalar::f32: {
        const std::string wide = fresh(File::f64);
        line("cvt.f64.f32 {}, {};", wide, arg(op, i));
        return wide;
      }
      default:
        return arg(op, i);
    }
  }

  const ir::Kernel& k_;
  const Options options_;
  std::vector<std::vector<std::string>> names_;  // of each value: its register, a tile's registers
  int count_[6] = {};
  int depth_ = 1, labels_ = 0, texts_ = 0, print_bytes_ = 0;
  std::uint32_t where_ = ~0u;
  std::vector<std::string> files_;
  std::string out_, strings_;
};

}  // namespace

std::string print(const ir::Kernel& kernel, const Options& options) {
  return Printer(kernel, options).print();
}

}  // namespace lapidary::ptx
