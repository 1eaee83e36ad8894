#include <chrono>

#include "candidate/json.h"
#include "support/log.h"
#include "tuner/stages.h"

namespace lapidary::tuner {

std::optional<TuneResult> lookup(store::Store& store, const DeviceInfo& device,
                                 const GemmProblem& problem) {
  const auto entry = store.find(store::Kind::result, store::result_key(device, problem));
  if (!entry || !entry->has_value()) return std::nullopt;
  Result<TuneResult> result = tune_result_from_json((*entry)->value);
  if (!result || result->problem != problem || !result->winner) return std::nullopt;
  result->from_store = true;
  result->tune_seconds = 0;
  return *std::move(result);
}

void remember(store::Store& store, const DeviceInfo& device, const TuneResult& result) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const Status put =
      store.put({.kind = store::Kind::result,
                 .key = store::result_key(device, result.problem),
                 .value = to_json(result),
                 .created_s = std::chrono::duration_cast<std::chrono::seconds>(now).count()});
  // A tune is not lost because it cannot be remembered: the caller has the result.
  if (!put) log(LogLevel::warning, "store: {}", put.error().message);
}

}  // namespace lapidary::tuner
