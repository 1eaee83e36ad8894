// The program as a person runs it: exit codes, one line an error, what is printed where, what
// survives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

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

class Cli : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(folder_) << folder_.error();
    ::setenv("LAPIDARY_STORE", path("store.db").c_str(), 1);
    ::setenv("LAPIDARY_LOCKS", folder_->path().c_str(), 1);
    ::unsetenv("LAPIDARY_DEVICE");
  }
  std::string path(const std::string& name) const { return (folder_->path() / name).string(); }
  std::string file(const std::string& name, const std::string& contents) const {
    EXPECT_TRUE(write_file(path(name), contents));
    return path(name);
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
      {"no verb", {}, "subcommand"},
      {"unknown verb", {"tnue"}, "tnue"},
      {"unknown flag", with({"--epilog", "d = acc"}), "did you mean '--epilogue'"},
      {"no problem", {"tune"}, "--m is missing"},
      {"k missing", {"tune", "--m", "1", "--n", "8"}, "--k is missing"},
      {"negative extent", with({"--batch", "-1"}), "-1"},
      {"no number", {"tune", "--m", "1", "--n", "8x", "--k", "8"}, "'8x'"},
      {"overflow of 64 bits",
       {"tune", "--m", "1", "--n", "99999999999999999999", "--k", "8"},
       "99999999999999999999"},
      {"overflowing product",
       {"tune", "--m", "1099511627776", "--n", "1099511627776", "--k", "1099511627776"},
       "1099511627776"},
      {"unknown type", with({"--a", "fp16"}), "fp16"},
      {"unknown layout", with({"--layout", "tx"}), "tx"},
      {"unknown scale mode", with({"--scales", "rows"}), "rows"},
      {"unknown numerics", with({"--numerics", "fast"}), "fast"},
      {"leading dimension below the extent", with({"--lda", "4"}), "4"},
      {"unknown function", with({"--epilogue", "d = gellu(acc)"}), "gellu"},
      {"wrong axis", with({"--epilogue", "d = acc + bias[k]"}), "k"},
      {"d missing", with({"--epilogue", "x = acc"}), "d"},
      {"odd n of a gated product",
       {"tune", "--m", "1", "--n", "7", "--k", "8", "--epilogue", "d = silu(gate) * up"},
       "7"},
      {"type of an operand that is none", with({"--type", "bias=f32"}), "bias"},
      {"type without a name", with({"--type", "f32"}), "'f32'"},
      {"stride of an operand that is none", with({"--stride_bias", "0"}), "bias"},
      {"offset without value", with({"--offset_a"}), "--offset_a"},
      {"offset off the element size", with({"--offset_a", "3"}), "3"},
      {"alias of nothing", with({"--alias", "c=d"}), "c"},
      {"unknown device", with({"--device", "cuda:0"}), "cuda:0"},
      {"no time", with({"--budget", "soon"}), "'soon'"},
      {"rounds below seven", with({"--rounds", "3"}), "3"},
      {"given twice", with({"--k", "9"}), "--k"},
      {"suite and flags", {"tune", "odd", "--m", "1"}, "--m"},
      {"suite is no file", {"tune", "no-such-suite"}, "no-such-suite"},
      {"suite is a folder", {"tune", "/tmp"}, "/tmp"},
      {"suite is cut", {"tune", not_json}, "not.json"},
      {"unknown key", {"tune", unknown_key}, "epilog"},
      {"names twice", {"tune", twice}, "'a'"},
      {"no line left", {"tune", "odd", "--only", "nothing"}, "no line"},
      {"both reports on stdout", with({"--json", "--csv"}), "stdout"},
      {"bench against nobody", {"bench", "odd", "--against", "cublas"}, "cublas"},
      {"bench without rival", {"bench", "odd"}, "--against"},
      {"unknown cache verb", {"cache", "list"}, "list"},
      {"cache show of nothing", {"cache", "show", "zzz"}, "zzz"},
      {"worker that is none", with({"--worker", "/etc/passwd"}), "/etc/passwd"},
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
  ::setenv("LAPIDARY_OPENBLAS", "/no/such/libopenblas.so", 1);
  const RunOutput output = run({"doctor"});
  ::unsetenv("LAPIDARY_OPENBLAS");
  EXPECT_EQ(output.state.code, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("portable"));
  EXPECT_THAT(output.out, HasSubstr("install libopenblas0-pthread"));
  EXPECT_THAT(output.out, HasSubstr("/no/such/libopenblas.so"));
  EXPECT_THAT(output.out, Not(HasSubstr("\033")));
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
  EXPECT_THAT(run({"cache", "ls"}).out, Not(HasSubstr("\n0 entries")));
}

TEST_F(Cli, HelpAndVersionAreOk) {
  EXPECT_EQ(run({"--help"}).state.code, 0);
  EXPECT_EQ(run({"tune", "--help"}).state.code, 0);
  EXPECT_THAT(run({"--version"}).out, StartsWith("lapidary "));
}

}  // namespace
}  // namespace lapidary
