#include "worker/testing_planted.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include "numeric/numeric.h"
#include "problem/epilogue.h"
#include "support/env.h"
#include "support/hash.h"
#include "support/parallel.h"
#include "support/text.h"

namespace lapidary::worker {
namespace {

using backends::Arguments;
using backends::Executable;

/// What the plain kernel does wrong inside.
struct Faults {
  bool bf16_sums = false;  // partial sums in bf16
  bool drops_last_k = false;
  bool skips_zeros = false;  // of A: loses 0 * NaN and 0 * infinity
  bool swaps_scales = false;
  bool next_scale = false;  // of the row below, of the block after
  bool truncates = false;   // instead of rounding to nearest
  bool nan_to_zero = false;
  bool reads_zero_terms = false;  // 0 * c
  bool adds_to_d = false;         // D += instead of D =
  bool skips_zero_results = false;
  bool wrong_tail_row = false;  // the last row from the row of A before it
  bool swaps_gate = false;
  bool first_entry_only = false;  // all batch entries read the first B
  bool sum_misses_column = false;
  bool clears_d_first = false;  // before it reads an operand in the same memory
  bool flickers = false;        // one unit in the last place, every other call
};

float bf16(float x) {
  return numeric::to_f32(DType::bf16,
                         numeric::from_f32(DType::bf16, x, numeric::Overflow::infinity));
}

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

float function(EpilogueOp op, float x, float y, float z, DType type) {
  constexpr float kRoot = 0.7978845608f, kCube = 0.044715f;
  switch (op) {
    case EpilogueOp::local:
      return x;
    case EpilogueOp::add:
      return x + y;
    case EpilogueOp::sub:
      return x - y;
    case EpilogueOp::mul:
      return x * y;
    case EpilogueOp::div:
      return x / y;
    case EpilogueOp::lt:
      return x < y;
    case EpilogueOp::le:
      return x <= y;
    case EpilogueOp::gt:
      return x > y;
    case EpilogueOp::ge:
      return x >= y;
    case EpilogueOp::eq:
      return x == y;
    case EpilogueOp::ne:
      return x != y;
    case EpilogueOp::neg:
      return -x;
    case EpilogueOp::abs:
      return std::fabs(x);
    case EpilogueOp::exp:
      return std::exp(x);
    case EpilogueOp::log:
      return std::log(x);
    case EpilogueOp::sqrt:
      return std::sqrt(x);
    case EpilogueOp::rsqrt:
      return 1 / std::sqrt(x);
    case EpilogueOp::tanh:
      return std::tanh(x);
    case EpilogueOp::erf:
      return std::erf(x);
    case EpilogueOp::sigmoid:
      return sigmoid(x);
    case EpilogueOp::relu:
      return x < 0 ? 0 : x;
    case EpilogueOp::gelu:
      return 0.5f * x * std::erfc(-0.7071067812f * x);
    case EpilogueOp::gelu_tanh:
      return x * sigmoid(2 * kRoot * (x + kCube * x * x * x));
    case EpilogueOp::silu:
      return x * sigmoid(x);
    case EpilogueOp::softplus:
      return std::isnan(x) ? x : std::fmax(x, 0.0f) + std::log1p(std::exp(-std::fabs(x)));
    case EpilogueOp::drelu:
      return x > 0;
    case EpilogueOp::dgelu:
      return 0.5f * std::erfc(-0.7071067812f * x) + x * 0.3989422804f * std::exp(-0.5f * x * x);
    case EpilogueOp::dgelu_tanh: {
      const float v = 2 * kRoot * (x + kCube * x * x * x);
      return sigmoid(v) * (1 + x * sigmoid(-v) * 2 * kRoot * (1 + 3 * kCube * x * x));
    }
    case EpilogueOp::dsilu:
      return sigmoid(x) * (1 + x * sigmoid(-x));
    case EpilogueOp::min:
      return std::isnan(x) || x < y ? x : y;
    case EpilogueOp::max:
      return std::isnan(x) || x > y ? x : y;
    case EpilogueOp::leaky_relu:
      return x >= 0 ? x : x * y;
    case EpilogueOp::clamp:
      return x < y ? y : x > z ? z : x;
    case EpilogueOp::select:
      return x != 0 ? y : z;
    case EpilogueOp::cast:
      return numeric::to_f32(type, numeric::from_f32(type, x, numeric::store_overflow(type)));
    default:
      return x;
  }
}

/// The plain kernel, right unless told otherwise.
class Plain : public Executable {
 public:
  explicit Plain(const GemmProblem& problem, Faults faults = {})
      : problem_(problem), specs_(operands(problem)), faults_(faults), width_(columns(problem)) {
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      if (specs_[i].output) outputs_.push_back(i);
    }
    first_input_ = problem.scales == ScaleMode::none ? 2 : 4;
    for (const EpilogueAssignment& made : problem.epilogue.assignments) {
      over_m_ = over_m_ || (made.reduction != Reduction::none && within(Axes::m, made.reduced));
    }
  }

  Status run(const Arguments& arguments) const override {
    const bool odd = calls_.fetch_add(1) % 2 == 1;
    if (faults_.clears_d_first) clear_d(arguments);
    for (std::int64_t entry = 0; entry < problem_.batch; ++entry) one_entry(arguments, entry, odd);
    return {};
  }

  const std::vector<OperandSpec>& specs() const { return specs_; }
  const OperandSpec& d() const { return specs_[outputs_[0]]; }
  void* d_pointer(const Arguments& arguments) const { return arguments.operands[outputs_[0]]; }

 private:
  std::int64_t start(const OperandSpec& spec, std::int64_t entry) const {
    return spec.batch > 1 ? entry * spec.batch_stride : 0;
  }
  float load(const Arguments& arguments, std::size_t operand, std::int64_t entry, std::int64_t row,
             std::int64_t col) const {
    const OperandSpec& spec = specs_[operand];
    return numeric::load(spec.type, arguments.operands[operand],
                         start(spec, entry) + row * spec.pitch + col);
  }

  void clear_d(const Arguments& arguments) const {
    for (std::int64_t entry = 0; entry < problem_.batch; ++entry) {
      for (std::int64_t i = 0; i < problem_.m; ++i) {
        for (std::int64_t j = 0; j < width_; ++j)
          numeric::store(d().type, d_pointer(arguments), start(d(), entry) + i * d().pitch + j, 0);
      }
    }
  }

  /// A row, or B as (k, n), in f32.
  void widen_b(const Arguments& arguments, std::int64_t entry, std::vector<float>& b) const {
    const OperandSpec& spec = specs_[1];
    const bool as_nk = problem_.layout == GemmLayout::nt || problem_.layout == GemmLayout::tt;
    const std::int64_t at = start(spec, faults_.first_entry_only ? 0 : entry);
    const auto* base = static_cast<const std::byte*>(arguments.operands[1]);
    b.resize(std::size_t(problem_.n * problem_.k));
    shared_pool().each(spec.rows, 16, [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> wide(static_cast<std::size_t>(spec.cols));
      for (std::int64_t row = begin; row < end; ++row) {
        numeric::widen(spec.type, base + (at + row * spec.pitch) * size_bytes(spec.type), spec.cols,
                       wide.data());
        for (std::int64_t col = 0; col < spec.cols; ++col) {
          const std::int64_t j = as_nk ? row : col, k = as_nk ? col : row;
          b[std::size_t(k * problem_.n + j)] = wide[std::size_t(col)];
        }
      }
    });
  }

  float scale_a(const Arguments& arguments, std::int64_t entry, std::int64_t i,
                std::int64_t block) const {
    switch (problem_.scales) {
      case ScaleMode::none:
        return 1;
      case ScaleMode::tensor:
        return load(arguments, 2, entry, 0, 0);
      case ScaleMode::row:
        if (faults_.swaps_scales) return load(arguments, 3, entry, 0, i % problem_.n);
        return load(arguments, 2, entry, 0, faults_.next_scale ? (i + 1) % problem_.m : i);
      case ScaleMode::block:
        if (faults_.swaps_scales)
          return load(arguments, 3, entry, (i / 128) % specs_[3].rows, block);
        return load(arguments, 2, entry, block, faults_.next_scale ? (i + 1) % problem_.m : i);
    }
    return 1;
  }
  float scale_b(const Arguments& arguments, std::int64_t entry, std::int64_t j,
                std::int64_t block) const {
    switch (problem_.scales) {
      case ScaleMode::none:
        return 1;
      case ScaleMode::tensor:
        return load(arguments, 3, entry, 0, 0);
      case ScaleMode::row:
        return faults_.swaps_scales ? load(arguments, 2, entry, 0, j % problem_.m)
                                    : load(arguments, 3, entry, 0, j);
      case ScaleMode::block:
        return faults_.swaps_scales ? load(arguments, 2, entry, block, j % problem_.m)
                                    : load(arguments, 3, entry, j / 128, block);
    }
    return 1;
  }

  void product_row(const Arguments& arguments, std::int64_t entry, std::int64_t row,
                   const std::vector<float>& b, std::vector<float>& acc,
                   std::vector<float>& part) const {
    const std::int64_t n = problem_.n;
    const bool a_transposed =
        problem_.layout == GemmLayout::tn || problem_.layout == GemmLayout::tt;
    const std::int64_t from_row = faults_.wrong_tail_row && row == problem_.m - 1 ? row - 1 : row;
    const std::int64_t block =
        problem_.scales == ScaleMode::block ? 128 : std::max<std::int64_t>(1, problem_.k);
    std::ranges::fill(acc, 0.0f);
    for (std::int64_t k0 = 0; k0 < problem_.k; k0 += block) {
      std::ranges::fill(part, 0.0f);
      for (std::int64_t k = k0; k < std::min(problem_.k, k0 + block); ++k) {
        if (faults_.drops_last_k && k == problem_.k - 1) break;
        const float a = a_transposed ? load(arguments, 0, entry, k, from_row)
                                     : load(arguments, 0, entry, from_row, k);
        if (faults_.skips_zeros && a == 0) continue;
        const float* line = b.data() + k * n;
        for (std::int64_t j = 0; j < n; ++j) part[std::size_t(j)] += a * line[j];
        if (faults_.bf16_sums) std::ranges::transform(part, part.begin(), bf16);
      }
      const float sa = scale_a(arguments, entry, row, k0 / 128);
      for (std::int64_t j = 0; j < n; ++j)
        acc[std::size_t(j)] += part[std::size_t(j)] * (sa * scale_b(arguments, entry, j, k0 / 128));
    }
  }

  void one_entry(const Arguments& arguments, std::int64_t entry, bool odd) const {
    const Epilogue program =
        faults_.reads_zero_terms
            ? problem_.epilogue
            : problem::drop_zero_terms(problem_.epilogue, [&](int input) {
                return double(load(arguments, first_input_ + std::size_t(input), entry, 0, 0));
              });
    const std::vector<bool> read = problem::reads(program);
    std::vector<float> b;
    widen_b(arguments, entry, b);
    std::vector<std::vector<float>> lines;  // of reductions and other outputs that are not [m,n]
    for (const EpilogueAssignment& made : program.assignments) {
      const float identity = made.reduction == Reduction::max   ? -HUGE_VALF
                             : made.reduction == Reduction::min ? HUGE_VALF
                                                                : 0;
      lines.emplace_back(std::size_t(made.axes == Axes::m   ? problem_.m
                                     : made.axes == Axes::n ? width_
                                                            : 1),
                         identity);
    }
    const auto rows = [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> acc(static_cast<std::size_t>(problem_.n)), part(acc.size());
      std::vector<std::vector<float>> values(program.nodes.size(),
                                             std::vector<float>(std::size_t(width_)));
      for (std::int64_t i = begin; i < end; ++i) {
        product_row(arguments, entry, i, b, acc, part);
        if (faults_.flickers && odd) {
          for (float& x : acc) x = std::isfinite(x) && x != std::floor(x) ? x * 1.0000001f : x;
        }
        evaluate(program, read, arguments, entry, i, acc, values);
        write(program, arguments, entry, i, values, lines);
      }
    };
    if (over_m_) {
      rows(0, problem_.m);
    } else {
      shared_pool().each(problem_.m, 4, rows);
    }
    std::size_t output = 1;
    for (std::size_t a = 0; a < program.assignments.size(); ++a) {
      const EpilogueAssignment& made = program.assignments[a];
      if (!made.output || made.name == "d") continue;
      const std::size_t operand = outputs_[output++];
      if (made.axes == Axes::mn) continue;
      const bool says_nothing =
          made.reduction == Reduction::none && (problem_.m == 0 || width_ == 0);
      for (std::size_t i = 0; i < lines[a].size() && !says_nothing; ++i) {
        numeric::store(specs_[operand].type, arguments.operands[operand],
                       start(specs_[operand], entry) + std::int64_t(i), lines[a][i]);
      }
    }
  }

  void evaluate(const Epilogue& program, const std::vector<bool>& read, const Arguments& arguments,
                std::int64_t entry, std::int64_t i, const std::vector<float>& acc,
                std::vector<std::vector<float>>& values) const {
    for (std::size_t v = 0; v < values.size(); ++v) {
      const EpilogueNode& node = program.nodes[v];
      for (std::int64_t j = 0; j < width_; ++j) {
        float& out = values[v][std::size_t(j)];
        const std::int64_t other = (problem_.epilogue.gated ? width_ : 0) + j;
        const auto argument = [&](std::size_t a) {
          return node.args[a] < 0 ? 0.0f : values[std::size_t(node.args[a])][std::size_t(j)];
        };
        switch (node.op) {
          case EpilogueOp::number:
            out = float(node.number);
            break;
          case EpilogueOp::operand: {
            const auto input = std::size_t(node.symbol);
            const Axes axes = program.inputs[input].axes;
            if (!read[input]) break;
            out = load(arguments, first_input_ + input, entry, axes == Axes::mn ? i : 0,
                       axes == Axes::none ? 0
                       : axes == Axes::m  ? i
                                          : j);
            break;
          }
          case EpilogueOp::acc:
            out = acc[std::size_t(j)];
            break;
          case EpilogueOp::gate:
            out = acc[std::size_t(faults_.swaps_gate ? other : j)];
            break;
          case EpilogueOp::up:
            out = acc[std::size_t(faults_.swaps_gate ? j : other)];
            break;
          default:
            out = function(node.op, argument(0), argument(1), argument(2), node.type);
        }
      }
    }
  }

  void write(const Epilogue& program, const Arguments& arguments, std::int64_t entry,
             std::int64_t i, const std::vector<std::vector<float>>& values,
             std::vector<std::vector<float>>& lines) const {
    std::size_t output = 1;
    for (std::size_t a = 0; a < program.assignments.size(); ++a) {
      const EpilogueAssignment& made = program.assignments[a];
      if (!made.output) continue;
      const std::vector<float>& row = values[std::size_t(made.root)];
      const std::size_t operand = made.name == "d" ? outputs_[0] : outputs_[output++];
      const OperandSpec& spec = specs_[operand];
      for (std::int64_t j = 0; j < width_; ++j) {
        float x = row[std::size_t(j)];
        if (made.axes == Axes::mn) {
          const std::int64_t at = start(spec, entry) + i * spec.pitch + j;
          if (faults_.nan_to_zero && std::isnan(x)) x = 0;
          if (faults_.skips_zero_results && x == 0) continue;
          if (faults_.adds_to_d) x += numeric::load(spec.type, arguments.operands[operand], at);
          if (faults_.truncates && std::isfinite(x))
            x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) &
                                     (spec.type == DType::bf16 ? 0xffff0000u : 0xffffe000u));
          numeric::store(spec.type, arguments.operands[operand], at, x);
          continue;
        }
        float& line = lines[a][std::size_t(made.axes == Axes::m   ? i
                                           : made.axes == Axes::n ? j
                                                                  : 0)];
        switch (made.reduction) {
          case Reduction::none:
            line = x;
            break;
          case Reduction::sum:
            line += faults_.sum_misses_column && j == 3 ? 0 : x;
            break;
          case Reduction::max:
            line = std::isnan(line) || line > x ? line : x;
            break;
          case Reduction::min:
            line = std::isnan(line) || line < x ? line : x;
            break;
        }
      }
    }
  }

  const GemmProblem problem_;
  const std::vector<OperandSpec> specs_;
  const Faults faults_;
  const std::int64_t width_;
  std::vector<std::size_t> outputs_;
  std::size_t first_input_ = 2;
  bool over_m_ = false;
  mutable std::atomic<std::int64_t> calls_{0};
};

/// The plain kernel with something done before or after it.
class Around : public Executable {
 public:
  explicit Around(const GemmProblem& problem, Faults faults = {})
      : plain_(problem, faults), problem_(problem) {}
  Status run(const Arguments& arguments) const override {
    LAPIDARY_TRY_STATUS(plain_.run(arguments));
    return after(arguments);
  }

 protected:
  virtual Status after(const Arguments&) const { return {}; }
  bool has_d() const { return problem_.m > 0 && columns(problem_) > 0 && problem_.batch > 0; }
  const Plain plain_;
  const GemmProblem problem_;
};

/// Spoils something after a right run.
template <class Spoil>
class Spoiled : public Around {
 public:
  Spoiled(const GemmProblem& problem, Spoil spoil) : Around(problem), spoil_(spoil) {}

 protected:
  Status after(const Arguments& arguments) const override {
    spoil_(plain_, problem_, arguments);
    return {};
  }

 private:
  const Spoil spoil_;
};

template <class Spoil>
std::unique_ptr<Executable> spoiled(const GemmProblem& problem, Spoil spoil) {
  return std::make_unique<Spoiled<Spoil>>(problem, spoil);
}

std::byte* d_bytes(const Plain& plain, const Arguments& arguments) {
  return static_cast<std::byte*>(plain.d_pointer(arguments));
}

class Stale : public Around {
 public:
  using Around::Around;
  Status run(const Arguments& arguments) const override {
    const OperandSpec& a = plain_.specs()[0];
    const auto size = std::size_t(a.span_elems() * size_bytes(a.type));
    const std::uint64_t seen = hash64({static_cast<const std::byte*>(arguments.operands[0]), size});
    if (seen == last_.exchange(seen)) return {};
    return plain_.run(arguments);
  }

 private:
  mutable std::atomic<std::uint64_t> last_{0};
};

class Leaks : public Around {
 public:
  using Around::Around;

 protected:
  Status after(const Arguments&) const override {
    kept_.push_back(std::make_unique<char[]>(5000));
    std::memset(kept_.back().get(), 1, 5000);
    return {};
  }
  mutable std::vector<std::unique_ptr<char[]>> kept_;
};

class KeepsFiles : public Around {
 public:
  using Around::Around;
  ~KeepsFiles() override {
    for (const int file : files_) ::close(file);
  }

 protected:
  Status after(const Arguments&) const override {
    files_.push_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    return {};
  }
  mutable std::vector<int> files_;
};

/// Takes a workspace and does something to it or with it.
class Workspace : public Around {
 public:
  Workspace(const GemmProblem& problem, bool overruns) : Around(problem), overruns_(overruns) {}
  std::int64_t workspace_bytes() const override { return 256; }

 protected:
  Status after(const Arguments& arguments) const override {
    auto* bytes = static_cast<std::byte*>(arguments.workspace);
    if (overruns_) {
      std::memset(bytes, 0, 256 + 4);
    } else if (has_d()) {
      // The first float should be a counter that somebody has set to zero.
      float counter = 0;
      std::memcpy(&counter, bytes + 8, sizeof counter);
      const OperandSpec& d = plain_.d();
      numeric::store(d.type, plain_.d_pointer(arguments), 0,
                     numeric::load(d.type, plain_.d_pointer(arguments), 0) + counter);
    }
    return {};
  }
  const bool overruns_;
};

/// Packs B once and never again.
class StalePack : public Around {
 public:
  using Around::Around;
  std::int64_t packed_bytes() const override {
    return plain_.specs()[1].span_elems() * size_bytes(plain_.specs()[1].type);
  }
  Status pack(const Arguments& arguments) const override {
    if (first_.empty())
      first_.assign(static_cast<const std::byte*>(arguments.operands[1]),
                    static_cast<const std::byte*>(arguments.operands[1]) + packed_bytes());
    if (packed_bytes() > 0) std::memcpy(arguments.packed, first_.data(), first_.size());
    return {};
  }
  Status run(const Arguments& arguments) const override {
    std::vector<void*> operands(arguments.operands.begin(), arguments.operands.end());
    if (packed_bytes() > 0) operands[1] = arguments.packed;
    Arguments packed = arguments;
    packed.operands = operands;
    return plain_.run(packed);
  }

 private:
  mutable std::vector<std::byte> first_;
};

class Crashes : public Around {
 public:
  using Around::Around;
  Status run(const Arguments&) const override {
    std::raise(SIGSEGV);
    return {};
  }
};

class Hangs : public Around {
 public:
  using Around::Around;
  Status run(const Arguments&) const override {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }
};

class Slow : public Around {
 public:
  using Around::Around;

 protected:
  Status after(const Arguments&) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return {};
  }
};

class Fails : public Around {
 public:
  using Around::Around;
  Status run(const Arguments&) const override {
    return Error{ErrorCode::launch_failed, "planted: this kernel always fails"};
  }
};

// -- where plants are wrong at all

bool any(const GemmProblem& p) { return p.m > 0 && columns(p) > 0 && p.batch > 0; }
bool sums(const GemmProblem& p) {
  // An exact product is read by the program: nothing is said of 0 * acc, and few values tell.
  return any(p) && p.k > 0;
}
bool sums_narrowly(const GemmProblem& p) {
  return sums(p) && p.k >= 32 && !p.numerics.fast_fp8 && !p.numerics.f16_acc;
}
bool has_rows(const GemmProblem& p) { return sums(p) && p.m >= 2; }
bool has_square(const GemmProblem& p) { return sums(p) && p.m >= 2 && columns(p) >= 2; }
bool has_many_scales(const GemmProblem& p) {
  return has_rows(p) && (p.scales == ScaleMode::row || p.scales == ScaleMode::block);
}
bool has_gap(const GemmProblem& p) { return any(p) && p.m >= 2 && p.ldd > columns(p); }
bool has_zero_factor(const GemmProblem& p) {
  const Epilogue dropped = problem::drop_zero_terms(p.epilogue, [](int) { return 0.0; });
  return any(p) && problem::reads(dropped) != problem::reads(p.epilogue) &&
         std::ranges::any_of(p.epilogue.inputs,
                             [](const EpilogueInput& input) { return input.axes == Axes::mn; });
}
bool is_gated(const GemmProblem& p) { return sums(p) && p.epilogue.gated; }
bool rounds(const GemmProblem& p) {
  return sums_narrowly(p) && p.m * columns(p) >= 64 && (p.d == DType::bf16 || p.d == DType::f16);
}
bool is_f32(const GemmProblem& p) {
  return sums(p) && p.d == DType::f32 && p.k >= 4 && p.m * columns(p) >= 16;
}
bool is_batched(const GemmProblem& p) { return sums(p) && p.batch > 1 && p.strides.at("b") != 0; }
bool sums_rows(const GemmProblem& p) {
  return sums(p) && columns(p) > 3 &&
         std::ranges::any_of(p.epilogue.assignments, [](const EpilogueAssignment& a) {
           return a.reduction == Reduction::sum;
         });
}
bool aliases(const GemmProblem& p) {
  return any(p) && std::ranges::find(p.alias, "c=d") != p.alias.end();
}
bool packs_b(const GemmProblem& p) {
  return sums(p) && std::ranges::find(p.constant, "b") != p.constant.end();
}
bool is_tf32(const GemmProblem& p) { return sums(p) && p.numerics.tf32 && p.a == DType::f32; }
/// Zero results occur and are written plainly: the sum itself, with many of them.
bool has_zeros(const GemmProblem& p) {
  return sums(p) && p.m * p.n >= 256 && p.epilogue.assignments.size() == 1 &&
         p.epilogue.nodes.size() == 1;
}
bool is_large(const GemmProblem& p) {
  return sums(p) && double(p.m) * double(p.n) * double(p.k) * double(p.batch) > 0x1p27 &&
         p.m > 256 && columns(p) > 256;
}

std::unique_ptr<Executable> plain(const GemmProblem& p, Faults faults) {
  return std::make_unique<Plain>(p, faults);
}

#define LAPIDARY_FAULT(member) [](const GemmProblem& p) { return plain(p, {.member = true}); }

const Planted kPlanted[] = {
    {"wrong_tail_row", "the last row reads the row of A before it", "exact", has_rows,
     LAPIDARY_FAULT(wrong_tail_row)},
    {"swapped_scales", "scale_a and scale_b exchanged", "exact", has_many_scales,
     LAPIDARY_FAULT(swaps_scales)},
    {"next_scale", "the scale of the row below", "exact", has_many_scales,
     LAPIDARY_FAULT(next_scale)},
    {"swapped_gate", "gate and up exchanged", "exact", is_gated, LAPIDARY_FAULT(swaps_gate)},
    {"first_entry", "every batch entry reads the first B", "exact", is_batched,
     LAPIDARY_FAULT(first_entry_only)},
    {"drops_last_k", "the last element of k is missing", "exact", sums,
     LAPIDARY_FAULT(drops_last_k)},
    {"transposed", "two elements across the diagonal exchanged", "exact", has_square,
     [](const GemmProblem& problem) {
       return spoiled(problem, [](const Plain& plain, const GemmProblem& p,
                                  const Arguments& arguments) {
         const OperandSpec& d = plain.d();
         const int size = size_bytes(d.type);
         for (std::int64_t i = 0; i < std::min<std::int64_t>(16, p.m); ++i) {
           for (std::int64_t j = 0; j < std::min<std::int64_t>(i, columns(p)); ++j) {
             if (j >= p.m || i >= columns(p)) continue;
             std::byte* base = d_bytes(plain, arguments);
             std::swap_ranges(base + (i * d.pitch + j) * size, base + (i * d.pitch + j + 1) * size,
                              base + (j * d.pitch + i) * size);
           }
         }
       });
     }},
    {"unwritten", "the last element is not written", "exact", any,
     [](const GemmProblem& problem) {
       // Puts back what was there, as far as anybody can tell: NaN, or zero where outputs are
       // zeroed.
       struct Unwritten : Around {
         using Around::Around;
         Status run(const Arguments& arguments) const override {
           if (!has_d()) return {};
           const OperandSpec& d = plain_.d();
           const std::int64_t last = (d.span_elems() - 1) * size_bytes(d.type);
           std::byte kept[4];
           std::memcpy(kept, d_bytes(plain_, arguments) + last, std::size_t(size_bytes(d.type)));
           LAPIDARY_TRY_STATUS(plain_.run(arguments));
           std::memcpy(d_bytes(plain_, arguments) + last, kept, std::size_t(size_bytes(d.type)));
           return {};
         }
       };
       return std::unique_ptr<Executable>(std::make_unique<Unwritten>(problem));
     }},
    {"skips_zero_results", "results that are zero are not written", "exact", has_zeros,
     LAPIDARY_FAULT(skips_zero_results)},
    {"adds_to_d", "D += instead of D =", "exact", any, LAPIDARY_FAULT(adds_to_d)},
    {"sum_misses_column", "a sum leaves column 3 out", "exact", sums_rows,
     LAPIDARY_FAULT(sum_misses_column)},
    {"clears_d_first", "writes D before it reads C in the same memory", "exact", aliases,
     LAPIDARY_FAULT(clears_d_first)},
    {"reads_workspace", "takes the workspace to be zero", "exact", any,
     [](const GemmProblem& p) {
       return std::unique_ptr<Executable>(std::make_unique<Workspace>(p, false));
     }},
    {"stale_pack", "packs the constant B only once", "position", packs_b,
     [](const GemmProblem& p) {
       return std::unique_ptr<Executable>(std::make_unique<StalePack>(p));
     }},
    {"unsampled", "one wrong element of a large D where nobody looks by chance", "whole", is_large,
     [](const GemmProblem& problem) {
       return spoiled(
           problem, [](const Plain& plain, const GemmProblem& p, const Arguments& arguments) {
             const OperandSpec& d = plain.d();
             const std::int64_t at = p.m * 3 / 7 * d.pitch + columns(p) * 4 / 9;
             const float x = numeric::load(d.type, plain.d_pointer(arguments), at);
             numeric::store(d.type, plain.d_pointer(arguments), at, x + 1 + std::fabs(x) / 8);
           });
     }},
    {"bf16_sums", "partial sums are rounded to bf16", "numeric", sums_narrowly,
     LAPIDARY_FAULT(bf16_sums)},
    {"truncates", "stores cut instead of rounding to nearest", "numeric", rounds,
     LAPIDARY_FAULT(truncates)},
    {"skips_zeros", "zeros of A are skipped, and with them 0 * NaN", "position", has_rows,
     LAPIDARY_FAULT(skips_zeros)},
    {"nan_to_zero", "NaN becomes zero", "position", sums, LAPIDARY_FAULT(nan_to_zero)},
    {"reads_zero_terms", "computes 0 * c", "zero_factor", has_zero_factor,
     LAPIDARY_FAULT(reads_zero_terms)},
    {"flickers", "every other call differs in the last place", "repeat", is_f32,
     LAPIDARY_FAULT(flickers)},
    {"stale", "does nothing when A looks as in the call before", "repeat", any,
     [](const GemmProblem& p) { return std::unique_ptr<Executable>(std::make_unique<Stale>(p)); }},
    {"writes_past_d", "four bytes past the end of D", "guards", any,
     [](const GemmProblem& problem) {
       return spoiled(
           problem, [](const Plain& plain, const GemmProblem&, const Arguments& arguments) {
             const OperandSpec& d = plain.d();
             std::memset(d_bytes(plain, arguments) + d.span_elems() * size_bytes(d.type), 0, 4);
           });
     }},
    {"writes_before_d", "one element before D", "guards", any,
     [](const GemmProblem& problem) {
       return spoiled(problem,
                      [](const Plain& plain, const GemmProblem&, const Arguments& arguments) {
                        const int size = size_bytes(plain.d().type);
                        std::memset(d_bytes(plain, arguments) - size, 0, std::size_t(size));
                      });
     }},
    {"writes_gap", "one element past the end of a row", "guards", has_gap,
     [](const GemmProblem& problem) {
       return spoiled(problem,
                      [](const Plain& plain, const GemmProblem&, const Arguments& arguments) {
                        const OperandSpec& d = plain.d();
                        std::memset(d_bytes(plain, arguments) + d.cols * size_bytes(d.type), 0,
                                    std::size_t(size_bytes(d.type)));
                      });
     }},
    {"overruns_workspace", "four bytes past the end of the workspace", "guards", any,
     [](const GemmProblem& p) {
       return std::unique_ptr<Executable>(std::make_unique<Workspace>(p, true));
     }},
    {"changes_a", "leaves the first element of A negated", "inputs", sums,
     [](const GemmProblem& problem) {
       return spoiled(problem, [](const Plain& plain, const GemmProblem&,
                                  const Arguments& arguments) {
         const OperandSpec& a = plain.specs()[0];
         static_cast<std::byte*>(arguments.operands[0])[size_bytes(a.type) - 1] ^= std::byte{0x80};
       });
     }},
    {"rounds_a", "rounds A to tf32 in place", "inputs", is_tf32,
     [](const GemmProblem& problem) {
       struct Rounds : Around {
         using Around::Around;
         Status run(const Arguments& arguments) const override {
           auto* a = static_cast<float*>(arguments.operands[0]);
           for (std::int64_t i = 0; i < plain_.specs()[0].span_elems(); ++i)
             a[i] = numeric::round_to_tf32(a[i]);
           return plain_.run(arguments);
         }
       };
       return std::unique_ptr<Executable>(std::make_unique<Rounds>(problem));
     }},
    {"leaks", "keeps 5000 bytes a run", "leak", any,
     [](const GemmProblem& p) { return std::unique_ptr<Executable>(std::make_unique<Leaks>(p)); }},
    {"keeps_files", "keeps a file open each run", "leak", any,
     [](const GemmProblem& p) {
       return std::unique_ptr<Executable>(std::make_unique<KeepsFiles>(p));
     }},
    {"crashes", "SIGSEGV", "process", any,
     [](const GemmProblem& p) {
       return std::unique_ptr<Executable>(std::make_unique<Crashes>(p));
     }},
    {"hangs", "never returns", "process", any,
     [](const GemmProblem& p) { return std::unique_ptr<Executable>(std::make_unique<Hangs>(p)); }},
    {"fails", "returns an error", "process", any,
     [](const GemmProblem& p) { return std::unique_ptr<Executable>(std::make_unique<Fails>(p)); }},
    {"slow", "right, but sleeps 50 ms", "", any,
     [](const GemmProblem& p) { return std::unique_ptr<Executable>(std::make_unique<Slow>(p)); }},
};
#undef LAPIDARY_FAULT

}  // namespace

std::span<const Planted> planted() { return kPlanted; }

const Planted* find_planted(std::string_view name) {
  const auto found = std::ranges::find(kPlanted, name, &Planted::name);
  return found == std::end(kPlanted) ? nullptr : &*found;
}

std::unique_ptr<Executable> right_executable(const GemmProblem& problem) {
  return plain(problem, {});
}

Result<std::string> PlantedBackend::version() const { return std::string("wrong on purpose"); }

std::vector<Offer> PlantedBackend::candidates(const GemmProblem& problem, const DeviceInfo&) const {
  const std::string wanted = system_env("LAPIDARY_PLANTED").value_or("");
  const std::vector<std::string_view> names = split(wanted, ',');
  std::vector<Offer> offers;
  for (const Planted& plant : kPlanted) {
    const bool chosen = wanted.empty() || std::ranges::find(names, plant.name) != names.end();
    if (!chosen) continue;
    Offer offer;
    offer.candidate = {std::string(name()), {{"plant", std::string(plant.name)}}};
    offer.predicted_us = 1;
    if (!plant.applies(problem)) offer.refused = "planted: right on this problem";
    offers.push_back(std::move(offer));
  }
  if (offers.empty()) {
    Offer none;
    none.candidate = {std::string(name()), {{"plant", std::string("none")}}};
    none.refused = "planted: LAPIDARY_PLANTED names no plant";
    offers.push_back(std::move(none));
  }
  return offers;
}

Result<std::unique_ptr<Executable>> PlantedBackend::compile(const GemmProblem& problem,
                                                            const Config& config,
                                                            const DeviceInfo&) const {
  const auto found = config.find("plant");
  const std::string* wanted =
      found == config.end() ? nullptr : std::get_if<std::string>(&found->second);
  if (wanted != nullptr && *wanted == "right") return right_executable(problem);
  const Planted* plant = wanted == nullptr ? nullptr : find_planted(*wanted);
  if (plant == nullptr)
    return Error{ErrorCode::invalid_argument, "planted: the config names no plant"};
  return plant->make(problem);
}

}  // namespace lapidary::worker
