#pragma once

#include <fmt/format.h>

#include <functional>
#include <string_view>

namespace lapidary {

enum class LogLevel { debug, info, warning, error };

/// Receives every log line (no newline). The library never prints: without a sink, lines vanish.
using LogSink = std::function<void(LogLevel, std::string_view)>;

/// Installs the process's sink and returns the one before. Safe from any thread.
LogSink set_log_sink(LogSink sink);

void log_line(LogLevel level, std::string_view line);

template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> text, Args&&... args) {
  log_line(level, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace lapidary
