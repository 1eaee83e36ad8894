#include "tuner/rematch.h"

#include <algorithm>

#include "support/log.h"
#include "tuner/probe.h"
#include "tuner/stages.h"

namespace lapidary::tuner {
namespace {

constexpr int kMaxRivals = 8;
constexpr double kSlower = 1.05;  // behind by more than this is measured again before it counts

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

/// Medians of both in microseconds, after `replays` of each.
Result<std::pair<double, double>> duel(const Probe& probe, const Candidate& a,
                                       std::int64_t a_repeats, const Candidate& b,
                                       std::int64_t b_repeats, int replays) {
  std::vector<double> a_us, b_us;
  for (int i = 0; i < replays; ++i) {
    for (int turn = 0; turn < 2; ++turn) {
      const bool is_a = (turn == 0) == (i % 2 == 0);
      LAPIDARY_TRY(const double us, is_a ? probe.replay(a, a_repeats) : probe.replay(b, b_repeats));
      (is_a ? a_us : b_us).push_back(us);
    }
  }
  return std::pair(median(a_us), median(b_us));
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
                        const TuneOptions& options) {
  if (rivals.size() == 1 && rivals.front() == ours)
    return Rematch{.ours = ours, .theirs = ours, .ratio = 1, .same = true};
  LAPIDARY_TRY(const worker::Reply hello, tools.worker.hello());
  WorkerProbe worker(tools.worker, problem, options,
                     options.rotate_bytes > 0 ? options.rotate_bytes : rotation_bytes(hello.device),
                     [](const Candidate&, const std::string&) {});
  const Probe probe = worker.probe();
  const auto repeats = [&](double us) {
    return static_cast<std::int64_t>(
        std::clamp(options.replay_us / std::max(us, 0.1), 1.0, 2000.0));
  };
  const auto admit = [&](const Candidate& candidate) -> Result<double> {
    LAPIDARY_TRY(const std::optional<std::string> fault, probe.verify(candidate));
    if (fault) return fail(ErrorCode::wrong_result, "{}: {}", text(candidate), *fault);
    LAPIDARY_TRY(const Probe::Prepared ready, probe.prepare(candidate));
    return probe.replay(candidate, repeats(ready.time_us));
  };

  LAPIDARY_TRY(const double ours_us, admit(ours));
  std::string why;
  std::optional<Candidate> rival;
  double rival_us = 0;
  for (const Candidate& candidate : rivals) {
    const Result<double> us = admit(candidate);
    if (!us) {
      if (us.error().code == ErrorCode::cancelled) return us.error();
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
  if (*rival == ours) {
    match.same = true;
    match.ours_us = match.theirs_us = ours_us;
    match.ratio = 1;
    return match;
  }
  for (const int times : {1, 3}) {
    match.repeated = times > 1;
    LAPIDARY_TRY(const auto medians, duel(probe, ours, repeats(ours_us), *rival, repeats(rival_us),
                                          std::max(7, options.rounds) * times));
    match.ours_us = medians.first;
    match.theirs_us = medians.second;
    match.ratio = medians.second / medians.first;
    if (match.ratio >= 1 / kSlower) break;
  }
  return match;
}

}  // namespace lapidary::tuner
