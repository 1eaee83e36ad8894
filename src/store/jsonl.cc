#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>

#include "store/cache.h"
#include "store/row.h"

namespace lapidary::store {
namespace {

using Json = nlohmann::ordered_json;

std::string line_of(const Entry& entry) {
  const Json line = {{"version", kRowVersion},     {"kind", name(entry.kind)},
                     {"key", entry.key},           {"value", entry.value},
                     {"created", entry.created_s}, {"digest", digest(entry)}};
  // A text that is not UTF-8 (put takes none) must not throw; its digest will no longer fit.
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<std::int64_t> integer(const Json& object, const char* member) {
  const auto found = object.find(member);
  const bool fits =
      found != object.end() && found->is_number_integer() &&
      !(found->is_number_unsigned() &&
        found->get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()});
  if (!fits) return fail(ErrorCode::invalid_argument, "'{}' is missing or not an integer", member);
  return found->get<std::int64_t>();
}

Result<std::string> string(const Json& object, const char* member) {
  const auto found = object.find(member);
  if (found == object.end() || !found->is_string()) {
    return fail(ErrorCode::invalid_argument, "'{}' is missing or not a string", member);
  }
  return found->get<std::string>();
}

/// The entry of one line; an error says what is wrong with it.
Result<Entry> entry_of(std::string_view line) {
  const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded()) return fail(ErrorCode::invalid_argument, "not JSON");
  if (!object.is_object()) return fail(ErrorCode::invalid_argument, "not a JSON object");
  LAPIDARY_TRY(const std::int64_t version, integer(object, "version"));
  if (version != kRowVersion) {
    return fail(ErrorCode::invalid_argument, "version {} is unknown; this program knows {}",
                version, kRowVersion);
  }
  LAPIDARY_TRY(const std::string kind_name, string(object, "kind"));
  const auto kind = kind_from_name(kind_name);
  if (!kind)
    return fail(ErrorCode::invalid_argument, "kind '{}' is unknown; use result or quarantine",
                kind_name);
  Entry entry;
  entry.kind = *kind;
  LAPIDARY_TRY(entry.key, string(object, "key"));
  LAPIDARY_TRY(entry.value, string(object, "value"));
  LAPIDARY_TRY(entry.created_s, integer(object, "created"));
  LAPIDARY_TRY(const std::string claimed, string(object, "digest"));
  if (object.size() != 6)
    return fail(ErrorCode::invalid_argument, "it has members that no entry has");
  if (claimed != digest(entry))
    return fail(ErrorCode::invalid_argument, "its digest does not fit its contents");
  LAPIDARY_TRY_STATUS(check(entry));
  return entry;
}

}  // namespace

Result<std::int64_t> export_jsonl(Store& store, const LineSink& sink) {
  std::int64_t count = 0;
  Status status;
  LAPIDARY_TRY_STATUS(store.each([&](const Entry& entry) {
    status = sink(line_of(entry));
    count += status ? 1 : 0;
    return status.has_value();
  }));
  LAPIDARY_TRY_STATUS(status);
  return count;
}

Result<MergeReport> import_jsonl(std::string_view text, Store& store) {
  MergeReport report;
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const auto entry = entry_of(line);
    if (!entry) {
      report.refused.push_back({.line = number, .why = entry.error().message});
      continue;
    }
    LAPIDARY_TRY(const Merged merged, store.put_newer(*entry));
    ++(merged == Merged::added   ? report.added
       : merged == Merged::newer ? report.newer
                                 : report.older);
  }
  return report;
}

}  // namespace lapidary::store
