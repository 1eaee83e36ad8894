#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lapidary/candidate.h"
#include "lapidary/problem.h"
#include "support/result.h"

// The command line: options.cc reads arguments (flags.cc the problems among them), a file a verb
// does the work, report.cc prints.
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
/// The exit code of an error value. That of an unusable store, kStore, is the caller's to give: the
/// code `io` does not say whose file it was.
int exit_code(const Error& error);

/// What several verbs share.
struct Common {
  std::string device, store, worker;
  /// Empty: as the environment says.
  std::string threads, onednn, openblas, libcuda, cublaslt, nvml, ptxas, nvdisasm, cubins;
  std::optional<std::string> json,
      csv;  ///< "-": stdout in place of the table; else a file beside it
  bool quiet = false;
};

/// What is to be measured, and how.
struct Work {
  Common common;
  std::vector<SuiteLine> lines;  ///< of suites, or those that the flags describe
  std::uint64_t seed = 1;
  int rounds = 9;
};

struct TuneArguments {
  Work work;
  double budget_s = 0, budget_total_s = 0;
  bool retune = false, replay_only = false, all_rows = false;
  int keep = 10;
};

struct BenchArguments {
  Work work;
  std::string against;
  double steady_s = 0;  ///< length of a block under the power limit; 0: burst alone
  bool all = false;     ///< measure also where winner and rival are the same
};

struct CacheArguments {
  Common common;
  std::string verb, pattern, file;  ///< ls|show|export|import|merge|verify|gc
  std::optional<double> older_days;
  bool quarantine = false;  ///< gc: quarantined candidates in place of results
};

struct LayoutArguments {
  std::string expression;
  std::optional<std::string> json,
      svg;                           ///< "-": stdout in place of the table; else a file beside it
  bool quiet = false;                ///< the result alone
  bool banks = false;                ///< banks in place of offsets
  std::string type, access, vector;  ///< as given; empty: f16, none, 1
};

int run_tune(const TuneArguments& arguments);
int run_bench(const BenchArguments& arguments);
int run_doctor(const Common& common);
int run_cache(const CacheArguments& arguments);
int run_layout(const LayoutArguments& arguments);

/// Parses argv and runs the verb. The whole program.
int run(int argc, const char* const* argv);

/// The gravest of the codes of a suite's problems; kOk of none.
int gravest(const std::vector<int>& codes);

/// One line on stderr: "lapidary: " and the message.
void print_error(const Error& error);

/// True once Ctrl-C was pressed; a second press ends the process at once.
bool interrupted();
void watch_interrupt();

}  // namespace lapidary::cli
