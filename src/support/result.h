#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <string_view>

#include "lapidary/result.h"

namespace lapidary {

/// fail(ErrorCode::io, "store: cannot open {}: {}", path, why): an Error with a formatted message.
template <class... Args>
Error fail(ErrorCode code, fmt::format_string<Args...> text, Args&&... args) {
  return Error{code, fmt::format(text, std::forward<Args>(args)...)};
}

inline std::ostream& operator<<(std::ostream& out, const Error& error) {
  return out << name(error.code) << ": " << error.message;
}

/// A broken invariant of ours; no input may reach it.
[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace lapidary

#define LAPIDARY_CHECK(condition) \
  ((condition) ? void(0) : ::lapidary::check_failed(#condition, __FILE__, __LINE__))
