#include "tuner/probe.h"

#include "support/log.h"

namespace lapidary::tuner {
namespace {

using worker::Ask;
using worker::Reply;
using worker::Request;

constexpr std::chrono::milliseconds kSilence{10000};
// A hung candidate may cost 12 s in all: 10 until it is seen, and so much for the second try,
// alone.
constexpr std::chrono::milliseconds kSecondSilence{1000};

}  // namespace

WorkerProbe::WorkerProbe(worker::Client& client, const GemmProblem& problem,
                         const TuneOptions& options, std::int64_t rotate_bytes,
                         std::function<void(const Candidate&, const std::string&)> quarantine)
    : client_(client),
      problem_(text(problem)),
      options_(options),
      rotate_bytes_(rotate_bytes),
      quarantine_(std::move(quarantine)) {}

/// The request, after whatever a fresh worker needs before it can be answered.
Result<Reply> WorkerProbe::attempt(const Request& request, std::chrono::milliseconds silence) {
  at_candidate_ = false;
  if (!client_.lives()) open_ = false;
  if (!open_) {
    prepared_.clear();
    LAPIDARY_TRY(const Reply opened, client_.call({.ask = Ask::open,
                                                   .problem = problem_,
                                                   .candidate = {},
                                                   .rotate_bytes = rotate_bytes_,
                                                   .seed = options_.seed},
                                                  kSilence));
    (void)opened;
    open_ = true;
  }
  at_candidate_ = true;
  const bool replays = request.ask == Ask::replay || request.ask == Ask::sustain;
  if (replays && !prepared_.contains(request.candidate)) {
    Request prepare = request;
    prepare.ask = Ask::prepare;
    LAPIDARY_TRY(const Reply ready, client_.call(prepare, silence));
    (void)ready;
    prepared_.insert(request.candidate);
  }
  LAPIDARY_TRY(const Reply reply, client_.call(request, silence));
  if (request.ask == Ask::prepare) prepared_.insert(request.candidate);
  return reply;
}

Result<Reply> WorkerProbe::ask(Request request) {
  request.seed = options_.seed;
  Result<Reply> first = attempt(request, kSilence);
  if (first || client_.lives() || first.error().code == ErrorCode::cancelled) return first;
  const bool suspect = at_candidate_;
  if (suspect)
    log(LogLevel::info, "{}: {}; trying it once more alone", text(request.candidate),
        first.error().message);
  const bool hung = suspect && first.error().code == ErrorCode::timeout;
  Result<Reply> second = attempt(request, hung ? kSecondSilence : kSilence);
  if (second || client_.lives() || second.error().code == ErrorCode::cancelled) return second;
  // A worker that cannot even be started or filled twice is no candidate's fault.
  if (!suspect || !at_candidate_) return Error{ErrorCode::device_fault, second.error().message};
  quarantine_(request.candidate, first.error().message);
  return Error{ErrorCode::launch_failed, first.error().message};
}

Probe WorkerProbe::probe() {
  return {
      .prepare = [this](const Candidate& candidate) -> Result<Probe::Prepared> {
        LAPIDARY_TRY(const Reply reply,
                     ask({.ask = Ask::prepare, .problem = "", .candidate = candidate}));
        return Probe::Prepared{reply.time_us, reply.workspace_bytes, reply.packed_bytes};
      },
      .replay = [this](const Candidate& candidate, std::int64_t repeats) -> Result<double> {
        LAPIDARY_TRY(
            const Reply reply,
            ask({.ask = Ask::replay, .problem = "", .candidate = candidate, .repeats = repeats}));
        return reply.time_us;
      },
      .sustain = [this](const Candidate& candidate, std::int64_t repeats,
                        double seconds) -> Result<driver::Effort> {
        LAPIDARY_TRY(const Reply reply, ask({.ask = Ask::sustain,
                                             .problem = "",
                                             .candidate = candidate,
                                             .repeats = repeats,
                                             .seconds = seconds}));
        return reply.effort;
      },
      .release =
          [this](const Candidate& candidate) {
            prepared_.erase(candidate);
            if (!client_.lives() || !open_) return;
            // An error would be the worker's, and shows at the next request.
            (void)client_.call({.ask = Ask::release, .problem = "", .candidate = candidate})
                .has_value();
          },
      .verify = [this](const Candidate& candidate) -> Result<std::optional<std::string>> {
        LAPIDARY_TRY(const Reply reply,
                     ask({.ask = Ask::verify, .problem = "", .candidate = candidate}));
        if (reply.passed) return std::optional<std::string>();
        return std::optional<std::string>(reply.check + ": " + reply.reason);
      }};
}

}  // namespace lapidary::tuner
