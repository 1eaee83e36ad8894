#include "assembler/tools.h"

#include <unistd.h>

#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "support/cuda_folders.h"
#include "support/env.h"
#include "support/subprocess.h"
#include "support/text.h"

namespace lapidary::assembler {
namespace {

namespace fs = std::filesystem;

/// How long --version may take; a program on a cold network disk needs some seconds.
constexpr std::chrono::seconds kVersionPatience{30};

struct Wanted {
  const char *name, *variable, *flag, *package;
};
constexpr Wanted kPtxas{"ptxas", "LAPIDARY_PTXAS", "--ptxas", "nvidia-cuda-nvcc"};
constexpr Wanted kNvdisasm{"nvdisasm", "LAPIDARY_NVDISASM", "--nvdisasm", "nvidia-cuda-nvdisasm"};

bool is_program(const fs::path& file) {
  std::error_code ignored;
  return fs::is_regular_file(file, ignored) && ::access(file.c_str(), X_OK) == 0;
}

/// "13.0.88" of "Cuda compilation tools, release 13.0, V13.0.88".
std::string version_in(std::string_view text) {
  const std::size_t release = text.find("release ");
  if (release == std::string_view::npos) return {};
  const std::size_t v = text.find(", V", release);
  if (v == std::string_view::npos) return {};
  const std::string_view rest = text.substr(v + 3);
  return std::string(rest.substr(0, rest.find_first_not_of("0123456789.")));
}

/// The folder of tools of a build, for programs of that build: build/tools beside
/// build/release/bin/lapidary.
std::optional<fs::path> build_tools() {
  std::error_code failed;
  const fs::path program = fs::read_symlink("/proc/self/exe", failed);
  const fs::path build = program.parent_path().parent_path().parent_path();
  if (failed || build.filename() != "build") return std::nullopt;
  return build / "tools";
}

std::vector<fs::path> places() {
  std::vector<fs::path> folders;
  const std::string path = system_env("PATH").value_or("");
  for (const std::string_view folder : split(path, ':')) {
    if (!folder.empty()) folders.emplace_back(folder);
  }
  for (fs::path& folder : cuda_program_folders()) folders.push_back(std::move(folder));
  if (const auto tools = build_tools()) folders.push_back(*tools);
  return folders;
}

Result<Tool> search(const Wanted& wanted, const std::string& asked) {
  if (asked == "OFF")
    return fail(ErrorCode::unsupported, "{}: {}=OFF asks for none; set it to a file, or unset it",
                wanted.name, wanted.variable);
  if (!asked.empty()) {
    Result<Tool> tool = tool_at(asked);
    if (tool) return tool;
    return fail(ErrorCode::unsupported, "{}; {} ({}) names it", tool.error().message,
                wanted.variable, wanted.flag);
  }
  std::string broken;
  for (const fs::path& folder : places()) {
    if (!is_program(folder / wanted.name)) continue;
    Result<Tool> tool = tool_at(folder / wanted.name);
    if (tool) return tool;
    broken += "; " + tool.error().message;
  }
  return fail(
      ErrorCode::unsupported,
      "{}: not in PATH, CUDA_HOME, /usr/local/cuda, Python's packages of NVIDIA and Triton, "
      "or build/tools{}; install a CUDA toolkit, pip install {}, or name a file with {} ({})",
      wanted.name, broken, wanted.package, wanted.flag, wanted.variable);
}

/// What was found, for each environment. What was not is looked for again: somebody may install it
/// meanwhile.
Result<Tool> find(const Wanted& wanted) {
  static std::mutex mutex;
  static std::map<std::string, Tool> found;
  const std::string asked = env(wanted.variable).value_or("");
  std::string key = fmt::format("{}\n{}", wanted.name, asked);
  for (const char* variable : {"PATH", "CUDA_HOME", "VIRTUAL_ENV", "HOME"})
    key += "\n" + system_env(variable).value_or("");
  const std::lock_guard lock(mutex);
  if (const auto known = found.find(key); known != found.end() && is_program(known->second.path))
    return known->second;
  LAPIDARY_TRY(Tool tool, search(wanted, asked));
  return found[key] = std::move(tool);
}

}  // namespace

Result<Tool> tool_at(const fs::path& path) {
  if (!is_program(path)) return fail(ErrorCode::unsupported, "{}: no program", path.string());
  const Result<RunOutput> run = run_process({path.string(), "--version"}, "", kVersionPatience);
  if (!run) return fail(ErrorCode::unsupported, "{}", run.error().message);
  Tool tool{.path = path, .version = version_in(run->out), .identity = std::string(trim(run->out))};
  if (!run->state.ok() || tool.version.empty())
    return fail(ErrorCode::unsupported, "{}: --version gave no version ({})", path.string(),
                text(run->state));
  return tool;
}

Result<Tool> find_ptxas() { return find(kPtxas); }
Result<Tool> find_disassembler() { return find(kNvdisasm); }

}  // namespace lapidary::assembler
