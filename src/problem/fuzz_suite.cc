#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lapidary/problem.h"
#include "support/result.h"

// Any bytes: an error, or a suite whose problems' texts read back to equal ones.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lapidary;
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const auto suite = suite_from_json(json, "fuzz");
  if (!suite) {
    LAPIDARY_CHECK(suite.error().code == ErrorCode::invalid_argument);
  } else {
    for (const SuiteLine& line : suite->lines) {
      const std::string canonical = text(line.problem);
      const auto again = problem_from_json(canonical);
      LAPIDARY_CHECK(again);
      LAPIDARY_CHECK(*again == line.problem);
      LAPIDARY_CHECK(text(*again) == canonical);
      for (const OperandSpec& spec : operands(*again)) LAPIDARY_CHECK(spec.bytes() >= 0);
    }
  }
  (void)problem_from_json(json).has_value();
  (void)extents_from_text("m", json).has_value();
  return 0;
}
