#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/cli.h"

namespace lapidary::cli {

/// A problem key as given on the command line: {"n", "6144"}. Names are those of the JSON keys.
using Flag = std::pair<std::string, std::string>;

/// The problems that flags describe, one per m. Repeatable keys (type, constant, alias, numerics)
/// may come as often as they like, or once with commas.
Result<std::vector<SuiteLine>> lines_from_flags(const std::vector<Flag>& flags);

/// A suite by path, or by its bare name from the suites that come with the program.
Result<std::vector<SuiteLine>> lines_from_suite(const std::string& name);

}  // namespace lapidary::cli
