#include "tuner/tune.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>

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

}  // namespace

int gravest(const std::vector<int>& codes) {
  for (const int code : {int(kInterrupted), int(kStore), int(kUsage), int(kDeviceFault),
                         int(kWrong), int(kNoCandidate), int(kTimeout), int(kFailed)}) {
    if (std::ranges::find(codes, code) != codes.end()) return code;
  }
  return kOk;
}

int run_tune(const TuneArguments& arguments) {
  const auto& [common, lines, seed, rounds] = arguments.work;
  Result<Session> session = open_session(common, arguments.replay_only);
  if (!session) {
    print_error(session.error());
    return session.error().code == ErrorCode::io ? kStore : exit_code(session.error());
  }
  const Clock::time_point start = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  const bool table = common.json != "-" && common.csv != "-";
  std::vector<TunedLine> done;
  std::vector<int> codes;
  std::size_t winners = 0, stored = 0, empty = 0;
  for (std::size_t i = 0; i < lines.size() && !interrupted(); ++i) {
    const SuiteLine& line = lines[i];
    if (arguments.budget_total_s > 0 && elapsed() >= arguments.budget_total_s) {
      print_error(fail(ErrorCode::timeout,
                       "tune: --budget-total of {:g} s ended with {} of {} problems done; the "
                       "same command goes on from there",
                       arguments.budget_total_s, i, lines.size()));
      codes.push_back(kTimeout);
      break;
    }
    session->progress->task(
        fmt::format("[{}/{}] {} m={}", i + 1, lines.size(), line.name, line.problem.m));
    tuner::TuneOptions options{
        .budget_s = arguments.budget_s,
        .keep = arguments.keep,
        .rounds = rounds,
        .seed = seed,
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
        tuner::tune(line.problem, {*session->worker, *session->store, session->device}, options);
    session->progress->clear();
    if (!result && interrupted()) break;  // whatever else the end of the worker looks like
    if (!result) {
      Error error = result.error();
      if (lines.size() > 1)
        error.message = fmt::format("{} m={}: {}", line.name, line.problem.m, error.message);
      print_error(error);
      const bool not_stored = arguments.replay_only && error.code == ErrorCode::io;
      codes.push_back(not_stored ? int(kStore) : exit_code(error));
      TuneResult nothing{.problem = line.problem, .winner = {}, .fallback = {}, .candidates = {}};
      done.push_back({line.name, std::move(nothing), result.error().message});
      continue;
    }
    codes.push_back(outcome(*result));
    winners += result->winner.has_value();
    stored += result->from_store;
    empty += tuner::is_empty(result->problem);
    done.push_back({line.name, *std::move(result), ""});
    if (table) {
      std::fputs(tune_table(done.back(), arguments.all_rows, colour_wanted()).c_str(), stdout);
      std::fflush(stdout);
    }
  }
  const std::string json = common.json ? tune_json(session->device, done) : "";
  const std::string csv = common.csv ? tune_csv(done) : "";
  for (const auto& [file, text] : {std::pair(common.json, json), std::pair(common.csv, csv)}) {
    if (!file) continue;
    if (const Status wrote = write_report(*file, text); !wrote) {
      print_error(wrote.error());
      codes.push_back(kFailed);
    }
  }
  const std::int64_t peak_bytes = stop_worker(*session);
  if (table && lines.size() > 1) {
    std::printf("%zu of %zu problems have a winner, %zu from the store", winners,
                lines.size() - empty, stored);
    if (empty > 0) std::printf("; %zu have nothing to compute", empty);
    std::printf("; %.1f s, at most %.2f GiB in the worker\n", elapsed(),
                static_cast<double>(peak_bytes) / (1 << 30));
    // Those that left problems without a winner; each row of the others has its own.
    std::vector<TunedLine> unserved;
    std::ranges::copy_if(done, std::back_inserter(unserved), [](const TunedLine& line) {
      return !line.result.winner && !tuner::is_empty(line.result.problem);
    });
    for (const auto& [reason, count] : refusals(unserved))
      std::printf("  %4d without a winner: %s\n", count, reason.c_str());
  }
  if (interrupted()) {
    std::fprintf(
        stderr,
        "lapidary: interrupted; what is done is stored, the same command goes on from there\n");
    codes.push_back(kInterrupted);
  }
  return gravest(codes);
}

}  // namespace lapidary::cli
