#include <algorithm>
#include <numeric>

#include "tuner/stages.h"

namespace lapidary::tuner {

Status verify(std::vector<Measurement>& measured, const Probe& probe, const Budget& budget,
              const TuneOptions& options) {
  const auto judge = [&](Measurement& row) -> Status {
    if (options.progress) options.progress({"verify", text(row.candidate), 0, 0});
    const Result<std::optional<std::string>> verdict = probe.verify(row.candidate);
    if (!verdict) {
      if (ends_the_tune(verdict.error())) return verdict.error();
      row.status = CandidateStatus::failed;
      row.reason = verdict.error().message;
    } else if (verdict->has_value()) {
      row.status = CandidateStatus::wrong;
      row.reason = **verdict;
    } else {
      row.verified = true;
    }
    return {};
  };
  const auto waiting = [](const Measurement& row) {
    return row.status == CandidateStatus::ok && row.time_us && !row.verified;
  };

  // Once the fastest of all is proved, only those that `select` could still prefer are worth
  // proving: each may be as much slower as its own or the fastest one's noise.
  for (bool first = true;; first = false) {
    if (!first && !budget.left()) break;
    const std::optional<std::size_t> best = select(measured);
    std::vector<std::size_t> order(measured.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::erase_if(order, [&](std::size_t i) { return !waiting(measured[i]); });
    if (order.empty()) break;
    const std::size_t next =
        *std::ranges::min_element(order, {}, [&](std::size_t i) { return *measured[i].time_us; });
    const Measurement& row = measured[next];
    if (best) {
      const double limit =
          *measured[*best].time_us * (1 + std::max(noise(row), noise(measured[*best])));
      if (*row.time_us > limit) break;
    }
    LAPIDARY_TRY_STATUS(judge(measured[next]));
  }
  // The default is what a plan without a store would use: it is proved whatever its time.
  if (!measured.empty() && waiting(measured.front()) && budget.left())
    LAPIDARY_TRY_STATUS(judge(measured.front()));
  for (Measurement& row : measured) {
    if (!waiting(row)) continue;
    row.status = CandidateStatus::slow;
    row.reason = "not verified: behind the winner";
  }
  return {};
}

}  // namespace lapidary::tuner
