#include "backends/cpu_epilogue.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu_common.h"
#include "numeric/numeric.h"
#include "problem/epilogue.h"

namespace lapidary::backends {
namespace {

constexpr std::int64_t kStrip =
    256;  // columns evaluated at a time: a dozen nodes stay in the first-level cache

// gelu(x) = x * Phi(x), Phi by erfc so that the left tail keeps its relative accuracy.
float gelu(float x) { return 0.5f * x * std::erfc(-x * 0.70710678f); }
float gelu_tanh_inner(float x) { return 0.79788456f * (x + 0.044715f * x * x * x); }
float sigmoid(float x) {
  const float e = std::exp(-std::fabs(x));
  return x >= 0 ? 1.0f / (1.0f + e) : e / (1.0f + e);
}
float dgelu(float x) {
  if (std::isinf(x)) return x > 0 ? 1.0f : 0.0f;
  return 0.5f * std::erfc(-x * 0.70710678f) + x * 0.39894228f * std::exp(-0.5f * x * x);
}
// Written by the sigmoid, 1 + tanh(u) = 2 * sigmoid(2u): no cancellation in the left tail.
float gelu_tanh(float x) {
  if (std::isinf(x)) return x > 0 ? x : 0.0f * -1.0f;
  return x * sigmoid(2.0f * gelu_tanh_inner(x));
}
float dgelu_tanh(float x) {
  if (std::isinf(x)) return x > 0 ? 1.0f : 0.0f;
  const float s = sigmoid(2.0f * gelu_tanh_inner(x));
  if (s == 0.0f || s == 1.0f) return s;
  return s + x * s * (1.0f - s) * 2.0f * 0.79788456f * (1.0f + 3.0f * 0.044715f * x * x);
}
float silu(float x) { return std::isinf(x) && x < 0 ? -0.0f : x * sigmoid(x); }
float dsilu(float x) {
  if (std::isinf(x)) return x > 0 ? 1.0f : 0.0f;
  const float s = sigmoid(x);
  return s * (1.0f + x * (1.0f - s));
}
float softplus(float x) { return std::max(x, 0.0f) + std::log1p(std::exp(-std::fabs(x))); }
// Ours pass NaN on, whichever side it is on.
float max_nan(float a, float b) { return std::isnan(a) || a > b ? a : b; }
float min_nan(float a, float b) { return std::isnan(a) || a < b ? a : b; }
float relu(float x) { return x < 0 ? 0.0f : x; }

template <class F>
void map(const float* x, std::int64_t count, float* y, F f) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = f(x[i]);
}
template <class F>
void zip(const float* a, const float* b, std::int64_t count, float* y, F f) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = f(a[i], b[i]);
}

void cast(DType type, const float* x, std::int64_t count, float* y) {
  for (std::int64_t i = 0; i < count; ++i) {
    y[i] = numeric::to_f32(type, numeric::from_f32(type, x[i], numeric::store_overflow(type)));
  }
}

/// y = op(a, b, c) over a strip. Leaves are not handled here.
void apply(const EpilogueNode& node, const float* a, const float* b, const float* c,
           std::int64_t count, float* y) {
  using Op = EpilogueOp;
  switch (node.op) {
    case Op::number:
    case Op::operand:
    case Op::acc:
    case Op::gate:
    case Op::up:
      return;
    case Op::local:
      std::copy_n(a, count, y);
      return;
    case Op::add:
      zip(a, b, count, y, [](float p, float q) { return p + q; });
      return;
    case Op::sub:
      zip(a, b, count, y, [](float p, float q) { return p - q; });
      return;
    case Op::mul:
      zip(a, b, count, y, [](float p, float q) { return p * q; });
      return;
    case Op::div:
      zip(a, b, count, y, [](float p, float q) { return p / q; });
      return;
    case Op::lt:
      zip(a, b, count, y, [](float p, float q) { return p < q ? 1.0f : 0.0f; });
      return;
    case Op::le:
      zip(a, b, count, y, [](float p, float q) { return p <= q ? 1.0f : 0.0f; });
      return;
    case Op::gt:
      zip(a, b, count, y, [](float p, float q) { return p > q ? 1.0f : 0.0f; });
      return;
    case Op::ge:
      zip(a, b, count, y, [](float p, float q) { return p >= q ? 1.0f : 0.0f; });
      return;
    case Op::eq:
      zip(a, b, count, y, [](float p, float q) { return p == q ? 1.0f : 0.0f; });
      return;
    case Op::ne:
      zip(a, b, count, y, [](float p, float q) { return p != q ? 1.0f : 0.0f; });
      return;
    case Op::neg:
      map(a, count, y, [](float x) { return -x; });
      return;
    case Op::abs:
      map(a, count, y, [](float x) { return std::fabs(x); });
      return;
    case Op::exp:
      map(a, count, y, [](float x) { return std::exp(x); });
      return;
    case Op::log:
      map(a, count, y, [](float x) { return std::log(x); });
      return;
    case Op::sqrt:
      map(a, count, y, [](float x) { return std::sqrt(x); });
      return;
    case Op::rsqrt:
      map(a, count, y, [](float x) { return 1.0f / std::sqrt(x); });
      return;
    case Op::tanh:
      map(a, count, y, [](float x) { return std::tanh(x); });
      return;
    case Op::erf:
      map(a, count, y, [](float x) { return std::erf(x); });
      return;
    case Op::sigmoid:
      map(a, count, y, sigmoid);
      return;
    case Op::relu:
      map(a, count, y, relu);
      return;
    case Op::gelu:
      map(a, count, y, [](float x) { return std::isinf(x) && x < 0 ? -0.0f : gelu(x); });
      return;
    case Op::gelu_tanh:
      map(a, count, y, gelu_tanh);
      return;
    case Op::silu:
      map(a, count, y, silu);
      return;
    case Op::softplus:
      map(a, count, y, softplus);
      return;
    case Op::drelu:
      map(a, count, y, [](float x) { return x > 0 ? 1.0f : std::isnan(x) ? x : 0.0f; });
      return;
    case Op::dgelu:
      map(a, count, y, dgelu);
      return;
    case Op::dgelu_tanh:
      map(a, count, y, dgelu_tanh);
      return;
    case Op::dsilu:
      map(a, count, y, dsilu);
      return;
    case Op::min:
      zip(a, b, count, y, min_nan);
      return;
    case Op::max:
      zip(a, b, count, y, max_nan);
      return;
    case Op::leaky_relu:
      zip(a, b, count, y, [](float x, float slope) { return x < 0 ? x * slope : x; });
      return;
    case Op::clamp:
      for (std::int64_t i = 0; i < count; ++i) y[i] = min_nan(max_nan(a[i], b[i]), c[i]);
      return;
    case Op::select:
      for (std::int64_t i = 0; i < count; ++i) y[i] = a[i] != 0.0f ? b[i] : c[i];
      return;
    case Op::cast:
      cast(node.type, a, count, y);
      return;
  }
}

float identity(Reduction reduction) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  return reduction == Reduction::max ? -kInfinity : reduction == Reduction::min ? kInfinity : 0.0f;
}

float combine(Reduction reduction, float a, float b) {
  return reduction == Reduction::sum   ? a + b
         : reduction == Reduction::max ? max_nan(a, b)
                                       : min_nan(a, b);
}

std::shared_ptr<const CpuEpilogue::Program> ready(Epilogue epilogue) {
  const std::vector<bool> live = problem::live_nodes(epilogue);
  CpuEpilogue::Program program{.epilogue = std::move(epilogue), .order = {}};
  for (std::size_t i = 0; i < live.size(); ++i) {
    if (live[i]) program.order.push_back(static_cast<int>(i));
  }
  return std::make_shared<const CpuEpilogue::Program>(std::move(program));
}

/// An operand's row m from column n on, widened to f32: count values, or one value spread.
void read_operand(const OperandSpec& spec, const char* base, Axes axes, std::int64_t m,
                  std::int64_t n, std::int64_t count, float* y) {
  const std::int64_t size = size_bytes(spec.type);
  switch (axes) {
    case Axes::mn:
      numeric::widen(spec.type, base + (m * spec.pitch + n) * size, count, y);
      return;
    case Axes::n:
      numeric::widen(spec.type, base + n * size, count, y);
      return;
    case Axes::m:
      std::fill_n(y, count, numeric::load(spec.type, base, m));
      return;
    case Axes::none:
      std::fill_n(y, count, numeric::load(spec.type, base, 0));
      return;
  }
}

}  // namespace

CpuEpilogue::CpuEpilogue(const GemmProblem& problem, std::int64_t tile_rows,
                         std::int64_t tile_columns, bool rounded)
    : problem_(problem),
      specs_(operands(problem)),
      program_(ready(problem.epilogue)),
      rounded_(rounded),
      rows_(problem.m),
      columns_(columns(problem)),
      tile_rows_(std::max<std::int64_t>(1, tile_rows)),
      tile_columns_(std::max<std::int64_t>(1, tile_columns)),
      row_tiles_((rows_ + tile_rows_ - 1) / tile_rows_),
      column_tiles_((columns_ + tile_columns_ - 1) / tile_columns_) {
  const auto index_of = [&](std::string_view name, bool output) {
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      if (specs_[i].name == name && specs_[i].output == output) return static_cast<int>(i);
    }
    return -1;
  };
  for (const EpilogueInput& input : problem.epilogue.inputs) {
    input_operand_.push_back(index_of(input.name, false));
    if (input.axes != Axes::none) continue;
    has_scalars_ = true;
    if (specs_[static_cast<std::size_t>(input_operand_.back())].batch_stride != 0)
      scalars_vary_ = true;
  }
  for (std::size_t i = 0; i < problem.epilogue.assignments.size(); ++i) {
    const EpilogueAssignment& a = problem.epilogue.assignments[i];
    const int operand = a.output ? index_of(a.name, true) : -1;
    assignment_operand_.push_back(operand);
    if (!a.output || a.reduction == Reduction::none) continue;
    slots_.push_back({static_cast<int>(i), operand, partial_bytes_ / 4});
    const bool m_left = within(Axes::m, a.axes), n_left = within(Axes::n, a.axes);
    partial_bytes_ =
        std::min(kManyBytes, partial_bytes_ + bounded_product({4, m_left ? rows_ : row_tiles_,
                                                               n_left ? columns_ : column_tiles_}));
  }
  if (problem.scales == ScaleMode::tensor || problem.scales == ScaleMode::row) {
    scale_a_ = index_of("scale_a", false);
    scale_b_ = index_of("scale_b", false);
  }
}

std::int64_t CpuEpilogue::scratch_floats() const {
  return static_cast<std::int64_t>(problem_.epilogue.nodes.size()) * kStrip;
}

CpuEpilogue::Call CpuEpilogue::begin(std::span<void* const> operands, std::int64_t entry,
                                     void* partials) const {
  Call call{.program = program_,
            .operands = operands,
            .entry = entry,
            .partials = static_cast<float*>(partials)};
  if (has_scalars_) {
    call.program = ready(problem::drop_zero_terms(problem_.epilogue, [&](int input) {
      const auto operand =
          static_cast<std::size_t>(input_operand_[static_cast<std::size_t>(input)]);
      return static_cast<double>(numeric::load(specs_[operand].type, at(call, operand), 0));
    }));
  }
  return call;
}

void CpuEpilogue::tile(const Call& call, std::int64_t tile_m, std::int64_t tile_n, const float* acc,
                       const float* up, std::int64_t pitch, float* values) const {
  const Epilogue& program = call.program->epilogue;
  const std::int64_t m0 = tile_m * tile_rows_, m1 = std::min(rows_, m0 + tile_rows_);
  const std::int64_t n0 = tile_n * tile_columns_, n1 = std::min(columns_, n0 + tile_columns_);
  const std::int64_t row_scale = problem_.scales == ScaleMode::row ? 1 : 0;

  const float *sa = nullptr, *sb = nullptr;
  if (scale_a_ >= 0) {
    sa = reinterpret_cast<const float*>(at(call, static_cast<std::size_t>(scale_a_)));
    sb = reinterpret_cast<const float*>(at(call, static_cast<std::size_t>(scale_b_)));
  }

  for (const Slot& slot : slots_) {
    const EpilogueAssignment& a = program.assignments[static_cast<std::size_t>(slot.assignment)];
    float* out = call.partials + slot.offset;
    const float zero = identity(a.reduction);
    if (a.axes == Axes::m) {
      for (std::int64_t m = m0; m < m1; ++m) out[tile_n * rows_ + m] = zero;
    } else if (a.axes == Axes::n) {
      std::fill(out + tile_m * columns_ + n0, out + tile_m * columns_ + n1, zero);
    } else {
      out[tile_m * column_tiles_ + tile_n] = zero;
    }
  }

  for (std::int64_t n = n0; n < n1; n += kStrip) {
    const std::int64_t count = std::min(kStrip, n1 - n);
    for (std::int64_t m = m0; m < m1; ++m) {
      const auto scaled = [&](const float* from, std::int64_t column, float* y) {
        if (scale_a_ < 0) {
          std::copy_n(from, count, y);
        } else {
          const float row = sa[m * row_scale];
          for (std::int64_t i = 0; i < count; ++i)
            y[i] = from[i] * row * sb[(column + i) * row_scale];
        }
        if (rounded_) cast(*problem_.d, y, count, y);
      };
      for (const int index : call.program->order) {
        const EpilogueNode& node = program.nodes[static_cast<std::size_t>(index)];
        float* y = values + index * kStrip;
        const auto arg = [&](int i) {
          return values + std::max(0, node.args[static_cast<std::size_t>(i)]) * kStrip;
        };
        switch (node.op) {
          case EpilogueOp::number:
            std::fill_n(y, count, static_cast<float>(node.number));
            break;
          case EpilogueOp::operand: {
            const auto operand =
                static_cast<std::size_t>(input_operand_[static_cast<std::size_t>(node.symbol)]);
            read_operand(specs_[operand], at(call, operand),
                         program.inputs[static_cast<std::size_t>(node.symbol)].axes, m, n, count,
                         y);
            break;
          }
          case EpilogueOp::acc:
          case EpilogueOp::gate:
            scaled(acc + (m - m0) * pitch + (n - n0), n, y);
            break;
          case EpilogueOp::up:
            scaled(up + (m - m0) * pitch + (n - n0), columns_ + n, y);
            break;
          default:
            apply(node, arg(0), arg(1), arg(2), count, y);
        }
      }
      for (std::size_t i = 0; i < program.assignments.size(); ++i) {
        const EpilogueAssignment& a = program.assignments[i];
        if (!a.output || a.reduction != Reduction::none) continue;
        const auto operand = static_cast<std::size_t>(assignment_operand_[i]);
        const OperandSpec& spec = specs_[operand];
        const float* y = values + a.root * kStrip;
        char* base = at(call, operand);
        const std::int64_t size = size_bytes(spec.type);
        if (a.axes == Axes::mn) {
          numeric::narrow(spec.type, y, count, base + (m * spec.pitch + n) * size);
        } else if (a.axes == Axes::n) {  // the same for every row: the first tile row writes it
          if (m == 0) numeric::narrow(spec.type, y, count, base + n * size);
        } else if (n == 0) {
          if (a.axes == Axes::m || m == 0)
            numeric::store(spec.type, base, a.axes == Axes::m ? m : 0, y[0]);
        }
      }
      for (const Slot& slot : slots_) {
        const EpilogueAssignment& a =
            program.assignments[static_cast<std::size_t>(slot.assignment)];
        const float* y = values + a.root * kStrip;
        float* out = call.partials + slot.offset;
        if (a.axes == Axes::n) {
          float* line = out + tile_m * columns_ + n;
          for (std::int64_t i = 0; i < count; ++i) line[i] = combine(a.reduction, line[i], y[i]);
        } else {
          float& cell =
              a.axes == Axes::m ? out[tile_n * rows_ + m] : out[tile_m * column_tiles_ + tile_n];
          float strip = identity(a.reduction);
          for (std::int64_t i = 0; i < count; ++i) strip = combine(a.reduction, strip, y[i]);
          cell = combine(a.reduction, cell, strip);
        }
      }
    }
  }
}

void CpuEpilogue::finish(const Call& call) const {
  for (const Slot& slot : slots_) {
    const EpilogueAssignment& a =
        call.program->epilogue.assignments[static_cast<std::size_t>(slot.assignment)];
    const OperandSpec& spec = specs_[static_cast<std::size_t>(slot.operand)];
    char* base = at(call, static_cast<std::size_t>(slot.operand));
    const float* in = call.partials + slot.offset;
    const std::int64_t results = a.axes == Axes::m ? rows_ : a.axes == Axes::n ? columns_ : 1;
    const std::int64_t parts = a.axes == Axes::m   ? column_tiles_
                               : a.axes == Axes::n ? row_tiles_
                                                   : row_tiles_ * column_tiles_;
    for (std::int64_t i = 0; i < results; ++i) {
      float total = identity(a.reduction);
      for (std::int64_t p = 0; p < parts; ++p)
        total = combine(a.reduction, total, in[p * results + i]);
      numeric::store(spec.type, base, i, total);
    }
  }
}

}  // namespace lapidary::backends
