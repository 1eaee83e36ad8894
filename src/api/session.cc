#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "backends/backend.h"
#include "driver/device.h"
#include "lapidary/gemm.h"
#include "store/store.h"
#include "support/log.h"
#include "tuner/stages.h"
#include "tuner/tune.h"
#include "worker/client.h"

namespace lapidary {

struct Plan::Impl {
  GemmProblem problem;
  Candidate candidate;
  bool tuned = false;
  std::vector<OperandSpec> operands;
  std::unique_ptr<backends::Executable> executable;
};

struct PlanRange::Impl {
  DeviceInfo device;
  GemmProblem problem;  // with any m
  std::vector<std::int64_t> anchors;
  std::vector<Candidate> choices;  // of each anchor
  std::mutex mutex;
  std::map<std::int64_t, Plan> made;
};

struct Session::Impl {
  ~Impl() {
    if (listening) set_log_sink(std::move(sink_before));
  }
  SessionOptions options;
  bool listening = false;  // our sink is in place of the process's
  LogSink sink_before;
  DeviceInfo device;
  std::unique_ptr<store::Store> store;
  std::unique_ptr<worker::Client> worker;
  std::function<void(std::string_view)> on_progress;
  std::function<bool()> cancelled;
};

namespace {

Result<std::unique_ptr<backends::Executable>> compile(const GemmProblem& problem,
                                                      const Candidate& candidate,
                                                      const DeviceInfo& device) {
  const auto all = backends::all();
  const auto backend = std::ranges::find(all, candidate.backend, &backends::Backend::name);
  if (backend == all.end())
    return fail(ErrorCode::unsupported, "plan: no backend '{}' in this build", candidate.backend);
  LAPIDARY_TRY([[maybe_unused]] const driver::Current current, driver::Current::make(device.id));
  return (*backend)->compile(problem, candidate.config, device);
}

/// Legal candidates, best ranked first: what a tune would start from, without measuring.
Result<std::vector<Candidate>> ranked(
    const GemmProblem& problem, const DeviceInfo& device,
    const std::function<std::string(const Candidate&)>& quarantined) {
  LAPIDARY_TRY([[maybe_unused]] const driver::Current current, driver::Current::make(device.id));
  std::vector<Offer> offers;
  for (const backends::Backend* backend : backends::all()) {
    if (backend->serves(device))
      std::ranges::move(backend->candidates(problem, device), std::back_inserter(offers));
  }
  tuner::refuse(offers, problem, {.limit_us = INFINITY}, quarantined);
  std::vector<Candidate> found;
  for (const Offer& offer : tuner::rank(offers, {.keep = 1000, .explore = 0}).chosen)
    found.push_back(offer.candidate);
  if (found.empty()) {
    return fail(ErrorCode::unsupported, "plan: no candidate for {}: {}", summary(problem),
                offers.empty() ? "no backend" : offers.front().refused);
  }
  return found;
}

Status check(const GemmProblem& problem, const std::vector<OperandSpec>& specs,
             const backends::Executable& executable, const RunArguments& arguments) {
  if (arguments.operands.size() != specs.size()) {
    return fail(ErrorCode::invalid_argument, "run: {} operands given; {} takes {}",
                arguments.operands.size(), summary(problem), specs.size());
  }
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (arguments.operands[i] == nullptr && specs[i].span_elems() > 0) {
      return fail(ErrorCode::invalid_argument, "run: the address of operand '{}' is null",
                  specs[i].name);
    }
  }
  if (arguments.workspace == nullptr && executable.workspace_bytes() > 0) {
    return fail(ErrorCode::invalid_argument, "run: no workspace given; {} bytes are needed",
                executable.workspace_bytes());
  }
  if (arguments.packed == nullptr && executable.packed_bytes() > 0) {
    return fail(ErrorCode::invalid_argument,
                "run: no packed operands given; call pack() with {} bytes first",
                executable.packed_bytes());
  }
  return {};
}

backends::Arguments lowered(const RunArguments& a) {
  return {.operands = a.operands, .workspace = a.workspace, .packed = a.packed, .stream = a.stream};
}

}  // namespace

const GemmProblem& Plan::problem() const { return impl_->problem; }
const Candidate& Plan::candidate() const { return impl_->candidate; }
bool Plan::tuned() const { return impl_->tuned; }
const std::vector<OperandSpec>& Plan::operands() const { return impl_->operands; }
std::int64_t Plan::workspace_bytes() const { return impl_->executable->workspace_bytes(); }
std::int64_t Plan::packed_bytes() const { return impl_->executable->packed_bytes(); }

Status Plan::pack(const RunArguments& arguments) const {
  if (packed_bytes() == 0) return {};
  if (arguments.operands.size() != impl_->operands.size()) {
    return fail(ErrorCode::invalid_argument, "pack: {} operands given; {} takes {}",
                arguments.operands.size(), summary(impl_->problem), impl_->operands.size());
  }
  // Weights are packed when a model is loaded, before there are activations: only they must be
  // there.
  for (std::size_t i = 0; i < impl_->operands.size(); ++i) {
    const bool constant = std::ranges::find(impl_->problem.constant, impl_->operands[i].name) !=
                          impl_->problem.constant.end();
    if (constant && !impl_->operands[i].output && arguments.operands[i] == nullptr) {
      return fail(ErrorCode::invalid_argument, "pack: the address of constant operand '{}' is null",
                  impl_->operands[i].name);
    }
  }
  if (arguments.packed == nullptr) {
    return fail(ErrorCode::invalid_argument,
                "pack: no memory for the packed operands; {} bytes are needed", packed_bytes());
  }
  return impl_->executable->pack(lowered(arguments));
}

Status Plan::run(const RunArguments& arguments) const {
  LAPIDARY_TRY_STATUS(check(impl_->problem, impl_->operands, *impl_->executable, arguments));
  return impl_->executable->run(lowered(arguments));
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

const DeviceInfo& Session::device() const { return impl_->device; }

Result<Session> Session::open(const SessionOptions& options) {
  const std::string device = driver::chosen_device(options.device);
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  Result<DeviceInfo> info = driver::describe_device(device);
  if (!info) return fail(info.error().code, "session: device {}: {}", device, info.error().message);
  impl->device = *std::move(info);
  if (options.on_warning) {
    impl->listening = true;
    impl->sink_before =
        set_log_sink([warn = options.on_warning](LogLevel level, std::string_view line) {
          if (level >= LogLevel::warning) warn(line);
        });
  }
  LAPIDARY_TRY(impl->store,
               store::open_sqlite(options.store.empty() ? store::default_path()
                                                        : std::filesystem::path(options.store)));
  return Session(std::move(impl));
}

Result<Plan> Session::plan(const GemmProblem& problem) {
  LAPIDARY_TRY(const GemmProblem whole, checked(problem));
  auto impl = std::make_shared<Plan::Impl>();
  impl->problem = whole;
  impl->operands = lapidary::operands(whole);
  if (const auto stored = tuner::lookup(*impl_->store, impl_->device, whole)) {
    // A winner whose library is gone on this machine is no reason to fail: the default serves.
    if (auto executable = compile(whole, stored->winner->candidate, impl_->device)) {
      impl->candidate = stored->winner->candidate;
      impl->tuned = true;
      impl->executable = *std::move(executable);
      return Plan(std::move(impl));
    }
  }
  LAPIDARY_TRY(const std::vector<Candidate> candidates,
               ranked(whole, impl_->device, [&](const Candidate& candidate) {
                 return tuner::quarantined(*impl_->store, impl_->device, whole, candidate);
               }));
  Error last;
  for (const Candidate& candidate : candidates) {
    auto executable = compile(whole, candidate, impl_->device);
    if (!executable) {
      last = executable.error();
      continue;
    }
    impl->candidate = candidate;
    impl->executable = *std::move(executable);
    return Plan(std::move(impl));
  }
  return last;
}

Result<TuneResult> Session::tune(const GemmProblem& problem, const TuneSettings& settings) {
  LAPIDARY_TRY(const GemmProblem whole, checked(problem));
  Impl& self = *impl_;
  self.on_progress = settings.on_progress;
  self.cancelled = settings.cancelled;
  if (!self.worker) {
    LAPIDARY_TRY(const std::filesystem::path program,
                 worker::find_worker(self.options.worker, self.options.installed_worker));
    self.worker = std::make_unique<worker::Client>(worker::ClientOptions{
        .program = program,
        .device = self.device.id,
        .extra_env = {},
        .on_beat =
            [&self](std::string_view step) {
              if (self.on_progress) self.on_progress(step);
            },
        .cancelled = [&self] { return self.cancelled && self.cancelled(); },
    });
  }
  Result<TuneResult> result = tuner::tune(
      whole, {*self.worker, *self.store, self.device},
      {.budget_s = settings.budget_s, .retune = settings.retune, .cancelled = settings.cancelled});
  self.worker->stop();  // it holds the device and its buffers, which others may want
  return result;
}

Result<PlanRange> Session::plan_range(const GemmProblem& problem,
                                      std::span<const std::int64_t> m_values) {
  if (m_values.empty())
    return fail(ErrorCode::invalid_argument,
                "plan_range: no value of M given; for example {{1, 16, 256, 2048}}");
  auto impl = std::make_shared<PlanRange::Impl>();
  impl->device = impl_->device;
  impl->problem = problem;
  impl->anchors.assign(m_values.begin(), m_values.end());
  std::ranges::sort(impl->anchors);
  impl->anchors.erase(std::unique(impl->anchors.begin(), impl->anchors.end()), impl->anchors.end());
  for (const std::int64_t m : impl->anchors) {
    GemmProblem at = problem;
    at.m = m;
    LAPIDARY_TRY(const Plan plan_at, plan(at));
    impl->choices.push_back(plan_at.candidate());
    impl->made.emplace(m, plan_at);
  }
  return PlanRange(std::move(impl));
}

const std::vector<std::int64_t>& PlanRange::anchors() const { return impl_->anchors; }

Result<Plan> PlanRange::at(std::int64_t m) const {
  const std::lock_guard lock(impl_->mutex);
  if (const auto known = impl_->made.find(m); known != impl_->made.end()) return known->second;
  auto made = std::make_shared<Plan::Impl>();
  GemmProblem problem = impl_->problem;
  problem.m = m;
  LAPIDARY_TRY(made->problem, checked(problem));
  made->operands = lapidary::operands(made->problem);
  const auto above = std::ranges::lower_bound(impl_->anchors, m);
  const auto index =
      static_cast<std::size_t>(above == impl_->anchors.end() ? above - impl_->anchors.begin() - 1
                                                             : above - impl_->anchors.begin());
  // The choice of the anchor above, then those of the others, then what ranks first at this m: a
  // kernel may be for few rows only, or want more workspace than the problem allows.
  std::vector<Candidate> candidates;
  for (std::size_t step = 0; step < impl_->choices.size(); ++step)
    candidates.push_back(impl_->choices[(index + step) % impl_->choices.size()]);
  LAPIDARY_TRY(const std::vector<Candidate> fallback,
               ranked(made->problem, impl_->device, [](const Candidate&) { return ""; }));
  candidates.insert(candidates.end(), fallback.begin(), fallback.end());
  Error last;
  for (const Candidate& candidate : candidates) {
    auto executable = compile(made->problem, candidate, impl_->device);
    if (!executable) {
      last = executable.error();
      continue;
    }
    if ((*executable)->workspace_bytes() > made->problem.workspace) continue;
    made->candidate = candidate;
    made->executable = *std::move(executable);
    Plan plan{std::shared_ptr<const Plan::Impl>(std::move(made))};
    // Anchors stay; of the rest so many that a server with any M does not grow without end.
    constexpr std::size_t kMaxPlans = 1024;
    if (impl_->made.size() >= impl_->anchors.size() + kMaxPlans) {
      std::erase_if(impl_->made, [&](const auto& entry) {
        return !std::ranges::binary_search(impl_->anchors, entry.first);
      });
    }
    impl_->made.emplace(m, plan);
    return plan;
  }
  return last;
}

}  // namespace lapidary
