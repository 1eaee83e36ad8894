#pragma once

#include <filesystem>
#include <string>

#include "support/result.h"

namespace lapidary::assembler {

/// A program of NVIDIA's toolkit that answered to --version.
struct Tool {
  std::filesystem::path path;
  std::string version;   ///< "13.0.88"
  std::string identity;  ///< all that it says of itself: two programs that may differ differ here
};

/// The assembler: $LAPIDARY_PTXAS alone where that is set (OFF: none), else the first in PATH, in
/// cuda_program_folders(), or where scripts/setup.sh puts it. Once found it stays so for the
/// process, until the environment changes or the file goes. `unsupported` says where it was looked
/// for and what to do.
Result<Tool> find_ptxas();

/// nvdisasm, in the same way: $LAPIDARY_NVDISASM. cuobjdump would not do in its place: it has no
/// disassembler of its own and starts this one.
Result<Tool> find_disassembler();

/// The program of that path; `unsupported` when it is none or does not say its version.
Result<Tool> tool_at(const std::filesystem::path& path);

}  // namespace lapidary::assembler
