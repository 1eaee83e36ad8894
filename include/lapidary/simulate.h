#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "lapidary/kernel.h"

// Runs a kernel on the CPU, without a GPU: what it computes, and what it does that it must not do.
//
//   std::vector<float> x(n, 1), y(n);
//   auto report = simulate(*kernel, {.grid = {4, 1, 1}}, {n, in(x), out(y)});
//   for (const Finding& f : report->findings) std::cerr << f.where << ": " << f.message << "\n";
namespace lapidary {

/// What one parameter of a kernel gets: a number, or an array in this process.
class Argument {
 public:
  template <class T>
    requires std::is_arithmetic_v<T>
  Argument(T number) : real_(static_cast<double>(number)), is_integer_(std::is_integral_v<T>) {
    if constexpr (std::is_integral_v<T>) integer_ = static_cast<std::int64_t>(number);
  }

 private:
  friend Argument make_array(std::span<std::byte>, int, bool, bool, bool, bool);
  friend struct SimulateAccess;
  Argument() = default;
  std::int64_t integer_ = 0;
  double real_ = 0;
  bool is_integer_ = false, is_array_ = false;
  std::span<std::byte> bytes_;  // of the array
  int element_bytes_ = 0;
  bool floating_ = false, signed_ = false;  // its elements
  bool reads_ = false, writes_ = false;
};
/// What `in`, `out` and `in_out` are made with.
Argument make_array(std::span<std::byte> bytes, int element_bytes, bool floating, bool is_signed,
                    bool reads, bool writes);

/// An array that the kernel reads. Elements of f16 and bf16 are std::uint16_t.
template <class Range>
Argument in(const Range& range) {
  const std::span values(range);
  using T = typename decltype(values)::value_type;
  return make_array({const_cast<std::byte*>(reinterpret_cast<const std::byte*>(values.data())),
                     values.size_bytes()},
                    sizeof(T), std::is_floating_point_v<T>, std::is_signed_v<T>, true, false);
}
/// One that it writes: undefined before, and afterwards what the kernel left there.
template <class Range>
Argument out(Range& range) {
  const std::span values(range);
  using T = typename decltype(values)::value_type;
  return make_array(std::as_writable_bytes(values), sizeof(T), std::is_floating_point_v<T>,
                    std::is_signed_v<T>, false, true);
}
/// One that it reads and writes.
template <class Range>
Argument in_out(Range& range) {
  const std::span values(range);
  using T = typename decltype(values)::value_type;
  return make_array(std::as_writable_bytes(values), sizeof(T), std::is_floating_point_v<T>,
                    std::is_signed_v<T>, true, true);
}

struct SimulateOptions {
  std::array<int, 3> grid{1, 1, 1};  ///< blocks along three axes
  std::uint64_t seed = 0;            ///< of the order in which warps run
  int sms = 4;                       ///< blocks that run at a time
};

/// Something that a kernel does and must not: an access out of bounds, a value that nobody wrote, a
/// deadlock.
struct Finding {
  std::string where;       ///< "gemm.cc:42": the line of the call that made the operation
  std::string message;     ///< what, the values, the first block and thread to which it happened
  std::int64_t count = 1;  ///< threads to which it happened there
};

struct SimulateReport {
  std::vector<Finding> findings;  ///< one for each place and kind, in the order in which they came
  std::vector<std::string> printed;  ///< what `k.print` printed
  std::int64_t steps = 0;            ///< operations of warps
  bool finished = false;             ///< every thread came to its end
};

/// Runs all blocks; `arguments` in the order of the kernel's parameters. `invalid_argument` when
/// one does not suit its parameter, or the grid is none. A kernel that misbehaves is a report with
/// findings.
Result<SimulateReport> simulate(const Kernel& kernel, const SimulateOptions& options,
                                const std::vector<Argument>& arguments);

/// The kernel as PTX text for `target`, as it is assembled: after all passes.
Result<std::string> ptx_text(const Kernel& kernel, Arch target);

}  // namespace lapidary
