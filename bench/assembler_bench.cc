// What assembling costs beside ptxas itself, and what more children at a time give. Build and run:
//   ninja -C build/release assembler_bench && build/release/bin/assembler_bench
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "assembler/assembler.h"
#include "support/files.h"
#include "support/parallel.h"

extern char** environ;

namespace lapidary::assembler {
namespace {

/// Some 10 ms of ptxas, and some 500 ms.
struct Text {
  const char *file, *target;
};
constexpr Text kTexts[] = {{"plain.ptx", "sm_80"}, {"wgmma_registers.ptx", "sm_90a"}};

std::string path_of(const Text& text) {
  return std::string(LAPIDARY_SOURCE_DIR "/src/assembler/testdata/") + text.file;
}

std::string contents(const Text& text) {
  auto read = read_file(path_of(text));
  return read ? *std::move(read) : std::string();
}

/// As a shell would: files on disk, nobody reads what it says.
void by_hand(benchmark::State& state) {
  const Text& text = kTexts[state.range(0)];
  const auto ptxas = find_ptxas();
  const auto folder = TempFolder::make();
  if (!ptxas || !folder) return state.SkipWithError("no ptxas");
  const std::string program = ptxas->path.string(), input = path_of(text),
                    arch = std::string("-arch=") + text.target,
                    output = (folder->path() / "x.cubin").string();
  std::vector<char*> argv;
  for (const char* word : {program.c_str(), "-v", "-O3", arch.c_str(), input.c_str(), "-o",
                           output.c_str(), static_cast<const char*>(nullptr)})
    argv.push_back(const_cast<char*>(word));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  for (auto _ : state) {
    pid_t pid = 0;
    int status = 0;
    if (::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ) != 0 ||
        ::waitpid(pid, &status, 0) != pid || status != 0) {
      state.SkipWithError("ptxas failed");
      break;
    }
  }
  posix_spawn_file_actions_destroy(&actions);
}

void by_assemble(benchmark::State& state) {
  const Text& text = kTexts[state.range(0)];
  const std::string ptx = contents(text);
  for (auto _ : state) {
    const auto cubin = assemble(ptx, {.target = text.target, .cache = false});
    if (!cubin) {
      state.SkipWithError(cubin.error().message.c_str());
      break;
    }
  }
}

void hit(benchmark::State& state) {
  const Text& text = kTexts[state.range(0)];
  const std::string ptx = contents(text);
  for (auto _ : state) {
    const auto cubin = assemble(ptx, {.target = text.target});
    if (!cubin) {
      state.SkipWithError(cubin.error().message.c_str());
      break;
    }
  }
}

/// Eight jobs, by as many children as the argument says.
void all(benchmark::State& state) {
  const Text& text = kTexts[1];
  const std::string ptx = contents(text);
  const std::vector<Job> jobs(8, {ptx, {.target = text.target, .cache = false}});
  for (auto _ : state) {
    for (const auto& cubin : assemble_all(jobs, static_cast<int>(state.range(0)))) {
      if (!cubin) state.SkipWithError(cubin.error().message.c_str());
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(jobs.size()));
}

BENCHMARK(by_hand)->DenseRange(0, 1)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(by_assemble)->DenseRange(0, 1)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(hit)->DenseRange(0, 1)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK(all)
    ->RangeMultiplier(2)
    ->Range(1, usable_cpus())
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lapidary::assembler

int main(int argc, char** argv) {
  // A cache of its own, so that the first of `hit` is a miss and no other is.
  const auto folder = lapidary::TempFolder::make();
  if (!folder) return 1;
  ::setenv("LAPIDARY_CUBINS", (folder->path() / "cubins").c_str(), 1);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
