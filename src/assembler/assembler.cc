#include "assembler/assembler.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "assembler/cubin_cache.h"
#include "support/parallel.h"
#include "support/subprocess.h"
#include "support/text.h"

namespace lapidary::assembler {
namespace {

/// A file without a name, in memory: nothing to clean up, whoever is killed when. The child has it
/// open and finds it below /proc/self/fd; a pipe would not do, as ptxas opens its input twice and
/// nvdisasm asks for its size.
class MemoryFile {
 public:
  static Result<MemoryFile> make(const char* name, std::string_view contents) {
    MemoryFile file(::memfd_create(name, MFD_CLOEXEC));
    if (file.fd_ < 0)
      return fail(ErrorCode::resource_limit, "assembler: cannot make a file in memory: {}",
                  std::strerror(errno));
    LAPIDARY_TRY_STATUS(write_all(file.fd_, contents));
    return file;
  }
  MemoryFile(MemoryFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  MemoryFile& operator=(MemoryFile&&) = delete;
  ~MemoryFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }

  Result<std::string> contents() const {
    struct stat entry{};
    if (::fstat(fd_, &entry) != 0)
      return fail(ErrorCode::io, "assembler: cannot look at a file: {}", std::strerror(errno));
    std::string bytes(static_cast<std::size_t>(entry.st_size), '\0');
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t got =
          ::pread(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0)
        return fail(ErrorCode::io, "assembler: cannot read a file: {}", std::strerror(errno));
      done += static_cast<std::size_t>(got);
    }
    return bytes;
  }

 private:
  explicit MemoryFile(int fd) : fd_(fd) {}
  int fd_;
};

constexpr int kInput = 3, kOutput = 4;  // a child's descriptors
std::string child_path(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

bool is_target(std::string_view target) {
  if (!target.starts_with("sm_")) return false;
  target.remove_prefix(3);
  if (target.ends_with('a') || target.ends_with('f')) target.remove_suffix(1);
  return !target.empty() && target.size() <= 4 &&
         target.find_first_not_of("0123456789") == std::string_view::npos;
}

Status check(const AssembleOptions& options) {
  if (!is_target(options.target))
    return fail(ErrorCode::invalid_argument, "assembler: target '{}' is none such as sm_90a",
                options.target);
  if (options.optimisation < 0 || options.optimisation > 3)
    return fail(ErrorCode::invalid_argument, "assembler: optimisation = {} is not 0 to 3",
                options.optimisation);
  return {};
}

/// Who speaks in errors: "ptxas 13.0.88 for sm_90a".
std::string speaker(const Tool& ptxas, const AssembleOptions& options) {
  return fmt::format("ptxas {} for {}", ptxas.version, options.target);
}

Error failure(const RunOutput& run, std::string_view ptx, const std::string& who) {
  const PtxasLog log = parse_log(run.err);
  const Message* error = first_error(log);
  if (error == nullptr) {
    // It crashed, or it could not even start: then what it last said may tell.
    const std::string_view last =
        log.messages.empty() ? std::string_view("no message") : log.messages.back().text;
    return fail(ErrorCode::compile_failed, "{}: {}: {}", who, text(run.state), last);
  }
  // The last one only counts: "Ptx assembly aborted due to errors".
  const auto more = std::ranges::count_if(log.messages, [](const Message& message) {
    return message.meaning == Meaning::error &&
           message.text.find("aborted due to errors") == std::string::npos;
  });
  return fail(ErrorCode::compile_failed, "{}: {}{}", who, describe(*error, ptx),
              more > 1 ? fmt::format("; and {} more", more - 1) : "");
}

Result<CubinEntry> run_ptxas(std::string_view ptx, const AssembleOptions& options,
                             const Tool& ptxas) {
  LAPIDARY_TRY(const MemoryFile input, MemoryFile::make("lapidary.ptx", ptx));
  LAPIDARY_TRY(const MemoryFile output, MemoryFile::make("lapidary.cubin", ""));
  // No -c: relocatable code ignores setmaxnreg.
  SpawnOptions spawn{.argv = {ptxas.path.string(), "-v", fmt::format("-O{}", options.optimisation),
                              "-arch=" + options.target}};
  if (options.line_info) spawn.argv.push_back("-lineinfo");
  spawn.argv.insert(spawn.argv.end(), {child_path(kInput), "-o", child_path(kOutput)});
  spawn.inherit = {{kInput, input.fd()}, {kOutput, output.fd()}};
  LAPIDARY_TRY(RunOutput run, run_process(std::move(spawn), "", options.timeout, options.stop));
  if (!run.state.ok()) return failure(run, ptx, speaker(ptxas, options));
  LAPIDARY_TRY(std::string image, output.contents());
  if (!image.starts_with("\177ELF"))
    return fail(ErrorCode::compile_failed, "{}: ended well, but wrote no cubin ({} bytes)",
                speaker(ptxas, options), image.size());
  return CubinEntry{.image = std::move(image), .log = std::move(run.err)};
}

Cubin cubin_of(CubinEntry entry, const AssembleOptions& options, bool from_cache) {
  return {.image = std::move(entry.image),
          .target = options.target,
          .log = parse_log(entry.log),
          .from_cache = from_cache};
}

/// "wgmma is serialised (3 messages): ...": a meaning once, with the first of its messages.
std::vector<std::string> losses(const PtxasLog& log) {
  constexpr Meaning kLosses[] = {Meaning::serialised, Meaning::setmaxnreg_ignored,
                                 Meaning::injected, Meaning::performance_loss};
  std::vector<std::string> reasons;
  for (const Meaning meaning : kLosses) {
    const auto first = std::ranges::find(log.messages, meaning, &Message::meaning);
    if (first == log.messages.end()) continue;
    const auto count = std::ranges::count(log.messages, meaning, &Message::meaning);
    reasons.push_back(count == 1 ? first->text
                                 : fmt::format("{} (and {} more)", first->text, count - 1));
  }
  return reasons;
}

}  // namespace

Result<Cubin> assemble(std::string_view ptx, const AssembleOptions& options) {
  LAPIDARY_TRY_STATUS(check(options));
  if (options.stop.stop_requested())
    return fail(ErrorCode::cancelled, "assembler: asked to stop before it began");
  LAPIDARY_TRY(const Tool ptxas, options.ptxas ? Result<Tool>(*options.ptxas) : find_ptxas());
  const CubinCache cache(options.cache ? default_cubin_folder() : std::filesystem::path());
  const std::string key = cubin_key(ptx, options, ptxas);
  if (std::optional<CubinEntry> known = cache.find(key))
    return cubin_of(*std::move(known), options, /*from_cache=*/true);
  LAPIDARY_TRY(CubinEntry made, run_ptxas(ptx, options, ptxas));
  cache.put(key, made);
  return cubin_of(std::move(made), options, /*from_cache=*/false);
}

std::optional<std::string> refusal(const Cubin& cubin) {
  std::vector<std::string> reasons = losses(cubin.log);
  for (const FunctionFacts& f : cubin.log.functions) {
    if (f.spill_store_bytes > 0 || f.spill_load_bytes > 0) {
      reasons.push_back(fmt::format("{} spills {} bytes of stores and {} of loads a thread", f.name,
                                    f.spill_store_bytes, f.spill_load_bytes));
    } else if (f.stack_bytes > 0) {
      reasons.push_back(fmt::format("{} has a stack of {} bytes a thread", f.name, f.stack_bytes));
    }
  }
  if (reasons.empty()) return std::nullopt;
  return fmt::format("ptxas: {}", fmt::join(reasons, "; "));
}

std::vector<std::string> unknown_messages(const Cubin& cubin) {
  std::vector<std::string> texts;
  for (const Message& message : cubin.log.messages) {
    if (message.meaning == Meaning::unknown) texts.push_back(message.text);
  }
  return texts;
}

std::vector<Result<Cubin>> assemble_all(std::span<const Job> jobs, int processes,
                                        const std::stop_token& stop) {
  std::vector<std::optional<Result<Cubin>>> done(jobs.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i; (i = next.fetch_add(1)) < jobs.size();) {
      AssembleOptions options = jobs[i].options;
      options.stop = stop;
      done[i] = assemble(jobs[i].ptx, options);
    }
  };
  // A thread a child: it sleeps while the child works.
  const auto wanted = static_cast<std::size_t>(processes > 0 ? processes : usable_cpus());
  {
    std::vector<std::jthread> helpers;
    try {
      for (std::size_t i = 1; i < std::min(wanted, jobs.size()); ++i) helpers.emplace_back(work);
    } catch (const std::system_error&) {
      // The system gives no more threads: those there are do the work.
    }
    work();
  }
  std::vector<Result<Cubin>> results;
  for (std::optional<Result<Cubin>>& result : done) results.push_back(*std::move(result));
  return results;
}

Result<std::string> disassemble(std::string_view image) {
  LAPIDARY_TRY(const Tool nvdisasm, find_disassembler());
  LAPIDARY_TRY(const MemoryFile input, MemoryFile::make("lapidary.cubin", image));
  SpawnOptions spawn{.argv = {nvdisasm.path.string(), "-c", child_path(kInput)}};
  spawn.inherit = {{kInput, input.fd()}};
  LAPIDARY_TRY(RunOutput run, run_process(std::move(spawn), "", std::chrono::minutes(5), {}));
  if (!run.state.ok())
    return fail(ErrorCode::compile_failed, "nvdisasm {}: {}: {}", nvdisasm.version, text(run.state),
                trim(run.err));
  return std::move(run.out);
}

}  // namespace lapidary::assembler
