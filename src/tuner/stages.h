#pragma once

// The stages of tune.cc, a file each: functions from values to values. What needs a device is
// behind Probe.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lapidary/candidate.h"
#include "support/result.h"
#include "tuner/tune.h"

namespace lapidary::tuner {

/// What the stages ask of a device.
struct Probe {
  struct Prepared {
    double time_us = 0;
    std::int64_t workspace_bytes = 0, packed_bytes = 0;
  };
  /// Compiles and runs once. `launch_failed`: the candidate broke its worker, twice.
  /// `device_fault`: the worker cannot be had, whatever the candidate.
  std::function<Result<Prepared>(const Candidate&)> prepare;
  /// Microseconds of one run, over `repeats` of them.
  std::function<Result<double>(const Candidate&, std::int64_t repeats)> replay;
  /// The same without a rest for so many seconds, of which the second half counts.
  std::function<Result<driver::Effort>(const Candidate&, std::int64_t repeats, double seconds)>
      sustain = {};
  /// Out of the race: what was made ready for it may go.
  std::function<void(const Candidate&)> release = [](const Candidate&) {};
  /// Empty: proved right. Else the check that failed and the reason.
  std::function<Result<std::optional<std::string>>(const Candidate&)> verify;
};

/// Seconds since the tune began; false once its budget is spent.
struct Budget {
  std::function<double()> seconds;
  double limit_s = 0;
  bool left() const { return limit_s <= 0 || seconds() < limit_s; }
};

/// A problem's stored result, marked as such. Anything unreadable is a miss.
std::optional<TuneResult> lookup(store::Store& store, const DeviceInfo& device,
                                 const GemmProblem& problem);
void remember(store::Store& store, const DeviceInfo& device, const TuneResult& result);

/// Why a candidate is quarantined for a problem, "" when it is not; and the entry that makes it so.
std::string quarantined(store::Store& store, const DeviceInfo& device, const GemmProblem& problem,
                        const Candidate& candidate);
void quarantine(store::Store& store, const DeviceInfo& device, const GemmProblem& problem,
                const Candidate& candidate, const std::string& why);

/// Fills in the reason of every offer that cannot be used: over the workspace limit, predicted to
/// run too long, quarantined (`quarantined` gives the reason, or "").
void refuse(std::vector<Offer>& offers, const GemmProblem& problem, const TuneOptions& options,
            const std::function<std::string(const Candidate&)>& quarantined);

/// Legal offers, best predicted first; ties by candidate. The first is the default.
struct Ranked {
  std::vector<Offer> chosen;       ///< to be measured: the best, every backend's best, the explored
  std::vector<Offer> passed_over;  ///< legal, but left out
};
Ranked rank(const std::vector<Offer>& offers, const TuneOptions& options);

/// Compiles and times the chosen ones: interleaved rounds (A B C, C B A, ...), slow ones drop out
/// early, the default (the first) never does. Every candidate gets a row.
Result<std::vector<Measurement>> measure(const std::vector<Offer>& chosen, const Probe& probe,
                                         const Budget& budget, const TuneOptions& options);

/// Proves the default and, fastest first, the others until every one within the noise of the
/// fastest proved one is judged. Wrong ones get their status and reason.
Status verify(std::vector<Measurement>& measured, const Probe& probe, const Budget& budget,
              const TuneOptions& options);

/// measure and verify, again without the wrong ones as long as right ones dropped out behind a
/// wrong one.
Result<std::vector<Measurement>> race(std::vector<Offer> chosen, const Probe& probe,
                                      const Budget& budget, const TuneOptions& options);

/// True for an error that is no candidate's: it ends the tune.
bool ends_the_tune(const Error& error);

/// The part of its time by which a candidate's median may be chance: max of 0.5 % and twice the
/// spread.
double noise(const Measurement& row);

/// Medians in microseconds of two candidates that are replayed in turn (A B B A), so many times
/// each.
struct Duel {
  double first_us = 0, second_us = 0;
};
Result<Duel> duel(const Probe& probe, const Measurement& first, const Measurement& second,
                  int replays, const TuneOptions& options);
double median(std::vector<double> values);
/// How often a replay runs a candidate of that time.
std::int64_t repeats_of(double time_us, const TuneOptions& options);

/// The winner once more against the default, alone, since what decides between them is
/// kept: the winner must lead again by more than the noise, else the default stays. Gives the index
/// of who is left.
Result<std::size_t> confirm(std::vector<Measurement>& measured, std::size_t winner,
                            const Probe& probe, const Budget& budget, const TuneOptions& options);

/// The winner among the proved: index into `measured`, whose first row is the default (the best
/// ranked that is not out); empty when none is proved. The default keeps its place unless beaten by
/// more than the noise (max of 0.5 % and twice the spread); among those within the noise of the
/// fastest the smallest workspace wins, then the smallest candidate.
std::optional<std::size_t> select(const std::vector<Measurement>& measured);

/// Fastest first, then those without a time: not measured, wrong, failed, refused.
void order_rows(std::vector<Measurement>& rows);

}  // namespace lapidary::tuner
