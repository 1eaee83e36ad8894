#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lapidary/problem.h"
#include "support/result.h"

namespace lapidary::problem {

/// The members of a numerics class by name.
struct NumericsMember {
  std::string_view name;
  bool Numerics::* member;
};
inline constexpr NumericsMember kNumericsMembers[] = {
    {"f16_acc", &Numerics::f16_acc},
    {"fast_fp8", &Numerics::fast_fp8},
    {"nondeterministic", &Numerics::nondeterministic},
    {"rounded", &Numerics::rounded},
    {"tf32", &Numerics::tf32},
};

/// The members that are set, in the order of the table.
std::vector<std::string_view> numerics_names(const Numerics& numerics);

/// `checked` without "problem: " before its message, for callers that say where the problem stands.
Result<GemmProblem> check_keys(GemmProblem problem);

/// The text with '?' for every control character and cut after 500 bytes: names in messages come
/// from files, a terminal would obey the former and nobody read the latter.
std::string printable(std::string text);

/// "key 'lda': 15 is less than ..."
template <class... Args>
Error key_error(std::string_view key, fmt::format_string<Args...> what, Args&&... args) {
  return {
      ErrorCode::invalid_argument,
      printable(fmt::format("key '{}': {}", key, fmt::format(what, std::forward<Args>(args)...)))};
}

}  // namespace lapidary::problem
