#include "tuner/rematch.h"

#include <algorithm>

#include "support/log.h"
#include "tuner/probe.h"
#include "tuner/stages.h"

namespace lapidary::tuner {
namespace {

constexpr int kMaxRivals = 8;
constexpr double kSlower = 1.05;  // behind by more than this is measured again before it counts,
constexpr double kFaster = 2;     // and so is a lead that is too good to be true

/// The mean of two blocks.
driver::Effort mean(const driver::Effort& x, const driver::Effort& y) {
  return {.time_us = 0.5 * (x.time_us + y.time_us),
          .clock_mhz = 0.5 * (x.clock_mhz + y.clock_mhz),
          .watts = 0.5 * (x.watts + y.watts),
          .joules = 0.5 * (x.joules + y.joules)};
}

Result<SteadyMatch> fight_steady(const Probe& probe, const Rematch& match, double seconds,
                                 const TuneOptions& options) {
  std::vector<driver::Effort> ours, theirs;
  for (const bool is_ours : {true, false, false, true}) {
    const Candidate& candidate = is_ours ? match.ours : match.theirs;
    const double us = is_ours ? match.ours_us : match.theirs_us;
    LAPIDARY_TRY(const driver::Effort effort,
                 probe.sustain(candidate, repeats_of(us, options), seconds));
    (is_ours ? ours : theirs).push_back(effort);
  }
  return SteadyMatch{mean(ours[0], ours[1]), mean(theirs[0], theirs[1])};
}

}  // namespace

std::int64_t rotation_bytes(const DeviceInfo& device) {
  const std::int64_t cap = std::min<std::int64_t>(512 << 20, device.memory_bytes / 8);
  return std::min(3 * device.cache_bytes, cap);
}

Result<std::vector<Candidate>> candidates_of(const GemmProblem& problem, std::string_view backend,
                                             const Tools& tools, const TuneOptions& options) {
  LAPIDARY_TRY(
      worker::Reply reply,
      tools.worker.call({.ask = worker::Ask::offers, .problem = text(problem), .candidate = {}}));
  std::erase_if(reply.offers,
                [&](const Offer& offer) { return offer.candidate.backend != backend; });
  refuse(reply.offers, problem, options, [](const Candidate&) { return ""; });
  std::string why = reply.offers.empty() ? "it offers nothing" : reply.offers.front().refused;
  TuneOptions all = options;
  all.keep = kMaxRivals;
  all.explore = 0;
  std::vector<Candidate> legal;
  for (const Offer& offer : rank(reply.offers, all).chosen) legal.push_back(offer.candidate);
  if (legal.empty()) return fail(ErrorCode::unsupported, "{}: {}", backend, why);
  return legal;
}

Result<Rematch> rematch(const GemmProblem& problem, const Candidate& ours,
                        const std::vector<Candidate>& rivals, const Tools& tools,
                        const TuneOptions& options, const RematchOptions& more) {
  const bool wanted = more.time_same || more.steady_s > 0;
  if (rivals.size() == 1 && rivals.front() == ours && !wanted)
    return Rematch{.ours = ours, .theirs = ours, .ratio = 1, .same = true};
  WorkerProbe worker(tools.worker, problem, options,
                     options.rotate_bytes > 0 ? options.rotate_bytes : rotation_bytes(tools.device),
                     [](const Candidate&, const std::string&) {});
  const Probe probe = worker.probe();
  const auto admit = [&](const Candidate& candidate) -> Result<double> {
    LAPIDARY_TRY(const std::optional<std::string> fault, probe.verify(candidate));
    if (fault) return fail(ErrorCode::wrong_result, "{}: {}", text(candidate), *fault);
    LAPIDARY_TRY(const Probe::Prepared ready, probe.prepare(candidate));
    return probe.replay(candidate, repeats_of(ready.time_us, options));
  };

  LAPIDARY_TRY(const double ours_us, admit(ours));
  std::string why;
  std::optional<Candidate> rival;
  double rival_us = 0;
  for (const Candidate& candidate : rivals) {
    const Result<double> us = admit(candidate);
    if (!us) {
      if (ends_the_tune(us.error())) return us.error();
      why = us.error().message;
      continue;
    }
    if (!rival || *us < rival_us) {
      rival = candidate;
      rival_us = *us;
    }
  }
  if (!rival) return fail(ErrorCode::unsupported, "bench: no rival ran right: {}", why);

  Rematch match{.ours = ours, .theirs = *rival};
  match.same = *rival == ours;
  if (match.same) {
    match.ratio = 1;
    if (!wanted) return match;
    const Measurement row{.candidate = ours, .time_us = ours_us};
    LAPIDARY_TRY(const Duel alone,
                 duel(probe, row, row, (std::max(7, options.rounds) + 1) / 2, options));
    match.ours_us = match.theirs_us = 0.5 * (alone.first_us + alone.second_us);
  } else {
    for (const int times : {1, 3}) {
      match.repeated = times > 1;
      LAPIDARY_TRY(const Duel fought, duel(probe, {.candidate = ours, .time_us = ours_us},
                                           {.candidate = *rival, .time_us = rival_us},
                                           std::max(7, options.rounds) * times, options));
      match.ours_us = fought.first_us;
      match.theirs_us = fought.second_us;
      match.ratio = fought.second_us / fought.first_us;
      if (match.ratio >= 1 / kSlower && match.ratio <= kFaster) break;
    }
  }
  // Of one against itself what is left is the noise, and the clock and the watts are known.
  if (more.steady_s > 0) {
    LAPIDARY_TRY(match.steady, fight_steady(probe, match, more.steady_s, options));
  }
  return match;
}

}  // namespace lapidary::tuner
