#include "store/database.h"

#include <sqlite3.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <utility>

#include "support/random.h"

namespace lapidary::store {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// One b-tree, so that there is no index that could disagree with its table.
constexpr const char* kSchema =
    "CREATE TABLE entries(kind INTEGER NOT NULL, key_digest TEXT NOT NULL, key TEXT NOT NULL, "
    "value TEXT NOT NULL, created INTEGER NOT NULL, version INTEGER NOT NULL, digest TEXT NOT "
    "NULL, "
    "PRIMARY KEY(kind, key_digest)) STRICT, WITHOUT ROWID";

constexpr const char* kColumns = "kind, key_digest, key, value, created, version, digest";

std::uint32_t big_endian(const unsigned char* bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 |
         std::uint32_t{bytes[2]} << 8 | bytes[3];
}

/// file:///a%20b?immutable=1: read as it lies there, without locks, shared memory or a log.
std::string immutable_uri(const fs::path& path) {
  std::string uri = "file://";
  for (const char c : path.string()) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::strchr("/._-", c) != nullptr;
    uri += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return uri + "?immutable=1";
}

std::string text_column(sqlite3_stmt* statement, int column) {
  const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement, column));
  const int size = sqlite3_column_bytes(statement, column);
  return bytes == nullptr ? std::string() : std::string(bytes, static_cast<std::size_t>(size));
}

Row row_of(sqlite3_stmt* statement) {
  constexpr std::array kTypes = {SQLITE_INTEGER, SQLITE_TEXT,    SQLITE_TEXT, SQLITE_TEXT,
                                 SQLITE_INTEGER, SQLITE_INTEGER, SQLITE_TEXT};
  Row row;
  for (int i = 0; i < static_cast<int>(kTypes.size()); ++i) {
    row.typed =
        row.typed && sqlite3_column_type(statement, i) == kTypes[static_cast<std::size_t>(i)];
  }
  row.kind = sqlite3_column_int64(statement, 0);
  row.key_digest = text_column(statement, 1);
  row.key = text_column(statement, 2);
  row.value = text_column(statement, 3);
  row.created = sqlite3_column_int64(statement, 4);
  row.version = sqlite3_column_int64(statement, 5);
  row.digest = text_column(statement, 6);
  return row;
}

void bind(sqlite3_stmt* statement, int index, const std::string& text) {
  sqlite3_bind_text64(statement, index, text.data(), text.size(), SQLITE_STATIC, SQLITE_UTF8);
}

/// The file cannot be written or its helpers (log, shared memory) cannot be made; its contents may
/// be fine.
bool is_about_writing(int code) {
  const int primary = code & 0xff;
  return primary == SQLITE_CANTOPEN || primary == SQLITE_READONLY || primary == SQLITE_PERM ||
         primary == SQLITE_FULL;
}

}  // namespace

/// A statement for one use: reset and unbound at the end of the scope, finalised if it is not one
/// we keep.
class Database::Statement {
 public:
  explicit Statement(sqlite3_stmt* statement, bool keep = false)
      : statement_(statement), keep_(keep) {}
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  ~Statement() {
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
    if (!keep_) sqlite3_finalize(statement_);
  }
  sqlite3_stmt* get() const { return statement_; }

 private:
  sqlite3_stmt* statement_;
  bool keep_;
};

Database::~Database() { close(); }

void Database::close() {
  for (sqlite3_stmt** statement : {&find_, &put_, &erase_})
    sqlite3_finalize(std::exchange(*statement, nullptr));
  sqlite3_close(std::exchange(db_, nullptr));
}

bool Database::open(const std::string& name, int flags) {
  close();
  const int code = sqlite3_open_v2(name.c_str(), &db_,
                                   flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  if (code != SQLITE_OK) return false;
  sqlite3_busy_handler(db_, &Database::on_busy, this);
  // Until we know that the file is ours, closing it must not move a log into it.
  sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  return true;
}

/// SQLite's own waiting doubles its naps up to 100 ms, which starves a writer among many; short
/// random naps let everyone in.
int Database::on_busy(void* self, int count) {
  auto& database = *static_cast<Database*>(self);
  if (count == 0) database.busy_since_ = Clock::now();
  if (Clock::now() - database.busy_since_ > kBusyLimit) return 0;
  const auto most =
      std::uint64_t{200} * static_cast<std::uint64_t>(count < 20 ? count + 1 : 20);  // us
  const auto random = mix(reinterpret_cast<std::uintptr_t>(self),
                          static_cast<std::uint64_t>(Clock::now().time_since_epoch().count()));
  std::this_thread::sleep_for(std::chrono::microseconds(100 + random % most));
  return 1;
}

Error Database::error(int code) {
  code_ = code;
  const int primary = code & 0xff;
  if (primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB) damaged_ = true;
  const int system = db_ != nullptr ? sqlite3_system_errno(db_) : 0;
  const bool tell = system != 0 && (primary == SQLITE_CANTOPEN || primary == SQLITE_IOERR ||
                                    primary == SQLITE_FULL);
  return fail(ErrorCode::io, "{}{}{}", sqlite3_errstr(code), tell ? ": " : "",
              tell ? std::strerror(system) : "");
}

/// The header, read by SQLite's own descriptor: if we opened and closed the file ourselves, the
/// locks that another connection of this process holds on it would vanish (POSIX advisory locks).
Database::Look Database::look() {
  sqlite3_file* file = nullptr;
  sqlite3_file_control(db_, "main", SQLITE_FCNTL_FILE_POINTER, &file);
  if (file == nullptr || file->pMethods == nullptr) return Look::unreadable;
  int code;
  for (int count = 0; (code = file->pMethods->xLock(file, SQLITE_LOCK_SHARED)) == SQLITE_BUSY;
       ++count) {
    if (on_busy(this, count) == 0) return Look::busy;
  }
  if (code != SQLITE_OK) return Look::unreadable;
  sqlite3_int64 size = 0;
  std::array<unsigned char, 100>
      header{};  // layout: https://www.sqlite.org/fileformat2.html, section 1.3
  code = file->pMethods->xFileSize(file, &size);
  if (code == SQLITE_OK && size >= 100) code = file->pMethods->xRead(file, header.data(), 100, 0);
  file->pMethods->xUnlock(file, SQLITE_LOCK_NONE);
  if (code != SQLITE_OK) return Look::unreadable;
  if (size == 0) return Look::fresh;
  if (std::memcmp(header.data(), "SQLite format 3", 16) != 0) return Look::foreign;
  if (big_endian(&header[68]) != kApplicationId) return Look::foreign;
  return big_endian(&header[60]) == kSchemaVersion ? Look::ours : Look::other_version;
}

void Database::harden() {
  for (const int off :
       {SQLITE_DBCONFIG_TRUSTED_SCHEMA, SQLITE_DBCONFIG_ENABLE_TRIGGER, SQLITE_DBCONFIG_ENABLE_VIEW,
        SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, SQLITE_DBCONFIG_DQS_DML, SQLITE_DBCONFIG_DQS_DDL}) {
    sqlite3_db_config(db_, off, 0, nullptr);
  }
  sqlite3_db_config(db_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  // A damaged length must not make us allocate gigabytes.
  sqlite3_limit(db_, SQLITE_LIMIT_LENGTH, static_cast<int>(2 * kMaxEntryBytes));
  sqlite3_limit(db_, SQLITE_LIMIT_SQL_LENGTH, 1 << 14);
  sqlite3_limit(db_, SQLITE_LIMIT_COLUMN, 32);
  sqlite3_limit(db_, SQLITE_LIMIT_TRIGGER_DEPTH, 0);
  sqlite3_limit(db_, SQLITE_LIMIT_ATTACHED, 1);  // VACUUM needs one
  // mmap_size 0: a file that shrinks must be an error, not a SIGBUS. Synchronous NORMAL: see the
  // decision page.
  for (const char* pragma :
       {"PRAGMA cell_size_check=ON", "PRAGMA mmap_size=0", "PRAGMA temp_store=MEMORY",
        "PRAGMA synchronous=NORMAL", "PRAGMA journal_size_limit=4194304"}) {
    // None of these touches the file, and none is needed for a read to be right.
    (void)run(pragma).has_value();
  }
}

Status Database::run(const char* sql) {
  const int code = sqlite3_exec(db_, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return error(code);
  return {};
}

Result<std::int64_t> Database::number(const char* sql) {
  sqlite3_stmt* raw = nullptr;
  if (const int code = sqlite3_prepare_v2(db_, sql, -1, &raw, nullptr); code != SQLITE_OK)
    return error(code);
  const Statement statement(raw);
  if (const int code = sqlite3_step(raw); code != SQLITE_ROW)
    return error(code == SQLITE_DONE ? SQLITE_CORRUPT : code);
  return std::int64_t{sqlite3_column_int64(raw, 0)};
}

/// Version, table and application id in one transaction, before the log is switched on: from the
/// moment the file is not empty its first page says whose it is, or a journal lies beside it that
/// empties it again.
Status Database::create() {
  return write([&]() -> Status {
    LAPIDARY_TRY(const std::int64_t objects, number("SELECT count(*) FROM sqlite_schema"));
    if (objects != 0) return {};  // another process was first
    LAPIDARY_TRY_STATUS(run(fmt::format("PRAGMA application_id={}", kApplicationId).c_str()));
    LAPIDARY_TRY_STATUS(run(fmt::format("PRAGMA user_version={}", kSchemaVersion).c_str()));
    return run(kSchema);
  });
}

Result<bool> Database::schema_is_ours() {
  sqlite3_stmt* raw = nullptr;
  if (const int code = sqlite3_prepare_v2(
          db_, "SELECT type, name, tbl_name, sql FROM sqlite_schema", -1, &raw, nullptr);
      code != SQLITE_OK) {
    return error(code);
  }
  const Statement statement(raw);
  int rows = 0, code;
  bool ours = true;
  while ((code = sqlite3_step(raw)) == SQLITE_ROW) {
    ++rows;
    ours = ours && text_column(raw, 0) == "table" && text_column(raw, 1) == "entries" &&
           text_column(raw, 2) == "entries" && text_column(raw, 3) == kSchema;
  }
  if (code != SQLITE_DONE) return error(code);
  return ours && rows == 1;
}

/// The switch needs the file alone for a moment and does not wait for it. Without it the store
/// works as well, only with more waiting.
void Database::use(Journal journal) {
  const bool rollback = journal == Journal::rollback;
  // A rollback journal that is not synced before the file is written loses all at a loss of power.
  if (rollback) (void)run("PRAGMA synchronous=FULL").has_value();
  for (int count = 0;; ++count) {
    sqlite3_stmt* raw = nullptr;
    const char* sql = rollback ? "PRAGMA journal_mode=DELETE" : "PRAGMA journal_mode=WAL";
    if (sqlite3_prepare_v2(db_, sql, -1, &raw, nullptr) != SQLITE_OK) return;
    const Statement statement(raw);
    if ((sqlite3_step(raw) & 0xff) != SQLITE_BUSY || on_busy(this, count) == 0) return;
  }
}

Result<sqlite3_stmt*> Database::prepared(sqlite3_stmt*& slot, const char* sql) {
  if (slot == nullptr) {
    const int code = sqlite3_prepare_v3(db_, sql, -1, SQLITE_PREPARE_PERSISTENT, &slot, nullptr);
    if (code != SQLITE_OK) return error(code);
  }
  return slot;
}

Result<std::optional<Row>> Database::find(std::int64_t kind, const std::string& key_digest) {
  LAPIDARY_TRY(
      sqlite3_stmt* const raw,
      prepared(find_,
               "SELECT kind, key_digest, key, value, created, version, digest FROM entries "
               "WHERE kind = ? AND key_digest = ?"));
  const Statement statement(raw, true);
  sqlite3_bind_int64(raw, 1, kind);
  bind(raw, 2, key_digest);
  const int code = sqlite3_step(raw);
  if (code == SQLITE_DONE) return std::optional<Row>();
  if (code != SQLITE_ROW) return error(code);
  return std::optional(row_of(raw));
}

Status Database::put(const Row& row) {
  LAPIDARY_TRY(sqlite3_stmt* const raw,
               prepared(put_, "INSERT OR REPLACE INTO entries VALUES(?, ?, ?, ?, ?, ?, ?)"));
  const Statement statement(raw, true);
  sqlite3_bind_int64(raw, 1, row.kind);
  bind(raw, 2, row.key_digest);
  bind(raw, 3, row.key);
  bind(raw, 4, row.value);
  sqlite3_bind_int64(raw, 5, row.created);
  sqlite3_bind_int64(raw, 6, row.version);
  bind(raw, 7, row.digest);
  if (const int code = sqlite3_step(raw); code != SQLITE_DONE) return error(code);
  return {};
}

Status Database::erase(std::int64_t kind, const std::string& key_digest) {
  LAPIDARY_TRY(sqlite3_stmt* const raw,
               prepared(erase_, "DELETE FROM entries WHERE kind = ? AND key_digest = ?"));
  const Statement statement(raw, true);
  sqlite3_bind_int64(raw, 1, kind);
  bind(raw, 2, key_digest);
  if (const int code = sqlite3_step(raw); code != SQLITE_DONE) return error(code);
  return {};
}

Status Database::scan(bool backwards, const std::function<void(Row)>& visit) {
  const char* order = backwards ? "DESC" : "ASC";
  const std::string sql =
      fmt::format("SELECT {} FROM entries ORDER BY kind {}, key_digest {}", kColumns, order, order);
  sqlite3_stmt* raw = nullptr;
  if (const int code = sqlite3_prepare_v2(db_, sql.c_str(), -1, &raw, nullptr); code != SQLITE_OK)
    return error(code);
  const Statement statement(raw);
  int code;
  while ((code = sqlite3_step(raw)) == SQLITE_ROW) visit(row_of(raw));
  if (code != SQLITE_DONE) return error(code);
  return {};
}

Status Database::write(const std::function<Status()>& body) {
  LAPIDARY_TRY_STATUS(run("BEGIN IMMEDIATE"));
  Status done = body();
  if (done) done = run("COMMIT");
  // A failed COMMIT may have rolled back by itself; then this is refused, which is fine.
  if (!done) sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
  return done;
}

Result<std::string> Database::integrity(bool quick) {
  sqlite3_stmt* raw = nullptr;
  const char* sql = quick ? "PRAGMA quick_check(20)" : "PRAGMA integrity_check(20)";
  if (const int code = sqlite3_prepare_v2(db_, sql, -1, &raw, nullptr); code != SQLITE_OK)
    return error(code);
  const Statement statement(raw);
  std::string findings;
  int code;
  while ((code = sqlite3_step(raw)) == SQLITE_ROW) {
    if (!findings.empty()) findings += '\n';
    findings += text_column(raw, 0);
  }
  if (code != SQLITE_DONE) return error(code);
  return findings;
}

Status Database::vacuum() {
  LAPIDARY_TRY_STATUS(run("VACUUM"));
  // In WAL mode the file shrinks when the log is moved into it.
  return run("PRAGMA wal_checkpoint(TRUNCATE)");
}

Journal journal_for(std::uint64_t file_system) {
  // linux/magic.h, and Lustre, GPFS, BeeGFS and Ceph from their own headers.
  constexpr std::uint64_t kNetwork[] = {0x6969,     0x517b,     0xff534d42, 0xfe534d42,
                                        0x01021997, 0x5346414f, 0x0bd00bd0, 0x47504653,
                                        0x19830326, 0x00c36400, 0x65735546};
  const auto found = std::ranges::find(kNetwork, file_system & 0xffffffff);
  return found != std::end(kNetwork) ? Journal::rollback : Journal::log;
}

Opened open_database(const fs::path& given, Access access, bool create, Journal journal) {
  Opened opened;
  const auto unusable = [&](std::string why) {
    opened.database = nullptr;
    opened.writable = false;
    opened.problem = std::move(why);
    return std::move(opened);
  };
  if (given.empty()) return unusable("no path is known; set LAPIDARY_STORE or HOME");
  // Absolute, so that SQLite reads no meaning into names such as ":memory:".
  std::error_code system;
  const fs::path path = fs::absolute(given, system);
  const fs::file_status status = fs::status(path, system);
  if (fs::is_directory(status)) return unusable("it is a folder; name a file in it");
  if (fs::exists(status) && !fs::is_regular_file(status))
    return unusable("it is not a regular file");
  if (status.type() == fs::file_type::not_found) {
    if (access == Access::read || !create) return unusable("no such file");
    fs::create_directories(path.parent_path(), system);
    if (system) return unusable(fmt::format("cannot make its folder: {}", system.message()));
  }

  opened.database = std::make_unique<Database>();
  Database& database = *opened.database;
  const int flags = access == Access::read ? SQLITE_OPEN_READONLY
                    : create               ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
                                           : SQLITE_OPEN_READWRITE;
  if (!database.open(path.string(), flags))
    return unusable(database.error(sqlite3_extended_errcode(database.db_)).message);
  // SQLite opens a write-protected file for reading without a word.
  opened.writable = access == Access::write && sqlite3_db_readonly(database.db_, "main") == 0;

  const Database::Look look = database.look();
  switch (look) {
    case Database::Look::foreign:
      return unusable("it is not a store of ours, or its first page is damaged");
    case Database::Look::busy:
      return unusable("another process has locked it for too long");
    case Database::Look::unreadable:
      return unusable("it cannot be read");
    case Database::Look::other_version:
      opened.unknown_version = true;
      return unusable("it is of another version of Lapidary");
    case Database::Look::fresh:
    case Database::Look::ours:
      break;
  }
  database.harden();
  if (look == Database::Look::fresh) {
    if (!opened.writable && access == Access::write)
      return unusable("it is empty and write-protected");
    if (!opened.writable) return unusable("it is empty");
    if (const Status created = database.create(); !created) {
      return unusable(fmt::format("cannot make it: {}", created.error().message));
    }
  }

  auto ours = database.schema_is_ours();
  if (!ours && is_about_writing(database.code_) && look == Database::Look::ours) {
    // A log or shared memory is needed and cannot be made here (a read-only folder): take the file
    // as it lies. What a running writer has not moved into it yet is not seen; digests still guard
    // every row.
    const std::string why = ours.error().message;
    if (!database.open(immutable_uri(path), SQLITE_OPEN_READONLY | SQLITE_OPEN_URI))
      return unusable(why);
    database.harden();
    opened.writable = false;
    ours = database.schema_is_ours();
  }
  if (!ours) return unusable(ours.error().message);
  const auto version = database.number("PRAGMA user_version");
  if (!version) return unusable(version.error().message);
  if (*version != kSchemaVersion) {  // changed in the log only
    opened.unknown_version = true;
    return unusable("it is of another version of Lapidary");
  }
  if (!*ours) return unusable("its tables are not the ones that we make");

  if (opened.writable) {
    sqlite3_db_config(database.db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, nullptr);
    if (struct statfs where; journal == Journal::automatic && ::statfs(path.c_str(), &where) == 0) {
      journal = journal_for(static_cast<std::uint64_t>(where.f_type));
    }
    database.use(journal);
  } else if (access == Access::write) {
    opened.problem = "it or its folder is write-protected";
  }
  return opened;
}

}  // namespace lapidary::store
