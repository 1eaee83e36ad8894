#include "cli/session.h"

#include <sys/resource.h>

#include "support/env.h"

namespace lapidary::cli {

std::filesystem::path store_path(const Common& common) {
  return common.store.empty() ? store::default_path() : std::filesystem::path(common.store);
}

std::int64_t stop_worker(Session& session) {
  session.worker->stop();
  rusage usage{};
  ::getrusage(RUSAGE_CHILDREN, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

Result<Session> open_session(const Common& common, bool store_needed) {
  const std::string device =
      !common.device.empty() ? common.device : env("LAPIDARY_DEVICE").value_or("cpu");
  if (device != "cpu") {
    return fail(ErrorCode::invalid_argument, "{}: '{}' is no device of this build; use cpu",
                common.device.empty() ? "LAPIDARY_DEVICE" : "--device", device);
  }
  Session session;
  LAPIDARY_TRY(session.store, store::open_sqlite(store_path(common), {.fall_back = !store_needed}));
  const Result<std::filesystem::path> program = worker::find_worker(common.worker);
  if (!program) {
    // Nobody named it: then it is not the caller's mistake, but a device that cannot be used.
    return program.error().code == ErrorCode::invalid_argument
               ? program.error()
               : fail(ErrorCode::device_fault, "{}", program.error().message);
  }
  session.progress = std::make_unique<ProgressLine>(common.quiet);
  session.worker = std::make_unique<worker::Client>(worker::ClientOptions{
      .program = *program,
      .extra_env = {},
      .on_beat = [line = session.progress.get()](std::string_view step) { line->step(step); },
      .cancelled = interrupted,
  });
  return session;
}

}  // namespace lapidary::cli
