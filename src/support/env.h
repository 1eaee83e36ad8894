#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lapidary {

/// One environment variable that we read: its flag and what it does. The table is
/// src/support/env.inc.
struct EnvVariable {
  std::string_view name, flag, about;
};
std::span<const EnvVariable> env_variables();

/// The value of a variable of the table; empty when unset or "".
std::optional<std::string> env(std::string_view name);

/// A variable that is not ours (HOME, XDG_CACHE_HOME).
std::optional<std::string> system_env(const char* name);

}  // namespace lapidary
