#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lapidary/candidate.h"
#include "lapidary/problem.h"
#include "lapidary/result.h"

/// Where the installation that we are built against has lapidary-worker; its CMake package and
/// pkg-config file say.
#ifndef LAPIDARY_INSTALLED_WORKER
#define LAPIDARY_INSTALLED_WORKER ""
#endif

// The library: describe a product, get a plan for it, run the plan. docs/library.md walks through
// an example.
namespace lapidary {

struct SessionOptions {
  /// "cpu", "cuda:0"; empty: $LAPIDARY_DEVICE, else the first GPU, else the CPU.
  std::string device = {};
  std::string store =
      {};  ///< file of tuned winners; empty: $LAPIDARY_STORE, else the user's cache folder
  std::string worker =
      {};  ///< path of lapidary-worker; empty: $LAPIDARY_WORKER, beside the program, PATH
  std::string installed_worker = LAPIDARY_INSTALLED_WORKER;  ///< tried last
  /// Gets one line when something is not as it should be but work goes on (a store that cannot be
  /// written).
  std::function<void(std::string_view line)> on_warning = {};
};

struct TuneSettings {
  double budget_s = 0;                   ///< of one problem; 0: none
  bool retune = false;                   ///< measure even what is stored
  std::function<bool()> cancelled = {};  ///< asked ten times a second
  std::function<void(std::string_view step)> on_progress = {};
};

/// The buffers of one run.
struct RunArguments {
  /// One address for each of Plan::operands(), in that order: element (0, 0), the operand's offset
  /// already added.
  std::span<void* const> operands;
  /// Plan::workspace_bytes() bytes, 64-byte aligned (256 on a GPU), of this call alone while it
  /// runs. On a GPU all addresses are the device's.
  void* workspace = nullptr;
  void* packed = nullptr;  ///< Plan::packed_bytes() bytes that Plan::pack has filled; may be shared
                           ///< by all calls
  /// A CUstream (or cudaStream_t) of the device, also one that is being captured: the call returns
  /// when the work is queued. A CPU has none and the call returns when D is written.
  void* stream = nullptr;
};

/// A kernel chosen and made ready for one problem. Immutable and cheap to copy; any number of
/// threads may run it.
class Plan {
 public:
  const GemmProblem& problem() const;
  const Candidate& candidate() const;
  /// True when the candidate won a tune of exactly this problem and was proved in it.
  bool tuned() const;
  /// What a run reads and writes, with shapes and pitches.
  const std::vector<OperandSpec>& operands() const;
  std::int64_t workspace_bytes() const;  ///< of a call
  std::int64_t packed_bytes()
      const;  ///< of constant operands in the form the kernel wants; 0: nothing to pack

  /// Packs the constant operands of `arguments` into arguments.packed; again whenever they change.
  Status pack(const RunArguments& arguments) const;
  /// D = epilogue(A * B). `invalid_argument` for a missing buffer.
  Status run(const RunArguments& arguments) const;

 private:
  friend class Session;
  friend class PlanRange;
  struct Impl;
  explicit Plan(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

/// Plans for one product over a range of M, as serving needs them: each tuned M stands for those up
/// to it.
class PlanRange {
 public:
  /// The plan for exactly m rows: the candidate of the smallest tuned M that is not below m (beyond
  /// the last: the last), made ready for m at the first call and kept.
  Result<Plan> at(std::int64_t m) const;
  /// The values of M that have a choice of their own, ascending.
  const std::vector<std::int64_t>& anchors() const;

 private:
  friend class Session;
  struct Impl;
  explicit PlanRange(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

/// A device and a store. Use it from one thread at a time; the plans that it gives are free of it.
class Session {
 public:
  static Result<Session> open(const SessionOptions& options = {});
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  const DeviceInfo& device() const;

  /// The stored winner of the problem, else the ranked default. Never tunes and never starts a
  /// process.
  Result<Plan> plan(const GemmProblem& problem);
  /// Tunes the problem (a stored result is used as it is), stores the result and says what became
  /// of each candidate.
  Result<TuneResult> tune(const GemmProblem& problem, const TuneSettings& settings = {});
  /// A plan for each of the given values of M, and through them for every M. Tunes nothing: tune
  /// them before.
  Result<PlanRange> plan_range(const GemmProblem& problem, std::span<const std::int64_t> m_values);

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lapidary
