#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <regex>
#include <span>

#include "cli/cli.h"
#include "cli/flags.h"
#include "cli/layout_expression.h"
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

// As many as default_threads() takes.
constexpr int kMostThreads = 1024;

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

/// A whole number within limits, both included.
template <class Int>
Result<Int> number(std::string_view flag, const std::string& text, Int low, Int high) {
  Int value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    return fail(ErrorCode::invalid_argument, "{}: '{}' is no whole number from {} to {}", flag,
                text, low, high);
  }
  return value;
}

/// "30", "0.5": a number of days.
Result<double> days(const std::string& flag, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0) || value > 1e5) {
    return fail(ErrorCode::invalid_argument, "{}: '{}' is no number of days from 0 to 100000", flag,
                text);
  }
  return value;
}

void add_store(CLI::App& app, Common& common) {
  app.add_option("--store", common.store, "file of tuned winners")->type_name("FILE");
}

/// What verbs with a worker share.
void add_common(CLI::App& app, Common& common) {
  app.add_option("--device", common.device, "cpu or cuda:N; default: the first GPU, else cpu")
      ->type_name("DEVICE");
  add_store(app, common);
  app.add_option("--worker", common.worker, "path of lapidary-worker")->type_name("FILE");
  app.add_option("--threads", common.threads, "threads of CPU kernels")->type_name("N");
  app.add_option("--onednn", common.onednn, "path of libdnnl.so")->type_name("FILE");
  app.add_option("--openblas", common.openblas, "path of libopenblas.so")->type_name("FILE");
  app.add_option("--libcuda", common.libcuda, "path of the NVIDIA driver's libcuda.so.1")
      ->type_name("FILE");
  app.add_option("--cublaslt", common.cublaslt, "path of libcublasLt.so")->type_name("FILE");
  app.add_option("--nvml", common.nvml, "path of libnvidia-ml.so.1")->type_name("FILE");
  app.add_option("--ptxas", common.ptxas, "path of ptxas; OFF: none")->type_name("FILE");
  app.add_option("--nvdisasm", common.nvdisasm, "path of nvdisasm; OFF: none")->type_name("FILE");
  app.add_option("--cubins", common.cubins, "folder of assembled kernels; OFF: keep none")
      ->type_name("FOLDER");
}

/// Hands the flags that the worker reads to it, by way of the environment.
Status set_environment(const Common& common) {
  const std::string threads =
      !common.threads.empty() ? common.threads : env("LAPIDARY_THREADS").value_or("");
  if (!threads.empty()) {
    LAPIDARY_TRY([[maybe_unused]] const int checked,
                 number(common.threads.empty() ? "LAPIDARY_THREADS" : "--threads", threads, 1,
                        kMostThreads));
  }
  for (const auto& [name, value] :
       {std::pair("LAPIDARY_THREADS", &common.threads),
        std::pair("LAPIDARY_ONEDNN", &common.onednn),
        std::pair("LAPIDARY_OPENBLAS", &common.openblas),
        std::pair("LAPIDARY_LIBCUDA", &common.libcuda),
        std::pair("LAPIDARY_CUBLASLT", &common.cublaslt), std::pair("LAPIDARY_NVML", &common.nvml),
        std::pair("LAPIDARY_PTXAS", &common.ptxas),
        std::pair("LAPIDARY_NVDISASM", &common.nvdisasm),
        std::pair("LAPIDARY_CUBINS", &common.cubins)}) {
    if (!value->empty()) ::setenv(name, value->c_str(), 1);
  }
  return {};
}

/// A flag with an optional value, --json or --json=FILE: as an option CLI11 2.1 would swallow the
/// suite.
struct OptionalFile {
  std::string file;
  CLI::Option* option = nullptr;
  std::optional<std::string> value() const {
    if (option->count() == 0) return std::nullopt;
    return file == "/dev/stdout" ? "-" : file;
  }
};

/// Help without CLI11's marks of its own: "..." behind each option that may come again, "{-}".
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, positional);
    if (const std::size_t at = name.find("{-}"); at != std::string::npos)
      name.replace(at, 3, "[=FILE]");
    return name;
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->get_type_name().empty() ? "" : " " + option->get_type_name();
  }
};

/// What is to be measured, as text.
struct WorkFlags {
  std::vector<std::string> suites, only;
  std::vector<Flag> keys;
  std::vector<std::string> values[std::size(kKeys)];
  std::string max_m, only_m, seed, rounds;
  OptionalFile json, csv;
};
struct TuneFlags {
  WorkFlags work;
  std::string budget, budget_total, keep, objective;
};

/// An option that may come several times, each with one value: CLI11 would give it all the words
/// that follow, the suite among them.
CLI::Option* add_repeatable(CLI::App& app, const std::string& name,
                            std::vector<std::string>& values, const std::string& about) {
  return app.add_option(name, values, about)->allow_extra_args(false);
}

void add_work(CLI::App& app, WorkFlags& flags, Common& common) {
  app.add_option("suite", flags.suites,
                 "suite files, or names of suites that come along (llama3-8b)")
      ->type_name("SUITE");
  for (std::size_t i = 0; i < std::size(kKeys); ++i) {
    add_repeatable(app, std::string("--") + kKeys[i].name, flags.values[i], kKeys[i].about)
        ->type_name(kKeys[i].value)
        ->group("Problem");
  }
  add_repeatable(app, "--only", flags.only,
                 "of a suite, only lines whose name contains this; repeatable")
      ->type_name("TEXT")
      ->group("Choice");
  app.add_option("--max-m", flags.max_m, "of a suite, only problems with m up to this")
      ->type_name("M")
      ->group("Choice");
  app.add_option("--only-m", flags.only_m, "of a suite, only problems with m of this list")
      ->type_name("M,M,...")
      ->group("Choice");
  app.add_option("--rounds", flags.rounds, "replays of a finalist; default 9, at least 7")
      ->type_name("N");
  app.add_option("--seed,--verify-seed", flags.seed, "of operands and verification; default 1")
      ->type_name("N");
  flags.json.option =
      app.add_flag("--json{-}", flags.json.file, "results as JSON, to stdout or --json=FILE");
  flags.csv.option =
      app.add_flag("--csv{-}", flags.csv.file, "results as CSV, to stdout or --csv=FILE");
  add_common(app, common);
  app.add_flag("-q,--quiet", common.quiet, "no progress");
  app.footer(
      "--stride_NAME N and --offset_NAME BYTES of any operand are flags too: "
      "docs/problems.md");
}

void add_tune(CLI::App& app, TuneFlags& flags, TuneArguments& arguments) {
  add_work(app, flags.work, arguments.work.common);
  app.add_option("--budget", flags.budget, "time for one problem, such as 30s; default: none")
      ->type_name("TIME");
  app.add_option("--budget-total", flags.budget_total, "time for all; what is done by then stays")
      ->type_name("TIME");
  app.add_option("--keep", flags.keep, "candidates measured a problem; default 10")->type_name("N");
  app.add_option("--objective", flags.objective,
                 "which time decides: burst (from idle, the default) or steady (under the power "
                 "limit of a GPU)")
      ->type_name("burst|steady");
  app.add_flag("--retune", arguments.retune, "measure even what is stored");
  app.add_flag("--replay-only", arguments.replay_only,
               "never measure: what is not stored is an error");
  app.add_flag("--all", arguments.all_rows, "show every candidate, also refused ones");
}

/// The problems of suites or of flags.
Result<std::vector<SuiteLine>> lines_of(const WorkFlags& flags) {
  std::vector<Flag> keys = flags.keys;
  for (std::size_t i = 0; i < std::size(kKeys); ++i) {
    for (const std::string& value : flags.values[i]) keys.emplace_back(kKeys[i].name, value);
  }
  if (flags.suites.empty()) {
    for (const auto& [flag, given] :
         {std::pair("--only", !flags.only.empty()), std::pair("--max-m", !flags.max_m.empty()),
          std::pair("--only-m", !flags.only_m.empty())}) {
      if (given && keys.empty())
        return fail(ErrorCode::invalid_argument, "{} chooses from a suite, and none is given",
                    flag);
      if (given)
        return fail(ErrorCode::invalid_argument,
                    "{} chooses from a suite, but --{} describes a problem; give one of them", flag,
                    keys.front().first);
    }
    return lines_from_flags(keys);
  }
  // A file behind --json reads as a suite.
  const auto hint = [&](const std::string& suite) -> std::string {
    for (const auto& [flag, file] :
         {std::pair("--json", &flags.json), std::pair("--csv", &flags.csv)}) {
      if (file->value() == "-")
        return fmt::format(" (if it is to be the report: {}={})", flag, suite);
    }
    return "";
  };
  if (!keys.empty()) {
    return fail(
        ErrorCode::invalid_argument,
        "--{} describes a problem, but the suite '{}' does that already; give one of them{}",
        keys.front().first, flags.suites.front(), hint(flags.suites.front()));
  }
  std::int64_t max_m = std::numeric_limits<std::int64_t>::max();
  if (!flags.max_m.empty()) {
    LAPIDARY_TRY(max_m, number<std::int64_t>("--max-m", flags.max_m, 0, max_m));
  }
  std::vector<std::int64_t> only_m;
  if (!flags.only_m.empty()) {
    LAPIDARY_TRY(only_m, extents_from_text("--only-m", flags.only_m));
  }
  std::vector<SuiteLine> chosen;
  for (const std::string& suite : flags.suites) {
    Result<std::vector<SuiteLine>> lines = lines_from_suite(suite);
    if (!lines) return Error{lines.error().code, lines.error().message + hint(suite)};
    for (SuiteLine& line : *lines) {
      const bool named =
          flags.only.empty() || std::ranges::any_of(flags.only, [&](const std::string& part) {
            return line.name.find(part) != std::string::npos;
          });
      const bool sized =
          line.problem.m <= max_m &&
          (only_m.empty() || std::ranges::find(only_m, line.problem.m) != only_m.end());
      if (named && sized) chosen.push_back(std::move(line));
    }
  }
  if (chosen.empty())
    return fail(ErrorCode::invalid_argument,
                "--only, --only-m, --max-m: no line of the suite is left");
  return chosen;
}

Status finish(const WorkFlags& flags, Work& work) {
  LAPIDARY_TRY_STATUS(set_environment(work.common));
  LAPIDARY_TRY(work.lines, lines_of(flags));
  if (!flags.seed.empty()) {
    LAPIDARY_TRY(work.seed, number<std::uint64_t>("--seed", flags.seed, 0,
                                                  std::numeric_limits<std::uint64_t>::max()));
  }
  if (!flags.rounds.empty()) {
    LAPIDARY_TRY(work.rounds, number("--rounds", flags.rounds, 7, 10000));
  }
  work.common.json = flags.json.value();
  work.common.csv = flags.csv.value();
  if (work.common.json == "-" && work.common.csv == "-") {
    return fail(ErrorCode::invalid_argument,
                "--json and --csv both want stdout; give one of them a file, as in --json=FILE");
  }
  // Said now, not after an hour of measuring.
  for (const auto& [flag, file] :
       {std::pair("--json", &work.common.json), std::pair("--csv", &work.common.csv)}) {
    const std::filesystem::path folder = std::filesystem::path(file->value_or("")).parent_path();
    std::error_code ignored;
    if (!folder.empty() && !std::filesystem::is_directory(folder, ignored)) {
      return fail(ErrorCode::invalid_argument, "{}={}: there is no folder {}; make it first", flag,
                  **file, folder.string());
    }
  }
  return {};
}

Status finish(const TuneFlags& flags, TuneArguments& arguments) {
  LAPIDARY_TRY_STATUS(finish(flags.work, arguments.work));
  if (!flags.budget.empty()) {
    LAPIDARY_TRY(arguments.budget_s, seconds("--budget", flags.budget));
  }
  if (!flags.budget_total.empty()) {
    LAPIDARY_TRY(arguments.budget_total_s, seconds("--budget-total", flags.budget_total));
  }
  if (!flags.keep.empty()) {
    LAPIDARY_TRY(arguments.keep, number("--keep", flags.keep, 1, 10000));
  }
  if (flags.objective == "steady") {
    return fail(ErrorCode::invalid_argument,
                "--objective: 'steady' cannot decide a tune yet; burst does, and bench --steady "
                "measures winners under a GPU's power limit");
  }
  if (!flags.objective.empty() && flags.objective != "burst") {
    return fail(ErrorCode::invalid_argument, "--objective: '{}' is none of burst or steady{}",
                flags.objective, did_you_mean(flags.objective, {"burst", "steady"}));
  }
  if (arguments.retune && arguments.replay_only) {
    return fail(ErrorCode::invalid_argument,
                "--retune measures always and --replay-only never; give one of them");
  }
  return {};
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

void add_layout(CLI::App& app, LayoutArguments& arguments, OptionalFile& json, OptionalFile& svg) {
  app.add_option("expression", arguments.expression,
                 "such as '(4,8):(8,1)', 'composition(A, B)', 'mma_c(m16n8k16)'")
      ->type_name("EXPR")
      ->required();
  app.add_flag("-q,--quiet", arguments.quiet, "the result alone, without its table");
  app.add_flag("--banks", arguments.banks, "banks of shared memory in place of offsets");
  app.add_option("--access", arguments.access,
                 "count bank conflicts of a warp: row, column, ldmatrix, or a thread-value map")
      ->type_name("ACCESS");
  app.add_option("--vector", arguments.vector,
                 "elements that a thread of row or column moves; default 1")
      ->type_name("N");
  app.add_option("--type", arguments.type, "element type, for banks; default f16")
      ->type_name("TYPE");
  json.option = app.add_flag("--json{-}", json.file, "as JSON, to stdout or --json=FILE");
  svg.option = app.add_flag("--svg{-}", svg.file, "as a picture, to stdout or --svg=FILE");
  app.footer(
      "L is a layout (shape:stride), S a swizzle (S<3,4,3>), crd and i coordinates. Functions:\n" +
      layout_functions_help());
}

std::string environment_help() {
  std::string help = "Environment, with the flag that goes first:\n";
  for (const EnvVariable& variable : env_variables())
    help += fmt::format("  {:<18} {:<11} {}\n", variable.name, variable.flag, variable.about);
  return help;
}

std::vector<std::string> verbs_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(verb->get_name());
  return names;
}

/// The verb, or verb of a verb, that was being parsed, with its full name.
std::pair<const CLI::App*, std::string> active_verb(const CLI::App& app) {
  const CLI::App* active = &app;
  std::string name = app.get_name();
  while (!active->get_subcommands().empty()) {
    active = active->get_subcommands().front();
    name += " " + active->get_name();
  }
  return {active, name};
}

/// CLI11's message of a parse that failed, in our words, with the flag that may have been meant.
std::string parse_message(const CLI::App& active, std::string message) {
  std::ranges::replace(message, '\n', ' ');
  const auto rewrite = [&](const char* pattern, const char* with) {
    message = std::regex_replace(message, std::regex(pattern), with);
  };
  rewrite("^(.*): [0-9]+ required (.*) missing$", "$1 needs a value: $2");
  rewrite("^(.*): At Most 1 required but received [0-9]+$", "$1 is given more than once");
  rewrite("^The following arguments? (was|were) not expected: ([^ ]*).*$", "$2 is not known here");
  std::smatch found;
  if (!std::regex_match(message, found, std::regex("(-[^ =]*)[^ ]* is not known here")))
    return message;
  const std::string word = found[1];
  if (!word.starts_with("--")) return message + "; flags have two dashes, all but -q and -h";
  std::vector<std::string> flags;
  for (const CLI::Option* option : active.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  for (const std::string& flag : flags) {
    if (word.size() > 4 && flag.starts_with(word))
      return fmt::format("{}; did you mean '{}'?", message, flag);
  }
  // Of flags with one letter each is near to each.
  std::erase_if(flags, [](const std::string& flag) { return flag.size() < 5; });
  return message + did_you_mean(word, {flags.begin(), flags.end()});
}

/// Why the words do not begin with a verb of `app`; empty when they do, or ask for help. CLI11
/// would only say that one is missing.
std::string wrong_verb(const CLI::App& app, std::span<const std::string> words,
                       const std::string& program) {
  const std::vector<std::string> names = verbs_of(app);
  if (names.empty()) return "";
  std::string choice;
  for (std::size_t i = 0; i < names.size(); ++i)
    choice += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  const std::string see = fmt::format(" (see {} --help)", program);
  if (words.empty()) return fmt::format("'{}' needs a verb: {}{}", program, choice, see);
  const std::string& word = words.front();
  if (word == "-h" || word == "--help" || word == "--version") return "";
  if (word.starts_with('-'))
    return fmt::format("'{}' comes before the verb; begin with {} {}{}", word, program, choice,
                       see);
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (verb->get_name() == word)
      return wrong_verb(*verb, words.subspan(1), fmt::format("{} {}", program, word));
  }
  const std::string meant = did_you_mean(word, {names.begin(), names.end()});
  return fmt::format("'{}' is no verb of '{}'{}{}", word, program,
                     !meant.empty() ? meant : "; it has " + choice, see);
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
  app.formatter(std::make_shared<HelpFormatter>());  // subcommands inherit it
  app.get_formatter()->label("SUBCOMMAND", "VERB");
  app.get_formatter()->label("Subcommands", "Verbs");
  app.footer("lapidary VERB --help lists a verb's flags.\n\n" + environment_help());

  TuneFlags tune_flags;
  WorkFlags bench_flags;
  TuneArguments tune;
  BenchArguments bench;
  CacheArguments cache;
  Common doctor;
  LayoutArguments layout;
  OptionalFile cache_json, doctor_json, layout_json, layout_svg;

  CLI::App* tune_verb =
      app.add_subcommand("tune", "find, prove and store the fastest candidate of each problem");
  add_tune(*tune_verb, tune_flags, tune);
  CLI::App* bench_verb =
      app.add_subcommand("bench", "measure stored winners again, against a backend or the default");
  add_work(*bench_verb, bench_flags, bench.work.common);
  bench_verb->add_option("--against", bench.against, "a backend's name, or 'default'")
      ->type_name("BACKEND");
  bench_verb->add_flag("--all", bench.all, "measure also where winner and rival are the same");
  std::string steady;
  bench_verb
      ->add_option(
          "--steady", steady,
          "also in blocks of this long without a rest, under a GPU's power limit; at least "
          "1s")
      ->type_name("TIME");

  CLI::App* layout_verb = app.add_subcommand(
      "layout", "compute with layouts, and look at them: tables, pictures, banks");
  add_layout(*layout_verb, layout, layout_json, layout_svg);

  CLI::App* cache_verb =
      app.add_subcommand("cache", "look at the store of tuned winners, and move it");
  cache_verb->require_subcommand(1);
  cache_verb->footer("");  // its verbs read no variable but LAPIDARY_STORE
  const auto cache_sub = [&](const char* name, const char* about) {
    CLI::App* sub = cache_verb->add_subcommand(name, about);
    sub->callback([&cache, name] { cache.verb = name; });
    add_store(*sub, cache.common);
    return sub;
  };
  CLI::App* ls = cache_sub("ls", "one line an entry");
  ls->add_option("pattern", cache.pattern, "only entries whose key contains this")
      ->type_name("TEXT");
  cache_json.option =
      ls->add_flag("--json{-}", cache_json.file, "a JSON array, to stdout or --json=FILE");
  cache_sub("show", "entries in full")
      ->add_option("pattern", cache.pattern, "entries whose key contains this")
      ->type_name("TEXT")
      ->required();
  cache_sub("export", "all entries as JSON lines")
      ->add_option("file", cache.file, "default: stdout")
      ->type_name("FILE");
  cache_sub("import", "entries from JSON lines; the newer of two stays")
      ->add_option("file", cache.file, "as export wrote it")
      ->type_name("FILE")
      ->required();
  cache_sub("merge", "another store's entries into this one")
      ->add_option("file", cache.file, "the other store")
      ->type_name("STORE")
      ->required();
  cache_sub("verify", "check every row's digest and the file's structure");
  CLI::App* gc = cache_sub("gc", "drop damaged rows and what the flags name, and shrink the file");
  std::string older_than;
  gc->add_option("--older-than-days", older_than, "results older than so many days; 0: all")
      ->type_name("DAYS");
  gc->add_flag("--quarantine", cache.quarantine,
               "quarantined candidates in place of results: they may compete again");

  CLI::App* doctor_verb =
      app.add_subcommand("doctor", "what was found on this machine, where, and what is missing");
  add_common(*doctor_verb, doctor);
  doctor_verb->footer(environment_help());
  doctor_json.option =
      doctor_verb->add_flag("--json{-}", doctor_json.file, "as JSON, to stdout or --json=FILE");

  std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && words.front() == "help") {  // `lapidary help tune`
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  Result<std::vector<Flag>> extra = operand_flags(words);
  if (!extra) {
    print_error(extra.error());
    return kUsage;
  }
  tune_flags.work.keys = bench_flags.keys = *extra;
  if (const std::string wrong = wrong_verb(app, words, "lapidary"); !wrong.empty()) {
    std::fprintf(stderr, "lapidary: %s\n", wrong.c_str());
    return kUsage;
  }
  try {
    std::ranges::reverse(words);  // CLI11 takes them last first
    app.parse(std::move(words));
  } catch (const CLI::Success& e) {
    return app.exit(e);  // --help, --version
  } catch (const CLI::ParseError& e) {
    const auto [verb, name] = active_verb(app);
    std::fprintf(stderr, "lapidary: %s (see %s --help)\n", parse_message(*verb, e.what()).c_str(),
                 name.c_str());
    return kUsage;
  }

  watch_interrupt();
  const auto refused = [](const Error& error) {
    print_error(error);
    return exit_code(error);
  };
  if (*tune_verb) {
    if (const Status done = finish(tune_flags, tune); !done) return refused(done.error());
    return run_tune(tune);
  }
  if (*bench_verb) {
    if (bench.against.empty()) {
      return refused(fail(ErrorCode::invalid_argument,
                          "--against is missing; give a backend's name, or 'default'"));
    }
    if (const Status done = finish(bench_flags, bench.work); !done) return refused(done.error());
    if (!steady.empty()) {
      const Result<double> block = seconds("--steady", steady);
      if (!block) return refused(block.error());
      if (*block < 1) {
        return refused(fail(ErrorCode::invalid_argument,
                            "--steady: '{}' is too short for the clock to settle; at least 1s",
                            steady));
      }
      bench.steady_s = *block;
    }
    return run_bench(bench);
  }
  if (!extra->empty()) {
    std::fprintf(stderr, "lapidary: --%s is no flag of this verb (see %s --help)\n",
                 extra->front().first.c_str(), active_verb(app).second.c_str());
    return kUsage;
  }
  if (*layout_verb) {
    layout.json = layout_json.value();
    layout.svg = layout_svg.value();
    if (layout.json == "-" && layout.svg == "-") {
      return refused(
          fail(ErrorCode::invalid_argument,
               "--json and --svg both want stdout; give one of them a file, as in --svg=FILE"));
    }
    return run_layout(layout);
  }
  if (*doctor_verb) {
    if (const Status set = set_environment(doctor); !set) return refused(set.error());
    doctor.json = doctor_json.value();
    return run_doctor(doctor);
  }
  if (!older_than.empty()) {
    const Result<double> parsed = days("--older-than-days", older_than);
    if (!parsed) return refused(parsed.error());
    cache.older_days = *parsed;
  }
  cache.common.json = cache_json.value();
  return run_cache(cache);
}

}  // namespace lapidary::cli
