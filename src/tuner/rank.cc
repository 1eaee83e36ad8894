#include <algorithm>

#include "tuner/stages.h"

namespace lapidary::tuner {

Ranked rank(const std::vector<Offer>& offers, const TuneOptions& options) {
  std::vector<Offer> legal;
  std::ranges::copy_if(offers, std::back_inserter(legal), [](const Offer& o) { return o.refused.empty(); });
  std::ranges::sort(legal, [](const Offer& a, const Offer& b) {
    return a.predicted_us != b.predicted_us ? a.predicted_us < b.predicted_us : a.candidate < b.candidate;
  });
  Ranked ranked;
  const auto keep = std::min(legal.size(), static_cast<std::size_t>(std::max(1, options.keep)));
  const auto rest = legal.size() - keep;
  const auto explore = std::min(rest, static_cast<std::size_t>(std::max(0, options.explore)));
  for (std::size_t i = 0; i < legal.size(); ++i) {
    // Of the rest every (rest / explore)th, its middle: a share of each part of the ranking.
    const bool explored = i >= keep && explore > 0 && ((i - keep) * explore + explore / 2) % rest < explore;
    (i < keep || explored ? ranked.chosen : ranked.passed_over).push_back(std::move(legal[i]));
  }
  return ranked;
}

}  // namespace lapidary::tuner
