#include "tuner/tune.h"

#include <algorithm>
#include <chrono>

#include "tuner/probe.h"
#include "tuner/rematch.h"
#include "tuner/stages.h"

namespace lapidary::tuner {
namespace {

using Clock = std::chrono::steady_clock;

Measurement row_of(const Offer& offer, CandidateStatus status, std::string reason) {
  return {.candidate = offer.candidate,
          .status = status,
          .reason = std::move(reason),
          .workspace_bytes = offer.workspace_bytes,
          .packed_bytes = offer.packed_bytes,
          .predicted_us = offer.predicted_us};
}

}  // namespace

bool is_empty(const GemmProblem& p) { return p.m == 0 || p.n == 0 || p.batch == 0; }

Result<TuneResult> tune(const GemmProblem& problem, const Tools& tools,
                        const TuneOptions& options) {
  const Clock::time_point start = Clock::now();
  const Budget budget{
      [start] { return std::chrono::duration<double>(Clock::now() - start).count(); },
      options.budget_s};
  TuneResult result{.problem = problem, .winner = {}, .fallback = {}, .candidates = {}};
  if (is_empty(problem)) return result;

  const DeviceInfo& device = tools.device;
  if (!options.retune) {
    if (auto stored = lookup(tools.store, device, problem)) return *std::move(stored);
  }
  if (options.replay_only) {
    return fail(ErrorCode::io, "tune: nothing stored for {} and --replay-only forbids measuring",
                summary(problem));
  }

  // enumerate
  LAPIDARY_TRY(
      worker::Reply enumerated,
      tools.worker.call({.ask = worker::Ask::offers, .problem = text(problem), .candidate = {}}));
  std::vector<Offer>& offers = enumerated.offers;
  refuse(offers, problem, options, [&](const Candidate& candidate) {
    return quarantined(tools.store, device, problem, candidate);
  });
  const Ranked ranked = rank(offers, options);

  WorkerProbe worker(tools.worker, problem, options,
                     options.rotate_bytes > 0 ? options.rotate_bytes : rotation_bytes(device),
                     [&](const Candidate& candidate, const std::string& why) {
                       quarantine(tools.store, device, problem, candidate, why);
                     });
  const Probe probe = worker.probe();
  LAPIDARY_TRY(result.candidates, race(ranked.chosen, probe, budget, options));
  if (const std::optional<std::size_t> first = select(result.candidates)) {
    LAPIDARY_TRY(const std::size_t winner,
                 confirm(result.candidates, *first, probe, budget, options));
    result.winner = result.candidates[winner];
  }
  if (!result.candidates.empty()) result.fallback = result.candidates.front();

  for (const Offer& offer : ranked.passed_over) {
    result.candidates.push_back(
        row_of(offer, CandidateStatus::slow,
               fmt::format("not measured: predicted {:.1f} us", offer.predicted_us)));
  }
  for (const Offer& offer : offers) {
    if (!offer.refused.empty())
      result.candidates.push_back(row_of(offer, CandidateStatus::refused, offer.refused));
  }
  order_rows(result.candidates);
  result.tune_seconds = result.first_seconds = budget.seconds();
  if (result.winner) {
    remember(tools.store, device, result);
  } else if (!budget.left()) {
    return fail(ErrorCode::timeout,
                "tune: {}: {:g} s ended before a candidate was proved; give a larger --budget",
                summary(problem), options.budget_s);
  }
  return result;
}

}  // namespace lapidary::tuner
