#include "worker/server.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "driver/cpu.h"
#include "support/parallel.h"
#include "worker/arena.h"
#include "worker/lock.h"
#include "worker/protocol.h"
#include "worker/verify.h"

namespace lapidary::worker {
namespace {

using Clock = std::chrono::steady_clock;

double micros_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// Waits until this process's threads sleep. Libraries let theirs spin for milliseconds after a
/// product (libgomp, OpenBLAS), and that would be taken from whoever is timed next.
void settle() {
  const auto cpu_ns = [] {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
  };
  for (int turn = 0; turn < 100; ++turn) {
    const std::int64_t before = cpu_ns();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (cpu_ns() - before < 200'000) return;
  }
}

/// 64-byte aligned memory of a call; empty for 0 bytes.
class Block {
 public:
  explicit Block(std::int64_t bytes)
      : data_(bytes > 0 ? std::aligned_alloc(64, static_cast<std::size_t>((bytes + 63) / 64 * 64))
                        : nullptr) {
    if (bytes > 0 && data_ == nullptr) throw std::bad_alloc();
  }
  Block(Block&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  Block& operator=(Block&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~Block() { std::free(data_); }
  void* data() const { return data_; }

 private:
  void* data_;
};

/// A candidate made ready: executable, its workspace, its packed operands, and what its outputs
/// hashed to.
struct Prepared {
  Candidate candidate;
  std::unique_ptr<backends::Executable> executable;
  Block workspace{0}, packed{0};
  std::optional<std::uint64_t> hash;  // of its outputs, the same on every copy
};

/// One problem that is being measured: buffers to rotate through and the candidates made ready so
/// far.
struct Session {
  GemmProblem problem;
  std::vector<Arena> copies;
  std::vector<std::unique_ptr<Prepared>> prepared;
  std::optional<Verifier> verifier;
  std::uint64_t seed = 1, verifier_seed = 0;
  std::uint32_t verifier_checks = 0;
  std::size_t next = 0;  // copy that the next run takes
};

class Server {
 public:
  Server(int out, std::span<const backends::Backend* const> backends)
      : out_(out), backends_(backends) {}

  Reply answer(const Request& request) {
    Reply failed;
    try {
      Result<Reply> reply = handle(request);
      if (reply) return *std::move(reply);
      failed.error = reply.error();
    } catch (const std::bad_alloc&) {
      failed.error = Error{ErrorCode::resource_limit, "worker: out of memory"};
    }
    return failed;
  }

 private:
  Result<Reply> handle(const Request& request) {
    switch (request.ask) {
      case Ask::hello:
        return hello();
      case Ask::offers:
        return offers(request);
      case Ask::open:
        return open(request);
      case Ask::prepare:
        return prepare(request);
      case Ask::replay:
        return replay(request);
      case Ask::verify:
        return verify(request);
      case Ask::release:
        forget(request.candidate);
        return Reply{};
    }
    return fail(ErrorCode::internal, "worker: request {} is unknown",
                static_cast<int>(request.ask));
  }

  void beat(std::string_view step) {
    Reply reply;
    reply.beat = std::string(step);
    // A parent that is gone shows at the next read; nothing to do about it here.
    (void)send_frame(out_, encode(reply)).has_value();
  }

  Result<Reply> hello() {
    Reply reply;
    reply.device = device_;
    for (const backends::Backend* backend : backends_) {
      beat(fmt::format("loading {}", backend->name()));
      const Result<std::string> version = backend->version();
      reply.backends.push_back({std::string(backend->name()), version ? *version : "",
                                version ? "" : version.error().message});
    }
    return reply;
  }

  Result<Reply> offers(const Request& request) {
    LAPIDARY_TRY(const GemmProblem problem, problem_of(request));
    Reply reply;
    for (const backends::Backend* backend : backends_) {
      beat(fmt::format("candidates of {}", backend->name()));
      std::ranges::move(backend->candidates(problem, device_), std::back_inserter(reply.offers));
    }
    return reply;
  }

  Result<Reply> open(const Request& request) {
    if (!lock_) {
      LAPIDARY_TRY(DeviceLock lock, DeviceLock::acquire("cpu", [&](std::string_view holder) {
                     beat(fmt::format("waiting for the device: process {} measures on it", holder));
                   }));
      lock_.emplace(std::move(lock));
    }
    session_.reset();  // its memory goes before the next one's comes
    LAPIDARY_TRY(const GemmProblem problem, problem_of(request));
    session_ = std::make_unique<Session>();
    session_->problem = problem;
    session_->seed = request.seed;
    do {
      beat(fmt::format("filling buffers, copy {}", session_->copies.size() + 1));
      LAPIDARY_TRY(Arena arena, Arena::make(problem));
      if (session_->copies.empty()) {
        arena.fill_inputs(Fill::uniform, request.seed);
      } else {
        copy_inputs(session_->copies.front(), arena);
      }
      arena.fill_outputs();
      session_->copies.push_back(std::move(arena));
    } while (static_cast<std::int64_t>(session_->copies.size()) * session_->copies.front().bytes() <
                 request.rotate_bytes &&
             session_->copies.size() < 256);
    return Reply{};
  }

  /// The same values in other memory, which is all that rotating asks for.
  static void copy_inputs(const Arena& from, const Arena& to) {
    const std::vector<OperandSpec>& specs = from.specs();
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].output) continue;
      std::memcpy(to.pointers()[i], from.pointers()[i],
                  static_cast<std::size_t>(specs[i].span_elems() * size_bytes(specs[i].type)));
    }
  }

  void forget(const Candidate& candidate) {
    if (!session_) return;
    std::erase_if(session_->prepared, [&](const auto& p) { return p->candidate == candidate; });
  }

  Result<Reply> prepare(const Request& request) {
    if (!session_) return fail(ErrorCode::internal, "worker: prepare before open");
    forget(request.candidate);
    LAPIDARY_TRY(auto prepared, make(request.candidate));
    beat("pack");
    prepared->workspace = Block(prepared->executable->workspace_bytes());
    prepared->packed = Block(prepared->executable->packed_bytes());
    LAPIDARY_TRY_STATUS(prepared->executable->pack(arguments(*prepared, session_->copies.front())));
    beat("first run");
    LAPIDARY_TRY(const double first, timed_run(*prepared));
    // The first run pays for page faults and for a library that starts its threads: seconds, on a
    // busy machine.
    double best = first;
    if (first < 2e6) {
      beat("second run");
      LAPIDARY_TRY(const double second, timed_run(*prepared));
      best = std::min(first, second);
    }
    Reply reply;
    reply.time_us = best;
    reply.workspace_bytes = prepared->executable->workspace_bytes();
    reply.packed_bytes = prepared->executable->packed_bytes();
    session_->prepared.push_back(std::move(prepared));
    return reply;
  }

  Result<std::unique_ptr<Prepared>> make(const Candidate& candidate) {
    auto prepared = std::make_unique<Prepared>();
    prepared->candidate = candidate;
    beat("compile");
    const auto backend = std::ranges::find(backends_, candidate.backend, &backends::Backend::name);
    if (backend == backends_.end())
      return fail(ErrorCode::unsupported, "worker: no backend '{}' here", candidate.backend);
    LAPIDARY_TRY(prepared->executable,
                 (*backend)->compile(session_->problem, candidate.config, device_));
    return prepared;
  }

  backends::Arguments arguments(const Prepared& prepared, const Arena& arena) const {
    return {.operands = arena.pointers(),
            .workspace = prepared.workspace.data(),
            .packed = prepared.packed.data(),
            .stream = nullptr};
  }

  /// One run on the next copy. All copies hold the same inputs, so their outputs must hash alike.
  Status run_once(const Prepared& prepared) {
    const std::size_t copy = session_->next++ % session_->copies.size();
    return prepared.executable->run(arguments(prepared, session_->copies[copy]));
  }

  /// The same, in microseconds.
  Result<double> timed_run(const Prepared& prepared) {
    const Clock::time_point start = Clock::now();
    LAPIDARY_TRY_STATUS(run_once(prepared));
    return micros_since(start);
  }

  Result<Reply> replay(const Request& request) {
    if (!session_) return fail(ErrorCode::internal, "worker: replay before open");
    const auto it = std::ranges::find_if(
        session_->prepared, [&](const auto& p) { return p->candidate == request.candidate; });
    if (it == session_->prepared.end())
      return fail(ErrorCode::internal, "worker: replay before prepare");
    Prepared& prepared = **it;
    beat("replay");
    const std::int64_t repeats = std::max<std::int64_t>(1, request.repeats);
    settle();
    // Its own threads are awake when the clock starts, as they are in a row of products.
    LAPIDARY_TRY_STATUS(run_once(prepared));
    const Clock::time_point start = Clock::now();
    for (std::int64_t i = 0; i < repeats; ++i) {
      LAPIDARY_TRY_STATUS(run_once(prepared));
    }
    Reply reply;
    reply.time_us = micros_since(start) / static_cast<double>(repeats);
    const std::size_t last = (session_->next - 1) % session_->copies.size();
    const std::uint64_t hash = session_->copies[last].hash_outputs();
    if (prepared.hash && *prepared.hash != hash && !session_->problem.numerics.nondeterministic) {
      return fail(ErrorCode::wrong_result,
                  "repeat: outputs differ between two replays on the same inputs");
    }
    prepared.hash = hash;
    reply.passed = true;
    return reply;
  }

  Result<Reply> verify(const Request& request) {
    if (!session_) return fail(ErrorCode::internal, "worker: verify before open");
    Session& s = *session_;
    if (!s.verifier || s.verifier_seed != request.seed || s.verifier_checks != request.checks) {
      beat("reference");
      s.verifier.reset();
      LAPIDARY_TRY(
          Verifier verifier,
          Verifier::make(s.problem, {.seed = request.seed,
                                     .checks = request.checks & kAllChecks,
                                     .beat = [this](std::string_view step) { beat(step); }}));
      s.verifier.emplace(std::move(verifier));
      s.verifier_seed = request.seed;
      s.verifier_checks = request.checks;
    }
    LAPIDARY_TRY(const auto prepared, make(request.candidate));
    LAPIDARY_TRY(const Verdict verdict, s.verifier->verify(*prepared->executable));
    Reply reply;
    reply.passed = verdict.passed;
    reply.check = verdict.check;
    reply.reason = verdict.reason;
    return reply;
  }

  static Result<GemmProblem> problem_of(const Request& request) {
    LAPIDARY_TRY(GemmProblem problem, problem_from_json(request.problem));
    return checked(std::move(problem));
  }

  int out_;
  std::span<const backends::Backend* const> backends_;
  DeviceInfo device_ = cpu_device();
  std::optional<DeviceLock> lock_;
  std::unique_ptr<Session> session_;
};

}  // namespace

DeviceInfo cpu_device() {
  static const DeviceInfo device = [] {
    const driver::CpuFacts facts = driver::cpu_facts();
    const int threads = default_threads();
    return DeviceInfo{
        .id = "cpu",
        .name = fmt::format("{}, {} thread{}", facts.model, threads, threads == 1 ? "" : "s"),
        .key = fmt::format("cpu|{}|{}|threads={}", facts.model, facts.features, threads),
        .threads = threads,
        .cache_bytes = facts.cache_bytes,
        .memory_bytes = facts.memory_bytes};
  }();
  return device;
}

namespace {

/// Ends this process when the other end of `in` is gone, whatever a candidate is doing: a worker
/// that outlives its parent would keep the device. (A signal on the parent's death would follow the
/// thread that started us.)
void end_with_parent(int in) {
  std::thread([in] {
    pollfd end{.fd = in, .events = 0, .revents = 0};
    while (::poll(&end, 1, -1) <= 0 || (end.revents & (POLLHUP | POLLERR)) == 0) {
    }
    // Time to end by itself: the last request's answer, or the end of serve().
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ::_exit(0);
  }).detach();
}

}  // namespace

Status serve(int in, int out, std::span<const backends::Backend* const> backends) {
  end_with_parent(in);
  Server server(out, backends);
  for (;;) {
    LAPIDARY_TRY(const std::optional<std::string> frame, receive_frame(in));
    if (!frame) return {};
    const Result<Request> request = decode_request(*frame);
    Reply reply;
    if (request) {
      reply = server.answer(*request);
    } else {
      reply.error = request.error();
    }
    // A parent that is gone needs no answer, and no complaint.
    if (!send_frame(out, encode(reply))) return {};
  }
}

}  // namespace lapidary::worker
