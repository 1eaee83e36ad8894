#include "worker/verify_data.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "numeric/numeric.h"
#include "problem/epilogue.h"
#include "support/random.h"

namespace lapidary::worker {
namespace {

void sort_unique(std::vector<std::int64_t>& list) {
  std::ranges::sort(list);
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

bool is_small(const GemmProblem& p) {
  return double(p.m) * double(p.n) * double(p.k) * double(p.batch) <= 0x1p27;
}

/// All batch entries, or the first, the last and two between.
std::vector<std::int64_t> sampled_entries(const GemmProblem& p, std::uint64_t seed) {
  std::vector<std::int64_t> entries;
  if (p.batch <= 4) return reference::all(p.batch);
  for (std::uint64_t i = 0; i < 2; ++i)
    entries.push_back(std::int64_t(mix(seed, i) % std::uint64_t(p.batch)));
  entries.push_back(0);
  entries.push_back(p.batch - 1);
  sort_unique(entries);
  return entries;
}

/// Rows by all columns and all rows by columns of one entry; one sample when either is everything.
void add_samples(const GemmProblem& p, std::int64_t entry, std::vector<std::int64_t> rows,
                 std::vector<std::int64_t> cols, std::vector<Sample>& into) {
  const std::int64_t width = columns(p);
  const bool all_rows = std::int64_t(rows.size()) == p.m,
             all_cols = std::int64_t(cols.size()) == width;
  if (all_rows || all_cols) {
    into.push_back({entry, reference::all(p.m), reference::all(width)});
    return;
  }
  into.push_back({entry, std::move(rows), reference::all(width)});
  into.push_back({entry, reference::all(p.m), std::move(cols)});
}

/// Draws places that differ from those drawn before, as far as the extent has room.
class Places {
 public:
  Places(std::int64_t extent, std::uint64_t seed) : extent_(extent), seed_(seed) {}
  /// The last one at first: tails are where kernels go wrong.
  std::int64_t next() {
    if (used_.empty() && extent_ > 0) return keep(extent_ - 1);
    for (int tries = 0; tries < 64; ++tries) {
      const auto place =
          std::int64_t(mix(seed_, draws_++) % std::uint64_t(std::max<std::int64_t>(1, extent_)));
      if (std::ranges::find(used_, place) == used_.end()) return keep(place);
    }
    return used_.empty() ? 0 : used_.back();
  }
  const std::vector<std::int64_t>& used() const { return used_; }

 private:
  std::int64_t keep(std::int64_t place) {
    used_.push_back(place);
    return place;
  }
  std::int64_t extent_;
  std::uint64_t seed_, draws_ = 0;
  std::vector<std::int64_t> used_;
};

const float kNaN = std::numeric_limits<float>::quiet_NaN();
const float kInf = std::numeric_limits<float>::infinity();

/// e4m3 has no infinity; NaN is then all there is to plant.
float special(DType type, float value) { return type == DType::e4m3 ? kNaN : value; }

}  // namespace

std::vector<std::int64_t> sampled(std::int64_t extent, std::int64_t random, std::uint64_t seed) {
  if (extent <= random) return reference::all(extent);
  std::vector<std::int64_t> list = {0, extent - 1};
  for (std::int64_t i = 0; i < random; ++i)
    list.push_back(std::int64_t(mix(seed, std::uint64_t(i)) % std::uint64_t(extent)));
  for (std::int64_t tile = 16; tile <= 256; tile *= 2) {
    const std::int64_t edge = (extent - 1) / tile * tile;  // where the last tile begins
    list.push_back(edge);
    if (edge > 0) list.push_back(edge - 1);
  }
  sort_unique(list);
  return list;
}

std::vector<Sample> samples_of(const GemmProblem& p, std::int64_t random, std::uint64_t seed) {
  std::vector<Sample> samples;
  if (is_small(p)) {
    for (std::int64_t entry = 0; entry < p.batch; ++entry)
      add_samples(p, entry, reference::all(p.m), {}, samples);
    return samples;
  }
  const std::vector<std::int64_t> entries = sampled_entries(p, mix(seed, 1));
  const std::int64_t each = std::max<std::int64_t>(1, random / std::int64_t(entries.size()));
  for (const std::int64_t entry : entries) {
    const std::uint64_t own = mix(seed, 2 + std::uint64_t(entry));
    add_samples(p, entry, sampled(p.m, each, mix(own, 1)), sampled(columns(p), each, mix(own, 2)),
                samples);
  }
  return samples;
}

std::int64_t element_of(const OperandSpec& spec, std::int64_t entry, std::int64_t row,
                        std::int64_t col) {
  return (spec.batch > 1 ? entry * spec.batch_stride : 0) + row * spec.pitch + col;
}

std::vector<PositionRound> position_rounds(const GemmProblem& p,
                                           const std::vector<OperandSpec>& specs,
                                           std::uint64_t seed) {
  std::vector<PositionRound> rounds;
  const std::int64_t width = columns(p);
  if (p.m == 0 || width == 0 || p.batch == 0) return rounds;
  const bool a_transposed = p.layout == GemmLayout::tn || p.layout == GemmLayout::tt;
  const bool b_transposed = p.layout == GemmLayout::nt || p.layout == GemmLayout::tt;
  for (const bool of_rows : {true, false}) {
    PositionRound round;
    round.name = of_rows ? "NaN and infinity in A and what goes with its rows"
                         : "NaN and infinity in B and what goes with its columns";
    Places rows(p.m, mix(seed, 10 + of_rows)), cols(width, mix(seed, 20 + of_rows)),
        depths(p.k, mix(seed, 30 + of_rows));
    const std::int64_t entry = p.batch - 1;
    const auto plant = [&](std::size_t operand, std::int64_t row, std::int64_t col, float value) {
      round.plants.push_back({int(operand), entry, row, col, special(specs[operand].type, value)});
    };
    for (std::size_t i = 0; i < specs.size(); ++i) {
      const OperandSpec& spec = specs[i];
      if (spec.output || spec.span_elems() == 0) continue;
      const bool mode_scale =
          p.scales != ScaleMode::none && (spec.name == "scale_a" || spec.name == "scale_b");
      if (spec.name == "a" || spec.name == "b") {
        if ((spec.name == "a") != of_rows) continue;
        for (const float value : {kNaN, kInf, -kInf}) {
          const std::int64_t k = depths.next();
          if (of_rows) {
            const std::int64_t r = rows.next();
            plant(i, a_transposed ? k : r, a_transposed ? r : k, value);
          } else {
            // A column of B beyond D's is one of the other half of a gated pair.
            const std::int64_t c = cols.next(), j = p.n == width || value == kNaN ? c : c + width;
            plant(i, b_transposed ? j : k, b_transposed ? k : j, value);
          }
        }
      } else if (mode_scale && spec.axes != Axes::none) {
        // An infinite scale may meet a sum or its parts, so only NaN is certain; without k, acc is
        // 0 and whether its scale is looked at is open.
        if (p.k == 0) continue;
        if ((spec.name == "scale_a") != of_rows) continue;
        if (of_rows) {
          plant(i, spec.rows - 1, rows.next(), kNaN);
        } else if (p.scales == ScaleMode::row) {
          plant(i, 0, cols.next(), kNaN);
        } else {
          const std::int64_t block = cols.next() / 128;
          plant(i, block, spec.cols - 1, kNaN);
          for (std::int64_t j = block * 128; j < std::min(width, block * 128 + 128); ++j)
            round.cols.push_back(j);
          // In a gated pair the block of the other half has its own scale.
        }
      } else if (spec.axes == Axes::m && of_rows) {
        plant(i, 0, rows.next(), kNaN);
      } else if (spec.axes == Axes::n && !of_rows) {
        plant(i, 0, cols.next(), kNaN);
      } else if (spec.axes == Axes::mn && of_rows) {
        for (const float value : {kNaN, kInf}) plant(i, rows.next(), cols.next(), value);
      }
    }
    if (round.plants.empty()) continue;
    round.rows = rows.used();
    round.cols.insert(round.cols.end(), cols.used().begin(), cols.used().end());
    sort_unique(round.rows);
    sort_unique(round.cols);
    if (is_small(p)) {
      round.samples = samples_of(p, 64, seed);
    } else {
      const auto around = [](const std::vector<std::int64_t>& list, std::int64_t extent) {
        std::vector<std::int64_t> out = {0, extent - 1};
        for (const std::int64_t place : list) {
          for (const std::int64_t near : {place - 1, place, place + 1}) {
            if (near >= 0 && near < extent) out.push_back(near);
          }
        }
        sort_unique(out);
        return out;
      };
      for (const std::int64_t e : {std::int64_t(0), entry}) {
        add_samples(p, e, around(round.rows, p.m), around(round.cols, width), round.samples);
        if (entry == 0) break;
      }
    }
    rounds.push_back(std::move(round));
  }
  return rounds;
}

std::vector<ZeroFactor> zero_factors(const GemmProblem& p, const std::vector<OperandSpec>& specs) {
  std::vector<ZeroFactor> found;
  const auto place = [&](const std::string& name) {
    return int(std::ranges::find(specs, name, &OperandSpec::name) - specs.begin());
  };
  const std::vector<bool> read_before = problem::reads(p.epilogue);
  for (std::size_t i = 0; i < p.epilogue.inputs.size(); ++i) {
    if (p.epilogue.inputs[i].axes != Axes::none) continue;
    const Epilogue dropped = problem::drop_zero_terms(
        p.epilogue, [&](int input) { return std::size_t(input) == i ? 0.0 : 1.0; });
    if (dropped == p.epilogue) continue;
    ZeroFactor factor{place(p.epilogue.inputs[i].name), p.epilogue.inputs[i].name, {}};
    const std::vector<bool> read = problem::reads(dropped);
    for (std::size_t j = 0; j < read.size(); ++j) {
      if (j != i && read_before[j] && !read[j])
        factor.unread.push_back(place(p.epilogue.inputs[j].name));
    }
    if (reads_acc(p.epilogue) && !reads_acc(dropped)) {
      factor.unread.insert(factor.unread.end(), {0, 1});
      if (p.scales != ScaleMode::none) factor.unread.insert(factor.unread.end(), {2, 3});
    }
    std::ranges::sort(factor.unread);
    factor.unread.erase(std::unique(factor.unread.begin(), factor.unread.end()),
                        factor.unread.end());
    found.push_back(std::move(factor));
  }
  return found;
}

bool reads_acc(const Epilogue& epilogue) {
  std::vector<bool> live(epilogue.nodes.size());
  for (const EpilogueAssignment& made : epilogue.assignments) {
    if (made.output) live[std::size_t(made.root)] = true;
  }
  for (std::size_t i = live.size(); i-- > 0;) {
    if (!live[i]) continue;
    const EpilogueNode& node = epilogue.nodes[i];
    if (node.op == EpilogueOp::acc || node.op == EpilogueOp::gate || node.op == EpilogueOp::up)
      return true;
    for (const int argument : node.args) {
      if (argument >= 0) live[std::size_t(argument)] = true;
    }
  }
  return false;
}

bool is_identity(const Epilogue& epilogue) {
  return !epilogue.gated && epilogue.assignments.size() == 1 &&
         epilogue.nodes[std::size_t(epilogue.assignments[0].root)].op == EpilogueOp::acc;
}

}  // namespace lapidary::worker
