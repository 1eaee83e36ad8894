#pragma once

#include <set>

#include "tuner/stages.h"

namespace lapidary::tuner {

/// A worker that holds one problem, as a Probe: starts the worker again when a candidate broke it,
/// tries the suspect once more alone, and hands it to `quarantine` when it breaks the worker again.
class WorkerProbe {
 public:
  WorkerProbe(worker::Client& client, const GemmProblem& problem, const TuneOptions& options,
              std::int64_t rotate_bytes,
              std::function<void(const Candidate&, const std::string& why)> quarantine);
  Probe probe();

 private:
  Result<worker::Reply> ask(worker::Request request);
  Result<worker::Reply> attempt(const worker::Request& request, std::chrono::milliseconds silence);
  worker::Client& client_;
  std::string problem_;
  const TuneOptions& options_;
  std::int64_t rotate_bytes_;
  std::function<void(const Candidate&, const std::string&)> quarantine_;
  bool open_ = false;
  bool at_candidate_ = false;  // the last attempt got as far as the candidate itself
  std::set<Candidate> prepared_;
};

}  // namespace lapidary::tuner
