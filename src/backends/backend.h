#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "lapidary/candidate.h"
#include "support/result.h"

namespace lapidary::backends {

/// What one run reads and writes.
struct Arguments {
  std::span<void* const> operands;  ///< in the order of operands(problem); offsets already applied
  void* workspace = nullptr;  ///< workspace_bytes() bytes, 64-byte aligned on a CPU, 256 on a GPU
  void* packed = nullptr;     ///< packed_bytes() bytes that `pack` has filled
  void* stream = nullptr;     ///< null on a CPU: the call returns when D is written
};

/// A candidate made ready for one problem. Immutable and shared; everything a call needs is in its
/// arguments.
class Executable {
 public:
  virtual ~Executable() = default;
  virtual std::int64_t workspace_bytes() const { return 0; }
  virtual std::int64_t packed_bytes() const { return 0; }
  /// Packs the constant operands into arguments.packed; again whenever their contents change.
  virtual Status pack(const Arguments&) const { return {}; }
  virtual Status run(const Arguments& arguments) const = 0;
};

/// A provider of GEMM kernels: one file and one row in list.inc.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  /// Does it make kernels for such a device at all?
  virtual bool serves(const DeviceInfo& device) const { return device.id == "cpu"; }
  /// "oneDNN 2.6.3 at /usr/lib/...", or in the error what is missing and what to install. Loads the
  /// library.
  virtual Result<std::string> version() const = 0;
  /// Every candidate for a checked problem, a refused one with its reason. At least one.
  virtual std::vector<Offer> candidates(const GemmProblem& problem,
                                        const DeviceInfo& device) const = 0;
  virtual Result<std::unique_ptr<Executable>> compile(const GemmProblem& problem,
                                                      const Config& config,
                                                      const DeviceInfo& device) const = 0;
};

/// All backends for all devices, in the order of list.inc.
std::span<const Backend* const> all();

}  // namespace lapidary::backends
