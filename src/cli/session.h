#pragma once

#include <memory>

#include "cli/cli.h"
#include "cli/progress.h"
#include "lapidary/device.h"
#include "store/store.h"
#include "worker/client.h"

namespace lapidary::cli {

/// What a verb that measures works with: the store, a worker, and a line of progress.
struct Session {
  DeviceInfo device;
  std::unique_ptr<store::Store> store;
  std::unique_ptr<worker::Client> worker;
  std::unique_ptr<ProgressLine> progress;
};

/// Opens it as the flags say. `invalid_argument` for a device or a --worker that is none; `io` for
/// a store that is needed but unusable (`store_needed`), and for nothing else; `device_fault`
/// without the device or lapidary-worker.
Result<Session> open_session(const Common& common, bool store_needed);

/// Ends the worker and gives the most memory that any worker of this process has held, in bytes.
std::int64_t stop_worker(Session& session);

/// The store that flags and environment name.
std::filesystem::path store_path(const Common& common);

}  // namespace lapidary::cli
