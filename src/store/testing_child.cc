// The roles of a child process, one function each. A child says on stderr what went wrong and
// returns 1.
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <optional>

#include "store/testing_store.h"
#include "support/hash.h"
#include "support/log.h"
#include "support/random.h"
#include "support/subprocess.h"

namespace lapidary::store::testing {
namespace {

template <class... Args>
int wrong(fmt::format_string<Args...> text, Args&&... args) {
  fmt::print(stderr, "child {}: {}\n", ::getpid(), fmt::format(text, std::forward<Args>(args)...));
  return 1;
}

void say(const std::string& line) {
  if (!write_all(STDOUT_FILENO, line + "\n")) std::_Exit(1);
}

/// write PATH FIRST COUNT: puts entries FIRST.. one after the other and says each number once put
/// returned.
int write(const std::vector<std::string>& arguments) {
  const auto store = open_sqlite(arguments.at(1), {.fall_back = false});
  if (!store) return wrong("{}", store.error().message);
  const int first = std::stoi(arguments.at(2)), count = std::stoi(arguments.at(3));
  for (int i = first; i < first + count; ++i) {
    // Every third is put twice, so that replacing is interrupted too; the last value counts.
    if (i % 3 == 0 && !(*store)->put(entry(i, 1, "first"))) return wrong("put {}", i);
    if (const Status put = (*store)->put(entry(i)); !put) return wrong("{}", put.error().message);
    say(std::to_string(i));
  }
  return 0;
}

/// A value that proves itself: whoever reads it can tell whether somebody wrote it under this key.
std::string value_for(const std::string& key, std::string_view who) {
  return fmt::format("{} {}", who, sha256_hex(fmt::format("{}|{}", key, who)));
}

/// mixed PATH SEED COUNT: COUNT operations on keys of its own and on shared ones, each answer
/// checked. Says, for each own key, what it must hold in the end.
int mixed(const std::vector<std::string>& arguments) {
  const auto opened = open_sqlite(arguments.at(1), {.fall_back = false});
  if (!opened) return wrong("{}", opened.error().message);
  Store& store = **opened;
  const std::uint64_t seed = std::stoull(arguments.at(2));
  const int count = std::stoi(arguments.at(3));
  std::map<std::string, std::optional<std::string>> mine;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t random = mix(seed, static_cast<std::uint64_t>(i));
    const std::string own = fmt::format("own {} {}", seed, random % 50),
                      shared = fmt::format("shared {}", random % 20);
    const std::string who = fmt::format("{}.{}", seed, i);
    const auto put = [&](const std::string& key) {
      return store.put({Kind::result, key, value_for(key, who), static_cast<std::int64_t>(i)});
    };
    Status status;
    switch ((random >> 32) % 8) {
      case 0:
      case 1:
      case 2:
        status = put(own);
        mine[own] = value_for(own, who);
        break;
      case 3:
        status = put(shared);
        break;
      case 4:
        status = store.erase(Kind::result, own);
        mine[own] = std::nullopt;
        break;
      case 5: {
        // Created at -i, so only the first one ever stays.
        const auto merged =
            store.put_newer({Kind::result, own + " old", value_for(own + " old", "first"),
                             -static_cast<std::int64_t>(i)});
        if (!merged) status = merged.error();
        mine.try_emplace(own + " old", value_for(own + " old", "first"));
        break;
      }
      case 6: {
        const auto found = store.find(Kind::result, own);
        if (!found) return wrong("{}", found.error().message);
        const auto expected = mine.count(own) != 0 ? mine[own] : std::nullopt;
        if (found->has_value() != expected.has_value())
          return wrong("'{}' is {} a miss", own, *found ? "not" : "");
        if (*found && (**found).value != *expected)
          return wrong("'{}' holds '{}'", own, (**found).value);
        break;
      }
      default: {
        const auto found = store.find(Kind::result, shared);
        if (!found) return wrong("{}", found.error().message);
        if (!*found) break;
        const std::string& value = (**found).value;
        if (value != value_for(shared, value.substr(0, value.find(' '))))
          return wrong("'{}' holds '{}'", shared, value);
      }
    }
    if (!status) return wrong("{}", status.error().message);
  }
  for (const auto& [key, value] : mine) say(fmt::format("{}\t{}", key, value.value_or("")));
  return 0;
}

/// full PATH BYTES: puts entries into a store whose files may not grow beyond BYTES, as on a full
/// disk. All must be readable, with one warning.
int full(const std::vector<std::string>& arguments) {
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{.rlim_cur = std::stoul(arguments.at(2)), .rlim_max = RLIM_INFINITY};
  if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return wrong("setrlimit");
  const Warnings warnings;
  const auto store = open_sqlite(arguments.at(1));
  if (!store) return wrong("{}", store.error().message);
  for (int i = 0; i < 300; ++i) {
    if (const Status put = (*store)->put(entry(i)); !put) return wrong("{}", put.error().message);
  }
  for (int i = 0; i < 300; ++i) {
    const auto found = (*store)->find(entry(i).kind, entry(i).key);
    if (!found || *found != entry(i)) return wrong("entry {} is lost", i);
  }
  if (warnings.lines().size() != 1) return wrong("{} warnings", warnings.lines().size());
  say(warnings.lines()[0]);

  const auto strict = open_sqlite(arguments.at(1), {.fall_back = false});
  if (!strict) return 0;  // not even its log can be made: also an answer
  int i = 0;
  while (i < 300 && (*strict)->put(entry(1000 + i))) ++i;
  return i < 300 ? 0 : wrong("300 entries without an error");
}

/// locked PATH: a user who may not write. Reads what is there, puts, reads that too. Says the
/// warnings.
int locked(const std::vector<std::string>& arguments) {
  if (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0))
    return wrong("cannot leave root");
  const Warnings warnings;
  const auto store = open_sqlite(arguments.at(1));
  if (!store) return wrong("{}", store.error().message);
  for (int i = 0; i < 10; ++i) {
    const auto found = (*store)->find(entry(i).kind, entry(i).key);
    say(fmt::format("{}", found && *found == entry(i) ? "found" : "missed"));
  }
  if (!(*store)->put(entry(77))) return wrong("put");
  if (*(*store)->find(entry(77).kind, entry(77).key) != entry(77))
    return wrong("what was put is not there");
  if (!(*store)->erase(entry(1).kind, entry(1).key)) return wrong("erase");
  if (*(*store)->find(entry(1).kind, entry(1).key)) return wrong("what was erased is there");
  const auto strict = open_sqlite(arguments.at(1), {.fall_back = false});
  if (strict || strict.error().code != ErrorCode::io) return wrong("no error without falling back");
  for (const std::string& line : warnings.lines()) say(line);
  return 0;
}

}  // namespace

int child(const std::vector<std::string>& arguments) {
  const std::string role = arguments.empty() ? "" : arguments[0];
  if (role == "write") return write(arguments);
  if (role == "mixed") return mixed(arguments);
  if (role == "full") return full(arguments);
  if (role == "locked") return locked(arguments);
  return wrong("'{}' is no role", role);
}

}  // namespace lapidary::store::testing
