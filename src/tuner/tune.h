#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lapidary/candidate.h"
#include "store/store.h"
#include "support/result.h"
#include "worker/client.h"

namespace lapidary::tuner {

/// What a tune is doing, for a progress line.
struct Progress {
  std::string stage;   ///< "measure", "verify": a stage of tune.cc
  std::string detail;  ///< candidate or step
  int done = 0, total = 0;
};

struct TuneOptions {
  double budget_s = 0;      ///< for this problem; 0: none
  int keep = 10;            ///< best-ranked candidates that are measured, and every backend's best
  int explore = 2;          ///< and so many more from the rest, spread evenly
  int rounds = 9;           ///< replays of a finalist, at least 7
  double replay_us = 2000;  ///< a replay runs as often as fits in this
  /// A candidate predicted to run longer is refused: a run may take 10 s, and predictions may be
  /// off by five.
  double limit_us = 2e6;
  std::int64_t rotate_bytes = 0;  ///< that one round of replays touches; 0: from the device's cache
  std::uint64_t seed = 1;         ///< of operands and of verification
  bool retune = false;            ///< ignore what is stored
  bool replay_only = false;       ///< never measure: a miss is an error
  std::function<void(const Progress&)> progress = {};
  std::function<bool()> cancelled = {};
};

/// What a tune works with; borrowed.
struct Tools {
  worker::Client& worker;
  store::Store& store;
  DeviceInfo device;  ///< what the worker will find
};

/// Tunes one checked problem: the list in tune.cc. A result without winner says in each candidate
/// why not. Errors: `cancelled`; `timeout` when the budget ended before anything was verified;
/// `device_fault` when no worker can be started; `io` under replay_only when nothing is stored.
Result<TuneResult> tune(const GemmProblem& problem, const Tools& tools, const TuneOptions& options);

/// True when D has no element: nothing to tune and nothing to run but the identity of reductions.
bool is_empty(const GemmProblem& problem);

}  // namespace lapidary::tuner
