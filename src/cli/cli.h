#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lapidary/candidate.h"
#include "lapidary/problem.h"
#include "support/result.h"

// The command line: options.cc reads arguments, a file a verb does the work, report.cc and table.cc
// print.
namespace lapidary::cli {

/// Exit codes: docs/cli.md.
enum Exit : int {
  kOk = 0,
  kFailed = 1,
  kUsage = 2,
  kNoCandidate = 3,
  kWrong = 4,
  kDeviceFault = 5,
  kTimeout = 6,
  kStore = 7,
  kInterrupted = 130,
};
/// The exit code of an error value.
int exit_code(const Error& error);

/// What several verbs share.
struct Common {
  std::string device, store, worker;
  std::optional<std::string> json,
      csv;  ///< "-": stdout in place of the table; else a file beside it
  bool quiet = false;
};

struct TuneArguments {
  Common common;
  std::vector<SuiteLine> lines;  ///< of suites, or the one that the flags describe
  double budget_s = 0, budget_total_s = 0;
  bool retune = false, replay_only = false, all_rows = false;
  std::uint64_t seed = 1;
  int keep = 10, rounds = 9;
};

struct BenchArguments {
  TuneArguments tune;
  std::string against;
};

struct CacheArguments {
  Common common;
  std::string verb, pattern, file;  ///< ls|show|export|import|merge|verify|gc
  double older_days = 0;
};

int run_tune(const TuneArguments& arguments);
int run_bench(const BenchArguments& arguments);
int run_doctor(const Common& common);
int run_cache(const CacheArguments& arguments);

/// Parses argv and runs the verb. The whole program.
int run(int argc, const char* const* argv);

/// One line on stderr: "lapidary: " and the message.
void print_error(const Error& error);

/// True once Ctrl-C was pressed; a second press ends the process at once.
bool interrupted();
void watch_interrupt();

}  // namespace lapidary::cli
