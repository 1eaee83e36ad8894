#include "lapidary/problem.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include "problem/epilogue.h"
#include "problem/keys.h"
#include "support/result.h"
#include "support/text.h"

namespace lapidary {
namespace {

using problem::key_error;

constexpr std::int64_t kMaxExtent = std::int64_t(1) << 40;
constexpr std::int64_t kMaxBytes = std::int64_t(1) << 62;  // of one operand

/// a * b for non-negative numbers, or more than kMaxBytes when it is more.
std::int64_t bounded_product(std::int64_t a, std::int64_t b) {
  return a != 0 && b > kMaxBytes / a ? std::numeric_limits<std::int64_t>::max() : a * b;
}
std::int64_t bounded_sum(std::int64_t a, std::int64_t b) {
  return a > kMaxBytes - std::min(b, kMaxBytes) ? std::numeric_limits<std::int64_t>::max() : a + b;
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

constexpr std::string_view kMatrices[] = {"a", "b", "c", "d"};

/// The shapes of all operands of a problem with a program: names, types by default, axes, rows,
/// cols and dense pitches and batch strides. `operands` puts the problem's own values over them.
std::vector<OperandSpec> default_operands(const GemmProblem& p) {
  std::vector<OperandSpec> specs;
  const std::int64_t cols = columns(p);
  const DType d = p.d.value_or(size_bytes(p.a) == 1 ? DType::bf16 : p.a);
  const auto add = [&](OperandSpec spec) {
    if (spec.pitch == 0) spec.pitch = std::max<std::int64_t>(1, spec.cols);
    specs.push_back(std::move(spec));
    return &specs.back();
  };
  const auto dense_batch = [](OperandSpec* spec) {
    spec->batch_stride = bounded_product(spec->rows, spec->pitch);
  };

  const bool a_transposed = p.layout == GemmLayout::tn || p.layout == GemmLayout::tt;
  const bool b_transposed = p.layout == GemmLayout::nt || p.layout == GemmLayout::tt;
  dense_batch(add({.name = "a",
                   .type = p.a,
                   .rows = a_transposed ? p.k : p.m,
                   .cols = a_transposed ? p.m : p.k,
                   .pitch = std::max<std::int64_t>(0, p.lda)}));
  dense_batch(add({.name = "b",
                   .type = p.b,
                   .rows = b_transposed ? p.n : p.k,
                   .cols = b_transposed ? p.k : p.n,
                   .pitch = std::max<std::int64_t>(0, p.ldb)}));
  switch (p.scales) {
    case ScaleMode::none:
      break;
    case ScaleMode::tensor:
      add({.name = "scale_a", .axes = Axes::none, .rows = 1, .cols = 1});
      add({.name = "scale_b", .axes = Axes::none, .rows = 1, .cols = 1});
      break;
    case ScaleMode::row:
      dense_batch(add({.name = "scale_a", .axes = Axes::m, .rows = 1, .cols = p.m}));
      dense_batch(add({.name = "scale_b", .axes = Axes::n, .rows = 1, .cols = p.n}));
      break;
    case ScaleMode::block: {
      const std::int64_t blocks = ceil_div(p.k, 128);
      dense_batch(add({.name = "scale_a",
                       .rows = blocks,
                       .cols = p.m,
                       .pitch = std::max<std::int64_t>(4, ceil_div(p.m, 4) * 4)}));
      dense_batch(add({.name = "scale_b", .rows = ceil_div(p.n, 128), .cols = blocks}));
      break;
    }
  }
  const auto place = [&](OperandSpec spec) {
    spec.rows = within(Axes::m, spec.axes) && spec.axes == Axes::mn ? p.m : 1;
    spec.cols = spec.axes == Axes::none ? 1 : spec.axes == Axes::m ? p.m : cols;
    if (spec.name == "c") spec.pitch = std::max<std::int64_t>(0, p.ldc);
    if (spec.name == "d") spec.pitch = std::max<std::int64_t>(0, p.ldd);
    OperandSpec* made = add(std::move(spec));
    if (made->output || made->axes == Axes::mn) dense_batch(made);
  };
  for (const EpilogueInput& input : p.epilogue.inputs) {
    const bool like_d = input.name == "c" || input.name == "bias";
    place({.name = input.name, .type = like_d ? d : DType::f32, .axes = input.axes});
  }
  // d first, then the other outputs as the program writes them.
  place({.name = "d", .type = d, .axes = Axes::mn, .output = true});
  for (const EpilogueAssignment& made : p.epilogue.assignments) {
    if (made.output && made.name != "d")
      place({.name = made.name, .axes = made.axes, .output = true});
  }
  for (OperandSpec& spec : specs) spec.batch = spec.batch_stride == 0 ? 1 : p.batch;
  return specs;
}

/// The same with the problem's own types, strides and offsets.
std::vector<OperandSpec> placed_operands(const GemmProblem& p) {
  std::vector<OperandSpec> specs = default_operands(p);
  for (OperandSpec& spec : specs) {
    if (spec.name == "c" && p.c) spec.type = *p.c;
    if (const auto type = p.types.find(spec.name); type != p.types.end()) spec.type = type->second;
    if (const auto stride = p.strides.find(spec.name);
        stride != p.strides.end() && stride->second != kDense) {
      spec.batch_stride = stride->second;
      spec.batch = spec.batch_stride == 0 ? 1 : p.batch;
    }
    if (const auto offset = p.offsets.find(spec.name); offset != p.offsets.end())
      spec.offset_bytes = offset->second;
  }
  return specs;
}

std::vector<std::string_view> names_of(const std::vector<OperandSpec>& specs,
                                       bool inputs_only = false) {
  std::vector<std::string_view> names;
  for (const OperandSpec& spec : specs) {
    if (!inputs_only || !spec.output) names.push_back(spec.name);
  }
  return names;
}

const OperandSpec* find(const std::vector<OperandSpec>& specs, std::string_view name) {
  const auto found = std::ranges::find(specs, name, &OperandSpec::name);
  return found == specs.end() ? nullptr : &*found;
}

std::string joined(const std::vector<std::string_view>& words) {
  std::string text;
  for (const std::string_view word : words) text += (text.empty() ? "" : ", ") + std::string(word);
  return text;
}

/// "the problem has no operand 'bais'; did you mean 'bias'?"
std::string no_operand(std::string_view name, const std::vector<std::string_view>& known) {
  const std::string hint = did_you_mean(name, known);
  return fmt::format("the problem has no {}'{}'{}", "operand ", name,
                     hint.empty() ? "; it has " + joined(known) : hint);
}

Status check_extents(const GemmProblem& p) {
  const std::pair<std::string_view, std::int64_t> extents[] = {
      {"m", p.m}, {"n", p.n}, {"k", p.k}, {"batch", p.batch}};
  for (const auto& [key, value] : extents) {
    if (value < 0 || value > kMaxExtent)
      return key_error(key, "{} is no extent; it must be within 0 to 2^40", value);
  }
  if (p.epilogue.gated && p.n % 2 != 0) {
    return key_error(
        "n", "{} is odd, but a gated program halves the columns; n counts both halves, gate first",
        p.n);
  }
  if (p.workspace < 0 || p.workspace > kMaxBytes) {
    return key_error("workspace", "{} is no size in bytes; it must be within 0 to 2^62",
                     p.workspace);
  }
  if (p.sms && *p.sms < 1) return key_error("sms", "{} is too few; it must be at least 1", *p.sms);
  return {};
}

Status check_program(const GemmProblem& p) {
  const auto reserved = [&](const std::string& name) {
    return name == "a" || name == "b" ||
           (p.scales != ScaleMode::none && (name == "scale_a" || name == "scale_b"));
  };
  const auto refuse = [&](const std::string& name) {
    if (name == "a" || name == "b") {
      return key_error(
          "epilogue",
          "'{}' is the name of the matrix {}; call the operand or output something else", name,
          name == "a" ? "A" : "B");
    }
    return key_error("epilogue",
                     "'{}' belongs to the scale mode '{}', which has already applied it to acc; "
                     "call the operand "
                     "something else, or set scales to none",
                     name, lapidary::name(p.scales));
  };
  for (const EpilogueInput& input : p.epilogue.inputs) {
    if (reserved(input.name)) return refuse(input.name);
  }
  for (const EpilogueAssignment& made : p.epilogue.assignments) {
    if (made.output && reserved(made.name)) return refuse(made.name);
  }
  return {};
}

/// Types by name: those of a, b, c and d may be given in `types` too, but not differently.
Status settle_types(GemmProblem& p) {
  const std::vector<OperandSpec> specs = default_operands(p);
  const auto names = names_of(specs);
  for (const auto& [name, type] : p.types) {
    if (find(specs, name) == nullptr) return key_error("types", "{}", no_operand(name, names));
    const bool is_scale = p.scales != ScaleMode::none && (name == "scale_a" || name == "scale_b");
    if (is_scale && type != DType::f32) {
      return key_error("types", "'{}' is {}, but the scales of a scale mode are f32", name,
                       lapidary::name(type));
    }
  }
  const auto own = [&](const char* name, std::optional<DType>& mine) -> Status {
    const auto given = p.types.find(name);
    if (given == p.types.end()) return {};
    if (mine && *mine != given->second) {
      return key_error(name, "'{}', but types says '{}'; say it once", lapidary::name(*mine),
                       lapidary::name(given->second));
    }
    mine = given->second;
    p.types.erase(given);
    return {};
  };
  std::optional<DType> a = p.a, b = p.b;
  LAPIDARY_TRY_STATUS(own("a", a));
  LAPIDARY_TRY_STATUS(own("b", b));
  LAPIDARY_TRY_STATUS(own("c", p.c));
  LAPIDARY_TRY_STATUS(own("d", p.d));
  if (!p.d) p.d = size_bytes(p.a) == 1 ? DType::bf16 : p.a;
  const bool has_c = find(specs, "c") != nullptr;
  if (!has_c && p.c)
    return key_error("c", "'{}', but the program reads no operand c", lapidary::name(*p.c));
  if (has_c && !p.c) p.c = p.d;
  for (const OperandSpec& spec : placed_operands(p)) {
    const bool own_key = std::ranges::find(kMatrices, spec.name) != std::end(kMatrices);
    if (!own_key) p.types[spec.name] = spec.type;
  }
  if (p.scales != ScaleMode::none) {
    p.types.erase("scale_a");
    p.types.erase("scale_b");
  }
  return {};
}

Status settle_pitches(GemmProblem& p) {
  const std::vector<OperandSpec> specs = default_operands(p);
  const auto settle = [&](std::string_view key, std::string_view name,
                          std::int64_t& pitch) -> Status {
    const OperandSpec* spec = find(specs, name);
    if (spec == nullptr) {
      if (pitch == kDense) return {};
      return key_error(key, "{}, but the program reads no operand {}", pitch, name);
    }
    if (spec->axes != Axes::mn) {
      if (pitch == kDense) return {};
      return key_error(key, "{}, but {} has a single row", pitch, name);
    }
    const std::int64_t least = std::max<std::int64_t>(1, spec->cols);
    if (pitch == kDense) pitch = least;
    if (pitch < least) {
      return key_error(key,
                       "{} is less than the {} columns of {} as stored; it must be at least {}",
                       pitch, spec->cols, name, least);
    }
    if (pitch > kMaxExtent)
      return key_error(key, "{} is too large; it must be at most 2^40", pitch);
    return {};
  };
  LAPIDARY_TRY_STATUS(settle("lda", "a", p.lda));
  LAPIDARY_TRY_STATUS(settle("ldb", "b", p.ldb));
  LAPIDARY_TRY_STATUS(settle("ldc", "c", p.ldc));
  return settle("ldd", "d", p.ldd);
}

/// Elements of one batch entry, from the first to past the last.
std::int64_t entry_elems(const OperandSpec& spec) {
  if (spec.rows == 0 || spec.cols == 0) return 0;
  return bounded_sum(bounded_product(spec.rows - 1, spec.pitch), spec.cols);
}

Status settle_strides(GemmProblem& p) {
  const std::vector<OperandSpec> defaults = default_operands(p);
  for (const auto& [name, stride] : p.strides) {
    const std::string key = "stride_" + name;
    const OperandSpec* spec = find(defaults, name);
    if (spec == nullptr) return key_error(key, "{}", no_operand(name, names_of(defaults)));
    if (stride == kDense) continue;
    if (stride < 0)
      return key_error(
          key, "{} is negative; it must be 0 (one entry for all) or the elements between entries",
          stride);
    if (p.scales == ScaleMode::tensor && stride != 0 && (name == "scale_a" || name == "scale_b")) {
      return key_error(
          key, "{}, but the mode tensor has one scale for the whole batch; it must be 0", stride);
    }
    const std::int64_t least = entry_elems(*spec);
    if (spec->output && p.batch > 1 && stride < least) {
      return key_error(key, "{} lets batch entries of the output overlap; it must be at least {}",
                       stride, least);
    }
  }
  for (const OperandSpec& spec : defaults) {
    std::int64_t& stride = p.strides.try_emplace(spec.name, kDense).first->second;
    // With one entry a stride says nothing, and equal problems are to have equal texts.
    if (stride == kDense || p.batch <= 1) stride = spec.batch_stride;
  }
  for (auto it = p.offsets.begin(); it != p.offsets.end();) {
    const auto& [name, offset] = *it;
    const std::string key = "offset_" + name;
    const OperandSpec* spec = find(defaults, name);
    if (spec == nullptr) return key_error(key, "{}", no_operand(name, names_of(defaults)));
    const int size = size_bytes(find(placed_operands(p), name)->type);
    if (offset < 0 || offset >= 4096)
      return key_error(key, "{} bytes is out of range; it must be within 0 to 4095", offset);
    if (offset % size != 0) {
      return key_error(key, "{} bytes is no whole number of elements; it must be a multiple of {}",
                       offset, size);
    }
    it = offset == 0 ? p.offsets.erase(it) : std::next(it);
  }
  for (const OperandSpec& spec : placed_operands(p)) {
    std::int64_t elems = entry_elems(spec);
    if (elems > 0 && spec.batch > 1)
      elems = bounded_sum(elems, bounded_product(spec.batch - 1, spec.batch_stride));
    if (bounded_product(elems, size_bytes(spec.type)) > kMaxBytes - 4096) {
      return fail(ErrorCode::invalid_argument,
                  "operand '{}' spans more than 2^62 bytes ({} x {} x {} of {}); make the problem "
                  "smaller",
                  spec.name, spec.batch, spec.rows, spec.cols, name(spec.type));
    }
  }
  return {};
}

Status settle_lists(GemmProblem& p) {
  const std::vector<OperandSpec> specs = placed_operands(p);
  for (const std::string& name : p.constant) {
    const OperandSpec* spec = find(specs, name);
    if (spec == nullptr)
      return key_error("constant", "{}", no_operand(name, names_of(specs, true)));
    if (spec->output)
      return key_error("constant", "'{}' is an output; only inputs stay the same between runs",
                       name);
  }
  const auto sort_unique = [](std::vector<std::string>& list) {
    std::ranges::sort(list);
    list.erase(std::unique(list.begin(), list.end()), list.end());
  };
  sort_unique(p.constant);
  std::set<std::string, std::less<>> taken;
  for (std::string& pair : p.alias) {
    const auto sides = split(pair, '=');
    if (sides.size() != 2) return key_error("alias", "'{}' is no pair; write it as 'c=d'", pair);
    const OperandSpec* first = find(specs, trim(sides[0]));
    const OperandSpec* second = find(specs, trim(sides[1]));
    if (first == nullptr)
      return key_error("alias", "'{}': {}", pair, no_operand(trim(sides[0]), names_of(specs)));
    if (second == nullptr)
      return key_error("alias", "'{}': {}", pair, no_operand(trim(sides[1]), names_of(specs)));
    if (first->output) std::swap(first, second);
    if (first->output || !second->output) {
      return key_error("alias", "'{}' pairs two {}; a pair is an input and an output", pair,
                       first->output ? "outputs" : "inputs");
    }
    const bool program_input = std::ranges::find(p.epilogue.inputs, first->name,
                                                 &EpilogueInput::name) != p.epilogue.inputs.end();
    if (!program_input || first->axes != Axes::mn || second->axes != Axes::mn) {
      return key_error("alias",
                       "'{}': other elements of {} are still read when {} is written; only an "
                       "operand of the program and "
                       "an output that are both [m,n] may share memory",
                       pair, first->name, second->name);
    }
    if (first->type != second->type || first->pitch != second->pitch ||
        first->batch_stride != second->batch_stride ||
        first->offset_bytes != second->offset_bytes) {
      return key_error("alias",
                       "'{}': {} ({}, pitch {}, batch stride {}, offset {}) and {} ({}, pitch {}, "
                       "batch stride {}, "
                       "offset {}) differ; they must agree to share memory",
                       pair, first->name, name(first->type), first->pitch, first->batch_stride,
                       first->offset_bytes, second->name, name(second->type), second->pitch,
                       second->batch_stride, second->offset_bytes);
    }
    if (std::ranges::binary_search(p.constant, first->name)) {
      return key_error(
          "alias",
          "'{}': {} is constant and cannot be overwritten; take it out of one of the lists", pair,
          first->name);
    }
    pair = first->name + "=" + second->name;
  }
  sort_unique(p.alias);
  for (const std::string& pair : p.alias) {
    for (const std::string_view side : split(pair, '=')) {
      if (!taken.emplace(side).second) {
        return key_error(
            "alias",
            "'{}': {} already shares memory with another; an operand can stand in one pair", pair,
            side);
      }
    }
  }
  return {};
}

}  // namespace

namespace problem {
std::vector<std::string_view> numerics_names(const Numerics& numerics) {
  std::vector<std::string_view> names;
  for (const auto& [name, member] : kNumericsMembers) {
    if (numerics.*member) names.push_back(name);
  }
  return names;
}

std::string printable(std::string text) {
  constexpr std::size_t kMost = 500;
  if (text.size() > kMost) {
    std::size_t end = kMost;
    while (end > 0 && (text[end] & 0xc0) == 0x80) --end;  // not inside a UTF-8 sequence
    text = text.substr(0, end) + "...";
  }
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) c = '?';
  }
  return text;
}

Result<GemmProblem> check_keys(GemmProblem p) {
  if (p.epilogue.assignments.empty()) {
    LAPIDARY_TRY(p.epilogue, parse_epilogue("d = acc"));
  }
  LAPIDARY_TRY_STATUS(check_extents(p));
  LAPIDARY_TRY_STATUS(check_program(p));
  LAPIDARY_TRY_STATUS(settle_types(p));
  LAPIDARY_TRY_STATUS(settle_pitches(p));
  LAPIDARY_TRY_STATUS(settle_strides(p));
  LAPIDARY_TRY_STATUS(settle_lists(p));
  return p;
}
}  // namespace problem

std::string_view name(GemmLayout layout) {
  switch (layout) {
    case GemmLayout::nt:
      return "nt";
    case GemmLayout::nn:
      return "nn";
    case GemmLayout::tn:
      return "tn";
    case GemmLayout::tt:
      return "tt";
  }
  return "?";
}

std::string_view name(ScaleMode mode) {
  switch (mode) {
    case ScaleMode::none:
      return "none";
    case ScaleMode::tensor:
      return "tensor";
    case ScaleMode::row:
      return "row";
    case ScaleMode::block:
      return "block";
  }
  return "?";
}

Result<GemmProblem> checked(GemmProblem problem) {
  auto settled = problem::check_keys(std::move(problem));
  if (!settled) return fail(settled.error().code, "problem: {}", settled.error().message);
  return settled;
}

std::int64_t columns(const GemmProblem& problem) {
  return problem.epilogue.gated ? problem.n / 2 : problem.n;
}

double flops(const GemmProblem& problem) {
  return 2.0 * double(problem.m) * double(problem.n) * double(problem.k) * double(problem.batch);
}

std::int64_t OperandSpec::span_elems() const {
  if (rows <= 0 || cols <= 0 || batch <= 0) return 0;
  return (batch - 1) * batch_stride + (rows - 1) * pitch + cols;
}

std::vector<OperandSpec> operands(const GemmProblem& problem) { return placed_operands(problem); }

std::string text(const GemmProblem& p) {
  std::string out = fmt::format(R"({{"m":{},"n":{},"k":{})", p.m, p.n, p.k);
  const auto number = [&](std::string_view key, std::int64_t value) {
    out += fmt::format(R"(,"{}":{})", key, value);
  };
  const auto word = [&](std::string_view key, std::string_view value) {
    out += fmt::format(R"(,"{}":"{}")", key, value);
  };
  const auto list = [&](std::string_view key, const auto& words) {
    if (std::empty(words)) return;
    out += fmt::format(R"(,"{}":[)", key);
    bool first = true;
    for (const std::string_view w : words) {
      out += fmt::format(R"({}"{}")", first ? "" : ",", w);
      first = false;
    }
    out += ']';
  };
  // What the problem would be with nothing said: keys that say the same are left out.
  GemmProblem plain = p;
  plain.lda = plain.ldb = plain.ldc = plain.ldd = kDense;
  plain.d.reset();
  plain.c.reset();
  const std::vector<OperandSpec> dense = default_operands(plain);
  const std::vector<OperandSpec> untyped =
      default_operands(p);  // other types and strides follow d and the pitches
  const std::vector<OperandSpec> specs = placed_operands(p);

  if (p.batch != 1) number("batch", p.batch);
  if (p.layout != GemmLayout::nt) word("layout", name(p.layout));
  word("a", name(p.a));
  word("b", name(p.b));
  for (const std::string_view matrix : {"c", "d"}) {
    const OperandSpec* spec = find(specs, matrix);
    const OperandSpec* usual = matrix == "d" ? find(dense, "d") : find(untyped, "c");
    if (spec != nullptr && spec->type != usual->type) word(matrix, name(spec->type));
  }
  std::string types;
  for (const auto& [operand, type] : p.types) {
    const OperandSpec* usual = find(untyped, operand);
    if (usual == nullptr || usual->type != type)
      types += fmt::format(R"({}"{}":"{}")", types.empty() ? "" : ",", operand, name(type));
  }
  if (!types.empty()) out += R"(,"types":{)" + types + "}";
  for (const std::string_view matrix : kMatrices) {
    const OperandSpec* spec = find(specs, matrix);
    if (spec != nullptr && spec->pitch != find(dense, matrix)->pitch)
      number("ld" + std::string(matrix), spec->pitch);
  }
  for (const OperandSpec& spec : specs) {
    if (spec.batch_stride != find(untyped, spec.name)->batch_stride)
      number("stride_" + spec.name, spec.batch_stride);
  }
  for (const OperandSpec& spec : specs) {
    if (spec.offset_bytes != 0) number("offset_" + spec.name, spec.offset_bytes);
  }
  if (p.scales != ScaleMode::none) word("scales", name(p.scales));
  list("numerics", problem::numerics_names(p.numerics));
  if (const std::string program = text(p.epilogue); !program.empty() && program != "d = acc")
    word("epilogue", program);
  list("constant", p.constant);
  list("alias", p.alias);
  if (p.workspace != GemmProblem{}.workspace) number("workspace", p.workspace);
  if (p.sms) number("sms", *p.sms);
  return out + "}";
}

std::string summary(const GemmProblem& p) {
  std::string out = p.batch == 1 ? "" : fmt::format("batch={} ", p.batch);
  out += fmt::format("m={} n={} k={} {}*{}->{} {}", p.m, p.n, p.k, name(p.a), name(p.b),
                     name(find(placed_operands(p), "d")->type), name(p.layout));
  if (p.scales != ScaleMode::none) out += fmt::format(" scales={}", name(p.scales));
  if (const auto numerics = problem::numerics_names(p.numerics); !numerics.empty())
    out += " numerics=" + joined(numerics);
  const std::string program = text(p.epilogue);
  return out + ": " + (program.empty() ? "d = acc" : program);
}

}  // namespace lapidary
