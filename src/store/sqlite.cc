#include <map>
#include <mutex>
#include <utility>

#include "store/database.h"
#include "support/env.h"
#include "support/files.h"
#include "support/hash.h"
#include "support/log.h"

namespace lapidary::store {
namespace {

/// Entries of the file, and over them those that could not be written there.
class SqliteStore final : public Store {
 public:
  SqliteStore(std::string path, Opened opened, bool fall_back)
      : path_(std::move(path)),
        problem_(std::move(opened.problem)),
        file_(std::move(opened.database)),
        writable_(opened.writable),
        fall_back_(fall_back) {}

  Result<std::optional<Entry>> find(Kind kind, std::string_view key) override {
    const std::lock_guard lock(mutex_);
    return present({kind, std::string(key)});
  }

  Status put(const Entry& entry) override {
    LAPIDARY_TRY_STATUS(check(entry));
    const std::lock_guard lock(mutex_);
    LAPIDARY_TRY(const bool written, in_file([&] { return file_->put(to_row(entry)); }));
    if (!written) over_.insert_or_assign({entry.kind, entry.key}, entry);
    return {};
  }

  Result<Merged> put_newer(const Entry& entry) override {
    LAPIDARY_TRY_STATUS(check(entry));
    const std::lock_guard lock(mutex_);
    Merged merged = Merged::added;
    const auto weigh = [&] {
      const std::optional<Entry> now = present({entry.kind, entry.key});
      merged = !now ? Merged::added : wins(entry, *now) ? Merged::newer : Merged::older;
    };
    LAPIDARY_TRY(const bool written, in_file([&] {
                   return file_->write([&]() -> Status {
                     weigh();
                     if (file_->damaged())
                       return fail(ErrorCode::io, "it is damaged and left as it is");
                     return merged == Merged::older ? Status() : file_->put(to_row(entry));
                   });
                 }));
    if (written) return merged;
    weigh();
    if (merged != Merged::older) over_.insert_or_assign({entry.kind, entry.key}, entry);
    return merged;
  }

  Status erase(Kind kind, std::string_view key) override {
    const std::lock_guard lock(mutex_);
    LAPIDARY_TRY(const bool written,
                 in_file([&] { return file_->erase(static_cast<int>(kind), sha256_hex(key)); }));
    if (!written) over_.insert_or_assign({kind, std::string(key)}, std::nullopt);
    return {};
  }

  Status each(const std::function<bool(const Entry&)>& visit) override {
    std::map<Name, Entry> all;
    {
      const std::lock_guard lock(mutex_);
      const auto take = [&](Row row) {
        if (!believe(row)) return;
        Name name(static_cast<Kind>(row.kind), row.key);
        all.insert_or_assign(std::move(name), to_entry(std::move(row)));
      };
      if (file_ != nullptr) {
        // Past a damaged page there is no way on, but maybe one from the other end.
        if (const Status forwards = file_->scan(false, take); !forwards) {
          read_failed(forwards.error());
          (void)file_->scan(true, take).has_value();
        }
      }
      for (const auto& [name, entry] : over_) {
        if (entry) {
          all.insert_or_assign(name, *entry);
        } else {
          all.erase(name);
        }
      }
    }
    for (const auto& [name, entry] : all) {
      if (!visit(entry)) break;
    }
    return {};
  }

  std::string where() const override { return file_ != nullptr || !fall_back_ ? path_ : "memory"; }

 private:
  using Name = std::pair<Kind, std::string>;

  std::optional<Entry> present(const Name& name) {
    if (const auto found = over_.find(name); found != over_.end()) return found->second;
    if (file_ == nullptr) return std::nullopt;
    auto row = file_->find(static_cast<int>(name.first), sha256_hex(name.second));
    if (!row) {
      read_failed(row.error());
      return std::nullopt;
    }
    if (!*row || !believe(**row) || (**row).key != name.second) return std::nullopt;
    return to_entry(*std::move(*row));
  }

  bool believe(const Row& row) {
    const RowState found = state(row);
    if (found == RowState::damaged && !std::exchange(warned_read_, true)) {
      log(LogLevel::warning, "store: {}: a damaged entry is ignored; see lapidary cache verify",
          path_);
    }
    return found == RowState::sound;
  }

  void read_failed(const Error& error) {
    if (!std::exchange(warned_read_, true)) {
      log(LogLevel::warning,
          "store: {}: cannot read all of it: {}; what is lost counts as not stored", path_,
          error.message);
    }
    if (file_->damaged()) writable_ = false;  // new entries must not make it worse
  }

  /// Runs a change of the file. False when the change is to be made in memory instead.
  template <class Change>
  Result<bool> in_file(const Change& change) {
    std::string why = file_ != nullptr && file_->damaged() ? "it is damaged and left as it is" : "";
    if (writable_) {
      const Status done = change();
      if (done) return true;
      why = done.error().message;
    }
    if (!fall_back_) {
      return fail(ErrorCode::io, "store: {}: cannot write: {}", path_,
                  !why.empty()       ? why
                  : problem_.empty() ? "it is open for reading only"
                                     : problem_);
    }
    writable_ = false;
    if (!why.empty()) warn_write(why);
    return false;
  }

  void warn_write(std::string_view why) {
    if (std::exchange(warned_write_, true)) return;
    log(LogLevel::warning,
        "store: {}: cannot write: {}; new entries live in memory and end with this process", path_,
        why);
  }

  std::mutex mutex_;
  const std::string path_;
  const std::string problem_;             // as open_database says
  const std::unique_ptr<Database> file_;  // null: all is in memory
  bool writable_;                         // changes go to the file
  const bool fall_back_;
  bool warned_read_ = false, warned_write_ = false;
  std::map<Name, std::optional<Entry>>
      over_;  // empty optional: removed, though the file may still hold it
};

}  // namespace

Result<std::unique_ptr<Store>> open_sqlite(const std::filesystem::path& path,
                                           const OpenOptions& options) {
  Opened opened =
      open_database(path, options.read_only ? Access::read : Access::write, options.create);
  const std::string name = path.string();
  if (!opened.problem.empty()) {
    if (!options.fall_back && !opened.unknown_version) {
      return fail(ErrorCode::io, "store: {}: {}", name, opened.problem);
    }
    const bool readable = opened.database != nullptr;
    log(LogLevel::warning, "store: {}: {}; {}", name, opened.problem,
        !options.fall_back ? "nothing is found in it"
        : readable         ? "it is read, and new entries live in memory and end with this process"
                           : "entries live in memory and end with this process");
  }
  return std::unique_ptr<Store>(
      std::make_unique<SqliteStore>(name, std::move(opened), options.fall_back));
}

std::filesystem::path default_path() {
  if (const auto path = env("LAPIDARY_STORE")) return *path;
  const std::filesystem::path folder = cache_folder();
  return folder.empty() ? folder : folder / "store.db";
}

}  // namespace lapidary::store
