#include "store/testing_store.h"

#include <sqlite3.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "support/log.h"

namespace lapidary::store::testing {

TempFolder temp_folder() {
  auto folder = TempFolder::make();
  if (!folder) {
    std::fprintf(stderr, "%s\n", folder.error().message.c_str());
    std::exit(1);
  }
  return *std::move(folder);
}

Entry entry(int i, std::int64_t created_s, std::string_view value) {
  return {.kind = i % 5 == 4 ? Kind::quarantine : Kind::result,
          .key = fmt::format("lapidary 1\ndevice cpu {} avx512_bf16 threads=2\nproblem "
                             "{{\"m\":{},\"n\":6144,\"k\":4096}}",
                             i % 3, i),
          .value = value.empty() ? fmt::format("{{\"winner\":{},\"time_us\":{}.5}}", i, i * 3)
                                 : std::string(value),
          .created_s = created_s};
}

struct Warnings::State {
  std::mutex mutex;
  std::vector<std::string> lines;
  LogSink before;
};

Warnings::Warnings() : state_(std::make_shared<State>()) {
  state_->before = set_log_sink([state = state_](LogLevel level, std::string_view line) {
    const std::lock_guard lock(state->mutex);
    if (level >= LogLevel::warning) state->lines.emplace_back(line);
  });
}
Warnings::~Warnings() { set_log_sink(state_->before); }
const std::vector<std::string>& Warnings::lines() const { return state_->lines; }

std::unique_ptr<Store> open(const std::filesystem::path& path, const OpenOptions& options) {
  auto store = open_sqlite(path, options);
  if (!store) {
    ADD_FAILURE() << store.error();
    return open_memory();
  }
  return *std::move(store);
}

std::vector<Entry> all(Store& store) {
  std::vector<Entry> entries;
  const Status status = store.each([&](const Entry& e) {
    entries.push_back(e);
    return true;
  });
  EXPECT_TRUE(status);
  return entries;
}

void sql(const std::filesystem::path& path, const std::string& statements) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  char* message = nullptr;
  EXPECT_EQ(sqlite3_exec(db, statements.c_str(), nullptr, nullptr, &message), SQLITE_OK) << message;
  sqlite3_free(message);
  sqlite3_close(db);
}

std::vector<std::string> child_command(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(),
                   {std::filesystem::read_symlink("/proc/self/exe").string(), "--child"});
  return arguments;
}

}  // namespace lapidary::store::testing
