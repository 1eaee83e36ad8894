#include "worker/verify_expect.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "numeric/numeric.h"
#include "support/parallel.h"

namespace lapidary::worker {
namespace {

using reference::NaN;
using reference::Stored;

constexpr std::int64_t kRun = 256;  // elements compared at a time

std::string number(float x) {
  if (std::isnan(x)) return "NaN";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  return fmt::format("{}", x);
}

std::string text(const Stored& right) {
  if (right.nan == NaN::always) return "NaN";
  std::string range =
      right.lo == right.hi ? number(right.lo) : number(right.lo) + " to " + number(right.hi);
  return right.nan == NaN::maybe ? range + " or NaN" : range;
}

/// As many consecutive columns from cols[at] on as there are, at most kRun.
std::size_t run_length(std::span<const std::int64_t> cols, std::size_t at) {
  std::size_t length = 1;
  while (at + length < cols.size() && length < std::size_t(kRun) &&
         cols[at + length] == cols[at] + std::int64_t(length))
    ++length;
  return length;
}

}  // namespace

bool Mismatch::operator<(const Mismatch& other) const {
  return std::tie(output, entry, row, col) <
         std::tie(other.output, other.entry, other.row, other.col);
}

void Findings::add(const Mismatch& mismatch, std::int64_t wrong) {
  wrong_ += wrong;
  const std::lock_guard lock(mutex_);
  if (!first_ || mismatch < *first_) first_ = mismatch;
}

std::string Findings::text(std::span<const OperandSpec> outputs) const {
  const Mismatch& m = *first_;
  std::string place = outputs[std::size_t(m.output)].name;
  if (m.row >= 0 && m.col >= 0)
    place += fmt::format("[{},{}]", m.row, m.col);
  else if (m.row >= 0 || m.col >= 0)
    place += fmt::format("[{}]", std::max(m.row, m.col));
  if (m.entry > 0) place += fmt::format(" of batch entry {}", m.entry);
  return fmt::format("{} is {}, right is {} ({} of {} elements compared are wrong)", place,
                     number(m.got), worker::text(m.right), wrong(), compared());
}

Expectation::Expectation(const GemmProblem& problem, std::vector<Sample> samples, Source source,
                         std::int64_t* budget)
    : problem_(problem),
      samples_(std::move(samples)),
      states_(samples_.size()),
      source_(std::move(source)),
      budget_(budget) {
  for (OperandSpec& spec : operands(problem)) {
    if (spec.output)
      outputs_.push_back(std::move(spec));
    else
      ++first_output_;
  }
}

const std::byte* Expectation::base(int output, std::int64_t entry,
                                   std::span<void* const> outputs) const {
  const OperandSpec& spec = outputs_[std::size_t(output)];
  const std::int64_t skipped =
      spec.batch > 1 ? entry * spec.batch_stride * size_bytes(spec.type) : 0;
  return static_cast<const std::byte*>(outputs[first_output_ + std::size_t(output)]) + skipped;
}

void Expectation::compare_row(std::int64_t entry, int output, std::int64_t row,
                              std::span<const std::int64_t> cols, std::span<const Stored> right,
                              std::span<void* const> outputs, Findings& findings) const {
  const OperandSpec& spec = outputs_[std::size_t(output)];
  const std::byte* line = base(output, entry, outputs) + row * spec.pitch * size_bytes(spec.type);
  std::array<float, kRun> got;
  std::int64_t wrong = 0;
  std::optional<Mismatch> first;
  for (std::size_t at = 0; at < cols.size();) {
    const std::size_t length = run_length(cols, at);
    numeric::widen(spec.type, line + cols[at] * size_bytes(spec.type), std::int64_t(length),
                   got.data());
    for (std::size_t i = 0; i < length; ++i) {
      if (accepts(right[at + i], got[i])) continue;
      ++wrong;
      if (!first) first = Mismatch{output, entry, row, cols[at + i], got[i], right[at + i]};
    }
    at += length;
  }
  findings.count(std::int64_t(cols.size()));
  if (first) findings.add(*first, wrong);
}

void Expectation::evaluate(std::size_t index, std::span<void* const> inputs,
                           std::span<void* const> outputs, const std::function<void()>& progress,
                           Findings& findings) {
  const Sample& sample = samples_[index];
  State& state = states_[index];
  const std::size_t width = sample.cols.size(), size = sample.rows.size() * width;
  std::int64_t bytes = 0;
  for (const OperandSpec& spec : outputs_)
    bytes += spec.axes == Axes::mn ? std::int64_t(size) * (2 * size_bytes(spec.type) + 1) : 0;
  state.keeps = bytes <= *budget_;
  if (state.keeps) {
    *budget_ -= bytes;
    state.outputs.resize(outputs_.size());
    for (std::size_t o = 0; o < outputs_.size(); ++o) {
      if (outputs_[o].axes != Axes::mn) continue;
      const std::size_t element = std::size_t(size_bytes(outputs_[o].type));
      state.outputs[o].lo.resize(size * element);
      state.outputs[o].hi.resize(size * element);
      state.outputs[o].nan.resize(size);
    }
  }
  reference::Request request;
  request.entry = sample.entry;
  request.rows = sample.rows;
  request.cols = sample.cols;
  request.integers = source_.integers;
  if (source_.exact_sums) request.exact_sums = source_.exact_sums(sample.entry);
  request.progress = progress;
  state.lines = reference::evaluate(problem_, inputs, request, [&](const reference::Piece& piece) {
    const auto o = std::size_t(piece.output);
    compare_row(sample.entry, piece.output, sample.rows[std::size_t(piece.row)],
                std::span(sample.cols).subspan(std::size_t(piece.col), piece.stored.size()),
                piece.stored, outputs, findings);
    if (!state.keeps) return;
    Kept& kept = state.outputs[o];
    const std::size_t at = std::size_t(piece.row) * width + std::size_t(piece.col);
    for (std::size_t i = 0; i < piece.stored.size(); ++i) {
      // Values of the output's type already: storing them rounds nothing.
      numeric::store(outputs_[o].type, kept.lo.data(), std::int64_t(at + i), piece.stored[i].lo);
      numeric::store(outputs_[o].type, kept.hi.data(), std::int64_t(at + i), piece.stored[i].hi);
      kept.nan[at + i] = piece.stored[i].nan;
    }
  });
  state.ready = state.keeps;
}

void Expectation::compare_kept(std::size_t index, std::span<void* const> outputs,
                               Findings& findings) {
  const Sample& sample = samples_[index];
  const State& state = states_[index];
  const auto width = std::int64_t(sample.cols.size());
  for (std::size_t o = 0; o < outputs_.size(); ++o) {
    if (outputs_[o].axes != Axes::mn) continue;
    const Kept& kept = state.outputs[o];
    const DType type = outputs_[o].type;
    const std::int64_t runs = (width + kRun - 1) / kRun;
    shared_pool().each(
        std::int64_t(sample.rows.size()) * runs, 64, [&](std::int64_t begin, std::int64_t end) {
          std::array<float, kRun> lo, hi;
          std::array<Stored, kRun> right;
          for (std::int64_t t = begin; t < end; ++t) {
            const std::int64_t row = t / runs, col = t % runs * kRun,
                               count = std::min(kRun, width - col), at = row * width + col;
            numeric::widen(type, kept.lo.data() + at * size_bytes(type), count, lo.data());
            numeric::widen(type, kept.hi.data() + at * size_bytes(type), count, hi.data());
            for (std::size_t i = 0; i < std::size_t(count); ++i)
              right[i] = {lo[i], hi[i], kept.nan[std::size_t(at) + i]};
            compare_row(sample.entry, int(o), sample.rows[std::size_t(row)],
                        std::span(sample.cols).subspan(std::size_t(col), std::size_t(count)),
                        {right.data(), std::size_t(count)}, outputs, findings);
          }
        });
  }
}

void Expectation::compare_lines(std::size_t index, std::span<void* const> outputs,
                                Findings& findings, const KnownLines* skipped) {
  const Sample& sample = samples_[index];
  for (const reference::Line& line : states_[index].lines) {
    if (!line.known) continue;
    const OperandSpec& spec = outputs_[std::size_t(line.output)];
    const std::vector<std::int64_t>* others = nullptr;
    if (skipped != nullptr) {
      const auto found = skipped->find({sample.entry, line.output});
      if (found != skipped->end()) others = &found->second;
    }
    for (std::size_t i = 0; i < line.stored.size(); ++i) {
      const std::int64_t row = line.axes == Axes::m ? sample.rows[i] : -1,
                         col = line.axes == Axes::n ? sample.cols[i] : -1;
      const std::int64_t at = std::max<std::int64_t>(0, std::max(row, col));
      if (others != nullptr && std::ranges::binary_search(*others, at)) continue;
      const float got = numeric::load(spec.type, base(line.output, sample.entry, outputs), at);
      findings.count(1);
      if (!accepts(line.stored[i], got))
        findings.add({line.output, sample.entry, row, col, got, line.stored[i]});
    }
  }
}

void Expectation::compare(std::span<void* const> inputs, std::span<void* const> outputs,
                          const std::function<void()>& progress, Findings& findings,
                          const KnownLines* skipped) {
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    if (states_[i].ready) {
      if (progress) progress();
      compare_kept(i, outputs, findings);
    } else {
      evaluate(i, inputs, outputs, progress, findings);
    }
    compare_lines(i, outputs, findings, skipped);
  }
}

KnownLines Expectation::lines() const {
  KnownLines known;
  for (std::size_t o = 0; o < outputs_.size(); ++o) {
    if (outputs_[o].axes == Axes::mn) continue;
    const auto made = std::ranges::find(problem_.epilogue.assignments, outputs_[o].name,
                                        &EpilogueAssignment::name);
    const Axes over = made->reduction == Reduction::none ? Axes::none : made->reduced;
    for (const Sample& sample : samples_) {
      if (within(Axes::n, over) && std::int64_t(sample.cols.size()) != columns(problem_)) continue;
      if (within(Axes::m, over) && std::int64_t(sample.rows.size()) != problem_.m) continue;
      std::vector<std::int64_t>& list = known[{sample.entry, int(o)}];
      const std::vector<std::int64_t> one = {0};
      const auto& indices = outputs_[o].axes == Axes::m   ? sample.rows
                            : outputs_[o].axes == Axes::n ? sample.cols
                                                          : one;
      list.insert(list.end(), indices.begin(), indices.end());
      std::ranges::sort(list);
    }
  }
  return known;
}

}  // namespace lapidary::worker
