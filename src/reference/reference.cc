#include "reference/reference.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "numeric/numeric.h"
#include "problem/epilogue.h"
#include "reference/product.h"
#include "reference/view.h"
#include "support/parallel.h"

namespace lapidary::reference {
namespace {

using Row = std::array<Bounded, kTile>;

/// What is known of a reduced line: the reduction of its elements and what it takes to bound it.
struct Partial {
  Bounded total{};
  double magnitudes = 0;  // of a sum
  int grain = 1 << 20;    // a sum's elements are multiples of 2^grain
  bool points = true;
  std::int64_t count = 0;
};

constexpr double kInf = std::numeric_limits<double>::infinity();

double identity(Reduction reduction) {
  return reduction == Reduction::max ? -kInf : reduction == Reduction::min ? kInf : 0;
}

int lowest_bit(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const auto mantissa = (bits & ((std::uint64_t(1) << 52) - 1)) | std::uint64_t(1) << 52;
  return int(bits >> 52 & 0x7ff) - 1075 + std::countr_zero(mantissa);
}

/// Takes in another part of the line, `part` possibly one element. No rounding yet: float64 is fine
/// enough.
void merge(Reduction reduction, Partial& line, const Partial& part) {
  if (part.count == 0) return;
  if (line.count == 0) {
    line = part;
    return;
  }
  Bounded& x = line.total;
  const Bounded& y = part.total;
  if (reduction == Reduction::sum) {
    if (x.nan == NaN::always || y.nan == NaN::always) {
      x = point(std::numeric_limits<double>::quiet_NaN());
    } else {
      const double value = x.value + y.value, lo = x.lo + y.lo, hi = x.hi + y.hi;
      if (std::isnan(value) || std::isnan(lo) || std::isnan(hi)) {
        x = line.points && part.points ? point(std::numeric_limits<double>::quiet_NaN())
                                       : anything();
      } else {
        x = {value, lo, hi, x.nan == NaN::maybe || y.nan == NaN::maybe ? NaN::maybe : NaN::never};
      }
    }
  } else {
    x = apply(reduction == Reduction::max ? EpilogueOp::max : EpilogueOp::min, {x, y, {}});
  }
  line.magnitudes += part.magnitudes;
  line.grain = std::min(line.grain, part.grain);
  line.points = line.points && part.points;
  line.count += part.count;
}

Partial single(Reduction reduction, const Bounded& x) {
  Partial part{.total = x, .count = 1};
  part.points = x.is_point();
  if (reduction != Reduction::sum || x.nan == NaN::always) return part;
  part.magnitudes = std::max(std::fabs(x.lo), std::fabs(x.hi));
  if (part.points && x.value != 0 && std::isfinite(x.value)) part.grain = lowest_bit(x.value);
  return part;
}

/// The reduced line as a kernel has it: f32 sums in any order, the same bound as the accumulator's.
Bounded finished(Reduction reduction, const Partial& line) {
  if (line.count == 0) return point(identity(reduction));
  const Bounded& x = line.total;
  if (reduction != Reduction::sum || x.nan == NaN::always) return x;
  if (!std::isfinite(x.value)) return x;
  const double count = double(line.count);
  const double relative = std::expm1(count * std::log1p(kUnit)) + count * 0x1p-52;
  if (line.magnitudes * (1 + relative) > kMaxF32) return anything();
  if (line.points && x.nan == NaN::never && line.grain > -100 &&
      line.magnitudes <= std::ldexp(0x1p24, std::min(line.grain, 100))) {
    return x;
  }
  const double error = line.magnitudes * relative + count * kTiny;
  return {x.value, x.lo - error, x.hi + error, x.nan};
}

/// One output: where its value comes from and how it is reduced.
struct Output {
  const EpilogueAssignment* made = nullptr;
  DType type = DType::f32;
};

/// The program, ready to be evaluated row by row over tiles.
class Program {
 public:
  Program(const Entry& entry, const GemmProblem& problem)
      : entry_(entry), epilogue_(problem::drop_zero_terms(problem.epilogue, [&](int input) {
          return entry.inputs[std::size_t(input)].at(0, 0);
        })) {
    live_.resize(epilogue_.nodes.size());
    for (const EpilogueAssignment& made : epilogue_.assignments) {
      if (made.output) live_[std::size_t(made.root)] = true;
    }
    for (std::size_t i = live_.size(); i-- > 0;) {
      if (!live_[i]) continue;
      for (const int argument : epilogue_.nodes[i].args) {
        if (argument >= 0) live_[std::size_t(argument)] = true;
      }
      const EpilogueOp op = epilogue_.nodes[i].op;
      reads_acc_ =
          reads_acc_ || op == EpilogueOp::acc || op == EpilogueOp::gate || op == EpilogueOp::up;
    }
    for (const EpilogueAssignment& made : epilogue_.assignments) {
      if (made.output && made.name == "d") outputs_.push_back({&made, entry.outputs[0].type});
    }
    for (const EpilogueAssignment& made : epilogue_.assignments) {
      if (made.output && made.name != "d")
        outputs_.push_back({&made, entry.outputs[outputs_.size()].type});
    }
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  const Epilogue& epilogue() const { return epilogue_; }
  const std::vector<bool>& live() const { return live_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  bool reads_acc() const { return reads_acc_; }

  /// Evaluates the nodes that depend on m (`per_row`) or the others, for row `row` and the columns
  /// `cols` of D. `gate` is the row of acc, or of gate; `up` of up.
  void evaluate(bool per_row, std::int64_t row, std::span<const std::int64_t> cols,
                const Bounded* gate, const Bounded* up, std::vector<Row>& values) const {
    for (std::size_t i = 0; i < epilogue_.nodes.size(); ++i) {
      const EpilogueNode& node = epilogue_.nodes[i];
      if (!live_[i] || per_row != within(Axes::m, node.axes)) continue;
      Row& out = values[i];
      const std::size_t count = cols.size();
      switch (node.op) {
        case EpilogueOp::number:
          std::fill_n(out.begin(), count, point(double(float(node.number))));
          break;
        case EpilogueOp::operand:
          load(entry_.inputs[std::size_t(node.symbol)], row, cols, out);
          break;
        case EpilogueOp::acc:
        case EpilogueOp::gate:
          std::copy_n(gate, count, out.begin());
          break;
        case EpilogueOp::up:
          std::copy_n(up, count, out.begin());
          break;
        default: {
          const auto argument = [&](std::size_t a) {
            return node.args[a] < 0 ? &kNone : &values[std::size_t(node.args[a])];
          };
          const Row &x = *argument(0), &y = *argument(1), &z = *argument(2);
          const bool same = node.args[0] == node.args[1];
          for (std::size_t j = 0; j < count; ++j)
            out[j] = apply(node.op, {x[j], y[j], z[j]}, same, node.type);
        }
      }
    }
  }

 private:
  static inline const Row kNone{};

  static void load(const Entry::Matrix& input, std::int64_t row, std::span<const std::int64_t> cols,
                   Row& out) {
    switch (input.axes) {
      case Axes::none:
        std::fill_n(out.begin(), cols.size(), point(input.at(0, 0)));
        return;
      case Axes::m:
        std::fill_n(out.begin(), cols.size(), point(input.at(0, row)));
        return;
      case Axes::n:
        for (std::size_t j = 0; j < cols.size(); ++j) out[j] = point(input.at(0, cols[j]));
        return;
      case Axes::mn:
        for (std::size_t j = 0; j < cols.size(); ++j) out[j] = point(input.at(row, cols[j]));
        return;
    }
  }

  const Entry& entry_;
  Epilogue epilogue_;
  std::vector<bool> live_;
  std::vector<Output> outputs_;
  bool reads_acc_ = false;
};

/// Which way a line runs: reductions over n give one result per row, over m one per column, over
/// both one.
Axes reduced_axes(const EpilogueAssignment& made) {
  return made.reduction == Reduction::none ? Axes::none : made.reduced;
}

/// What one tile adds to the outputs that are not [m,n]: per row and per column of the tile.
struct Contribution {
  std::vector<Partial> lines;
};

class Evaluation {
 public:
  Evaluation(const GemmProblem& problem, std::span<void* const> operands, const Request& request,
             const Sink& sink)
      : specs_(lapidary::operands(problem)),
        entry_(entry_of(problem, specs_, operands, request.entry)),
        model_(problem),
        request_(request),
        sink_(sink),
        program_(entry_, problem),
        half_(problem.n / 2),
        gated_(problem.epilogue.gated),
        all_rows_(std::int64_t(request.rows.size()) == problem.m),
        all_cols_(std::int64_t(request.cols.size()) == columns(problem)) {}

  std::vector<Line> run() {
    prepare_lines();
    const std::int64_t tall = tiles(request_.rows), wide = tiles(request_.cols),
                       count = tall * wide;
    // About 2^30 multiply-adds, or 2^22 elements, between two calls of progress.
    const double work =
        double(kTile * kTile) * double(std::max<std::int64_t>(entry_.k, 256)) * (gated_ ? 2 : 1);
    const auto group = std::clamp(std::int64_t(0x1p30 / work), std::int64_t(8), std::int64_t(1024));
    for (std::int64_t first = 0; first < count; first += group) {
      if (request_.progress) request_.progress();
      const std::int64_t here = std::min(group, count - first);
      std::vector<Contribution> parts(static_cast<std::size_t>(here));
      const std::int64_t grain = std::max<std::int64_t>(1, std::min<std::int64_t>(here / 8, 16));
      shared_pool().each(here, grain, [&](std::int64_t begin, std::int64_t end) {
        ProductTile gate(entry_, model_, request_.integers), up(entry_, model_, request_.integers);
        std::vector<Row> values(program_.epilogue().nodes.size());
        for (std::int64_t t = begin; t < end; ++t) {
          tile((first + t) / wide, (first + t) % wide, gate, up, values, parts[std::size_t(t)]);
        }
      });
      // In order, so that the bounds do not depend on the number of threads.
      for (std::int64_t t = 0; t < here; ++t)
        take(parts[std::size_t(t)], (first + t) / wide, (first + t) % wide);
    }
    return finish();
  }

 private:
  static std::int64_t tiles(std::span<const std::int64_t> list) {
    return (std::int64_t(list.size()) + kTile - 1) / kTile;
  }
  static std::span<const std::int64_t> part(std::span<const std::int64_t> list, std::int64_t tile) {
    const auto from = std::size_t(tile * kTile);
    return list.subspan(from, std::min<std::size_t>(kTile, list.size() - from));
  }

  void prepare_lines() {
    for (std::size_t o = 0; o < program_.outputs().size(); ++o) {
      const EpilogueAssignment& made = *program_.outputs()[o].made;
      if (made.axes == Axes::mn) continue;
      Line line;
      line.output = int(o);
      line.axes = made.axes;
      const Axes over = reduced_axes(made);
      line.known = (!within(Axes::n, over) || all_cols_) && (!within(Axes::m, over) || all_rows_);
      const std::size_t length = made.axes == Axes::m   ? request_.rows.size()
                                 : made.axes == Axes::n ? request_.cols.size()
                                                        : 1;
      lines_.push_back(std::move(line));
      partials_.emplace_back(length);
    }
  }

  /// Accumulators of one row of the tile.
  void load_acc(const ProductTile& product, const std::vector<double>& exact, std::int64_t row,
                std::size_t count, Row& out) const {
    for (std::size_t j = 0; j < count; ++j) {
      out[j] = exact.empty() ? product.at(row, std::int64_t(j))
                             : point(exact[std::size_t(row * kTile) + j]);
    }
  }

  void tile(std::int64_t down, std::int64_t right, ProductTile& gate, ProductTile& up,
            std::vector<Row>& values, Contribution& into) const {
    const auto rows = part(request_.rows, down), cols = part(request_.cols, right);
    std::vector<std::int64_t> up_cols;
    std::vector<double> exact_gate, exact_up;
    if (gated_) {
      for (const std::int64_t col : cols) up_cols.push_back(col + half_);
    }
    if (program_.reads_acc()) {
      if (request_.exact_sums) {
        exact_gate.resize(kTile * kTile);
        request_.exact_sums(rows, cols, exact_gate.data());
        if (gated_) {
          exact_up.resize(kTile * kTile);
          request_.exact_sums(rows, up_cols, exact_up.data());
        }
      } else {
        gate.compute(rows, cols);
        if (gated_) up.compute(rows, up_cols);
      }
    }
    std::size_t length = 0;
    for (const Line& line : lines_) length += line_length(line.axes, rows.size(), cols.size());
    into.lines.resize(length);

    program_.evaluate(false, 0, cols, nullptr, nullptr, values);
    Row acc_row, up_row;
    std::array<double, kTile> value;
    std::array<Stored, kTile> right_ones;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (program_.reads_acc()) {
        load_acc(gate, exact_gate, std::int64_t(i), cols.size(), acc_row);
        if (gated_) load_acc(up, exact_up, std::int64_t(i), cols.size(), up_row);
      }
      program_.evaluate(true, rows[i], cols, acc_row.data(), up_row.data(), values);
      std::size_t at = 0, line = 0;
      for (std::size_t o = 0; o < program_.outputs().size(); ++o) {
        const Output& output = program_.outputs()[o];
        const Row& row = values[std::size_t(output.made->root)];
        if (output.made->axes == Axes::mn) {
          for (std::size_t j = 0; j < cols.size(); ++j) {
            value[j] =
                row[j].nan == NaN::always ? std::numeric_limits<double>::quiet_NaN() : row[j].value;
            right_ones[j] = stored(row[j], output.type);
          }
          sink_({int(o),
                 down * kTile + std::int64_t(i),
                 right * kTile,
                 {value.data(), cols.size()},
                 {right_ones.data(), cols.size()}});
          continue;
        }
        const Reduction reduction = output.made->reduction;
        for (std::size_t j = 0; j < cols.size(); ++j) {
          const std::size_t place = output.made->axes == Axes::m   ? i
                                    : output.made->axes == Axes::n ? j
                                                                   : 0;
          Partial& partial = into.lines[at + place];
          // Without a reduction every element of the line says the same.
          if (reduction == Reduction::none && partial.count > 0) continue;
          merge(reduction, partial, single(reduction, row[j]));
        }
        at += line_length(lines_[line++].axes, rows.size(), cols.size());
      }
    }
  }

  static std::size_t line_length(Axes axes, std::size_t rows, std::size_t cols) {
    return axes == Axes::m ? rows : axes == Axes::n ? cols : 1;
  }

  void take(const Contribution& parts, std::int64_t down, std::int64_t right) {
    std::size_t at = 0;
    const std::size_t rows = part(request_.rows, down).size(),
                      cols = part(request_.cols, right).size();
    for (std::size_t l = 0; l < lines_.size(); ++l) {
      const Reduction reduction = program_.outputs()[std::size_t(lines_[l].output)].made->reduction;
      const std::size_t length = line_length(lines_[l].axes, rows, cols);
      const auto offset = std::size_t(lines_[l].axes == Axes::m   ? down * kTile
                                      : lines_[l].axes == Axes::n ? right * kTile
                                                                  : 0);
      for (std::size_t i = 0; i < length; ++i) {
        Partial& line = partials_[l][offset + i];
        if (reduction == Reduction::none && line.count > 0) continue;
        merge(reduction, line, parts.lines[at + i]);
      }
      at += length;
    }
  }

  std::vector<Line> finish() {
    for (std::size_t l = 0; l < lines_.size(); ++l) {
      const Output& output = program_.outputs()[std::size_t(lines_[l].output)];
      // A value that is not reduced is unknown when no element was evaluated that says it.
      if (output.made->reduction == Reduction::none &&
          (request_.rows.empty() || request_.cols.empty()))
        lines_[l].known = false;
      for (const Partial& partial : partials_[l]) {
        const Bounded result = finished(output.made->reduction, partial);
        lines_[l].value.push_back(
            result.nan == NaN::always ? std::numeric_limits<double>::quiet_NaN() : result.value);
        lines_[l].stored.push_back(stored(result, output.type));
      }
    }
    return std::move(lines_);
  }

  const std::vector<OperandSpec> specs_;
  const Entry entry_;
  const AccumulatorModel model_;
  const Request& request_;
  const Sink& sink_;
  const Program program_;
  const std::int64_t half_;
  const bool gated_, all_rows_, all_cols_;
  std::vector<Line> lines_;
  std::vector<std::vector<Partial>> partials_;
};

}  // namespace

std::vector<Line> evaluate(const GemmProblem& problem, std::span<void* const> operands,
                           const Request& request, const Sink& sink) {
  return Evaluation(problem, operands, request, sink).run();
}

std::vector<std::int64_t> all(std::int64_t count) {
  std::vector<std::int64_t> list(static_cast<std::size_t>(count));
  std::iota(list.begin(), list.end(), std::int64_t(0));
  return list;
}

}  // namespace lapidary::reference
