#include "store/cache.h"

#include <chrono>
#include <cstdio>

#include "candidate/json.h"
#include "cli/cli.h"
#include "cli/report.h"
#include "cli/session.h"
#include "support/files.h"

namespace lapidary::cli {
namespace {

using store::Entry;
using store::Kind;

std::string day(std::int64_t seconds) {
  const std::time_t time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  char text[32] = "";
  if (::gmtime_r(&time, &parts) != nullptr)
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts);
  return text;
}

/// What one entry says, on one line.
std::string gist(const Entry& entry) {
  if (entry.kind == Kind::quarantine) return "quarantined: " + entry.value;
  const Result<TuneResult> result = tune_result_from_json(entry.value);
  if (!result || !result->winner)
    return "unreadable: " + (result ? "no winner" : result.error().message);
  const Measurement& winner = *result->winner;
  return fmt::format("{:<10} {:>10.1f} us  {}  {}", winner.candidate.backend,
                     winner.time_us.value_or(0), summary(result->problem),
                     summary(winner.candidate.config));
}

/// The store of a verb that only looks, and of one that adds to it.
Result<std::unique_ptr<store::Store>> open_to_read(const Common& common) {
  return store::open_sqlite(store_path(common),
                            {.create = false, .read_only = true, .fall_back = false});
}
Result<std::unique_ptr<store::Store>> open_to_add(const Common& common) {
  return store::open_sqlite(store_path(common), {.fall_back = false});
}

void print_merge(const store::MergeReport& report) {
  std::printf("%lld added, %lld newer, %lld older or the same, %zu refused\n",
              static_cast<long long>(report.added), static_cast<long long>(report.newer),
              static_cast<long long>(report.older), report.refused.size());
  for (const auto& refusal : report.refused) {
    std::fprintf(stderr, "lapidary: cache: line %lld: %s\n", static_cast<long long>(refusal.line),
                 refusal.why.c_str());
  }
}

/// The entries whose key contains `pattern`, each as its line of an export.
Result<std::vector<std::string>> exported(store::Store& from, const std::string& pattern) {
  LAPIDARY_TRY(const std::vector<Entry> entries, store::list(from, {.contains = pattern}));
  const std::unique_ptr<store::Store> chosen = store::open_memory();
  for (const Entry& entry : entries) LAPIDARY_TRY_STATUS(chosen->put(entry));
  std::vector<std::string> lines;
  LAPIDARY_TRY([[maybe_unused]] const std::int64_t count,
               store::export_jsonl(*chosen, [&](std::string_view line) {
                 lines.emplace_back(line);
                 return Status();
               }));
  return lines;
}

/// Writes what a verb found; a file that cannot be written is no fault of the store's.
int print_report(const std::string& file, const std::string& text) {
  const Status wrote = write_report(file, text);
  if (wrote) return kOk;
  print_error(wrote.error());
  return kFailed;
}

Result<int> list(const CacheArguments& arguments, bool whole) {
  LAPIDARY_TRY(const auto opened, open_to_read(arguments.common));
  LAPIDARY_TRY(const std::vector<Entry> entries,
               store::list(*opened, {.contains = arguments.pattern}));
  if (whole && entries.empty()) {
    return fail(ErrorCode::invalid_argument,
                "cache show: no entry's key contains '{}'; `lapidary cache ls` lists them",
                arguments.pattern);
  }
  if (arguments.common.json) {
    LAPIDARY_TRY(const std::vector<std::string> lines, exported(*opened, arguments.pattern));
    return print_report(
        *arguments.common.json,
        lines.empty() ? "[]\n" : fmt::format("[\n{}\n]\n", fmt::join(lines, ",\n")));
  }
  for (const Entry& entry : entries) {
    if (whole) {
      std::printf("key      %s\ncreated  %s UTC\n%s\n\n", entry.key.c_str(),
                  day(entry.created_s).c_str(), entry.value.c_str());
    } else {
      std::printf("%s  %s\n", day(entry.created_s).c_str(), gist(entry).c_str());
    }
  }
  if (!whole) std::printf("%zu entries in %s\n", entries.size(), opened->where().c_str());
  return int(kOk);
}

Result<int> export_all(const CacheArguments& arguments) {
  LAPIDARY_TRY(const auto opened, open_to_read(arguments.common));
  LAPIDARY_TRY(const std::vector<std::string> lines, exported(*opened, ""));
  const int code = print_report(arguments.file.empty() ? "-" : arguments.file,
                                lines.empty() ? "" : fmt::format("{}\n", fmt::join(lines, "\n")));
  if (code == kOk) std::fprintf(stderr, "lapidary: %zu entries exported\n", lines.size());
  return code;
}

Result<int> import_all(const CacheArguments& arguments) {
  const Result<std::string> text = read_file(arguments.file);
  if (!text) return fail(ErrorCode::invalid_argument, "cache import: {}", text.error().message);
  LAPIDARY_TRY(const auto opened, open_to_add(arguments.common));
  LAPIDARY_TRY(const store::MergeReport report, store::import_jsonl(*text, *opened));
  print_merge(report);
  return int(report.refused.empty() ? kOk : kFailed);
}

Result<int> merge_other(const CacheArguments& arguments) {
  std::error_code ignored;
  if (!std::filesystem::exists(arguments.file, ignored)) {
    return fail(ErrorCode::invalid_argument,
                "cache merge: '{}' is no file; give the path of another store", arguments.file);
  }
  LAPIDARY_TRY(
      const auto other,
      store::open_sqlite(arguments.file, {.create = false, .read_only = true, .fall_back = false}));
  LAPIDARY_TRY(const auto opened, open_to_add(arguments.common));
  LAPIDARY_TRY(const store::MergeReport report, store::merge(*other, *opened));
  print_merge(report);
  return int(kOk);
}

Result<int> verify_all(const CacheArguments& arguments) {
  LAPIDARY_TRY(const store::VerifyReport report, store::verify(store_path(arguments.common)));
  std::printf("%lld sound, %zu damaged, %lld of another version; structure: %s\n",
              static_cast<long long>(report.sound), report.damaged.size(),
              static_cast<long long>(report.unknown_versions),
              report.unknown_schema ? "of another version, not read" : report.integrity.c_str());
  for (const std::string& row : report.damaged) std::printf("damaged: %s\n", row.c_str());
  return int(report.ok() ? kOk : kFailed);
}

Result<int> collect(const CacheArguments& arguments) {
  store::Selection selection;
  if (arguments.older_days || arguments.quarantine)
    selection.kind = arguments.quarantine ? Kind::quarantine : Kind::result;
  if (arguments.older_days.value_or(0) > 0) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    selection.created_before_s = std::chrono::duration_cast<std::chrono::seconds>(now).count() -
                                 static_cast<std::int64_t>(*arguments.older_days * 86400);
  }
  LAPIDARY_TRY(const store::GcReport report, store::gc(store_path(arguments.common), selection));
  std::printf("%lld %s and %lld damaged entries removed; %lld -> %lld bytes\n",
              static_cast<long long>(report.removed), arguments.quarantine ? "quarantined" : "old",
              static_cast<long long>(report.damaged), static_cast<long long>(report.bytes_before),
              static_cast<long long>(report.bytes_after));
  return int(kOk);
}

Result<int> dispatch(const CacheArguments& arguments) {
  if (arguments.verb == "ls") return list(arguments, false);
  if (arguments.verb == "show") return list(arguments, true);
  if (arguments.verb == "export") return export_all(arguments);
  if (arguments.verb == "import") return import_all(arguments);
  if (arguments.verb == "merge") return merge_other(arguments);
  if (arguments.verb == "verify") return verify_all(arguments);
  return collect(arguments);
}

}  // namespace

int run_cache(const CacheArguments& arguments) {
  const Result<int> code = dispatch(arguments);
  if (code) return *code;
  print_error(code.error());
  return code.error().code == ErrorCode::io ? kStore : exit_code(code.error());
}

}  // namespace lapidary::cli
