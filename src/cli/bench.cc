#include <chrono>
#include <cstdio>

#include "cli/cli.h"
#include "cli/report.h"
#include "cli/session.h"
#include "tuner/rematch.h"
#include "tuner/stages.h"

namespace lapidary::cli {
namespace {

/// One line of a bench: the stored winner against what `against` names.
Result<BenchedLine> bench_line(const SuiteLine& line, const BenchArguments& arguments,
                               const tuner::Tools& tools, const DeviceInfo& device,
                               const tuner::TuneOptions& options) {
  BenchedLine row{.name = line.name, .problem = line.problem, .match = {}, .skipped = ""};
  if (tuner::is_empty(line.problem)) {
    row.skipped = "nothing to compute";
    return row;
  }
  const std::optional<TuneResult> stored = tuner::lookup(tools.store, device, line.problem);
  if (!stored) {
    row.skipped = "no stored winner; tune it first";
    return row;
  }
  std::vector<Candidate> rivals;
  if (arguments.against == "default") {
    if (stored->fallback) rivals.push_back(stored->fallback->candidate);
  } else {
    Result<std::vector<Candidate>> found =
        tuner::candidates_of(line.problem, arguments.against, tools, options);
    if (!found && found.error().code != ErrorCode::unsupported) return found.error();
    if (!found) {
      row.skipped = found.error().message;
      return row;
    }
    rivals = *std::move(found);
  }
  Result<tuner::Rematch> match =
      tuner::rematch(line.problem, stored->winner->candidate, rivals, tools, options);
  if (match) {
    row.match = *match;
  } else if (match.error().code == ErrorCode::cancelled) {
    return match.error();
  } else {
    row.skipped = match.error().message;
  }
  return row;
}

}  // namespace

int run_bench(const BenchArguments& arguments) {
  Result<Session> session = open_session(arguments.tune.common, true);
  if (!session) {
    print_error(session.error());
    return session.error().code == ErrorCode::io ? kStore : exit_code(session.error());
  }
  const Result<worker::Reply> hello = session->worker->hello();
  if (!hello) {
    print_error(hello.error());
    return exit_code(hello.error());
  }
  if (arguments.against != "default" &&
      std::ranges::find(hello->backends, arguments.against, &worker::BackendState::name) ==
          hello->backends.end()) {
    std::string known = "default";
    for (const worker::BackendState& backend : hello->backends) known += ", " + backend.name;
    print_error(fail(ErrorCode::invalid_argument, "--against: '{}' is no backend; use one of {}",
                     arguments.against, known));
    return kUsage;
  }
  const auto start = std::chrono::steady_clock::now();
  tuner::TuneOptions options{
      .rounds = arguments.tune.rounds, .seed = arguments.tune.seed, .cancelled = interrupted};
  BenchSummary bench{.against = arguments.against, .lines = {}};
  int code = kOk;
  for (std::size_t i = 0; i < arguments.tune.lines.size() && !interrupted(); ++i) {
    const SuiteLine& line = arguments.tune.lines[i];
    session->progress->task(fmt::format("[{}/{}] {} m={}", i + 1, arguments.tune.lines.size(),
                                        line.name, line.problem.m));
    Result<BenchedLine> row =
        bench_line(line, arguments, {*session->worker, *session->store}, hello->device, options);
    if (!row) {
      session->progress->clear();
      print_error(row.error());
      code = exit_code(row.error());
      if (row.error().code == ErrorCode::cancelled) break;
      continue;
    }
    bench.lines.push_back(*std::move(row));
  }
  session->progress->clear();
  bench.peak_bytes = stop_worker(*session);
  bench.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const Common& common = arguments.tune.common;
  if (common.json != "-" && common.csv != "-") std::fputs(bench_table(bench).c_str(), stdout);
  for (const auto& [file, text] :
       {std::pair(common.json, common.json ? bench_json(hello->device, bench) : ""),
        std::pair(common.csv, common.csv ? bench_csv(bench) : "")}) {
    if (!file) continue;
    if (const Status wrote = write_report(*file, text); !wrote) {
      print_error(wrote.error());
      code = kFailed;
    }
  }
  if (interrupted()) return kInterrupted;
  if (code == kOk && bench.count() == 0) return kNoCandidate;
  return code;
}

}  // namespace lapidary::cli
