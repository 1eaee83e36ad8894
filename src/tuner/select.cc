#include <algorithm>
#include <cmath>
#include <tuple>

#include "tuner/stages.h"

namespace lapidary::tuner {
namespace {

constexpr double kNoiseFloor =
    0.005;  // 0.5 %: below this, differences of medians come and go between processes

bool proved(const Measurement& row) {
  return row.status == CandidateStatus::ok && row.verified && row.time_us;
}

}  // namespace

double noise(const Measurement& row) { return std::max(kNoiseFloor, 2 * row.spread); }

std::optional<std::size_t> select(const std::vector<Measurement>& measured) {
  std::optional<std::size_t> fastest;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    if (proved(measured[i]) && (!fastest || *measured[i].time_us < *measured[*fastest].time_us))
      fastest = i;
  }
  if (!fastest) return std::nullopt;
  const auto within_noise = [&](const Measurement& row) {
    const double slack = std::max(noise(row), noise(measured[*fastest]));
    return proved(row) && *row.time_us <= *measured[*fastest].time_us * (1 + slack);
  };
  if (within_noise(measured.front())) return 0;  // the default keeps its place
  std::size_t best = *fastest;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    if (!within_noise(measured[i])) continue;
    const auto order = [](const Measurement& row) {
      return std::tuple(row.workspace_bytes, row.candidate);
    };
    if (order(measured[i]) < order(measured[best])) best = i;
  }
  return best;
}

void order_rows(std::vector<Measurement>& rows) {
  const auto status_rank = [](CandidateStatus status) {
    switch (status) {
      case CandidateStatus::ok:
      case CandidateStatus::slow:
        return 0;
      case CandidateStatus::wrong:
        return 2;
      case CandidateStatus::failed:
        return 3;
      case CandidateStatus::refused:
        return 4;
    }
    return 5;
  };
  std::ranges::sort(rows, [&](const Measurement& a, const Measurement& b) {
    const auto key = [&](const Measurement& row) {
      return std::tuple(status_rank(row.status), row.time_us.value_or(INFINITY), row.candidate);
    };
    return key(a) < key(b);
  });
}

}  // namespace lapidary::tuner
