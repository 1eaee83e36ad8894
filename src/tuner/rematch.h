#pragma once

#include "tuner/tune.h"

namespace lapidary::tuner {

/// Two contenders under the power limit: blocks in turn (A B B A), means of each side's.
struct SteadyMatch {
  driver::Effort ours, theirs;
  double ratio() const { return theirs.time_us / ours.time_us; }
};

/// Two contenders of one problem timed against each other in one run.
struct Rematch {
  Candidate ours, theirs;  ///< theirs: the fastest of the rivals
  double ours_us = 0, theirs_us = 0;
  double ratio = 0;  ///< theirs / ours: over 1 means that ours is faster
  bool repeated =
      false;  ///< ours was more than 5 % behind, so the figures are from three times the replays
  std::optional<SteadyMatch> steady{};  ///< when asked for
  /// Both are the same candidate: the ratio is 1, and nothing was measured unless asked for.
  bool same = false;
};

struct RematchOptions {
  double steady_s = 0;     ///< length of a block without a rest; 0: none
  bool time_same = false;  ///< measure also where both are the same candidate
};

/// Measures `ours` against `rivals`, replay by replay (A B B A), on fresh buffers; both are
/// verified first; and then, where `more` asks for it, in blocks without a rest. A rival that fails
/// or is wrong is out; `unsupported` when none is left.
Result<Rematch> rematch(const GemmProblem& problem, const Candidate& ours,
                        const std::vector<Candidate>& rivals, const Tools& tools,
                        const TuneOptions& options, const RematchOptions& more = {});

/// The legal candidates of one backend for a problem, best ranked first; `unsupported` with its
/// reasons if none.
Result<std::vector<Candidate>> candidates_of(const GemmProblem& problem, std::string_view backend,
                                             const Tools& tools, const TuneOptions& options);

/// Three times the last-level cache, at most 512 MiB or an eighth of memory (180 MiB on an H200):
/// what one round of replays touches, so that no candidate finds its operands there. (A virtual
/// machine may report the cache of the whole host.)
std::int64_t rotation_bytes(const DeviceInfo& device);

}  // namespace lapidary::tuner
