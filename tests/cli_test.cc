// The program as a person runs it: exit codes, one line an error, what is printed where, what
// survives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "candidate/json.h"
#include "store/store.h"
#include "support/files.h"
#include "support/subprocess.h"

namespace lapidary {
namespace {

using std::chrono::milliseconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::string kProgram = LAPIDARY_BUILD_DIR "/bin/lapidary";

/// A variable of the environment for as long as it lives.
class With {
 public:
  With(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~With() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

class Cli : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(folder_) << folder_.error();
    ::setenv("LAPIDARY_STORE", path("store.db").c_str(), 1);
    ::setenv("LAPIDARY_LOCKS", folder_->path().c_str(), 1);
    ::unsetenv("LAPIDARY_DEVICE");
    // On a machine with a GPU, too, these tests are of the CPU: null_tune_test has the others.
    ::setenv("LAPIDARY_LIBCUDA", "/no/such/libcuda.so.1", 1);
  }
  std::string path(const std::string& name) const { return (folder_->path() / name).string(); }
  std::string file(const std::string& name, const std::string& contents) const {
    EXPECT_TRUE(write_file(path(name), contents));
    return path(name);
  }
  /// A program in the place of lapidary-worker.
  std::string script(const std::string& name, const std::string& body) const {
    const std::string where = file(name, "#!/bin/sh\n" + body + "\n");
    std::filesystem::permissions(where, std::filesystem::perms::owner_all);
    return where;
  }
  /// How many entries `cache ls` counts.
  static long entries() {
    const std::string out = run({"cache", "ls"}).out;
    const std::size_t last = out.rfind('\n', out.size() < 2 ? 0 : out.size() - 2);
    return std::strtol(out.c_str() + (last == std::string::npos ? 0 : last + 1), nullptr, 10);
  }
  static RunOutput run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), kProgram);
    const auto output = run_process(arguments, "", milliseconds(120000));
    EXPECT_TRUE(output) << output.error();
    return output ? *output : RunOutput{};
  }

  Result<TempFolder> folder_ = TempFolder::make();
};

struct BadCase {
  const char* why;
  std::vector<std::string> arguments;
  const char* says;
};

TEST_F(Cli, BadInputIsOneLineWithTheValueAndCodeTwo) {
  const std::vector<std::string> good = {"tune", "--m", "1", "--n", "8", "--k", "8"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = good;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const std::string not_json = file("not.json", "{\"name\": ");
  const std::string unknown_key = file(
      "key.json",
      R"({"name":"x","about":"","gemms":[{"name":"a","m":1,"n":1,"k":1,"epilog":"d = acc"}]})");
  const std::string twice = file(
      "twice.json",
      R"({"name":"x","about":"","gemms":[{"name":"a","m":1,"n":1,"k":1},{"name":"a","m":2,"n":1,"k":1}]})");
  const BadCase cases[] = {
      {"no verb", {}, "needs a verb: tune, bench, layout, cache or doctor"},
      {"no verb of cache", {"cache"}, "verb: ls, show, export, import, merge, verify or gc"},
      {"flag before the verb", {"--store", "x", "tune"}, "'--store' comes before the verb"},
      {"unknown verb", {"tnue"}, "'tnue' is no verb of 'lapidary'; did you mean 'tune'?"},
      {"unknown flag", with({"--epilog", "d = acc"}), "did you mean '--epilogue'"},
      {"no problem", {"tune"}, "--m is missing"},
      {"k missing", {"tune", "--m", "1", "--n", "8"}, "--k is missing"},
      {"negative extent", with({"--batch", "-1"}), "--batch: -1 is no extent"},
      {"negative m", {"tune", "--m", "-3", "--n", "8", "--k", "8"}, "--m: '-3' in '-3'"},
      {"no number", {"tune", "--m", "1", "--n", "8x", "--k", "8"}, "--n: '8x' is no whole number"},
      {"overflow of 64 bits",
       {"tune", "--m", "1", "--n", "99999999999999999999", "--k", "8"},
       "--n: '99999999999999999999' is no whole number"},
      {"overflowing product",
       {"tune", "--m", "1099511627776", "--n", "1099511627776", "--k", "1099511627776"},
       "1099511627776"},
      {"unknown type", with({"--a", "fp16"}), "--a: 'fp16' is none of 'f32'"},
      {"unknown layout", with({"--layout", "tx"}), "--layout: 'tx' is none of"},
      {"unknown scale mode", with({"--scales", "rows"}), "--scales: 'rows' is none of"},
      {"unknown numerics", with({"--numerics", "fast"}), "--numerics: 'fast' is none of"},
      {"leading dimension below the extent", with({"--lda", "4"}),
       "--lda: 4 is less than the 8 columns"},
      {"unknown function", with({"--epilogue", "d = gellu(acc)"}), "'gellu'"},
      {"wrong axis", with({"--epilogue", "d = acc + bias[k]"}), "'k' is no axis"},
      {"d missing", with({"--epilogue", "x = acc"}), "intermediate 'x' is never used"},
      {"odd n of a gated product",
       {"tune", "--m", "1", "--n", "7", "--k", "8", "--epilogue", "d = silu(gate) * up"},
       "--n: 7 is odd"},
      {"type of an operand that is none", with({"--type", "bias=f32"}),
       "--type: the problem has no operand 'bias'"},
      {"type without a name", with({"--type", "f32"}), "--type: 'f32' is no NAME=TYPE"},
      {"unknown type of an operand", with({"--epilogue", "d = acc + q[n]", "--type", "q=f99"}),
       "--type: q: 'f99' is none of"},
      {"two types of one operand",
       with({"--epilogue", "d = acc + q[n]", "--type", "q=f32", "--type", "q=bf16"}),
       "--type: 'q' has a type already, f32, and gets another, bf16"},
      {"stride of an operand that is none", with({"--stride_bias", "0"}),
       "--stride_bias: the problem has no operand 'bias'"},
      {"stride twice", with({"--stride_a", "8", "--stride_a", "9"}),
       "--stride_a is given more than"},
      {"offset without value", with({"--offset_a"}), "--offset_a needs a number"},
      {"offset off the element size", with({"--offset_a", "3"}), "--offset_a: 3 bytes is no whole"},
      {"alias of nothing", with({"--alias", "c=d"}),
       "--alias: 'c=d': the problem has no operand 'c'"},
      {"unknown device", with({"--device", "gpu"}),
       "--device: 'gpu' is no device; use cpu or cuda:0"},
      {"no time", with({"--budget", "soon"}), "--budget: 'soon' is no time"},
      {"no time at all", with({"--budget-total", "nan"}), "--budget-total: 'nan' is no time"},
      {"rounds below seven", with({"--rounds", "3"}), "--rounds: '3' is no whole number from 7"},
      {"nothing kept", with({"--keep", "0"}), "--keep: '0' is no whole number from 1"},
      {"threads of no number", with({"--threads", "abc"}), "--threads: 'abc' is no whole number"},
      {"no threads", with({"--threads", "0"}), "--threads: '0' is no whole number from 1 to 1024"},
      {"negative threads", with({"--threads", "-1"}), "--threads: '-1' is no whole number"},
      {"threads of doctor", {"doctor", "--threads", "0"}, "--threads: '0' is no whole number"},
      {"negative seed", with({"--seed", "-1"}), "--seed: '-1' is no whole number from 0"},
      {"seed beyond 64 bits", with({"--seed", "18446744073709551616"}),
       "--seed: '18446744073709551616' is no whole number"},
      {"negative max-m", {"tune", "odd", "--max-m", "-5"}, "--max-m: '-5' is no whole number"},
      {"max-m of flags", with({"--max-m", "4"}), "--max-m chooses from a suite"},
      {"steady decides nothing yet", with({"--objective", "steady"}), "cannot decide a tune yet"},
      {"unknown objective", with({"--objective", "steadi"}), "did you mean 'steady'"},
      {"always and never", with({"--retune", "--replay-only"}), "--retune measures always"},
      {"given twice", with({"--k", "9"}), "--k is given more than once, again with '9'"},
      {"two values", with({"--batch", "1", "2"}), "the suite '2' does that already"},
      {"suite and flags", {"tune", "odd", "--m", "1"}, "--m describes a problem"},
      {"suite is no file", {"tune", "no-such-suite"}, "'no-such-suite' is no file"},
      {"suite is a folder", {"tune", "/tmp"}, "'/tmp' is no file"},
      {"suite is cut", {"tune", not_json}, "not.json"},
      {"unknown key", {"tune", unknown_key}, "'epilog'"},
      {"names twice", {"tune", twice}, "'a'"},
      {"no line left", {"tune", "odd", "--only", "nothing"}, "no line of the suite is left"},
      {"both reports on stdout", with({"--json", "--csv"}), "both want stdout"},
      {"bench against nobody", {"bench", "odd", "--against", "cublas"}, "'cublas' is no backend"},
      {"a flag without its value", {"tune", "--m"}, "--m needs a value: LIST"},
      {"a flag of which one is enough", with({"--store", "a", "--store", "b"}),
       "--store is given more"},
      {"one dash", {"tune", "-m", "1"}, "flags have two dashes"},
      {"the beginning of a flag", {"cache", "gc", "--older"}, "did you mean '--older-than-days'?"},
      {"a report into no folder", with({"--json=/proc/none/x"}), "there is no folder /proc/none"},
      {"a report's file as a suite",
       {"tune", "--json", path("out.json")},
       "(if it is to be the report: --json="},
      {"suite misspelt", {"tune", "lama3-8b"}, "did you mean 'llama3-8b'?"},
      {"bench without rival", {"bench", "odd"}, "--against is missing"},
      {"bench never tunes", {"bench", "odd", "--against", "default", "--retune"}, "--retune"},
      {"bench has no budget",
       {"bench", "odd", "--against", "default", "--budget", "1s"},
       "--budget"},
      {"bench has no budget-total",
       {"bench", "odd", "--against", "default", "--budget-total", "1s"},
       "--budget-total"},
      {"bench keeps nothing", {"bench", "odd", "--against", "default", "--keep", "3"}, "--keep"},
      {"bench replays only",
       {"bench", "odd", "--against", "default", "--replay-only"},
       "--replay-only"},
      {"bench keeps none",
       {"bench", "odd", "--against", "default", "--keep", "3"},
       "--keep is not known here"},
      {"unknown cache verb", {"cache", "list"}, "'list' is no verb of 'lapidary cache'"},
      {"cache show of nothing", {"cache", "show", "zzz"}, "no entry's key contains 'zzz'"},
      {"import of nothing", {"cache", "import", path("no.jsonl")}, "no.jsonl: cannot open"},
      {"merge of nothing", {"cache", "merge", path("no.db")}, "no.db' is no file"},
      {"an age of nothing",
       {"cache", "gc", "--older-than-days", "nan"},
       "'nan' is no number of days"},
      {"an age without end", {"cache", "gc", "--older-than-days", "1e300"}, "'1e300' is no number"},
      {"a negative age", {"cache", "gc", "--older-than-days", "-1"}, "'-1' is no number of days"},
      {"worker that is none", with({"--worker", "/etc/passwd"}),
       "'/etc/passwd' cannot be executed"},
  };
  ASSERT_EQ(run({"tune", "--m", "1", "--n", "1", "--k", "1", "-q"}).state.code,
            0);  // a store for the cache verbs
  for (const auto& [why, arguments, says] : cases) {
    SCOPED_TRACE(why);
    const RunOutput output = run(arguments);
    EXPECT_EQ(output.state.code, 2);
    EXPECT_EQ(output.out, "");
    EXPECT_THAT(output.err, StartsWith("lapidary: "));
    EXPECT_THAT(output.err, HasSubstr(says));
    // One line; a program's has the line and a caret below.
    const auto lines = std::ranges::count(output.err, '\n');
    EXPECT_TRUE(lines == 1 || (lines == 3 && output.err.find('^') != std::string::npos))
        << output.err;
  }
}

TEST_F(Cli, TunesStoresAndThenTunesNothing) {
  const std::vector<std::string> command = {"tune",
                                            "--m",
                                            "1,17",
                                            "--n",
                                            "96",
                                            "--k",
                                            "64",
                                            "--a",
                                            "bf16",
                                            "--b",
                                            "bf16",
                                            "--epilogue",
                                            "d = gelu(acc + bias[n])",
                                            "--json=" + path("first.json")};
  const RunOutput first = run(command);
  ASSERT_EQ(first.state.code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("winner, verified"));
  EXPECT_THAT(first.out, HasSubstr("tuned in"));
  const RunOutput again = run(command);
  EXPECT_EQ(again.state.code, 0);
  EXPECT_THAT(again.out, HasSubstr("2 of 2 problems have a winner, 2 from the store"));
  const RunOutput listed = run({"cache", "ls"});
  EXPECT_THAT(listed.out, HasSubstr("2 entries"));
  const RunOutput bench =
      run({"bench", "--m", "1", "--n", "96", "--k", "64", "--a", "bf16", "--b", "bf16",
           "--epilogue", "d = gelu(acc + bias[n])", "--against", "portable"});
  EXPECT_EQ(bench.state.code, 0) << bench.err;
  EXPECT_THAT(bench.out, HasSubstr("geometric mean of 1"));
}

TEST_F(Cli, JsonOnStdoutHasNothingBesideIt) {
  const RunOutput output = run({"tune", "--m", "2", "--n", "8", "--k", "8", "--json"});
  EXPECT_EQ(output.state.code, 0) << output.err;
  EXPECT_THAT(output.out, StartsWith("{\n  \"version\": 1,"));
  EXPECT_THAT(output.out, EndsWith("}\n"));
  for (const char* key : {"\"device\"", "\"problems\"", "\"winner\"", "\"default\"",
                          "\"candidates\"", "\"tune_seconds\"", "\"tflops\"", "\"gbps\"",
                          "\"workspace_bytes\"", "\"spread\"", "\"registers\"", "\"smem_bytes\""}) {
    EXPECT_THAT(output.out, HasSubstr(key));
  }
}

TEST_F(Cli, TheOptionalFileOfJsonDoesNotSwallowTheSuite) {
  const RunOutput output = run({"tune", "--json", "odd", "--only", "1x8x16"});
  EXPECT_EQ(output.state.code, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("odd.1x8x16"));
}

TEST_F(Cli, EmptyProblemsSucceedAndDoNothing) {
  for (const char* m : {"0", "4"}) {
    const RunOutput output = run({"tune", "--m", m, "--n", m[0] == '0' ? "8" : "0", "--k", "8"});
    EXPECT_EQ(output.state.code, 0) << output.err;
    EXPECT_THAT(output.out, HasSubstr("nothing to compute"));
  }
  const RunOutput k0 =
      run({"tune", "--m", "4", "--n", "8", "--k", "0", "--epilogue", "d = acc + bias[n]"});
  EXPECT_EQ(k0.state.code, 0) << k0.err;
  EXPECT_THAT(k0.out, HasSubstr("winner, verified"));
}

TEST_F(Cli, NoCandidateIsCodeThreeWithReasons) {
  const RunOutput output =
      run({"tune", "--m", "64", "--n", "512", "--k", "64", "--a", "bf16", "--b", "bf16",
           "--workspace", "0", "--epilogue", "d = acc; s[m] = sum(acc, n)"});
  EXPECT_EQ(output.state.code, 3) << output.out;
  EXPECT_THAT(output.out, HasSubstr("refused: needs"));
}

TEST_F(Cli, AStoreThatCannotBeWrittenIsOneWarningAndTheWorkGoesOn) {
  const RunOutput output =
      run({"tune", "--m", "1", "--n", "8", "--k", "8", "--store", "/proc/none/store.db"});
  EXPECT_EQ(output.state.code, 0) << output.err;
  EXPECT_EQ(std::ranges::count(output.err, '\n'), 1) << output.err;
  EXPECT_THAT(output.err, HasSubstr("/proc/none"));
  EXPECT_EQ(run({"cache", "ls", "--store", "/proc/none/store.db"}).state.code, 7);
  EXPECT_EQ(run({"tune", "--m", "1", "--n", "8", "--k", "8", "--replay-only", "--store",
                 "/proc/none/store.db"})
                .state.code,
            7);
  EXPECT_EQ(run({"tune", "--m", "1", "--n", "8", "--k", "999", "--replay-only"}).state.code, 7);
}

TEST_F(Cli, DoctorSaysWhatIsMissingAndHowToGetIt) {
  const With missing("LAPIDARY_OPENBLAS", "/no/such/libopenblas.so");
  const RunOutput output = run({"doctor"});
  EXPECT_EQ(output.state.code, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("portable"));
  EXPECT_THAT(output.out, HasSubstr("install libopenblas0-pthread"));
  EXPECT_THAT(output.out, HasSubstr("/no/such/libopenblas.so"));
  EXPECT_THAT(output.out, Not(HasSubstr("\033")));
}

TEST_F(Cli, DoctorLooksForTheAssembler) {
  const std::string ptxas =
      script("ptxas", "echo 'Cuda compilation tools, release 13.0, V13.0.88'");
  const RunOutput output =
      run({"doctor", "--device", "cpu", "--ptxas", ptxas, "--nvdisasm", "/no/such/nvdisasm"});
  EXPECT_EQ(output.state.code, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("ptxas             ok       13.0.88 at " + ptxas + "\n"));
  EXPECT_THAT(output.out, HasSubstr("disassembler      missing  /no/such/nvdisasm: no program; "
                                    "LAPIDARY_NVDISASM (--nvdisasm) names it\n"));
}

TEST_F(Cli, InterruptKeepsWhatIsDoneAndTheNextRunGoesOn) {
  auto child = Subprocess::spawn(
      {.argv = {kProgram, "tune", "--m", "1:4000:1", "--n", "64", "--k", "64", "-q"},
       .pipe_stdout = true,
       .capture_stderr = true});
  ASSERT_TRUE(child) << child.error();
  // The table of the first problem is there: it is stored.
  std::string seen;
  while (seen.find("tuned in") == std::string::npos) {
    std::byte byte;
    const auto got = read_exact(child->stdout_fd(), {&byte, 1},
                                std::chrono::steady_clock::now() + std::chrono::seconds(60));
    ASSERT_TRUE(got && *got);
    seen += static_cast<char>(byte);
  }
  ASSERT_EQ(::kill(child->pid(), SIGINT), 0);
  const auto state = child->wait(std::chrono::steady_clock::now() + std::chrono::seconds(20));
  ASSERT_TRUE(state);
  EXPECT_EQ(state->code, 130);
  const RunOutput again = run({"tune", "--m", "1", "--n", "64", "--k", "64"});
  EXPECT_THAT(again.out, HasSubstr("from the store"));
}

TEST_F(Cli, TheTotalBudgetEndsWithCodeSixAndResumes) {
  const RunOutput output =
      run({"tune", "--m", "1:4000:1", "--n", "64", "--k", "64", "-q", "--budget-total", "1500ms"});
  EXPECT_EQ(output.state.code, 6);
  EXPECT_THAT(output.err, HasSubstr("--budget-total"));
  ASSERT_GT(entries(), 0);
  const RunOutput again = run({"tune", "--m", "1", "--n", "64", "--k", "64", "-q"});
  EXPECT_THAT(again.out, HasSubstr("from the store, nothing tuned"));
}

TEST_F(Cli, InterruptDuringTheLastProblemIsCode130) {
  // One problem and no other after it, big enough to be met in its midst.
  auto child = Subprocess::spawn(
      {.argv = {kProgram, "tune", "--m", "2048", "--n", "2048", "--k", "2048", "-q"},
       .pipe_stdout = true,
       .capture_stderr = true});
  ASSERT_TRUE(child) << child.error();
  std::this_thread::sleep_for(milliseconds(300));
  ASSERT_EQ(::kill(child->pid(), SIGINT), 0);
  const auto state = child->wait(std::chrono::steady_clock::now() + std::chrono::seconds(20));
  ASSERT_TRUE(state);
  EXPECT_EQ(state->code, 130);
}

TEST_F(Cli, AFlagTakesOneValueAndLeavesTheSuite) {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"tune", "--only", "1x8x16", "odd"},
        {"tune", "--only", "1x8x16", "--max-m", "1", "odd"}}) {
    const RunOutput output = run(command);
    EXPECT_EQ(output.state.code, 0) << output.err;
    EXPECT_THAT(output.out, HasSubstr("odd.1x8x16"));
  }
}

TEST_F(Cli, ABadVariableIsAnErrorThatNamesIt) {
  for (const char* value : {"abc", "0", "-1", "99999999999"}) {
    const With threads("LAPIDARY_THREADS", value);
    const RunOutput output = run({"tune", "--m", "1", "--n", "8", "--k", "8"});
    EXPECT_EQ(output.state.code, 2);
    EXPECT_EQ(output.err, fmt::format("lapidary: LAPIDARY_THREADS: '{}' is no whole number from 1 "
                                      "to 1024\n",
                                      value));
  }
  const With device("LAPIDARY_DEVICE", "cuda:x");
  EXPECT_THAT(run({"tune", "--m", "1", "--n", "8", "--k", "8"}).err,
              StartsWith("lapidary: LAPIDARY_DEVICE: 'cuda:x' is no device"));
}

TEST_F(Cli, AWorkerThatCannotWorkIsCodeFive) {
  const std::vector<std::string> command = {"tune", "--m", "1",      "--n",      "8",
                                            "--k",  "8",   "--json", "--worker", "/bin/false"};
  const RunOutput dead = run(command);
  EXPECT_EQ(dead.state.code, 5) << dead.err;
  // The problem is in the report all the same, with the reason.
  EXPECT_THAT(dead.out, HasSubstr("\"winner\": null"));
  EXPECT_THAT(dead.out, HasSubstr("\"error\": \"the worker ended"));
  EXPECT_THAT(dead.out, HasSubstr("\"id\": \"cpu\""));
  // A copy of the program with nothing beside it.
  const std::string lonely = path("lapidary");
  std::filesystem::copy_file(kProgram, lonely);
  const auto output = run_process(
      {"/usr/bin/env", "PATH=/proc/none", lonely, "tune", "--m", "1", "--n", "8", "--k", "8"}, "",
      milliseconds(60000));
  ASSERT_TRUE(output) << output.error();
  EXPECT_EQ(output->state.code, 5) << output->err;
  EXPECT_THAT(output->err, HasSubstr("lapidary-worker is neither beside this program nor in PATH"));
  {
    const With locks("LAPIDARY_LOCKS", "/proc/none");
    const RunOutput locked = run({"tune", "--m", "1", "--n", "8", "--k", "8"});
    EXPECT_EQ(locked.state.code, 5) << locked.err;
    EXPECT_THAT(locked.err, HasSubstr("/proc/none"));
  }
}

TEST_F(Cli, ABenchWhoseWorkerDiesIsCodeFiveAndSaysSoInItsRow) {
  ASSERT_EQ(run({"tune", "--m", "1", "--n", "8", "--k", "8", "-q"}).state.code, 0);
  // Ends in the midst of the first session, and cannot be started again.
  const std::string worker = script(
      "worker", "[ -e '" + path("began") + "' ] && exit 1\ntouch '" + path("began") +
                    "'\nexec timeout -s KILL 1 " LAPIDARY_BUILD_DIR "/bin/lapidary-worker cpu");
  const RunOutput output =
      run({"bench", "--m", "1", "--n", "8", "--k", "8", "--against", "portable", "--rounds", "9999",
           "--worker", worker, "--json=" + path("bench.json")});
  EXPECT_EQ(output.state.code, 5) << output.out << output.err;
  EXPECT_THAT(*read_file(path("bench.json")), HasSubstr("\"skipped\": \""));
}

TEST_F(Cli, BenchOfOneCandidateAgainstItselfHasNoTimes) {
  ASSERT_EQ(run({"tune", "--m", "1", "--n", "8", "--k", "8", "-q"}).state.code, 0);
  // As if the default had won.
  const auto opened = store::open_sqlite(path("store.db"), {.fall_back = false});
  ASSERT_TRUE(opened) << opened.error();
  std::vector<store::Entry> entries;
  ASSERT_TRUE((*opened)->each([&](const store::Entry& entry) {
    entries.push_back(entry);
    return true;
  }));
  ASSERT_EQ(entries.size(), 1u);
  Result<TuneResult> result = tune_result_from_json(entries[0].value);
  ASSERT_TRUE(result) << result.error();
  result->fallback = result->winner;
  entries[0].value = to_json(*result);
  ASSERT_TRUE((*opened)->put(entries[0]));
  const RunOutput output =
      run({"bench", "--m", "1", "--n", "8", "--k", "8", "--against", "default", "--json"});
  ASSERT_EQ(output.state.code, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("\"ours_us\": null,\n      \"theirs_us\": null,\n"
                                    "      \"ratio\": 1.0,\n"));
  EXPECT_THAT(output.out, HasSubstr("\"same\": true"));
}

TEST_F(Cli, ReportsGoIntoPipesAndThroughLinks) {
  ASSERT_TRUE(write_file(path("real.json"), "old"));
  std::filesystem::create_symlink("real.json", path("link.json"));
  const RunOutput output =
      run({"tune", "--m", "2", "--n", "8", "--k", "8", "--json=" + path("link.json")});
  EXPECT_EQ(output.state.code, 0) << output.err;
  EXPECT_TRUE(std::filesystem::is_symlink(path("link.json")));
  EXPECT_THAT(*read_file(path("real.json")), StartsWith("{\n  \"version\": 1,"));
  // That is stdout: as --json alone, without the table.
  const RunOutput piped = run({"tune", "--m", "2", "--n", "8", "--k", "8", "--json=/dev/stdout"});
  EXPECT_THAT(piped.out, StartsWith("{\n  \"version\": 1,"));
  EXPECT_EQ(run({"tune", "--m", "2", "--n", "8", "--k", "8", "--json=" + folder_->path().string()})
                .state.code,
            1);
  EXPECT_EQ(run({"cache", "export", "/proc/none/x"}).state.code, 1);
}

TEST_F(Cli, CacheListsExportsAndClearsWhatIsAsked) {
  ASSERT_EQ(run({"tune", "--m", "1,3", "--n", "8", "--k", "8", "-q"}).state.code, 0);
  ASSERT_EQ(entries(), 2);
  const RunOutput all = run({"cache", "ls", "--json"}),
                  one = run({"cache", "ls", "\"m\":3", "--json"}),
                  none = run({"cache", "ls", "zzz", "--json"});
  const auto count = [](const std::string& text) {
    std::size_t found = 0;
    for (std::size_t at = 0; (at = text.find("\"digest\":", at)) != std::string::npos; ++at)
      ++found;
    return found;
  };
  EXPECT_EQ(count(all.out), 2u);
  EXPECT_THAT(all.out, StartsWith("[\n{\"version\":1,"));
  EXPECT_THAT(all.out, EndsWith("}\n]\n"));
  EXPECT_EQ(count(one.out), 1u) << one.out;
  EXPECT_EQ(none.out, "[]\n");
  // Into another store and back.
  EXPECT_EQ(run({"cache", "export", path("all.jsonl")}).state.code, 0);
  EXPECT_EQ(run({"cache", "import", path("all.jsonl"), "--store", path("other.db")}).out,
            "2 added, 0 newer, 0 older or the same, 0 refused\n");
  // A quarantined candidate, as a store would hold it after a hang.
  const auto other = store::open_sqlite(path("store.db"), {.fall_back = false});
  ASSERT_TRUE(other) << other.error();
  ASSERT_TRUE((*other)->put({.kind = store::Kind::quarantine,
                             .key = "lapidary 1\ndevice x y\nproblem {}\ncandidate z",
                             .value = "hung",
                             .created_s = 1}));
  ASSERT_EQ(entries(), 3);
  EXPECT_EQ(run({"cache", "gc"}).state.code, 0);
  EXPECT_EQ(run({"cache", "gc", "--older-than-days", "1"}).state.code, 0);
  EXPECT_EQ(entries(), 3);  // the results are of today, and quarantine is not meant
  EXPECT_THAT(run({"cache", "gc", "--quarantine"}).out, StartsWith("1 quarantined "));
  EXPECT_EQ(entries(), 2);
  EXPECT_THAT(run({"cache", "gc", "--older-than-days", "0"}).out, StartsWith("2 old "));
  EXPECT_EQ(entries(), 0);
}

TEST_F(Cli, HelpAndVersionAreOk) {
  EXPECT_EQ(run({"--help"}).state.code, 0);
  EXPECT_EQ(run({"tune", "--help"}).state.code, 0);
  EXPECT_EQ(run({"help", "tune"}).out, run({"tune", "--help"}).out);
  EXPECT_EQ(run({"help"}).out, run({"--help"}).out);
  EXPECT_THAT(run({"--version"}).out, StartsWith("lapidary "));
}

}  // namespace
}  // namespace lapidary
