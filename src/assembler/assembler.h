#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "assembler/ptxas_log.h"
#include "assembler/tools.h"
#include "support/result.h"

// PTX text to a cubin, by ptxas as a child process.
//   LAPIDARY_TRY(const Cubin cubin, assemble(text, {.target = "sm_90a"}));
//   if (const auto why = refusal(cubin)) ...            // it runs, but not as it was meant to
namespace lapidary::assembler {

struct AssembleOptions {
  std::string target;      ///< "sm_90a": what the cubin runs on
  int optimisation = 3;    ///< ptxas -O0 to -O3
  bool line_info = false;  ///< lines of the PTX's .loc in the cubin, for profilers
  bool cache = true;       ///< take and keep cubins in the cache on disk (cubin_cache.h)
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  std::optional<Tool> ptxas = {};  ///< default: find_ptxas()
  std::stop_token stop = {};       ///< asked to stop, the child is killed
};

struct Cubin {
  std::string image;  ///< the ELF file, as the driver loads it
  std::string target;
  PtxasLog log;             ///< registers, spills, messages
  bool from_cache = false;  ///< then the log is that of the run that made it
};

/// Assembles a whole program, never relocatable code. `compile_failed` has ptxas's first error with
/// the line of the PTX that it names; `unsupported` when there is no ptxas, `timeout` and
/// `cancelled` when it was killed, `invalid_argument` when options are none.
Result<Cubin> assemble(std::string_view ptx, const AssembleOptions& options);

/// Why the cubin is not worth running, in one line: registers in local memory (spills, stack),
/// wgmma serialised or mended by ptxas, setmaxnreg ignored, another loss that ptxas announces.
/// Empty when there is nothing of that.
std::optional<std::string> refusal(const Cubin& cubin);

/// Messages that nobody has given a meaning yet, to be shown.
std::vector<std::string> unknown_messages(const Cubin& cubin);

struct Job {
  std::string_view ptx;  ///< must live until the call returns
  AssembleOptions options;
};

/// All jobs, up to `processes` children at once; 0: as many as this process may use CPUs. Results
/// are in the order of the jobs. Once `stop` is asked for (it takes the place of the jobs' own),
/// those not yet done are `cancelled`.
std::vector<Result<Cubin>> assemble_all(std::span<const Job> jobs, int processes = 0,
                                        const std::stop_token& stop = {});

/// The SASS of a cubin's functions as text. `unsupported` without a disassembler, `compile_failed`
/// when it refuses the bytes.
Result<std::string> disassemble(std::string_view image);

}  // namespace lapidary::assembler
