#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

#include "cli/cli.h"
#include "cli/flags.h"
#include "support/env.h"
#include "support/log.h"
#include "support/text.h"

namespace lapidary::cli {
namespace {

/// The problem keys that are flags of their own, with what they mean. docs/problems.md says more.
struct Key {
  const char *name, *value, *about;
};
constexpr Key kKeys[] = {
    {"m", "LIST", "rows of D: 16, 1,16,2048 or start:stop:step"},
    {"n", "N", "columns of the product (a gated program's D has half)"},
    {"k", "K", "extent that is summed over"},
    {"batch", "N", "independent products; default 1"},
    {"layout", "nt|nn|tn|tt", "storage of A and B; default nt"},
    {"a", "TYPE", "element type of A: f32 bf16 f16 e4m3 e5m2; default f32"},
    {"b", "TYPE", "of B"},
    {"c", "TYPE", "of C; default D's"},
    {"d", "TYPE", "of D; default A's, bf16 for fp8"},
    {"type", "NAME=TYPE", "of another operand or output; repeatable"},
    {"lda", "N", "row pitch of A in elements; default dense"},
    {"ldb", "N", "row pitch of B"},
    {"ldc", "N", "row pitch of C"},
    {"ldd", "N", "row pitch of D"},
    {"scales", "MODE", "none, tensor, row or block"},
    {"numerics", "LIST", "fast_fp8, tf32, rounded, f16_acc, nondeterministic"},
    {"epilogue", "PROGRAM", "such as 'd = gelu(acc + bias[n])'; default 'd = acc'"},
    {"constant", "LIST", "operands that stay the same between runs, such as b"},
    {"alias", "LIST", "operands that may share memory, such as c=d"},
    {"workspace", "BYTES", "limit of scratch memory; default 64 MiB"},
    {"sms", "N", "limit of SMs; default all"},
};

/// "30s", "2m", "1500ms", "12" as seconds.
Result<double> seconds(const std::string& flag, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  const double scale = unit.empty() || unit == "s" ? 1
                       : unit == "ms"              ? 1e-3
                       : unit == "m"               ? 60
                       : unit == "h"               ? 3600
                                                   : 0;
  if (end == text.c_str() || scale == 0 || !(value > 0) || value * scale > 1e9) {
    return fail(ErrorCode::invalid_argument,
                "{}: '{}' is no time; for example 30s, 500ms, 2m or 1h", flag, text);
  }
  return value * scale;
}

void add_common(CLI::App& app, Common& common) {
  app.add_option("--device", common.device, "cpu; default: the first GPU, else cpu");
  app.add_option("--store", common.store, "file of tuned winners");
  app.add_option("--worker", common.worker, "path of lapidary-worker");
  app.add_option_function<std::string>(
      "--threads", [](const std::string& n) { ::setenv("LAPIDARY_THREADS", n.c_str(), 1); },
      "threads of CPU kernels");
  app.add_option_function<std::string>(
      "--onednn", [](const std::string& p) { ::setenv("LAPIDARY_ONEDNN", p.c_str(), 1); },
      "path of libdnnl.so");
  app.add_option_function<std::string>(
      "--openblas", [](const std::string& p) { ::setenv("LAPIDARY_OPENBLAS", p.c_str(), 1); },
      "path of libopenblas.so");
  app.add_flag("-q,--quiet", common.quiet, "no progress");
}

/// A flag with an optional value, --json or --json=FILE: as an option CLI11 2.1 would swallow the
/// suite.
struct OptionalFile {
  std::string file;
  CLI::Option* option = nullptr;
  std::optional<std::string> value() const {
    if (option->count() == 0) return std::nullopt;
    return file;
  }
};

struct TuneFlags {
  std::vector<std::string> suites, only;
  std::vector<Flag> keys;
  std::vector<std::string> values[std::size(kKeys)];
  std::string budget, budget_total;
  std::int64_t max_m = -1;
  OptionalFile json, csv;
};

void add_tune(CLI::App& app, TuneFlags& flags, TuneArguments& arguments) {
  app.add_option("suite", flags.suites,
                 "suite files, or names of suites that come along (llama3-8b)")
      ->type_name("SUITE");
  for (std::size_t i = 0; i < std::size(kKeys); ++i) {
    app.add_option(std::string("--") + kKeys[i].name, flags.values[i], kKeys[i].about)
        ->type_name(kKeys[i].value)
        ->group("Problem");
  }
  app.add_option("--only", flags.only, "of a suite, only lines whose name contains this")
      ->type_name("TEXT")
      ->group("Choice");
  app.add_option("--max-m", flags.max_m, "of a suite, only problems with m up to this")
      ->type_name("M")
      ->group("Choice");
  app.add_option("--budget", flags.budget, "time for one problem, such as 30s; default: none")
      ->type_name("TIME");
  app.add_option("--budget-total", flags.budget_total, "time for all; what is done by then stays")
      ->type_name("TIME");
  app.add_option("--keep", arguments.keep, "candidates measured a problem; default 10")
      ->check(CLI::Range(1, 10000));
  app.add_option("--rounds", arguments.rounds, "replays of a finalist; default 9, at least 7")
      ->check(CLI::Range(7, 10000));
  app.add_option("--seed,--verify-seed", arguments.seed, "of operands and verification; default 1");
  app.add_flag("--retune", arguments.retune, "measure even what is stored");
  app.add_flag("--replay-only", arguments.replay_only,
               "never measure: what is not stored is an error");
  app.add_flag("--all", arguments.all_rows, "show every candidate, also refused ones");
  flags.json.option =
      app.add_flag("--json{-}", flags.json.file, "results as JSON, to stdout or --json=FILE");
  flags.csv.option =
      app.add_flag("--csv{-}", flags.csv.file, "results as CSV, to stdout or --csv=FILE");
  add_common(app, arguments.common);
}

Result<TuneArguments> finish(const TuneFlags& flags, TuneArguments arguments) {
  std::vector<Flag> keys = flags.keys;
  for (std::size_t i = 0; i < std::size(kKeys); ++i) {
    const std::string_view name = kKeys[i].name;
    const bool repeatable =
        name == "type" || name == "numerics" || name == "constant" || name == "alias";
    if (flags.values[i].size() > 1 && !repeatable) {
      return fail(ErrorCode::invalid_argument, "--{} is given {} times; once is right", name,
                  flags.values[i].size());
    }
    for (const std::string& value : flags.values[i]) keys.emplace_back(name, value);
  }
  if (!flags.suites.empty() && !keys.empty()) {
    return fail(ErrorCode::invalid_argument,
                "--{} describes a problem, but the suite '{}' does that already; give one of them",
                keys.front().first, flags.suites.front());
  }
  for (const std::string& suite : flags.suites) {
    LAPIDARY_TRY(std::vector<SuiteLine> lines, lines_from_suite(suite));
    for (SuiteLine& line : lines) {
      const bool named =
          flags.only.empty() || std::ranges::any_of(flags.only, [&](const std::string& part) {
            return line.name.find(part) != std::string::npos;
          });
      if (named && (flags.max_m < 0 || line.problem.m <= flags.max_m))
        arguments.lines.push_back(std::move(line));
    }
  }
  if (!flags.suites.empty() && arguments.lines.empty()) {
    return fail(ErrorCode::invalid_argument, "--only, --max-m: no line of the suite is left");
  }
  if (flags.suites.empty()) {
    LAPIDARY_TRY(arguments.lines, lines_from_flags(keys));
  }
  if (!flags.budget.empty()) {
    LAPIDARY_TRY(arguments.budget_s, seconds("--budget", flags.budget));
  }
  if (!flags.budget_total.empty()) {
    LAPIDARY_TRY(arguments.budget_total_s, seconds("--budget-total", flags.budget_total));
  }
  arguments.common.json = flags.json.value();
  arguments.common.csv = flags.csv.value();
  if (arguments.common.json == "-" && arguments.common.csv == "-") {
    return fail(ErrorCode::invalid_argument,
                "--json and --csv both want stdout; give one of them a file, as in --json=FILE");
  }
  return arguments;
}

/// Takes --stride_NAME and --offset_NAME (any operand's) out of the arguments.
Result<std::vector<Flag>> operand_flags(std::vector<std::string>& arguments) {
  std::vector<Flag> flags;
  for (std::size_t i = 0; i < arguments.size();) {
    const std::string& argument = arguments[i];
    if (!argument.starts_with("--stride_") && !argument.starts_with("--offset_")) {
      ++i;
      continue;
    }
    const std::size_t equals = argument.find('=');
    if (equals == std::string::npos && i + 1 == arguments.size()) {
      return fail(ErrorCode::invalid_argument, "{} needs a number", argument);
    }
    const bool joined = equals != std::string::npos;
    flags.emplace_back(argument.substr(2, joined ? equals - 2 : std::string::npos),
                       joined ? argument.substr(equals + 1) : arguments[i + 1]);
    const auto at = arguments.begin() + static_cast<std::ptrdiff_t>(i);
    arguments.erase(at, at + (joined ? 1 : 2));
  }
  return flags;
}

std::string environment_help() {
  std::string help = "Environment (each has a flag):\n";
  for (const EnvVariable& variable : env_variables())
    help += fmt::format("  {:<18} {}\n", variable.name, variable.about);
  return help;
}

/// The nearest flag or verb to one that is not known.
std::string suggestion(const CLI::App& app, const std::string& message) {
  const std::size_t at = message.rfind(": ");
  if (at == std::string::npos) return "";
  std::string word = message.substr(at + 2);
  word = word.substr(0, word.find_first_of(" ="));
  std::vector<std::string> owned;
  const auto subs = app.get_subcommands();
  const CLI::App& active = subs.empty() ? app : *subs.front();
  for (const CLI::Option* option : active.get_options()) {
    for (const std::string& name : option->get_lnames()) owned.push_back("--" + name);
  }
  if (subs.empty()) {
    for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
      owned.push_back(sub->get_name());
  }
  return did_you_mean(word, std::vector<std::string_view>(owned.begin(), owned.end()));
}

/// Why the first word is no verb of `app`; empty when it is one, or a flag. CLI11 would only say
/// that one is missing.
std::string wrong_verb(const CLI::App& app, const std::vector<std::string>& words) {
  if (words.empty() || words.front().starts_with('-')) return "";
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (verb->get_name() == words.front()) {
      return wrong_verb(*verb, {words.begin() + 1,
                                words.begin() + (verb->get_require_subcommand_min() > 0
                                                     ? static_cast<std::ptrdiff_t>(words.size())
                                                     : 1)});
    }
    names.push_back(verb->get_name());
  }
  if (names.empty()) return "";
  return fmt::format("'{}' is no verb of {}{}", words.front(), app.get_name(),
                     did_you_mean(words.front(), {names.begin(), names.end()}));
}

}  // namespace

int exit_code(const Error& error) {
  switch (error.code) {
    case ErrorCode::invalid_argument:
      return kUsage;
    case ErrorCode::device_fault:
      return kDeviceFault;
    case ErrorCode::timeout:
      return kTimeout;
    case ErrorCode::cancelled:
      return kInterrupted;
    case ErrorCode::wrong_result:
      return kWrong;
    default:
      return kFailed;
  }
}

void print_error(const Error& error) {
  std::fprintf(stderr, "lapidary: %s\n", error.message.c_str());
}

int run(int argc, const char* const* argv) {
  set_log_sink([](LogLevel level, std::string_view line) {
    if (level >= LogLevel::warning)
      std::fprintf(stderr, "lapidary: %.*s\n", static_cast<int>(line.size()), line.data());
  });
  CLI::App app("Lapidary: makes, proves and remembers the fastest kernel for a matrix product.",
               "lapidary");
  app.set_version_flag("--version", "lapidary " LAPIDARY_VERSION);
  app.require_subcommand(1);
  app.footer(environment_help());

  TuneFlags tune_flags, bench_flags;
  TuneArguments tune;
  BenchArguments bench;
  CacheArguments cache;
  Common doctor;
  OptionalFile cache_json, doctor_json;

  CLI::App* tune_verb =
      app.add_subcommand("tune", "find, prove and store the fastest candidate of each problem");
  add_tune(*tune_verb, tune_flags, tune);
  CLI::App* bench_verb =
      app.add_subcommand("bench", "measure stored winners again, against a backend or the default");
  add_tune(*bench_verb, bench_flags, bench.tune);
  bench_verb->add_option("--against", bench.against, "a backend's name, or 'default'")
      ->required()
      ->type_name("BACKEND");

  CLI::App* cache_verb =
      app.add_subcommand("cache", "look at the store of tuned winners, and move it");
  cache_verb->require_subcommand(1);
  const auto cache_sub = [&](const char* name, const char* about) {
    CLI::App* sub = cache_verb->add_subcommand(name, about);
    sub->callback([&cache, name] { cache.verb = name; });
    add_common(*sub, cache.common);
    return sub;
  };
  CLI::App* ls = cache_sub("ls", "one line an entry");
  ls->add_option("pattern", cache.pattern, "only entries whose key contains this");
  cache_json.option =
      ls->add_flag("--json{-}", cache_json.file, "as JSON, to stdout or --json=FILE");
  cache_sub("show", "entries in full")
      ->add_option("pattern", cache.pattern, "text in the key")
      ->required();
  cache_sub("export", "all entries as JSON lines")
      ->add_option("file", cache.file, "default: stdout");
  cache_sub("import", "entries from JSON lines; the newer of two stays")
      ->add_option("file", cache.file)
      ->required();
  cache_sub("merge", "another store's entries into this one")
      ->add_option("file", cache.file, "the other store")
      ->required();
  cache_sub("verify", "check every row's digest and the file's structure");
  cache_sub("gc", "drop damaged rows, and what is older")
      ->add_option("--older-than-days", cache.older_days, "entries older than so many days")
      ->check(CLI::NonNegativeNumber);

  CLI::App* doctor_verb =
      app.add_subcommand("doctor", "what was found on this machine, where, and what is missing");
  add_common(*doctor_verb, doctor);
  doctor_json.option =
      doctor_verb->add_flag("--json{-}", doctor_json.file, "as JSON, to stdout or --json=FILE");

  std::vector<std::string> words(argv + 1, argv + argc);
  Result<std::vector<Flag>> extra = operand_flags(words);
  if (!extra) {
    print_error(extra.error());
    return kUsage;
  }
  tune_flags.keys = bench_flags.keys = *extra;
  if (const std::string wrong = wrong_verb(app, words); !wrong.empty()) {
    std::fprintf(stderr, "lapidary: %s (see lapidary --help)\n", wrong.c_str());
    return kUsage;
  }
  try {
    std::ranges::reverse(words);  // CLI11 takes them last first
    app.parse(std::move(words));
  } catch (const CLI::Success& e) {
    return app.exit(e);  // --help, --version
  } catch (const CLI::ParseError& e) {
    std::string message = e.what();
    std::ranges::replace(message, '\n', ' ');
    std::fprintf(stderr, "lapidary: %s%s (see lapidary --help)\n", message.c_str(),
                 suggestion(app, message).c_str());
    return kUsage;
  }

  watch_interrupt();
  const auto with_problems = [](const TuneFlags& flags, const TuneArguments& arguments,
                                const auto& verb) -> int {
    const Result<TuneArguments> finished = finish(flags, arguments);
    if (!finished) {
      print_error(finished.error());
      return exit_code(finished.error());
    }
    return verb(*finished);
  };
  if (*tune_verb) return with_problems(tune_flags, tune, run_tune);
  if (*bench_verb) {
    return with_problems(bench_flags, bench.tune, [&](const TuneArguments& finished) {
      return run_bench({.tune = finished, .against = bench.against});
    });
  }
  if (!extra->empty()) {
    std::fprintf(stderr, "lapidary: --%s is no flag of this verb (see lapidary --help)\n",
                 extra->front().first.c_str());
    return kUsage;
  }
  if (*doctor_verb) {
    doctor.json = doctor_json.value();
    return run_doctor(doctor);
  }
  cache.common.json = cache_json.value();
  return run_cache(cache);
}

}  // namespace lapidary::cli
