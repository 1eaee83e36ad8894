#include "support/env.h"

#include <cstdlib>

#include "support/result.h"

namespace lapidary {
namespace {
constexpr EnvVariable kTable[] = {
#define LAPIDARY_ENV(name, flag, about) {name, flag, about},
#include "support/env.inc"
#undef LAPIDARY_ENV
};
}  // namespace

std::span<const EnvVariable> env_variables() { return kTable; }

std::optional<std::string> system_env(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<std::string> env(std::string_view name) {
  for (const EnvVariable& variable : kTable) {
    if (variable.name == name) return system_env(std::string(name).c_str());
  }
  check_failed("a variable that is read stands in env.inc", __FILE__, __LINE__);
}

}  // namespace lapidary
