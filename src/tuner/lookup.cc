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

namespace {

void put(store::Store& store, store::Kind kind, std::string key, std::string value) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const Status status =
      store.put({.kind = kind,
                 .key = std::move(key),
                 .value = std::move(value),
                 .created_s = std::chrono::duration_cast<std::chrono::seconds>(now).count()});
  // A tune is not lost because it cannot be remembered: the caller has the result.
  if (!status) log(LogLevel::warning, "store: {}", status.error().message);
}

}  // namespace

void remember(store::Store& store, const DeviceInfo& device, const TuneResult& result) {
  put(store, store::Kind::result, store::result_key(device, result.problem), to_json(result));
}

std::string quarantined(store::Store& store, const DeviceInfo& device, const GemmProblem& problem,
                        const Candidate& candidate) {
  const auto entry =
      store.find(store::Kind::quarantine, store::quarantine_key(device, problem, candidate));
  return entry && entry->has_value() ? (*entry)->value : "";
}

void quarantine(store::Store& store, const DeviceInfo& device, const GemmProblem& problem,
                const Candidate& candidate, const std::string& why) {
  put(store, store::Kind::quarantine, store::quarantine_key(device, problem, candidate), why);
}

}  // namespace lapidary::tuner
