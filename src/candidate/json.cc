#include "candidate/json.h"

#include <cmath>
#include <set>

#include "problem/json.h"

namespace lapidary {
namespace {

using problem::JsonValue;
using Kind = JsonValue::Kind;

Error wrong(std::string_view who, std::string_view key, std::string_view what) {
  return fail(ErrorCode::invalid_argument, "{}: key '{}': {}", who, key, what);
}

Result<Config> config_from_value(const JsonValue& value) {
  if (!value.is(Kind::object)) {
    return fail(ErrorCode::invalid_argument, "config: {} is no object of fields",
                problem::shown(value));
  }
  Config config;
  for (const auto& [key, field] : value.members) {
    if (field.is(Kind::integer)) {
      config.emplace(key, field.integer);
    } else if (field.is(Kind::string)) {
      config.emplace(key, field.string);
    } else {
      return wrong("config", key,
                   problem::shown(field) + " is neither a whole number nor a string");
    }
  }
  return config;
}

/// Takes the members of an object one by one; `finish` names the one that nobody took.
class Members {
 public:
  Members(std::string_view who, const JsonValue& value) : who_(who), value_(value) {}

  /// The member if it is there and not null.
  const JsonValue* optional(std::string_view key) {
    taken_.insert(key);
    const JsonValue* found = value_.find(key);
    return found == nullptr || found->is(Kind::null) ? nullptr : found;
  }
  Result<const JsonValue*> required(std::string_view key, Kind kind) {
    const JsonValue* found = optional(key);
    if (found == nullptr) return wrong(who_, key, "is missing");
    const bool fits = found->is(kind) || (kind == Kind::real && found->is(Kind::integer));
    if (!fits) return wrong(who_, key, problem::shown(*found) + " is of the wrong kind");
    return found;
  }
  Status finish() const {
    for (const auto& [key, value] : value_.members) {
      if (!taken_.contains(key)) return wrong(who_, key, "there is no such key");
    }
    return {};
  }

 private:
  std::string_view who_;
  const JsonValue& value_;
  std::set<std::string_view> taken_;
};

/// A figure that is not finite says nothing and is kept as 0.
std::string figure(double value) { return problem::json_number(std::isfinite(value) ? value : 0); }

std::string to_json(const Measurement& m) {
  std::string out = fmt::format(R"({{"backend":{},"config":{},"status":"{}")",
                                problem::json_quoted(m.candidate.backend), text(m.candidate.config),
                                name(m.status));
  if (!m.reason.empty()) out += R"(,"reason":)" + problem::json_quoted(m.reason);
  if (m.time_us && std::isfinite(*m.time_us))
    out += R"(,"time_us":)" + problem::json_number(*m.time_us);
  out += R"(,"spread":)" + figure(m.spread);
  if (m.registers) out += fmt::format(R"(,"registers":{})", *m.registers);
  if (m.smem_bytes) out += fmt::format(R"(,"smem_bytes":{})", *m.smem_bytes);
  out += fmt::format(R"(,"workspace_bytes":{},"packed_bytes":{},"predicted_us":{},"verified":{}}})",
                     m.workspace_bytes, m.packed_bytes, figure(m.predicted_us), m.verified);
  return out;
}

Result<Measurement> measurement_from_value(std::string_view who, const JsonValue& value) {
  if (!value.is(Kind::object)) {
    return fail(ErrorCode::invalid_argument, "{}: {} is no measurement", who,
                problem::shown(value));
  }
  Members members(who, value);
  Measurement m;
  LAPIDARY_TRY(const auto* backend, members.required("backend", Kind::string));
  m.candidate.backend = backend->string;
  LAPIDARY_TRY(const auto* config, members.required("config", Kind::object));
  LAPIDARY_TRY(m.candidate.config, config_from_value(*config));
  LAPIDARY_TRY(const auto* status, members.required("status", Kind::string));
  bool known = false;
  for (const auto one : {CandidateStatus::ok, CandidateStatus::refused, CandidateStatus::failed,
                         CandidateStatus::wrong, CandidateStatus::slow}) {
    if (status->string != name(one)) continue;
    m.status = one;
    known = true;
  }
  if (!known)
    return wrong(who, "status",
                 problem::shown(*status) + " is none of ok, refused, failed, wrong, slow");
  if (members.optional("reason") != nullptr) {
    LAPIDARY_TRY(const auto* reason, members.required("reason", Kind::string));
    m.reason = reason->string;
  }
  if (members.optional("time_us") != nullptr) {
    LAPIDARY_TRY(const auto* time, members.required("time_us", Kind::real));
    m.time_us = time->real;
  }
  LAPIDARY_TRY(const auto* spread, members.required("spread", Kind::real));
  m.spread = spread->real;
  for (const auto& [key, member] : {std::pair{"registers", &Measurement::registers},
                                    std::pair{"smem_bytes", &Measurement::smem_bytes}}) {
    if (members.optional(key) == nullptr) continue;
    LAPIDARY_TRY(const auto* number, members.required(key, Kind::integer));
    m.*member = number->integer;
  }
  for (const auto& [key, member] : {std::pair{"workspace_bytes", &Measurement::workspace_bytes},
                                    std::pair{"packed_bytes", &Measurement::packed_bytes}}) {
    LAPIDARY_TRY(const auto* number, members.required(key, Kind::integer));
    m.*member = number->integer;
  }
  LAPIDARY_TRY(const auto* predicted, members.required("predicted_us", Kind::real));
  m.predicted_us = predicted->real;
  LAPIDARY_TRY(const auto* verified, members.required("verified", Kind::boolean));
  m.verified = verified->boolean;
  LAPIDARY_TRY_STATUS(members.finish());
  return m;
}

}  // namespace

Result<Config> config_from_json(std::string_view json) {
  const auto value = problem::read_json(json);
  if (!value) return fail(value.error().code, "config: {}", value.error().message);
  return config_from_value(*value);
}

std::string to_json(const TuneResult& result) {
  // The problem travels as its canonical text, which is JSON itself.
  std::string out = R"({"problem":)" + problem::json_quoted(text(result.problem));
  if (result.winner) out += R"(,"winner":)" + to_json(*result.winner);
  if (result.fallback) out += R"(,"default":)" + to_json(*result.fallback);
  out += R"(,"candidates":[)";
  for (std::size_t i = 0; i < result.candidates.size(); ++i) {
    out += (i == 0 ? "" : ",") + to_json(result.candidates[i]);
  }
  return out + R"(],"tune_seconds":)" + figure(result.first_seconds) + "}";
}

Result<TuneResult> tune_result_from_json(std::string_view json) {
  constexpr std::string_view kWho = "tune result";
  const auto value = problem::read_json(json);
  if (!value) return fail(value.error().code, "{}: {}", kWho, value.error().message);
  if (!value->is(Kind::object))
    return fail(ErrorCode::invalid_argument, "{}: {} is no object", kWho, problem::shown(*value));
  Members members(kWho, *value);
  TuneResult result;
  LAPIDARY_TRY(const auto* problem, members.required("problem", Kind::string));
  LAPIDARY_TRY(result.problem, problem_from_json(problem->string));
  if (const auto* winner = members.optional("winner")) {
    LAPIDARY_TRY(result.winner, measurement_from_value("tune result: winner", *winner));
  }
  if (const auto* fallback = members.optional("default")) {
    LAPIDARY_TRY(result.fallback, measurement_from_value("tune result: default", *fallback));
  }
  LAPIDARY_TRY(const auto* candidates, members.required("candidates", Kind::array));
  for (const JsonValue& item : candidates->items) {
    LAPIDARY_TRY(result.candidates.emplace_back(),
                 measurement_from_value("tune result: candidates", item));
  }
  LAPIDARY_TRY(const auto* seconds, members.required("tune_seconds", Kind::real));
  result.tune_seconds = result.first_seconds = seconds->real;
  LAPIDARY_TRY_STATUS(members.finish());
  return result;
}

}  // namespace lapidary
