#include "support/log.h"

#include <mutex>

namespace lapidary {
namespace {
std::mutex g_mutex;
LogSink g_sink;
}  // namespace

LogSink set_log_sink(LogSink sink) {
  const std::lock_guard lock(g_mutex);
  std::swap(g_sink, sink);
  return sink;
}

void log_line(LogLevel level, std::string_view line) {
  const std::lock_guard lock(g_mutex);
  if (g_sink) g_sink(level, line);
}

}  // namespace lapidary
