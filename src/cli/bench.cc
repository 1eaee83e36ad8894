#include <chrono>
#include <cstdio>

#include "cli/cli.h"
#include "cli/report.h"
#include "cli/session.h"
#include "tuner/rematch.h"
#include "tuner/stages.h"

namespace lapidary::cli {
namespace {

/// One line of a bench, and the exit code that it deserves: the stored winner against what
/// `against` names.
std::pair<BenchedLine, int> bench_line(const SuiteLine& line, const BenchArguments& arguments,
                                       const tuner::Tools& tools,
                                       const tuner::TuneOptions& options) {
  BenchedLine row{.name = line.name, .problem = line.problem, .match = {}, .skipped = ""};
  const auto skip = [&](const std::string& why, int code) {
    row.skipped = why;
    return std::pair(std::move(row), code);
  };
  // That one of them cannot serve the problem is an answer; that it fails is not.
  const auto skip_for = [&](const Error& error) {
    return skip(error.message, error.code == ErrorCode::unsupported ? int(kOk) : exit_code(error));
  };
  if (tuner::is_empty(line.problem)) return skip("nothing to compute", kOk);
  const std::optional<TuneResult> stored = tuner::lookup(tools.store, tools.device, line.problem);
  if (!stored) return skip("no stored winner; tune it first", kOk);
  std::vector<Candidate> rivals;
  if (arguments.against == "default") {
    if (stored->fallback) rivals.push_back(stored->fallback->candidate);
  } else {
    Result<std::vector<Candidate>> found =
        tuner::candidates_of(line.problem, arguments.against, tools, options);
    if (!found) return skip_for(found.error());
    rivals = *std::move(found);
  }
  Result<tuner::Rematch> match =
      tuner::rematch(line.problem, stored->winner->candidate, rivals, tools, options,
                     {.steady_s = arguments.steady_s, .time_same = arguments.all});
  if (!match) return skip_for(match.error());
  row.match = *match;
  return {std::move(row), kOk};
}

}  // namespace

int run_bench(const BenchArguments& arguments) {
  const auto& [common, lines, seed, rounds] = arguments.work;
  Result<Session> session = open_session(common, true);
  if (!session) {
    print_error(session.error());
    return session.error().code == ErrorCode::io ? kStore : exit_code(session.error());
  }
  const Result<worker::Reply> hello = session->worker->hello();
  if (!hello) {
    print_error(hello.error());
    return exit_code(hello.error());
  }
  if (arguments.steady_s > 0 && hello->device.sm == 0) {
    print_error(fail(ErrorCode::invalid_argument,
                     "--steady: the time under a power limit is a GPU's; {} has none to settle "
                     "under",
                     hello->device.id));
    return kUsage;
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
  tuner::TuneOptions options{.rounds = rounds, .seed = seed, .cancelled = interrupted};
  BenchSummary bench{.against = arguments.against, .lines = {}};
  std::vector<int> codes;
  for (std::size_t i = 0; i < lines.size() && !interrupted(); ++i) {
    const SuiteLine& line = lines[i];
    session->progress->task(
        fmt::format("[{}/{}] {} m={}", i + 1, lines.size(), line.name, line.problem.m));
    auto [row, code] =
        bench_line(line, arguments, {*session->worker, *session->store, hello->device}, options);
    if (interrupted()) break;
    if (code != kOk) {
      session->progress->clear();
      print_error(fail(ErrorCode::internal, "{} m={}: {}", line.name, line.problem.m, row.skipped));
    }
    codes.push_back(code);
    bench.lines.push_back(std::move(row));
  }
  session->progress->clear();
  bench.peak_bytes = stop_worker(*session);
  bench.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (common.json != "-" && common.csv != "-") std::fputs(bench_table(bench).c_str(), stdout);
  for (const auto& [file, text] :
       {std::pair(common.json, common.json ? bench_json(hello->device, bench) : ""),
        std::pair(common.csv, common.csv ? bench_csv(bench) : "")}) {
    if (!file) continue;
    if (const Status wrote = write_report(*file, text); !wrote) {
      print_error(wrote.error());
      codes.push_back(kFailed);
    }
  }
  if (interrupted()) {
    std::fprintf(stderr, "lapidary: interrupted; %zu of %zu problems were measured\n",
                 bench.count(), lines.size());
    codes.push_back(kInterrupted);
  }
  if (gravest(codes) == kOk && bench.count() == 0) return kNoCandidate;
  return gravest(codes);
}

}  // namespace lapidary::cli
