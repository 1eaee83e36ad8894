#include "worker/server.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "driver/device.h"
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

/// A candidate made ready: executable, its workspace, its packed operands, and what its outputs
/// hashed to.
struct Prepared {
  Candidate candidate;
  std::unique_ptr<backends::Executable> executable;
  driver::Memory workspace, packed;
  std::unique_ptr<driver::Replay> replay;  // of so many repeats
  std::int64_t repeats = 0;
  std::size_t last_copy = 0;          // that a replay's last run writes
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
  std::size_t next = 0;  // copy that the next run takes, whoever's
};

class Server {
 public:
  Server(int out, std::string device, std::span<const backends::Backend* const> backends)
      : out_(out), device_id_(std::move(device)), all_(backends) {}

  Reply answer(const Request& request) {
    Reply failed;
    try {
      Result<Reply> reply = handle(request);
      if (reply) return *std::move(reply);
      failed.error = reply.error();
      // A library's own error may hide that the context is lost.
      if (failed.error->code == ErrorCode::launch_failed && device_) {
        const Status usable = device_->probe();
        if (!usable && usable.error().code == ErrorCode::device_fault)
          failed.error = Error{ErrorCode::device_fault, failed.error->message};
      }
    } catch (const std::bad_alloc&) {
      failed.error = Error{ErrorCode::resource_limit, "worker: out of memory"};
    }
    return failed;
  }

 private:
  Result<Reply> handle(const Request& request) {
    LAPIDARY_TRY_STATUS(open_device());
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
      case Ask::sustain:
        return sustain(request);
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

  /// At the first request, so that what is missing is an answer.
  Status open_device() {
    if (device_) return {};
    beat("opening " + device_id_);
    LAPIDARY_TRY(std::unique_ptr<driver::Device> device, driver::open_device(device_id_));
    beat("probing " + device_id_);
    LAPIDARY_TRY_STATUS(device->probe());
    device_ = std::move(device);
    std::ranges::copy_if(
        all_, std::back_inserter(backends_),
        [this](const backends::Backend* backend) { return backend->serves(device_->info()); });
    return {};
  }

  Result<Reply> hello() {
    Reply reply;
    reply.device = device_->info();
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
      std::ranges::move(backend->candidates(problem, device_->info()),
                        std::back_inserter(reply.offers));
    }
    return reply;
  }

  Result<Reply> open(const Request& request) {
    if (!lock_) {
      const DeviceInfo& info = device_->info();
      LAPIDARY_TRY(
          DeviceLock lock,
          DeviceLock::acquire(
              info.uuid.empty() ? info.id : info.uuid, [&](std::string_view holder) {
                beat(fmt::format("waiting for the device: process {} measures on it", holder));
              }));
      lock_.emplace(std::move(lock));
    }
    session_.reset();  // its memory goes before the next one's comes
    LAPIDARY_TRY(const GemmProblem problem, problem_of(request));
    session_ = std::make_unique<Session>();
    session_->problem = problem;
    session_->seed = request.seed;
    std::vector<Arena>& copies = session_->copies;
    beat("filling buffers, copy 1");
    LAPIDARY_TRY(Arena first, Arena::make(problem, *device_));
    LAPIDARY_TRY_STATUS(first.fill_inputs(Fill::uniform, request.seed));
    LAPIDARY_TRY_STATUS(first.fill_outputs());
    copies.push_back(std::move(first));
    while (static_cast<std::int64_t>(copies.size()) * copies.front().bytes() <
               request.rotate_bytes &&
           copies.size() < 256) {
      beat(fmt::format("filling buffers, copy {}", copies.size() + 1));
      LAPIDARY_TRY(Arena copy, copies.front().clone());
      copies.push_back(std::move(copy));
    }
    return Reply{};
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
    LAPIDARY_TRY(prepared->workspace,
                 driver::Memory::make(*device_, prepared->executable->workspace_bytes()));
    LAPIDARY_TRY(prepared->packed,
                 driver::Memory::make(*device_, prepared->executable->packed_bytes()));
    LAPIDARY_TRY_STATUS(prepared->executable->pack(arguments(*prepared, session_->copies.front())));
    beat("first run");
    LAPIDARY_TRY(const double first, timed_runs(*prepared, 1));
    // The first run pays for page faults and for a library that starts its threads: seconds, on a
    // busy machine.
    double best = first;
    if (first < 2e6) {
      beat("second run");
      // On a GPU the time of one would be that of a launch and a wait.
      const double many = device_->is_host() ? 1 : std::clamp(20e3 / first, 1.0, 8.0);
      LAPIDARY_TRY(const double second, timed_runs(*prepared, static_cast<int>(many)));
      best = std::min(first, second);
    }
    LAPIDARY_TRY_STATUS(check_outputs(*prepared));
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
                 (*backend)->compile(session_->problem, candidate.config, device_->info()));
    return prepared;
  }

  backends::Arguments arguments(const Prepared& prepared, const Arena& arena) const {
    return {.operands = arena.pointers(),
            .workspace = prepared.workspace.data(),
            .packed = prepared.packed.data(),
            .stream = device_->stream()};
  }

  /// One run on the next copy, so that no contender finds in a cache what another has just read.
  /// All copies hold the same inputs, so their outputs must hash alike.
  Status run_once(Prepared& prepared) {
    prepared.last_copy = session_->next++ % session_->copies.size();
    return prepared.executable->run(arguments(prepared, session_->copies[prepared.last_copy]));
  }

  /// So many of them, waited for; microseconds of one.
  Result<double> timed_runs(Prepared& prepared, int count) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < count; ++i) LAPIDARY_TRY_STATUS(run_once(prepared));
    LAPIDARY_TRY_STATUS(device_->synchronize());
    return micros_since(start) / count;
  }

  /// The candidate of a request, its runs recorded.
  Result<Prepared*> recorded(const Request& request) {
    if (!session_) return fail(ErrorCode::internal, "worker: replay before open");
    const auto it = std::ranges::find_if(
        session_->prepared, [&](const auto& p) { return p->candidate == request.candidate; });
    if (it == session_->prepared.end())
      return fail(ErrorCode::internal, "worker: replay before prepare");
    Prepared& prepared = **it;
    // A graph runs on the same copies at every replay: it must go through all of them.
    const std::int64_t fewest =
        device_->is_host() ? 1 : static_cast<std::int64_t>(session_->copies.size());
    const std::int64_t repeats = std::max(fewest, request.repeats);
    if (!prepared.replay || prepared.repeats != repeats) {
      beat("record");
      prepared.replay.reset();
      LAPIDARY_TRY(
          prepared.replay,
          device_->record([this, &prepared](std::int64_t) { return run_once(prepared); }, repeats));
      prepared.repeats = repeats;
      // What is timed must write what the runs before wrote, not only leave it.
      if (!device_->is_host())
        LAPIDARY_TRY_STATUS(session_->copies[prepared.last_copy].fill_outputs());
    }
    return &prepared;
  }

  Result<Reply> replay(const Request& request) {
    LAPIDARY_TRY(Prepared* const prepared, recorded(request));
    beat("replay");
    Reply reply;
    LAPIDARY_TRY(reply.time_us, prepared->replay->run());
    LAPIDARY_TRY_STATUS(check_outputs(*prepared));
    reply.passed = true;
    return reply;
  }

  /// The outputs of the last run must be those of all runs before it.
  Status check_outputs(Prepared& prepared) {
    LAPIDARY_TRY(const std::uint64_t hash, session_->copies[prepared.last_copy].hash_outputs());
    if (prepared.hash && *prepared.hash != hash && !session_->problem.numerics.nondeterministic) {
      return fail(ErrorCode::wrong_result,
                  "repeat: outputs differ between two replays on the same inputs");
    }
    prepared.hash = hash;
    return {};
  }

  Result<Reply> sustain(const Request& request) {
    LAPIDARY_TRY(Prepared* const prepared, recorded(request));
    beat("sustain");
    Reply reply;
    LAPIDARY_TRY(reply.effort, device_->sustain(*prepared->replay, prepared->repeats,
                                                request.seconds, [this] { beat("sustain"); }));
    LAPIDARY_TRY_STATUS(check_outputs(*prepared));
    reply.time_us = reply.effort.time_us;
    reply.passed = true;
    return reply;
  }

  Result<Reply> verify(const Request& request) {
    if (!session_) return fail(ErrorCode::internal, "worker: verify before open");
    Session& s = *session_;
    if (!s.verifier || s.verifier_seed != request.seed || s.verifier_checks != request.checks) {
      beat("reference");
      s.verifier.reset();
      LAPIDARY_TRY(Verifier verifier,
                   Verifier::make(s.problem, *device_,
                                  {.seed = request.seed,
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
  std::string device_id_;
  std::span<const backends::Backend* const> all_;
  std::vector<const backends::Backend*> backends_;  // those that serve the device
  std::unique_ptr<driver::Device> device_;          // outlives what lies in its memory
  std::optional<DeviceLock> lock_;
  std::unique_ptr<Session> session_;
};

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

Status serve(int in, int out, const std::string& device,
             std::span<const backends::Backend* const> backends) {
  end_with_parent(in);
  Server server(out, device, backends);
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
    // The context is lost and whatever else is asked of it fails: another process goes on. Nothing
    // can be given back to it either.
    if (reply.error && reply.error->code == ErrorCode::device_fault) ::_exit(0);
  }
}

}  // namespace lapidary::worker
