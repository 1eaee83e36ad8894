#include "assembler/tools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "assembler/testing_tools.h"
#include "support/files.h"
#include "support/subprocess.h"

namespace lapidary::assembler {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::HasSubstr;

/// A machine of its own: nothing in PATH, no toolkit but what a test puts there. /usr/local/cuda
/// and the system's Python are those of the machine that the test runs on.
class Tools : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(folder_) << folder_.error(); }
  fs::path at(const std::string& name) const { return folder_->path() / name; }

  Result<TempFolder> folder_ = TempFolder::make();
  const With path_{"PATH", at("empty").string()}, home_{"HOME", at("home").string()},
      cuda_{"CUDA_HOME", at("cuda").string()}, venv_{"VIRTUAL_ENV", at("venv").string()},
      ptxas_{"LAPIDARY_PTXAS", ""}, nvdisasm_{"LAPIDARY_NVDISASM", ""};
};

TEST_F(Tools, AreFoundInThisOrder) {
  const char* const kPlaces[] = {
      "first",
      "second",
      "cuda/bin",
      "/usr/local/cuda/bin",  // the machine's, where it has one
      "venv/lib/python3.13/site-packages/nvidia/cu13/bin",
      "venv/lib/python3.13/site-packages/nvidia/cuda_nvcc/bin",
      "venv/lib/python3.9/site-packages/nvidia/cu13/bin",
      "home/.local/lib/python3.13/site-packages/nvidia/cu13/bin",
      "venv/lib/python3.13/site-packages/triton/backends/nvidia/bin",
      "home/.local/lib/python3.13/dist-packages/triton/backends/nvidia/bin",
  };
  const With path("PATH", at("first").string() + "::" + at("second").string());
  for (const char* place : kPlaces) {
    if (*place != '/') fake_tool(at(place) / "nvdisasm", "1.2.3", "exit 1");
  }
  for (const char* place : kPlaces) {
    SCOPED_TRACE(place);
    const bool machine = *place == '/';
    const fs::path file = machine ? fs::path(place) / "nvdisasm" : at(place) / "nvdisasm";
    if (machine && !fs::exists(file)) continue;
    for (int twice = 0; twice < 2; ++twice) {
      const Result<Tool> tool = find_disassembler();
      ASSERT_TRUE(tool) << tool.error();
      EXPECT_EQ(tool->path, file);
      if (machine) return;  // nobody removes that: places after it cannot be seen here
      EXPECT_EQ(tool->version, "1.2.3");
      EXPECT_THAT(tool->identity, HasSubstr("release 0.0, V1.2.3"));
    }
    fs::remove(file);
  }
}

TEST_F(Tools, WhatDoesNotAnswerIsPassedOver) {
  const With path("PATH", at("broken").string() + ":" + at("mute").string() + ":" +
                              at("folder").string() + ":" + at("good").string());
  script(at("broken") / "ptxas", "exit 3");
  script(at("mute") / "ptxas", "echo no version");
  fs::create_directories(at("folder") / "ptxas");
  fake_tool(at("good") / "ptxas", "13.0.88", "");
  const Result<Tool> tool = find_ptxas();
  ASSERT_TRUE(tool) << tool.error();
  EXPECT_EQ(tool->path, at("good") / "ptxas");
  EXPECT_EQ(tool->version, "13.0.88");
}

TEST_F(Tools, TheVariableAloneCounts) {
  const With path("PATH", at("path").string());
  fake_tool(at("path") / "ptxas", "1.0.0", "");
  fake_tool(at("other/my-ptxas"), "2.0.0", "");
  {
    const With asked("LAPIDARY_PTXAS", at("other/my-ptxas").string());
    const Result<Tool> tool = find_ptxas();
    ASSERT_TRUE(tool) << tool.error();
    EXPECT_EQ(tool->version, "2.0.0");
  }
  script(at("broken"), "exit 3");
  const std::pair<std::string, std::string> kBad[] = {
      {at("none").string(), at("none").string() + ": no program"},
      {at("path").string(), at("path").string() + ": no program"},
      {at("broken").string(), at("broken").string() + ": --version gave no version (exit code 3)"},
  };
  for (const auto& [file, why] : kBad) {
    const With asked("LAPIDARY_PTXAS", file);
    const Result<Tool> tool = find_ptxas();
    ASSERT_FALSE(tool) << file;
    EXPECT_EQ(tool.error(),
              (Error{ErrorCode::unsupported, why + "; LAPIDARY_PTXAS (--ptxas) names it"}));
  }
  const With off("LAPIDARY_PTXAS", "OFF");
  const Result<Tool> none = find_ptxas();
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::unsupported);
  EXPECT_THAT(none.error().message, HasSubstr("LAPIDARY_PTXAS=OFF asks for none"));
}

TEST_F(Tools, AnErrorSaysWhereItLookedAndWhatToDo) {
  for (const char* folder : {"/usr/local/cuda/bin", "/usr/local/lib", "/usr/lib"}) {
    if (fs::exists(fs::path(folder) / "nvdisasm"))
      GTEST_SKIP() << "this machine has an nvdisasm in " << folder;
  }
  const With path("PATH", at("broken").string());
  script(at("broken") / "nvdisasm", "exit 3");
  const Result<Tool> tool = find_disassembler();
  if (tool) GTEST_SKIP() << "this machine has an nvdisasm: " << tool->path;
  EXPECT_EQ(tool.error().code, ErrorCode::unsupported);
  for (const char* part : {"nvdisasm: not in PATH, CUDA_HOME", "exit code 3",
                           "pip install nvidia-cuda-nvdisasm", "--nvdisasm", "LAPIDARY_NVDISASM"})
    EXPECT_THAT(tool.error().message, HasSubstr(part));
  // Somebody installs it.
  fake_tool(at("broken") / "nvdisasm", "13.0.1", "");
  EXPECT_TRUE(find_disassembler());
}

/// Not a test of its own: what the next one runs in a program of another build.
TEST(ToolsOfABuild, DISABLED_Child) {
  const char* const wanted = std::getenv("ASSEMBLER_TEST_TOOL");
  ASSERT_NE(wanted, nullptr);
  const Result<Tool> tool = find_disassembler();
  ASSERT_TRUE(tool) << tool.error();
  EXPECT_EQ(tool->path, wanted);
}

TEST_F(Tools, ThoseOfABuildComeLast) {
  if (find_disassembler()) GTEST_SKIP() << "this machine has an nvdisasm of its own";
  const fs::path tool = fake_tool(at("build/tools/nvdisasm"), "13.0.1", "");
  const With wanted("ASSEMBLER_TEST_TOOL", tool.string());
  const auto run_from = [&](const char* place) {
    fs::create_directories(at(place));
    const fs::path program = at(place) / "assembler_test";
    fs::copy_file("/proc/self/exe", program);
    const auto run = run_process(
        {program.string(), "--gtest_filter=*.DISABLED_Child", "--gtest_also_run_disabled_tests"},
        "", 60s);
    EXPECT_TRUE(run) << run.error();
    return run && run->state.ok();
  };
  EXPECT_TRUE(run_from("build/release/bin"));
  EXPECT_FALSE(run_from("other/release/bin")) << "only of the folder that is called build";
}

TEST_F(Tools, VersionsAreReadAsNvidiaWritesThem) {
  const std::pair<const char*, const char*> kTexts[] = {
      {"Cuda compilation tools, release 13.0, V13.0.88\nBuild cuda_13.0.r13.0/compiler.1_0",
       "13.0.88"},
      {"release 12.8, V12.8.93", "12.8.93"},
      {"release 12.8", ""},
      {"V12.8.93", ""},
      {"release x, V", ""},
      {"", ""},
  };
  for (const auto& [text, version] : kTexts) {
    SCOPED_TRACE(text);
    script(at("tool"), std::string("echo '") + text + "'");
    const Result<Tool> tool = tool_at(at("tool"));
    EXPECT_EQ(tool.has_value(), *version != '\0');
    if (tool) {
      EXPECT_EQ(tool->version, version);
    }
  }
}

}  // namespace
}  // namespace lapidary::assembler
