#include <algorithm>
#include <set>
#include <string>

#include "tuner/stages.h"

namespace lapidary::tuner {

Ranked rank(const std::vector<Offer>& offers, const TuneOptions& options) {
  std::vector<Offer> legal;
  std::ranges::copy_if(offers, std::back_inserter(legal),
                       [](const Offer& o) { return o.refused.empty(); });
  std::ranges::sort(legal, [](const Offer& a, const Offer& b) {
    return a.predicted_us != b.predicted_us ? a.predicted_us < b.predicted_us
                                            : a.candidate < b.candidate;
  });
  // The best, and of every backend its best: a model that misjudges one backend must not hide it.
  const auto keep = std::min(legal.size(), static_cast<std::size_t>(std::max(1, options.keep)));
  std::set<std::string> seen;
  std::vector<Offer> rest;
  Ranked ranked;
  for (std::size_t i = 0; i < legal.size(); ++i) {
    const bool first_of_backend = seen.insert(legal[i].candidate.backend).second;
    (i < keep || first_of_backend ? ranked.chosen : rest).push_back(std::move(legal[i]));
  }
  // Of the rest every (rest / explore)th, its middle: a share of each part of the ranking.
  const auto explore =
      std::min(rest.size(), static_cast<std::size_t>(std::max(0, options.explore)));
  for (std::size_t i = 0; i < rest.size(); ++i) {
    const bool explored = explore > 0 && (i * explore + explore / 2) % rest.size() < explore;
    (explored ? ranked.chosen : ranked.passed_over).push_back(std::move(rest[i]));
  }
  return ranked;
}

}  // namespace lapidary::tuner
