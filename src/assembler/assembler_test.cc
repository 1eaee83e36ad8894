#include "assembler/assembler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "assembler/testing_tools.h"
#include "support/files.h"

namespace lapidary::assembler {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

/// What comes of each file below testdata: a cubin (nothing), a refused one or an error, and words
/// of the reason.
enum class Outcome { good, refused, error };
struct Case {
  const char* file;
  Outcome outcome;
  std::vector<const char*> words = {};
};
const Case kCases[] = {
    {"plain", Outcome::good},
    {"few_registers", Outcome::good},
    {"wgmma", Outcome::good},
    {"setmaxnreg", Outcome::good},
    {"advisory", Outcome::good},
    {"spills", Outcome::refused, {"spills spills ", "bytes of stores"}},
    {"two_functions", Outcome::refused, {"second has a stack of 64 bytes a thread"}},
    {"wgmma_no_fence", Outcome::refused, {"warpgroup.arrive is injected"}},
    {"wgmma_no_wait", Outcome::refused, {"warpgroup.wait is injected"}},
    {"wgmma_touched", Outcome::refused, {"is injected", "(and 2 more)"}},
    {"wgmma_written", Outcome::refused, {"are serialized due to", "is injected"}},
    {"wgmma_divergent", Outcome::refused, {"are serialized due to", "divergent path"}},
    {"wgmma_registers",
     Outcome::refused,
     {"are serialized due to insufficient register resources", "; registers spills "}},
    {"setmaxnreg_ignored", Outcome::refused, {"'setmaxnreg' ignored"}},
    {"setmaxnreg_too_many", Outcome::error, {"line 15: setmaxnreg.dec", "setmaxnreg.dec.sync"}},
    {"wgmma_too_few_registers", Outcome::error, {"Insufficient registers (64)", "wgmma.mma_async"}},
    {"wgmma_too_old", Outcome::error, {"line 20: ", "not supported on .target 'sm_80'", "3 more"}},
    {"other_target", Outcome::error, {"sm_90a", "sm_90"}},
    {"syntax_error",
     Outcome::error,
     {"line 24: Parsing error near '%rd2'", "\"add.s64 %rd3, %rd0 %rd2;\""}},
    {"unknown_names", Outcome::error, {"line 27: ", "\"mov.u32 %r1, tiles;\"", "2 more"}},
    {"unknown_target", Outcome::error, {"sm_1000"}},
    {"newer_version", Outcome::error, {"line 4: Unsupported .version 99.0", "\".version 99.0\""}},
    {"shared_too_large", Outcome::error, {"uses too much shared data (0x40000 bytes"}},
};

void expect(const Case& want, const Result<Cubin>& got) {
  SCOPED_TRACE(want.file);
  std::string reason;
  Outcome outcome = Outcome::good;
  if (!got) {
    outcome = Outcome::error;
    EXPECT_EQ(got.error().code, ErrorCode::compile_failed);
    reason = got.error().message;
  } else if (const auto refused = refusal(*got)) {
    outcome = Outcome::refused;
    EXPECT_THAT(*refused, StartsWith("ptxas: "));
    reason = *refused;
  }
  EXPECT_EQ(static_cast<int>(outcome), static_cast<int>(want.outcome)) << reason;
  EXPECT_THAT(reason, Not(HasSubstr("\n")));
  for (const char* words : want.words) EXPECT_THAT(reason, HasSubstr(words));
}

/// Everything that a test finds or keeps is in a folder of its own.
class Assembler : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(folder_) << folder_.error(); }
  fs::path at(const std::string& name) const { return folder_->path() / name; }
  std::string path(const std::string& name) const { return at(name).string(); }

  /// A ptxas that notes its arguments, and whatever `body` does.
  AssembleOptions with_fake(const std::string& body, const std::string& version = "13.0.88") const {
    const fs::path file =
        fake_tool(at("ptxas"), version, "echo \"$@\" >>" + path("calls") + "\n" + body);
    const Result<Tool> tool = tool_at(file);
    EXPECT_TRUE(tool) << tool.error();
    return {.target = "sm_90a", .ptxas = *tool};
  }
  std::vector<std::string> calls() const {
    const auto text = read_file(at("calls"));
    std::vector<std::string> lines;
    for (std::size_t at = 0; text && at < text->size();) {
      const std::size_t end = text->find('\n', at);
      lines.push_back(text->substr(at, end - at));
      at = end + 1;
    }
    return lines;
  }

  Result<TempFolder> folder_ = TempFolder::make();
  const With cubins_{"LAPIDARY_CUBINS", path("cubins")};
};

/// Copies the text behind an ELF's first bytes.
const char* const kGood =
    "{ printf '\\177ELF'; cat /proc/self/fd/3; } >/proc/self/fd/4\n"
    "echo \"ptxas info    : Compiling entry function 'f' for 'sm_90a'\" >&2\n"
    "echo 'ptxas info    : Used 40 registers' >&2\n";

TEST_F(Assembler, RunsPtxasOnTheWholeProgram) {
  const AssembleOptions options = with_fake(kGood);
  const Result<Cubin> cubin = assemble("some text", options);
  ASSERT_TRUE(cubin) << cubin.error();
  EXPECT_EQ(cubin->image, "\177ELFsome text");
  EXPECT_EQ(cubin->target, "sm_90a");
  ASSERT_EQ(cubin->log.functions.size(), 1u);
  EXPECT_EQ(cubin->log.functions[0].registers, 40);
  EXPECT_FALSE(cubin->from_cache);
  AssembleOptions other = options;
  other.line_info = true;
  other.optimisation = 1;
  ASSERT_TRUE(assemble("some text", other));
  EXPECT_THAT(calls(),
              ElementsAre("-v -O3 -arch=sm_90a /proc/self/fd/3 -o /proc/self/fd/4",
                          "-v -O1 -arch=sm_90a -lineinfo /proc/self/fd/3 -o /proc/self/fd/4"));
}

TEST_F(Assembler, TakesTextOfAnySize) {
  const AssembleOptions options = with_fake(kGood);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{5} << 20}) {
    const std::string text(size, 'x');
    const Result<Cubin> cubin = assemble(text, options);
    ASSERT_TRUE(cubin) << cubin.error();
    EXPECT_TRUE(cubin->image == "\177ELF" + text) << size;
  }
}

TEST_F(Assembler, RefusesOptionsThatAreNone) {
  const AssembleOptions options = with_fake(kGood);
  for (const char* target : {"", "sm_", "sm_a", "sm_90x", "sm_90aa", "90", "sm_90a -c", "sm_99999",
                             "compute_90", "SM_90"}) {
    AssembleOptions bad = options;
    bad.target = target;
    const Result<Cubin> cubin = assemble("text", bad);
    ASSERT_FALSE(cubin) << target;
    EXPECT_EQ(cubin.error().code, ErrorCode::invalid_argument) << target;
    EXPECT_THAT(cubin.error().message, HasSubstr(std::string("'") + target + "'"));
  }
  for (const int level : {-1, 4}) {
    AssembleOptions bad = options;
    bad.optimisation = level;
    const Result<Cubin> cubin = assemble("text", bad);
    ASSERT_FALSE(cubin);
    EXPECT_EQ(cubin.error().code, ErrorCode::invalid_argument);
  }
  EXPECT_THAT(calls(), IsEmpty());
}

TEST_F(Assembler, WithoutPtxasSaysWhatToDo) {
  const With off("LAPIDARY_PTXAS", path("none"));
  const Result<Cubin> cubin = assemble("text", {.target = "sm_90a"});
  ASSERT_FALSE(cubin);
  EXPECT_EQ(cubin.error().code, ErrorCode::unsupported);
  EXPECT_THAT(cubin.error().message, HasSubstr("LAPIDARY_PTXAS (--ptxas)"));
}

TEST_F(Assembler, ReportsHowItFailed) {
  const std::pair<const char*, const char*> kFailures[] = {
      {"echo 'ptxas fatal   : out of luck' >&2; exit 255", "ptxas 13.0.88 for sm_90a: out of luck"},
      {"echo 'ptxas k, line 2; error   : bad' >&2\n"
       "echo 'ptxas k, line 3; error   : worse' >&2\n"
       "echo 'ptxas fatal   : Ptx assembly aborted due to errors' >&2; exit 255",
       "ptxas 13.0.88 for sm_90a: line 2: bad in \"second;\"; and 1 more"},
      {"kill -SEGV $$", "ptxas 13.0.88 for sm_90a: killed by SIGSEGV: no message"},
      {"echo 'ptxas: cannot load libm.so.6' >&2; exit 127",
       "ptxas 13.0.88 for sm_90a: exit code 127: ptxas: cannot load libm.so.6"},
      {"exit 0", "ptxas 13.0.88 for sm_90a: ended well, but wrote no cubin (0 bytes)"},
      {"echo text >/proc/self/fd/4",
       "ptxas 13.0.88 for sm_90a: ended well, but wrote no cubin (5 bytes)"},
  };
  for (const auto& [body, message] : kFailures) {
    SCOPED_TRACE(body);
    const AssembleOptions options = with_fake(body);
    for (int twice = 0; twice < 2; ++twice) {
      const Result<Cubin> cubin = assemble("first;\n  second;\nthird;\n", options);
      ASSERT_FALSE(cubin);
      EXPECT_EQ(cubin.error(), (Error{ErrorCode::compile_failed, message}));
    }
  }
  EXPECT_EQ(calls().size(), 2 * std::size(kFailures)) << "a failure is not kept";
  fs::remove(at("ptxas"));
  AssembleOptions gone{.target = "sm_90a", .ptxas = Tool{at("ptxas"), "13.0.88", ""}};
  const Result<Cubin> cubin = assemble("text", gone);
  ASSERT_FALSE(cubin);
  EXPECT_EQ(cubin.error().code, ErrorCode::io);
}

TEST_F(Assembler, AChildThatHangsIsKilled) {
  AssembleOptions options = with_fake("sleep 600");
  options.timeout = 50ms;
  const Result<Cubin> late = assemble("text", options);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::timeout);

  options.timeout = 60s;
  std::stop_source source;
  options.stop = source.get_token();
  const std::jthread stopper([&] {
    while (calls().size() < 2) std::this_thread::sleep_for(1ms);
    source.request_stop();
  });
  const Result<Cubin> stopped = assemble("text", options);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::cancelled);
  const Result<Cubin> before = assemble("text", options);
  ASSERT_FALSE(before);
  EXPECT_EQ(before.error().code, ErrorCode::cancelled);
  EXPECT_EQ(calls().size(), 2u) << "once asked to stop, no child is started";
}

TEST_F(Assembler, TheCacheSavesTheChild) {
  const AssembleOptions options = with_fake(kGood);
  const Result<Cubin> made = assemble("text", options);
  ASSERT_TRUE(made) << made.error();
  const Result<Cubin> kept = assemble("text", options);
  ASSERT_TRUE(kept) << kept.error();
  EXPECT_TRUE(kept->from_cache);
  EXPECT_EQ(kept->image, made->image);
  EXPECT_EQ(kept->target, made->target);
  EXPECT_EQ(kept->log, made->log) << "a hit is complete";
  EXPECT_EQ(calls().size(), 1u);

  AssembleOptions uncached = options;
  uncached.cache = false;
  const Result<Cubin> again = assemble("text", uncached);
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->from_cache);
  EXPECT_EQ(calls().size(), 2u);
  const Result<Cubin> other = assemble("text", with_fake(kGood, "13.0.89"));
  ASSERT_TRUE(other);
  EXPECT_FALSE(other->from_cache) << "another ptxas";
  {
    const With off("LAPIDARY_CUBINS", "OFF");
    const Result<Cubin> fresh = assemble("text", options);
    ASSERT_TRUE(fresh);
    EXPECT_FALSE(fresh->from_cache);
  }
  for (const auto& entry : fs::recursive_directory_iterator(at("cubins"))) {
    if (entry.is_regular_file()) fs::resize_file(entry, fs::file_size(entry) - 1);
  }
  const Result<Cubin> damaged = assemble("text", options);
  ASSERT_TRUE(damaged);
  EXPECT_FALSE(damaged->from_cache);
  EXPECT_EQ(damaged->image, made->image);
}

TEST_F(Assembler, WorksWithoutAFolderToWriteTo) {
  ASSERT_TRUE(write_file(at("cubins"), "a file, not a folder"));
  const AssembleOptions options = with_fake(kGood);
  const Logged logged;
  for (int i = 0; i < 3; ++i) {
    const Result<Cubin> cubin = assemble("text", options);
    ASSERT_TRUE(cubin) << cubin.error();
    EXPECT_FALSE(cubin->from_cache);
    EXPECT_EQ(cubin->image, "\177ELFtext");
  }
  EXPECT_EQ(logged.lines().size(), 1u) << "said once";
}

TEST_F(Assembler, AllJobsInTheirOrder) {
  const AssembleOptions options = with_fake(
      std::string("case $(cat /proc/self/fd/3) in bad*) echo 'ptxas fatal   : no' >&2; exit 255;; "
                  "slow*) sleep 0.1;; esac\n") +
      kGood);
  const std::vector<std::string> texts = {"slow 0", "1", "bad 2", "3", "slow 4", "1", "6"};
  std::vector<Job> jobs;
  for (const std::string& text : texts) jobs.push_back({text, options});
  for (const int processes : {0, 1, 3, 100}) {
    SCOPED_TRACE(processes);
    fs::remove_all(at("cubins"));
    const std::vector<Result<Cubin>> results = assemble_all(jobs, processes);
    ASSERT_EQ(results.size(), texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      SCOPED_TRACE(i);
      if (texts[i].starts_with("bad")) {
        ASSERT_FALSE(results[i]);
        EXPECT_EQ(results[i].error().code, ErrorCode::compile_failed);
      } else {
        ASSERT_TRUE(results[i]) << results[i].error();
        EXPECT_EQ(results[i]->image, "\177ELF" + texts[i]);
      }
    }
  }
  EXPECT_THAT(assemble_all({}, 4), IsEmpty());
}

TEST_F(Assembler, RunsAsManyAtOnceAsAsked) {
  // Each child waits until as many are there as there should be; one alone would wait for ever.
  AssembleOptions options =
      with_fake("while [ $(wc -l <" + path("calls") + ") -lt 3 ]; do sleep 0.01; done\n" + kGood);
  options.timeout = 60s;
  const std::vector<std::string> texts = {"0", "1", "2"};
  std::vector<Job> jobs;
  for (const std::string& text : texts) jobs.push_back({text, options});
  for (const Result<Cubin>& result : assemble_all(jobs, 3)) EXPECT_TRUE(result) << result.error();
}

TEST_F(Assembler, AllJobsEndWhenAskedToStop) {
  AssembleOptions options =
      with_fake(std::string("case $(cat /proc/self/fd/3) in slow*) sleep 600;; esac\n") + kGood);
  options.timeout = 60s;
  const std::vector<std::string> texts = {"quick", "slow 1", "slow 2", "slow 3", "never 4"};
  std::vector<Job> jobs;
  for (const std::string& text : texts) jobs.push_back({text, options});
  std::stop_source source;
  const std::jthread stopper([&] {
    while (calls().size() < 3) std::this_thread::sleep_for(1ms);
    source.request_stop();
  });
  const std::vector<Result<Cubin>> results = assemble_all(jobs, 2, source.get_token());
  ASSERT_EQ(results.size(), texts.size());
  EXPECT_TRUE(results[0]) << results[0].error();
  for (std::size_t i = 1; i < results.size(); ++i) {
    ASSERT_FALSE(results[i]) << i;
    EXPECT_EQ(results[i].error().code, ErrorCode::cancelled) << i;
  }
  EXPECT_EQ(calls().size(), 3u);
}

// The same cases twice: from what ptxas 13.0.88 said, and by the ptxas of this machine.

TEST_F(Assembler, RecordedLogsHaveTheirOutcome) {
  for (const Case& c : kCases) {
    const std::string log = std::string(LAPIDARY_SOURCE_DIR "/src/assembler/testdata/") + c.file;
    // No log of a cubin that was made ends with an error; those of the others all have one.
    const bool made = c.outcome != Outcome::error;
    AssembleOptions options = with_fake("cat " + log + ".log >&2\n" +
                                        (made ? "printf '\\177ELF' >/proc/self/fd/4" : "exit 255"));
    expect(c, assemble(testdata(std::string(c.file) + ".ptx"), options));
  }
}

class LiveAssembler : public Assembler {
 protected:
  void SetUp() override {
    Assembler::SetUp();
    const Result<Tool> ptxas = find_ptxas();
    if (!ptxas) GTEST_SKIP() << ptxas.error();
    if (std::atoi(ptxas->version.c_str()) < 12)
      GTEST_SKIP() << "ptxas " << ptxas->version << " does not know sm_90a";
  }
  static Result<Cubin> assembled(const std::string& file) {
    const std::string ptx = testdata(file + ".ptx");
    return assemble(ptx, {.target = target_of(ptx), .cache = false});
  }
};

TEST_F(LiveAssembler, CasesHaveTheirOutcome) {
  for (const Case& c : kCases) expect(c, assembled(c.file));
}

TEST(AssemblerCases, EveryFileHasOne) {
  for (const auto& entry : fs::directory_iterator(LAPIDARY_SOURCE_DIR "/src/assembler/testdata")) {
    if (entry.path().extension() != ".ptx") continue;
    const std::string file = entry.path().stem();
    EXPECT_TRUE(std::ranges::any_of(kCases, [&](const Case& c) { return c.file == file; })) << file;
  }
}

TEST_F(LiveAssembler, TheSameTextGivesTheSameBytes) {
  for (const char* file : {"plain", "wgmma", "setmaxnreg"}) {
    const Result<Cubin> first = assembled(file), second = assembled(file);
    ASSERT_TRUE(first && second) << file;
    EXPECT_TRUE(first->image == second->image) << file;
  }
}

TEST_F(LiveAssembler, AHitIsWhatPtxasMade) {
  const std::string ptx = testdata("spills.ptx");
  const Result<Cubin> made = assemble(ptx, {.target = "sm_80"});
  const Result<Cubin> kept = assemble(ptx, {.target = "sm_80"});
  ASSERT_TRUE(made && kept);
  EXPECT_FALSE(made->from_cache);
  EXPECT_TRUE(kept->from_cache);
  EXPECT_TRUE(kept->image == made->image);
  EXPECT_EQ(kept->log, made->log);
  EXPECT_EQ(refusal(*kept), refusal(*made));
}

TEST_F(LiveAssembler, LineInfoIsThereWhenAskedFor) {
  const std::string ptx = testdata("plain.ptx");
  const auto image = [&](bool line_info) {
    const Result<Cubin> cubin =
        assemble(ptx, {.target = "sm_80", .line_info = line_info, .cache = false});
    return cubin ? cubin->image : cubin.error().message;
  };
  EXPECT_THAT(image(true), HasSubstr(".nv_debug_line_sass"));
  EXPECT_THAT(image(false), Not(HasSubstr(".nv_debug_line_sass")));
}

TEST_F(LiveAssembler, UnknownMessagesAreKept) {
  const Result<Cubin> cubin = assembled("few_registers");
  ASSERT_TRUE(cubin) << cubin.error();
  EXPECT_FALSE(refusal(*cubin));
  EXPECT_THAT(unknown_messages(*cubin), ElementsAre(HasSubstr("adjusting per thread register")));
  const Result<Cubin> plain = assembled("plain");
  ASSERT_TRUE(plain) << plain.error();
  EXPECT_THAT(unknown_messages(*plain), IsEmpty());
}

TEST_F(LiveAssembler, SassHoldsWhatThePtxAskedFor) {
  if (const Result<Tool> nvdisasm = find_disassembler(); !nvdisasm)
    GTEST_SKIP() << nvdisasm.error();
  struct Row {
    const char *file, *instruction;
    bool there;
  };
  for (const Row& row : {Row{"wgmma", "HGMMA", true}, Row{"setmaxnreg", "USETMAXREG", true},
                         Row{"setmaxnreg_ignored", "USETMAXREG", false}}) {
    SCOPED_TRACE(row.file);
    const Result<Cubin> cubin = assembled(row.file);
    ASSERT_TRUE(cubin) << cubin.error();
    const Result<std::string> sass = disassemble(cubin->image);
    ASSERT_TRUE(sass) << sass.error();
    EXPECT_THAT(*sass, HasSubstr("EXIT"));
    EXPECT_EQ(sass->find(row.instruction) != std::string::npos, row.there);
  }
  const Result<std::string> none = disassemble("no cubin");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::compile_failed);
}

TEST_F(Assembler, DisassembleNamesWhatIsMissing) {
  const With none("LAPIDARY_NVDISASM", path("none"));
  const Result<std::string> sass = disassemble("\177ELF");
  ASSERT_FALSE(sass);
  EXPECT_EQ(sass.error().code, ErrorCode::unsupported);
  EXPECT_THAT(sass.error().message, HasSubstr("LAPIDARY_NVDISASM"));

  fake_tool(at("nvdisasm"), "13.0.1", "echo \"$@\"; cat /proc/self/fd/3");
  const With fake("LAPIDARY_NVDISASM", path("nvdisasm"));
  const Result<std::string> text = disassemble("\177ELF");
  ASSERT_TRUE(text) << text.error();
  EXPECT_EQ(*text, "-c /proc/self/fd/3\n\177ELF");
}

}  // namespace
}  // namespace lapidary::assembler
