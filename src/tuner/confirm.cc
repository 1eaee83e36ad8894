#include <algorithm>

#include "tuner/stages.h"

namespace lapidary::tuner {
namespace {

// A lead by this factor needs no second look. Smaller ones do: on a disturbed machine candidates
// that race in alternation were seen off by factors of two.
constexpr double kClear = 4;
constexpr int kReplays = 9;

}  // namespace

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

std::int64_t repeats_of(double time_us, const TuneOptions& options) {
  return static_cast<std::int64_t>(
      std::clamp(options.replay_us / std::max(time_us, 0.1), 1.0, 2000.0));
}

Result<Duel> duel(const Probe& probe, const Measurement& first, const Measurement& second,
                  int replays, const TuneOptions& options) {
  std::vector<double> first_us, second_us;
  for (int i = 0; i < replays; ++i) {
    for (int turn = 0; turn < 2; ++turn) {
      const bool is_first = (turn == 0) == (i % 2 == 0);
      const Measurement& row = is_first ? first : second;
      LAPIDARY_TRY(const double us,
                   probe.replay(row.candidate, repeats_of(row.time_us.value_or(0), options)));
      (is_first ? first_us : second_us).push_back(us);
    }
  }
  return Duel{median(first_us), median(second_us)};
}

Result<std::size_t> confirm(std::vector<Measurement>& measured, std::size_t winner,
                            const Probe& probe, const Budget& budget, const TuneOptions& options) {
  const Measurement& fallback = measured.front();
  const bool fallback_stands =
      fallback.status == CandidateStatus::ok && fallback.verified && fallback.time_us;
  if (winner == 0 || !fallback_stands || !budget.left()) return winner;
  if (*fallback.time_us > kClear * *measured[winner].time_us) return winner;
  if (options.progress) options.progress({"confirm", text(measured[winner].candidate), 0, 0});
  const Result<Duel> fought = duel(probe, measured[winner], fallback, kReplays, options);
  if (!fought) {
    if (ends_the_tune(fought.error())) return fought.error();
    return winner;  // whoever failed was proved before; the race's figures stand
  }
  // What decides is what is shown and stored.
  measured[winner].time_us = fought->first_us;
  measured.front().time_us = fought->second_us;
  const double slack = std::max(noise(measured[winner]), noise(fallback));
  return fought->first_us * (1 + slack) < fought->second_us ? winner : std::size_t{0};
}

}  // namespace lapidary::tuner
