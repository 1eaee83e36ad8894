#include "assembler/ptxas_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "assembler/testing_tools.h"

namespace lapidary::assembler {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<Meaning> meanings(const PtxasLog& log) {
  std::vector<Meaning> all;
  for (const Message& message : log.messages) all.push_back(message.meaning);
  return all;
}

/// Logs that ptxas 13.0.88 wrote (testdata/record.sh).
struct Recorded {
  const char* file;
  std::vector<FunctionFacts> functions;
  std::vector<Meaning> messages;
};
const Recorded kRecorded[] = {
    {"plain",
     {{.name = "axpy",
       .entry = true,
       .registers = 12,
       .barriers = 1,
       .smem_bytes = 2048,
       .constant_bytes = 372}},
     {}},
    {"two_functions",
     {{.name = "second", .entry = true, .registers = 8, .stack_bytes = 64, .constant_bytes = 360},
      {.name = "helper"},
      {.name = "axpy",
       .entry = true,
       .registers = 12,
       .barriers = 1,
       .smem_bytes = 2048,
       .constant_bytes = 372}},
     {}},
    {"spills",
     {{.name = "spills",
       .entry = true,
       .registers = 24,
       .spill_store_bytes = 52,
       .spill_load_bytes = 52,
       .stack_bytes = 56,
       .constant_bytes = 360}},
     {}},
    {"few_registers",
     {{.name = "axpy",
       .entry = true,
       .registers = 12,
       .barriers = 1,
       .smem_bytes = 2048,
       .constant_bytes = 372}},
     {Meaning::unknown}},
    {"wgmma", {{.name = "wgmma", .entry = true, .registers = 30, .smem_bytes = 16384}}, {}},
    {"wgmma_no_fence",
     {{.name = "no_fence", .entry = true, .registers = 30, .smem_bytes = 16384}},
     {Meaning::injected}},
    {"wgmma_no_wait",
     {{.name = "no_wait", .entry = true, .registers = 30, .smem_bytes = 16384}},
     {Meaning::injected}},
    {"wgmma_divergent",
     {{.name = "divergent", .entry = true, .registers = 30, .smem_bytes = 16384}},
     {Meaning::serialised}},
    {"wgmma_touched",
     {{.name = "touched", .entry = true, .registers = 30, .smem_bytes = 16384}},
     {Meaning::injected, Meaning::injected, Meaning::injected}},
    {"wgmma_written",
     {{.name = "written", .entry = true, .registers = 30, .smem_bytes = 16384}},
     {Meaning::injected, Meaning::injected, Meaning::injected, Meaning::serialised}},
    {"wgmma_registers",
     {{.name = "registers",
       .entry = true,
       .registers = 168,
       .spill_store_bytes = 7980,
       .spill_load_bytes = 8492,
       .stack_bytes = 2472,
       .smem_bytes = 16384}},
     {Meaning::serialised}},
    {"wgmma_too_few_registers", {}, {Meaning::error, Meaning::error}},
    {"wgmma_too_old",
     {},
     {Meaning::error, Meaning::error, Meaning::error, Meaning::error, Meaning::error}},
    {"other_target", {}, {Meaning::error}},
    {"setmaxnreg", {{.name = "setmaxnreg", .entry = true, .registers = 168}}, {}},
    {"setmaxnreg_ignored",
     {{.name = "setmaxnreg_ignored", .entry = true, .registers = 8}},
     {Meaning::setmaxnreg_ignored}},
    {"setmaxnreg_too_many", {}, {Meaning::error, Meaning::error}},
    {"advisory",
     {{.name = "advisory", .entry = true, .registers = 4, .smem_bytes = 4104}},
     {Meaning::harmless}},
    {"syntax_error", {}, {Meaning::error, Meaning::error}},
    {"unknown_names", {}, {Meaning::error, Meaning::error, Meaning::error, Meaning::error}},
    {"unknown_target", {}, {Meaning::error}},
    {"newer_version", {}, {Meaning::error, Meaning::error}},
    {"shared_too_large",
     {{.name = "axpy",
       .entry = true,
       .registers = 12,
       .barriers = 1,
       .smem_bytes = 262144,
       .constant_bytes = 372}},
     {Meaning::error}},
};

TEST(PtxasLog, ReadsRecordedLogs) {
  for (const Recorded& recorded : kRecorded) {
    SCOPED_TRACE(recorded.file);
    const PtxasLog log = parse_log(testdata(std::string(recorded.file) + ".log"));
    EXPECT_EQ(log.functions.size(), recorded.functions.size());
    for (std::size_t i = 0; i < std::min(log.functions.size(), recorded.functions.size()); ++i) {
      SCOPED_TRACE(recorded.functions[i].name);
      const FunctionFacts &got = log.functions[i], &want = recorded.functions[i];
      EXPECT_EQ(got.name, want.name);
      EXPECT_EQ(got.entry, want.entry);
      EXPECT_EQ(got.registers, want.registers);
      EXPECT_EQ(got.barriers, want.barriers);
      EXPECT_EQ(got.spill_store_bytes, want.spill_store_bytes);
      EXPECT_EQ(got.spill_load_bytes, want.spill_load_bytes);
      EXPECT_EQ(got.stack_bytes, want.stack_bytes);
      EXPECT_EQ(got.smem_bytes, want.smem_bytes);
      EXPECT_EQ(got.constant_bytes, want.constant_bytes);
    }
    EXPECT_EQ(meanings(log), recorded.messages);
  }
}

TEST(PtxasLog, EveryRecordedLogHasARow) {
  std::set<std::string> rows, files;
  for (const Recorded& recorded : kRecorded) rows.insert(recorded.file);
  for (const auto& entry :
       std::filesystem::directory_iterator(LAPIDARY_SOURCE_DIR "/src/assembler/testdata")) {
    if (entry.path().extension() == ".log") files.insert(entry.path().stem());
  }
  EXPECT_EQ(rows, files);
}

TEST(PtxasLog, KnowsMessagesByTheirWords) {
  // Beside those that testdata provokes: the rest of what ptxas 13.0 holds, and words that change.
  const std::pair<const char*, Meaning> kTexts[] = {
      {"Potential Performance Loss: 'setmaxnreg' ignored to allow debugging.",
       Meaning::setmaxnreg_ignored},
      {"Potential Performance Loss: 'setmaxnreg' ignored to maintain compatibility across "
       "compilation units.",
       Meaning::setmaxnreg_ignored},
      {"Potential Performance Loss: 'setmaxnreg' ignored to maintain compatibility into 'extern' "
       "call.",
       Meaning::setmaxnreg_ignored},
      {"Potential Performance Loss: 'setmaxnreg' ignored to maintain minimum register "
       "requirements.",
       Meaning::setmaxnreg_ignored},
      {"Potential Performance Loss: wgmma.mma_async instructions are serialized due to the "
       "presence of Extern calls in the function 'f'",
       Meaning::serialised},
      {"Potential Performance Loss: wgmma.mma_async instructions are serialized due to wgmma "
       "pipeline crossing function boundary at a function call in the function 'f'",
       Meaning::serialised},
      {"Potential Performance Loss: wgmma.mma_async instructions are serialized due to ill formed "
       "pipeline stage in the function 'f'",
       Meaning::serialised},
      {"POTENTIAL PERFORMANCE LOSS: something else", Meaning::performance_loss},
      {"potential performance loss", Meaning::performance_loss},
      {"wgmma was left as it is", Meaning::unknown},
      {"Pragma 'x' ignored", Meaning::unknown},
      {"setmaxnreg taken", Meaning::unknown},
  };
  for (const auto& [text, meaning] : kTexts) {
    SCOPED_TRACE(text);
    for (const char* code : {"", "(C7510) ", "(C1) "}) {
      for (const char* severity : {"info   ", "warning"}) {
        const PtxasLog log = parse_log(fmt::format("ptxas {} : {}{}\n", severity, code, text));
        ASSERT_EQ(log.messages.size(), 1u);
        EXPECT_STREQ(name(log.messages[0].meaning), name(meaning));
        EXPECT_EQ(log.messages[0].text, text);
      }
      // Of an error the words do not matter.
      EXPECT_THAT(meanings(parse_log(fmt::format("ptxas error   : {}{}\n", code, text))),
                  ElementsAre(Meaning::error));
    }
  }
}

TEST(PtxasLog, SplitsALine) {
  using enum Meaning;
  const std::pair<const char*, Message> kLines[] = {
      {"ptxas k.ptx, line 21; fatal   : Parsing error near '%rd2': syntax error",
       {error, Severity::fatal, 21, "", "Parsing error near '%rd2': syntax error"}},
      {"ptxas application ptx input, line 12; fatal   : (C7406) too many",
       {error, Severity::fatal, 12, "C7406", "too many"}},
      {"ptxas fatal   : (C7602) Insufficient registers (64) to compile instruction at line 146 in "
       "function f.",
       {error, Severity::fatal, 146, "C7602",
        "Insufficient registers (64) to compile instruction at line 146 in function f."}},
      {"ptxas info    : (C7519) warpgroup.arrive is injected in around line 20 by compiler",
       {injected, Severity::info, 20, "C7519",
        "warpgroup.arrive is injected in around line 20 by compiler"}},
      {"ptxas warning : new words", {unknown, Severity::warning, 0, "", "new words"}},
      {"ptxas warning :  .debug_info section not found",
       {unknown, Severity::warning, 0, "", ".debug_info section not found"}},
      {"ptxas info    : new words", {unknown, Severity::info, 0, "", "new words"}},
      {"ptxas remark  : new words", {unknown, Severity::none, 0, "", "ptxas remark  : new words"}},
      {"ptxas k.ptx, line x; error   : words",
       {unknown, Severity::none, 0, "", "ptxas k.ptx, line x; error   : words"}},
      {"Segmentation fault\r", {unknown, Severity::none, 0, "", "Segmentation fault"}},
      {"ptxas error   : (C words", {error, Severity::error, 0, "", "(C words"}},
      {"ptxas error   :", {error, Severity::error, 0, "", ""}},
      {"ptxas k, line 99999999999; error   : far", {error, Severity::error, 2147483647, "", "far"}},
      {"ptxas k, line 99999999999999999999; error   : no number",
       {unknown, Severity::none, 0, "", "ptxas k, line 99999999999999999999; error   : no number"}},
  };
  for (const auto& [line, want] : kLines) {
    SCOPED_TRACE(line);
    const PtxasLog log = parse_log(line);
    ASSERT_EQ(log.messages.size(), 1u);
    const Message& got = log.messages[0];
    EXPECT_STREQ(name(got.meaning), name(want.meaning));
    EXPECT_EQ(got.severity, want.severity);
    EXPECT_EQ(got.line, want.line);
    EXPECT_EQ(got.code, want.code);
    EXPECT_EQ(got.text, want.text);
    EXPECT_THAT(log.functions, IsEmpty());
  }
}

TEST(PtxasLog, FactsThatItCannotReadAreMessages) {
  for (const char* line : {
           "ptxas info    : Used 8 registers",  // of nothing
           "ptxas info    : Used many registers",
           "ptxas info    : 1 bytes gmem, 2 bytes of news",
           "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads",  // of nothing
           "ptxas info    : Compiling entry function 'f",
       }) {
    const PtxasLog log = parse_log(line);
    EXPECT_EQ(log.messages.size(), 1u) << line;
    EXPECT_THAT(log.functions, IsEmpty()) << line;
  }
  // What else there is of the function stays.
  const PtxasLog log = parse_log(
      "ptxas info    : Compiling entry function 'f' for 'sm_90a'\n"
      "ptxas info    : Function properties for f\n"
      "    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 8 registers, 3 wishes\n");
  ASSERT_EQ(log.functions.size(), 1u);
  EXPECT_EQ(log.functions[0].stack_bytes, 8);
  EXPECT_EQ(log.functions[0].registers, 0);
  EXPECT_EQ(meanings(log), std::vector{Meaning::unknown});
}

TEST(PtxasLog, ModuleFactsAndAnEmptyLog) {
  EXPECT_EQ(parse_log(""), PtxasLog());
  EXPECT_EQ(parse_log("\n \n"), PtxasLog());
  const PtxasLog log =
      parse_log("ptxas info    : 16 bytes gmem, 4 bytes cmem[3], 8 bytes cmem[4]\n");
  EXPECT_EQ(log.global_bytes, 16);
  EXPECT_EQ(log.constant_bytes, 12);
  EXPECT_THAT(log.messages, IsEmpty());
}

TEST(PtxasLog, DescribesTheLineThatAMessageNames) {
  const std::string ptx = testdata("unknown_names.ptx");
  const PtxasLog log = parse_log(testdata("unknown_names.log"));
  ASSERT_NE(first_error(log), nullptr);
  EXPECT_EQ(describe(*first_error(log), ptx),
            "line 27: Arguments mismatch for instruction 'mov' in \"mov.u32 %r1, tiles;\"");
  const PtxasLog few = parse_log(testdata("wgmma_too_few_registers.log"));
  const std::string text = describe(*first_error(few), testdata("wgmma_too_few_registers.ptx"));
  EXPECT_THAT(text, ::testing::StartsWith("Insufficient registers (64) to compile instruction at "
                                          "line 22 in function too_few_registers."));
  EXPECT_THAT(text, ::testing::HasSubstr(" in \"wgmma.mma_async"));
  EXPECT_THAT(text, ::testing::EndsWith("...\""));
  EXPECT_EQ(describe({.line = 9, .text = "words"}, "one line"), "line 9: words");
  EXPECT_EQ(describe({.line = 2, .text = "at line 22"}, "\nsecond"),
            "line 2: at line 22 in \"second\"");
  EXPECT_EQ(describe({.text = "words"}, "one line"), "words");
  EXPECT_EQ(first_error(parse_log(testdata("plain.log"))), nullptr);
}

}  // namespace
}  // namespace lapidary::assembler
