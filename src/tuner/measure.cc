#include <algorithm>
#include <cmath>

#include "support/result.h"
#include "tuner/stages.h"

namespace lapidary::tuner {
namespace {

/// A candidate in the race: its replays so far.
struct Runner {
  std::size_t row;
  std::int64_t repeats;
  std::vector<double> times_us;
};

void summarise(const Runner& runner, Measurement& row) {
  if (runner.times_us.empty()) return;
  const double middle = median(runner.times_us);
  std::vector<double> deviations;
  for (const double t : runner.times_us) deviations.push_back(std::abs(t - middle));
  row.time_us = middle;
  row.spread = middle > 0 ? median(deviations) / middle : 0;
}

void fail_row(Measurement& row, const Error& error) {
  row.status =
      error.code == ErrorCode::wrong_result ? CandidateStatus::wrong : CandidateStatus::failed;
  row.reason = error.message;
  row.time_us.reset();
}

constexpr double kLongRunUs = 20e3;  // page faults and waking threads are noise to it

/// How much slower than the best a candidate may be after so many rounds: less as its median gets
/// firm.
double allowance(int rounds_done) { return rounds_done <= 1 ? 1.6 : rounds_done <= 3 ? 1.25 : 1.1; }

}  // namespace

bool ends_the_tune(const Error& error) {
  return error.code == ErrorCode::cancelled || error.code == ErrorCode::internal ||
         error.code == ErrorCode::device_fault;
}

Result<std::vector<Measurement>> measure(const std::vector<Offer>& chosen, const Probe& probe,
                                         const Budget& budget, const TuneOptions& options) {
  std::vector<Measurement> rows;
  std::vector<Runner> race;
  double best_first = INFINITY;
  for (const Offer& offer : chosen) {
    rows.push_back({.candidate = offer.candidate,
                    .reason = "",
                    .workspace_bytes = offer.workspace_bytes,
                    .packed_bytes = offer.packed_bytes,
                    .predicted_us = offer.predicted_us});
    Measurement& row = rows.back();
    if (!budget.left() && rows.size() > 1) {
      row.status = CandidateStatus::slow;
      row.reason = "not measured: the budget ended";
      continue;
    }
    if (options.progress) {
      options.progress({"compile", text(offer.candidate), static_cast<int>(rows.size()),
                        static_cast<int>(chosen.size())});
    }
    const Result<Probe::Prepared> prepared = probe.prepare(offer.candidate);
    if (!prepared) {
      if (ends_the_tune(prepared.error())) return prepared.error();
      fail_row(row, prepared.error());
      continue;
    }
    row.workspace_bytes = prepared->workspace_bytes;
    row.packed_bytes = prepared->packed_bytes;
    if (row.workspace_bytes > offer.workspace_bytes) {
      row.status = CandidateStatus::failed;
      row.reason = fmt::format("takes {} bytes of workspace but offered {}", row.workspace_bytes,
                               offer.workspace_bytes);
      continue;
    }
    // So far behind at once is no accident of a first run; a long run has few accidents to begin
    // with.
    const double hopeless = prepared->time_us > kLongRunUs ? 2.5 : 10;
    if (rows.size() > 1 && prepared->time_us > hopeless * best_first) {
      row.status = CandidateStatus::slow;
      row.reason = fmt::format("dropped after its first runs, {:.3g} ms, {:.1f}x the fastest",
                               prepared->time_us * 1e-3, prepared->time_us / best_first);
      probe.release(offer.candidate);
      continue;
    }
    best_first = std::min(best_first, prepared->time_us);
    race.push_back({rows.size() - 1, repeats_of(prepared->time_us, options), {}});
  }

  for (int round = 0; round < options.rounds && budget.left(); ++round) {
    if (options.progress) {
      options.progress({"measure", fmt::format("{} left", race.size()), round + 1, options.rounds});
    }
    for (std::size_t i = 0; i < race.size(); ++i) {
      Runner& runner = race[round % 2 == 0 ? i : race.size() - 1 - i];
      if (options.cancelled && options.cancelled())
        return Error{ErrorCode::cancelled, "interrupted"};
      const Result<double> time = probe.replay(rows[runner.row].candidate, runner.repeats);
      if (!time) {
        if (ends_the_tune(time.error())) return time.error();
        fail_row(rows[runner.row], time.error());
        continue;
      }
      runner.times_us.push_back(*time);
    }
    double best = INFINITY;
    for (const Runner& runner : race) {
      if (rows[runner.row].status != CandidateStatus::ok) continue;
      summarise(runner, rows[runner.row]);
      best = std::min(best, rows[runner.row].time_us.value_or(INFINITY));
    }
    std::erase_if(race, [&](const Runner& runner) {
      Measurement& row = rows[runner.row];
      if (row.status != CandidateStatus::ok) return true;
      if (runner.row == 0 || *row.time_us <= best * allowance(round + 1)) return false;
      row.status = CandidateStatus::slow;
      row.reason = fmt::format("dropped after {} of {} rounds, {:.2f}x the fastest", round + 1,
                               options.rounds, *row.time_us / best);
      probe.release(row.candidate);
      return true;
    });
  }
  for (const Runner& runner : race) {
    if (runner.times_us.empty() && rows[runner.row].status == CandidateStatus::ok) {
      rows[runner.row].status = CandidateStatus::slow;
      rows[runner.row].reason = "not measured: the budget ended";
    }
  }
  return rows;
}

}  // namespace lapidary::tuner
