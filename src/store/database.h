#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "store/row.h"

struct sqlite3;
struct sqlite3_stmt;

// The SQLite file beneath the store: opening it without trusting it, and the few statements we run.
namespace lapidary::store {

inline constexpr std::uint32_t kApplicationId = 0x4c504459;  ///< "LPDY"
inline constexpr std::uint32_t kSchemaVersion = 1;           ///< SQLite's user_version

enum class Access { read, write };

/// How commits reach the file. The write-ahead log lets readers and a writer work at once, but
/// needs memory that all processes share, which a network file system does not give to two hosts.
enum class Journal { automatic, log, rollback };
/// The one for a file system, by its `f_type` of statfs.
Journal journal_for(std::uint64_t file_system);

class Database;

/// What became of opening a file.
struct Opened {
  std::unique_ptr<Database> database;  ///< null when nothing can be read
  bool writable = false;
  bool unknown_version = false;  ///< another schema version; the file was only looked at
  std::string problem;           ///< why it is not as it was asked for; empty when it is
};

/// Opens the file, or makes it (with its folders) when it is missing and `create`. A file that is
/// not ours is recognised by its first hundred bytes, before SQLite may recover, check-point or
/// lock anything.
Opened open_database(const std::filesystem::path& path, Access access, bool create,
                     Journal journal = Journal::automatic);

/// A connection. Not safe for threads; waits for other processes (kBusyLimit) before it gives up.
/// Errors are `io` and say what SQLite said.
class Database {
 public:
  static constexpr std::chrono::seconds kBusyLimit{30};

  Database() = default;
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database();

  /// The row with that kind and key digest; its state is the caller's to judge.
  Result<std::optional<Row>> find(std::int64_t kind, const std::string& key_digest);
  Status put(const Row& row);
  Status erase(std::int64_t kind, const std::string& key_digest);
  /// All rows in the order of kind and key digest, or backwards. An error comes after the rows that
  /// could be read. `visit` must not use this connection.
  Status scan(bool backwards, const std::function<void(Row)>& visit);
  /// Runs `body` holding the write lock; commits when it succeeds, else rolls back.
  Status write(const std::function<Status()>& body);
  /// "ok", or SQLite's findings, a line each.
  Result<std::string> integrity(bool quick);
  /// Gives free pages back to the file system.
  Status vacuum();

  /// SQLite has called the file damaged at some time; nothing should be written to it any more.
  bool damaged() const { return damaged_; }

 private:
  friend Opened open_database(const std::filesystem::path&, Access, bool, Journal);
  class Statement;
  enum class Look { fresh, ours, other_version, foreign, busy, unreadable };

  bool open(const std::string& name, int flags);
  void close();
  Look look();
  void harden();
  Status create();
  Result<bool> schema_is_ours();
  void use(Journal journal);
  Status run(const char* sql);
  Result<std::int64_t> number(const char* sql);
  Error error(int code);
  Result<sqlite3_stmt*> prepared(sqlite3_stmt*& slot, const char* sql);
  static int on_busy(void* self, int count);

  sqlite3* db_ = nullptr;
  sqlite3_stmt *find_ = nullptr, *put_ = nullptr, *erase_ = nullptr;
  std::chrono::steady_clock::time_point busy_since_;
  int code_ = 0;  ///< of the last error
  bool damaged_ = false;
};

}  // namespace lapidary::store
