#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lapidary/problem.h"
#include "problem/epilogue.h"
#include "support/result.h"

// Any bytes: an error, or a program whose text reads back to an equal one.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lapidary;
  const std::string_view program(reinterpret_cast<const char*>(data), size);
  const bool reserve = size % 2 == 0;
  const auto parsed = parse_epilogue(program, reserve);
  if (!parsed) {
    LAPIDARY_CHECK(parsed.error().code == ErrorCode::invalid_argument);
    return 0;
  }
  const std::string canonical = text(*parsed);
  const auto again = parse_epilogue(canonical, reserve);
  LAPIDARY_CHECK(again);
  LAPIDARY_CHECK(*again == *parsed);
  LAPIDARY_CHECK(text(*again) == canonical);
  const Epilogue dropped =
      problem::drop_zero_terms(*parsed, [&](int i) { return i % 2 == 0 ? 0.0 : 1.0; });
  LAPIDARY_CHECK(parse_epilogue(text(dropped)));
  return 0;
}
