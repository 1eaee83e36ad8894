#include "tuner/stages.h"

namespace lapidary::tuner {

void refuse(std::vector<Offer>& offers, const GemmProblem& problem, const TuneOptions& options,
            const std::function<std::string(const Candidate&)>& quarantined) {
  for (Offer& offer : offers) {
    if (!offer.refused.empty()) continue;
    if (offer.workspace_bytes > problem.workspace) {
      offer.refused = fmt::format("needs {} bytes of workspace; the problem allows {}",
                                  offer.workspace_bytes, problem.workspace);
    } else if (offer.predicted_us > options.limit_us) {
      offer.refused = fmt::format("predicted to take {:.0f} s a run; the limit is {:.0f} s",
                                  offer.predicted_us * 1e-6, options.limit_us * 1e-6);
    } else if (const std::string why = quarantined(offer.candidate); !why.empty()) {
      offer.refused = "quarantined: " + why;
    }
  }
}

}  // namespace lapidary::tuner
