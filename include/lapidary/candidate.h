#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lapidary/device.h"
#include "lapidary/problem.h"

namespace lapidary {

/// Fields of a kernel's configuration by name, e.g. {"tile_m": 128, "kind": "stream"}. Sorted, so
/// that equal configs have equal texts.
using ConfigValue = std::variant<std::int64_t, std::string>;
using Config = std::map<std::string, ConfigValue>;

/// Compact JSON object: {"kind":"stream","tile_m":128}.
std::string text(const Config& config);
/// kind=stream tile_m=128, for tables.
std::string summary(const Config& config);

/// One way to compute a problem: a backend and its configuration.
struct Candidate {
  std::string backend{};
  Config config{};
  auto operator<=>(const Candidate&) const = default;
};

/// "onednn {"fused":1}": names a candidate in keys and messages.
std::string text(const Candidate& candidate);

/// A candidate that a backend offers for a problem, or, with a reason, why it cannot be.
struct Offer {
  Candidate candidate{};
  std::string refused{};    ///< empty: legal
  double predicted_us = 0;  ///< cost model, one run at full clock
  std::int64_t workspace_bytes = 0;
  std::int64_t packed_bytes = 0;  ///< of constant operands, packed ahead of runs
  bool operator==(const Offer&) const = default;
};

enum class CandidateStatus : std::uint8_t { ok, refused, failed, wrong, slow };
/// "ok", "refused", "failed", "wrong", "slow".
const char* name(CandidateStatus status);

/// What became of a candidate in a tune.
struct Measurement {
  Candidate candidate{};
  CandidateStatus status = CandidateStatus::ok;
  std::string reason{};                                   ///< of any status but ok
  std::optional<double> time_us{};                        ///< burst median
  double spread = 0;                                      ///< median absolute deviation / median
  std::optional<std::int64_t> registers{}, smem_bytes{};  ///< GPU kernels only
  std::int64_t workspace_bytes = 0, packed_bytes = 0;
  double predicted_us = 0;
  bool verified = false;
  bool operator==(const Measurement&) const = default;
};

/// The outcome of tuning one problem: what the store keeps.
struct TuneResult {
  GemmProblem problem{};
  std::optional<Measurement> winner{};
  std::optional<Measurement> fallback{};  ///< the default: ranked first without measuring
  std::vector<Measurement> candidates{};  ///< all, fastest first, then refused ones
  double tune_seconds = 0;                ///< 0 for a store hit
  double first_seconds = 0;               ///< what the tune took that this comes from
  bool from_store = false;
  bool operator==(const TuneResult&) const = default;
};

}  // namespace lapidary
