#include <algorithm>

#include "tuner/stages.h"

namespace lapidary::tuner {

Result<std::vector<Measurement>> race(std::vector<Offer> chosen, const Probe& probe,
                                      const Budget& budget, const TuneOptions& options) {
  std::vector<Measurement> rows, out;
  for (;;) {
    LAPIDARY_TRY(rows, measure(chosen, probe, budget, options));
    LAPIDARY_TRY_STATUS(verify(rows, probe, budget, options));
    const auto is_out = [](const Measurement& row) {
      return row.status == CandidateStatus::wrong || row.status == CandidateStatus::failed;
    };
    const std::optional<std::size_t> winner = select(rows);
    const bool any_wrong = std::ranges::any_of(
        rows, [](const Measurement& row) { return row.status == CandidateStatus::wrong; });
    const bool any_dropped = std::ranges::any_of(rows, [&](const Measurement& row) {
      return row.status == CandidateStatus::slow && row.time_us &&
             (!winner || *row.time_us < 1.1 * *rows[*winner].time_us);
    });
    if (!any_wrong || !any_dropped || !budget.left()) break;
    // Right ones dropped out behind a wrong one: they race again without it. Every turn loses at
    // least one, so it ends.
    for (const Measurement& row : rows) {
      if (!is_out(row)) continue;
      std::erase_if(chosen, [&](const Offer& offer) { return offer.candidate == row.candidate; });
      out.push_back(row);
    }
  }
  rows.insert(rows.end(), out.begin(), out.end());
  return rows;
}

}  // namespace lapidary::tuner
