#pragma once

#include <span>
#include <string>
#include <vector>

#include "lapidary/candidate.h"
#include "support/result.h"
#include "tuner/rematch.h"

namespace lapidary::cli {

/// A line of a suite and what became of it.
struct TunedLine {
  std::string name;
  TuneResult result;  ///< under an error the problem alone
  std::string error;  ///< why nothing became of it; "" otherwise
};

/// A line of `bench`.
struct BenchedLine {
  std::string name;
  GemmProblem problem;
  std::optional<tuner::Rematch> match;
  std::string skipped;  ///< why there is no match
};
struct BenchSummary {
  std::string against;
  std::vector<BenchedLine> lines;
  double seconds = 0;
  std::int64_t peak_bytes = 0;    ///< of a worker
  double geomean() const;         ///< over the lines with a match; 0 without any
  double geomean_steady() const;  ///< the same of those measured under the power limit
  std::size_t count() const;
};

/// The result JSON of docs/cli.md.
std::string tune_json(const DeviceInfo& device, std::span<const TunedLine> lines);
std::string bench_json(const DeviceInfo& device, const BenchSummary& summary);
std::string tune_csv(std::span<const TunedLine> lines);
std::string bench_csv(const BenchSummary& summary);

/// The table of one problem: a header, a line a candidate with time, percent of the best and
/// config; for a refused, failed or wrong one the reason. `all`: also those that were not measured.
std::string tune_table(const TunedLine& line, bool all, bool colour);
std::string bench_table(const BenchSummary& summary);

/// Why backends could not serve problems: "backend: reason", and of how many problems. Most
/// frequent first.
std::vector<std::pair<std::string, int>> refusals(std::span<const TunedLine> lines);

/// Writes a report where its flag says: "-" is stdout.
Status write_report(const std::string& file, const std::string& text);

/// Colours are wanted: stdout is a terminal and NO_COLOR is not set.
bool colour_wanted();

}  // namespace lapidary::cli
