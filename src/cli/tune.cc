#include "tuner/tune.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "cli/cli.h"
#include "cli/report.h"
#include "cli/session.h"

namespace lapidary::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// The exit code of a problem without a winner.
int outcome(const TuneResult& result) {
  if (result.winner || tuner::is_empty(result.problem)) return kOk;
  const auto has = [&](CandidateStatus status) {
    return std::ranges::any_of(result.candidates,
                               [&](const Measurement& row) { return row.status == status; });
  };
  return has(CandidateStatus::wrong) ? kWrong : kNoCandidate;
}

/// A suite exits with the first of these that occurred.
int worst(const std::vector<int>& codes) {
  for (const int code : {int(kInterrupted), int(kStore), int(kUsage), int(kDeviceFault),
                         int(kWrong), int(kNoCandidate), int(kTimeout), int(kFailed)}) {
    if (std::ranges::find(codes, code) != codes.end()) return code;
  }
  return kOk;
}

}  // namespace

int run_tune(const TuneArguments& arguments) {
  Result<Session> session = open_session(arguments.common, arguments.replay_only);
  if (!session) {
    print_error(session.error());
    return session.error().code == ErrorCode::io ? kStore : exit_code(session.error());
  }
  const Clock::time_point start = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  const bool table = arguments.common.json != "-" && arguments.common.csv != "-";
  std::vector<TunedLine> done;
  std::vector<int> codes;
  std::size_t winners = 0, stored = 0, empty = 0;
  for (std::size_t i = 0; i < arguments.lines.size(); ++i) {
    const SuiteLine& line = arguments.lines[i];
    if (arguments.budget_total_s > 0 && elapsed() >= arguments.budget_total_s) {
      print_error(fail(ErrorCode::timeout,
                       "tune: --budget-total of {:.0f} s ended with {} of {} problems done; the "
                       "same command goes on from there",
                       arguments.budget_total_s, i, arguments.lines.size()));
      codes.push_back(kTimeout);
      break;
    }
    session->progress->task(
        fmt::format("[{}/{}] {} m={}", i + 1, arguments.lines.size(), line.name, line.problem.m));
    tuner::TuneOptions options{
        .budget_s = arguments.budget_s,
        .keep = arguments.keep,
        .rounds = arguments.rounds,
        .seed = arguments.seed,
        .retune = arguments.retune,
        .replay_only = arguments.replay_only,
        .progress =
            [&](const tuner::Progress& p) {
              session->progress->stage(
                  p.total > 0 ? fmt::format("{} {}/{} {}", p.stage, p.done, p.total, p.detail)
                              : p.stage + " " + p.detail);
            },
        .cancelled = interrupted,
    };
    if (arguments.budget_total_s > 0) {
      const double left = std::max(0.1, arguments.budget_total_s - elapsed());
      options.budget_s = options.budget_s > 0 ? std::min(options.budget_s, left) : left;
    }
    Result<TuneResult> result =
        tuner::tune(line.problem, {*session->worker, *session->store}, options);
    session->progress->clear();
    if (!result) {
      print_error(result.error());
      codes.push_back(result.error().code == ErrorCode::io ? kStore : exit_code(result.error()));
      if (result.error().code == ErrorCode::cancelled) break;
      continue;
    }
    codes.push_back(outcome(*result));
    winners += result->winner.has_value();
    stored += result->from_store;
    empty += tuner::is_empty(result->problem);
    done.push_back({line.name, *std::move(result)});
    if (table) {
      std::fputs(tune_table(done.back(), arguments.all_rows, colour_wanted()).c_str(), stdout);
      std::fflush(stdout);
    }
  }
  DeviceInfo device;
  if (arguments.common.json || arguments.common.csv) {
    if (const auto hello = session->worker->hello()) device = hello->device;
  }
  for (const auto& [file, text] :
       {std::pair(arguments.common.json, arguments.common.json ? tune_json(device, done) : ""),
        std::pair(arguments.common.csv, arguments.common.csv ? tune_csv(done) : "")}) {
    if (!file) continue;
    if (const Status wrote = write_report(*file, text); !wrote) {
      print_error(wrote.error());
      codes.push_back(kFailed);
    }
  }
  const std::int64_t peak_bytes = stop_worker(*session);
  if (table && arguments.lines.size() > 1) {
    std::printf("%zu of %zu problems have a winner, %zu from the store", winners,
                arguments.lines.size() - empty, stored);
    if (empty > 0) std::printf("; %zu have nothing to compute", empty);
    std::printf("; %.1f s, at most %.2f GiB in the worker\n", elapsed(),
                static_cast<double>(peak_bytes) / (1 << 30));
  }
  if (interrupted())
    std::fprintf(stderr, "lapidary: interrupted; %zu finished problems are stored\n", done.size());
  return worst(codes);
}

}  // namespace lapidary::cli
