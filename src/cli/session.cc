#include "cli/session.h"

#include <sys/resource.h>

#include "driver/device.h"
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
  const std::string asked = driver::chosen_device(common.device);
  Session session;
  // Facts of the driver alone: a context on the device is the worker's business.
  const Result<DeviceInfo> device = driver::describe_device(asked);
  if (!device) {
    const char* who = !common.device.empty()   ? "--device"
                      : env("LAPIDARY_DEVICE") ? "LAPIDARY_DEVICE"
                                               : "default device";
    return device.error().code == ErrorCode::invalid_argument
               ? fail(ErrorCode::invalid_argument, "{}: {}", who, device.error().message)
               : fail(ErrorCode::device_fault, "{}: {}: {}", who, asked, device.error().message);
  }
  session.device = *device;
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
      .device = session.device.id,
      .extra_env = {},
      .on_beat = [line = session.progress.get()](std::string_view step) { line->step(step); },
      .cancelled = interrupted,
  });
  return session;
}

}  // namespace lapidary::cli
