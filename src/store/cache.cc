#include "store/cache.h"

#include "store/database.h"

namespace lapidary::store {
namespace {

bool empty(const Selection& selection) {
  return !selection.kind && selection.device.empty() && selection.contains.empty() &&
         !selection.created_before_s;
}

bool names(const Selection& selection, const Entry& entry) {
  if (selection.kind && *selection.kind != entry.kind) return false;
  if (selection.created_before_s && entry.created_s >= *selection.created_before_s) return false;
  if (entry.key.find(selection.contains) == std::string::npos) return false;
  if (selection.device.empty()) return true;
  const auto parts = key_parts(entry.key);
  return parts && parts->device.find(selection.device) != std::string::npos;
}

std::string complaint(const Row& row) {
  const char* what = !row.typed                            ? "a column has the wrong type"
                     : row.digest != digest(to_entry(row)) ? "its digest does not fit its contents"
                                                           : "its key digest does not fit its key";
  return fmt::format("kind {} key {}: {}", row.kind, row.key_digest, what);
}

std::int64_t file_bytes(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto bytes = std::filesystem::file_size(path, ignored);
  return ignored ? 0 : static_cast<std::int64_t>(bytes);
}

}  // namespace

Result<std::vector<Entry>> list(Store& store, const Selection& selection) {
  std::vector<Entry> found;
  LAPIDARY_TRY_STATUS(store.each([&](const Entry& entry) {
    if (names(selection, entry)) found.push_back(entry);
    return true;
  }));
  return found;
}

Result<MergeReport> merge(Store& from, Store& into) {
  MergeReport report;
  Status status;
  LAPIDARY_TRY_STATUS(from.each([&](const Entry& entry) {
    const auto merged = into.put_newer(entry);
    if (!merged) {
      status = merged.error();
      return false;
    }
    ++(*merged == Merged::added   ? report.added
       : *merged == Merged::newer ? report.newer
                                  : report.older);
    return true;
  }));
  LAPIDARY_TRY_STATUS(status);
  return report;
}

Result<VerifyReport> verify(const std::filesystem::path& path) {
  const Opened opened = open_database(path, Access::read, false);
  VerifyReport report;
  if (opened.unknown_version) {
    report.unknown_schema = true;
    return report;
  }
  if (opened.database == nullptr)
    return fail(ErrorCode::io, "store: {}: {}", path.string(), opened.problem);
  const auto integrity = opened.database->integrity(false);
  report.integrity = integrity ? *integrity : integrity.error().message;
  const Status scanned = opened.database->scan(false, [&](const Row& row) {
    switch (state(row)) {
      case RowState::sound:
        ++report.sound;
        break;
      case RowState::unknown_version:
        ++report.unknown_versions;
        break;
      case RowState::damaged:
        report.damaged.push_back(complaint(row));
        break;
    }
  });
  if (!scanned) report.integrity += "\nrows: " + scanned.error().message;
  return report;
}

Result<GcReport> gc(const std::filesystem::path& path, const Selection& selection) {
  GcReport report{.bytes_before = file_bytes(path)};
  Opened opened = open_database(path, Access::write, false);
  if (!opened.writable) return fail(ErrorCode::io, "store: {}: {}", path.string(), opened.problem);
  const auto integrity = opened.database->integrity(true);
  const std::string findings = integrity ? *integrity : integrity.error().message;
  if (findings != "ok") {
    return fail(ErrorCode::io,
                "store: {}: it is damaged ({}) and left as it is; export what can be read of it",
                path.string(), findings.substr(0, findings.find('\n')));
  }
  const bool any = !empty(selection);
  const Status cleared = opened.database->write([&]() -> Status {
    std::vector<std::pair<std::int64_t, std::string>> doomed;
    LAPIDARY_TRY_STATUS(opened.database->scan(false, [&](Row row) {
      const RowState found = state(row);
      const std::pair name(row.kind, row.key_digest);
      if (found == RowState::damaged) {
        doomed.push_back(name);
        ++report.damaged;
      } else if (any && found == RowState::sound && names(selection, to_entry(std::move(row)))) {
        doomed.push_back(name);
        ++report.removed;
      }
    }));
    for (const auto& [kind, key_digest] : doomed)
      LAPIDARY_TRY_STATUS(opened.database->erase(kind, key_digest));
    return {};
  });
  LAPIDARY_TRY_STATUS(cleared);
  // What is removed is removed; a reader that keeps us from shrinking the file costs only space.
  (void)opened.database->vacuum().has_value();
  opened.database.reset();
  report.bytes_after = file_bytes(path);
  return report;
}

}  // namespace lapidary::store
