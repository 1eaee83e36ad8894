#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cli/layout_expression.h"
#include "cli/layout_picture.h"
#include "support/result.h"

// Any bytes: a message of one line with the expression and a caret, or a value whose text means the
// same.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lapidary;
  const std::string_view expression(reinterpret_cast<const char*>(data), size);
  const auto value = cli::evaluate_layout(expression);
  if (!value) {
    LAPIDARY_CHECK(value.error().code == ErrorCode::invalid_argument);
    LAPIDARY_CHECK(std::ranges::count(value.error().message, '\n') == 2);
    LAPIDARY_CHECK(value.error().message.ends_with('^'));
    return 0;
  }
  const std::string written = cli::text(*value);
  const auto again = cli::evaluate_layout(written);
  if (const auto* layout = std::get_if<Layout>(&value->is)) {
    LAPIDARY_CHECK(again && again->is == value->is);
    LAPIDARY_CHECK(!cli::table(cli::grid_of(*layout, 16, 16)).empty());
    LAPIDARY_CHECK(cli::svg(cli::grid_of(*layout, 16, 16), written, {}, {}).ends_with("</svg>\n"));
  }
  return 0;
}
