#include "lapidary/candidate.h"

#include "problem/json.h"

namespace lapidary {

std::string text(const Config& config) {
  std::string out = "{";
  for (const auto& [key, value] : config) {
    if (out.size() > 1) out += ',';
    out += problem::json_quoted(key) + ":";
    if (const auto* number = std::get_if<std::int64_t>(&value)) {
      out += std::to_string(*number);
    } else {
      out += problem::json_quoted(std::get<std::string>(value));
    }
  }
  return out + "}";
}

std::string summary(const Config& config) {
  std::string out;
  for (const auto& [key, value] : config) {
    if (!out.empty()) out += ' ';
    const auto* number = std::get_if<std::int64_t>(&value);
    out += key + "=" + (number != nullptr ? std::to_string(*number) : std::get<std::string>(value));
  }
  return out;
}

std::string text(const Candidate& candidate) {
  return candidate.backend + " " + text(candidate.config);
}

const char* name(CandidateStatus status) {
  switch (status) {
    case CandidateStatus::ok:
      return "ok";
    case CandidateStatus::refused:
      return "refused";
    case CandidateStatus::failed:
      return "failed";
    case CandidateStatus::wrong:
      return "wrong";
    case CandidateStatus::slow:
      return "slow";
  }
  return "?";
}

}  // namespace lapidary
