#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lapidary/numeric.h"
#include "lapidary/result.h"

namespace lapidary {

// ---------------------------------------------------------------------------------------------------------
// Epilogue programs: what happens to the f32 accumulator on its way to D. Grammar and rules:
// docs/epilogues.md.

/// Which indices a value depends on. The bits are m = 1, n = 2.
enum class Axes : std::uint8_t { none = 0, m = 1, n = 2, mn = 3 };

constexpr Axes operator|(Axes a, Axes b) { return Axes(std::uint8_t(a) | std::uint8_t(b)); }
/// True when every axis of `part` is in `whole`.
constexpr bool within(Axes part, Axes whole) {
  return (std::uint8_t(part) & ~std::uint8_t(whole)) == 0;
}

/// One operation of an epilogue; the table is include/lapidary/epilogue_ops.inc.
enum class EpilogueOp : std::uint8_t {
#define LAPIDARY_EPILOGUE_OP(id, arity, text) id,
#include "lapidary/epilogue_ops.inc"
#undef LAPIDARY_EPILOGUE_OP
};

/// A node of the program's graph. Arguments are indices of earlier nodes, so walking nodes in order
/// evaluates.
struct EpilogueNode {
  EpilogueOp op = EpilogueOp::number;
  std::array<int, 3> args{-1, -1, -1};
  double number = 0;        ///< of a number; always an f32
  int symbol = -1;          ///< index into inputs (operand) or assignments (local)
  DType type = DType::f32;  ///< target of a cast
  Axes axes = Axes::none;   ///< the axes that the value depends on
  bool operator==(const EpilogueNode&) const = default;
};

/// A named operand that the program reads, in order of first appearance: bias[n], c[m,n], alpha.
struct EpilogueInput {
  std::string name{};
  Axes axes = Axes::none;
  bool operator==(const EpilogueInput&) const = default;
};

enum class Reduction : std::uint8_t { none, sum, max, min };

/// name[axes] = reduction(root) or root.
struct EpilogueAssignment {
  std::string name{};
  Axes axes = Axes::none;  ///< of the value: what is declared for an output
  Reduction reduction = Reduction::none;
  Axes reduced = Axes::none;  ///< the axes that the reduction removes
  int root = -1;              ///< node of the (reduced) expression
  bool output = false;        ///< d, an indexed name, or a reduction without axis
  bool operator==(const EpilogueAssignment&) const = default;
};

/// A checked epilogue program. Made by `parse_epilogue`; equal programs have equal canonical texts.
/// Every node is used once, so that the nodes of an assignment are a tree in post-order.
struct Epilogue {
  std::vector<EpilogueNode> nodes{};
  std::vector<EpilogueInput> inputs{};
  std::vector<EpilogueAssignment> assignments{};
  bool gated = false;  ///< uses gate and up: n counts both halves, D has n / 2 columns
  bool operator==(const Epilogue&) const = default;
};

/// Parses and checks a program. An error is `invalid_argument`; its message has the fault on the
/// first line and the program's line with a caret below. `reserve_scales`: scale_a and scale_b
/// belong to the scale mode.
Result<Epilogue> parse_epilogue(std::string_view text, bool reserve_scales = false);

/// Canonical text: single spaces, minimal parentheses, shortest round-trip literals. parse(text(e))
/// == e.
std::string text(const Epilogue& epilogue);

// ---------------------------------------------------------------------------------------------------------
// The product.

/// nt: A (m,k) row-major, B (n,k) row-major, D = A * B^T. The first letter is A's (n as written
/// (m,k), t stored (k,m)), the second B's (n stored (k,n), t stored (n,k)). D is row-major.
enum class GemmLayout : std::uint8_t { nt, nn, tn, tt };

/// none; tensor: one f32 each for A and B; row: scale_a f32 [m], scale_b f32 [n]; block: scale_a
/// one f32 per row and 128 of k, stored [ceil(k/128)][m rounded up to 4]; scale_b
/// [ceil(n/128)][ceil(k/128)] row-major.
enum class ScaleMode : std::uint8_t { none, tensor, row, block };

/// What a kernel may do beyond f32 accumulation, f32 intermediates and determinism. Part of the
/// problem: speed never chooses between numerics classes. docs/problems.md says what each allows.
struct Numerics {
  bool fast_fp8 = false, tf32 = false, rounded = false, f16_acc = false, nondeterministic = false;
  bool operator==(const Numerics&) const = default;
};

std::string_view name(GemmLayout layout);
std::string_view name(ScaleMode mode);

inline constexpr std::int64_t kDense = -1;  ///< a leading dimension or batch stride to be filled in

/// D = epilogue(A * B), one GEMM with everything that decides which kernel is best for it.
/// A value: described once, then only copied. `checked` fills in the defaults and refuses the
/// impossible.
struct GemmProblem {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  GemmLayout layout = GemmLayout::nt;
  DType a = DType::f32, b = DType::f32;
  std::optional<DType> c{}, d{};  ///< d: a's type, bf16 for fp8 inputs; c: d's type
  /// Types of other operands and outputs by name: bias d's type, the rest f32.
  std::map<std::string, DType> types{};
  /// Row pitches in elements of A, B, C, D as stored.
  std::int64_t lda = kDense, ldb = kDense, ldc = kDense, ldd = kDense;
  /// Batch strides in elements by operand name (a, b, c, d or any other); 0 broadcasts an input. By
  /// default matrices, outputs and scales have an entry each, other vectors and scalars one for
  /// all.
  std::map<std::string, std::int64_t> strides{};
  /// Bytes added to a 256-byte aligned base, by operand name; below 4096.
  std::map<std::string, std::int64_t> offsets{};
  ScaleMode scales = ScaleMode::none;
  Numerics numerics{};
  Epilogue epilogue{};                  ///< empty: d = acc
  std::vector<std::string> constant{};  ///< inputs that stay the same between runs, sorted
  std::vector<std::string> alias{};     ///< pairs that may share memory: "c=d", sorted
  std::int64_t workspace = 64 << 20;    ///< bytes
  std::optional<int> sms{};             ///< limit of SMs (of threads on a CPU); all when empty
  bool operator==(const GemmProblem&) const = default;
};

/// The problem with every default filled in (types, pitches, strides, epilogue), or
/// `invalid_argument` naming the key, its value and what would be right. `unsupported` never: what
/// can be said here can be computed.
Result<GemmProblem> checked(GemmProblem problem);

/// Canonical JSON text of a checked problem: the keys of docs/problems.md in a fixed order,
/// defaults left out. Equal problems have equal texts; this is what store keys hold.
std::string text(const GemmProblem& problem);

/// "m=16 n=6144 k=4096 bf16*bf16->bf16 nt: d = acc": for people.
std::string summary(const GemmProblem& problem);

/// A checked problem from its JSON keys (docs/problems.md); every unknown key is an error, and so
/// is a list or range of m, which suites alone have.
Result<GemmProblem> problem_from_json(std::string_view json);

/// Columns of D: n, or n / 2 for a gated program.
std::int64_t columns(const GemmProblem& problem);

/// Multiply-adds count twice: 2 * m * n * k * batch.
double flops(const GemmProblem& problem);

/// A buffer that a run of the problem reads or writes. Element (r, c) of batch entry i lies at
/// base + offset_bytes + size_bytes(type) * (i * batch_stride + r * pitch + c), base 256-byte
/// aligned.
struct OperandSpec {
  std::string name{};
  DType type = DType::f32;
  Axes axes = Axes::mn;  ///< of an epilogue operand or output; mn for a and b
  bool output = false;
  /// As stored: tn's A has k rows of m. Vectors are one row, scalars 1 x 1.
  std::int64_t rows = 0, cols = 0;
  std::int64_t pitch = 0;         ///< elements from row to row
  std::int64_t batch_stride = 0;  ///< elements from batch entry to batch entry; 0 when shared
  std::int64_t batch = 1;         ///< entries that exist: 1 when shared
  std::int64_t offset_bytes = 0;
  std::int64_t span_elems() const;  ///< elements from the first to past the last one touched
  std::int64_t bytes() const { return offset_bytes + span_elems() * size_bytes(type); }
  bool operator==(const OperandSpec&) const = default;
};

/// All operands of a checked problem, in the order in which kernels take them:
/// a, b, scale_a and scale_b (under a scale mode), the program's inputs, then d and the other
/// outputs in program order.
std::vector<OperandSpec> operands(const GemmProblem& problem);

/// A named problem of a suite; a line with several m has as many, under one name.
struct SuiteLine {
  std::string name{};
  GemmProblem problem{};
};
struct Suite {
  std::string name{}, about{};
  std::vector<SuiteLine> lines{};  ///< lists of m expanded, in file order
};

/// A suite from JSON text (docs/problems.md); all its problems are checked. `source` names the file
/// in errors: "suite x.json: gemms[3] (qkv): key 'n': ...".
Result<Suite> suite_from_json(std::string_view json, std::string_view source);

/// The values of an m: "16", "1,16,2048", "8:4096:8" (start:stop:step, stop included if hit) or a
/// mixture; at most 65536. Errors begin with the key.
Result<std::vector<std::int64_t>> extents_from_text(std::string_view key, std::string_view text);

}  // namespace lapidary
