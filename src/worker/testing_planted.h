#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "backends/backend.h"
#include "lapidary/problem.h"

// Wrong kernels on purpose, to show that verification and the worker catch each of them. All are
// made from one plain right one, which shares nothing with the real backends.
namespace lapidary::worker {

struct Planted {
  std::string_view name, about;
  /// The check whose verdict names it; "process" when only another process survives it; "" when it
  /// passes.
  std::string_view caught_by;
  /// Is it wrong on this problem at all?
  bool (*applies)(const GemmProblem&);
  std::unique_ptr<backends::Executable> (*make)(const GemmProblem&);
};

std::span<const Planted> planted();
/// The plant of that name, null when there is none.
const Planted* find_planted(std::string_view name);

/// The right one: f32 loops over rows.
std::unique_ptr<backends::Executable> right_executable(const GemmProblem& problem);

/// Offers the plants that apply to a problem as {"plant": name}, or those that LAPIDARY_PLANTED
/// lists, separated by commas. Compiles also {"plant": "right"}.
class PlantedBackend : public backends::Backend {
 public:
  std::string_view name() const override { return "planted"; }
  Result<std::string> version() const override;
  std::vector<Offer> candidates(const GemmProblem& problem,
                                const DeviceInfo& device) const override;
  Result<std::unique_ptr<backends::Executable>> compile(const GemmProblem& problem,
                                                        const Config& config,
                                                        const DeviceInfo& device) const override;
};

}  // namespace lapidary::worker
