#include <cstddef>
#include <cstdint>
#include <string_view>

#include "layout/testing_laws.h"
#include "support/result.h"

// Any bytes: as text an error of one line, or a layout whose text reads back to an equal one; as
// choices, inputs for which a law holds.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lapidary;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] >= std::size(laws::kLaws)) {
    const auto layout = layout_from_text(text);
    if (!layout) {
      LAPIDARY_CHECK(layout.error().code == ErrorCode::invalid_argument);
      LAPIDARY_CHECK(layout.error().message.find('\n') == std::string::npos);
    } else {
      const auto again = layout_from_text(lapidary::text(*layout));
      LAPIDARY_CHECK(again && *again == *layout);
      // However large its numbers are: an error or a result, and no overflow.
      LAPIDARY_CHECK(coalesce(*layout).size() == layout->size());
      LAPIDARY_CHECK(cosize(*layout) >= 1);
      (void)(*layout)(INT64_MAX);
      (void)(*layout)(INT64_MIN);
      (void)evaluate(*layout, layout->size() - 1).has_value();
      (void)composition(*layout, *layout).has_value();
      (void)complement(*layout, IntTuple(INT64_MAX)).has_value();
      (void)right_inverse(*layout).has_value();
      (void)left_inverse(*layout).has_value();
      (void)logical_divide(*layout, *layout).has_value();
      (void)logical_product(*layout, *layout).has_value();
      (void)blocked_product(*layout, *layout).has_value();
      (void)max_common_layout(*layout, *layout).has_value();
      (void)tile_to_shape(*layout, layout->shape()).has_value();
      (void)make_layout_like(*layout).has_value();
      (void)upcast(*layout, max_alignment(*layout)).has_value();
      (void)downcast(*layout, INT64_MAX).has_value();
      (void)prefix_product(layout->stride()).has_value();
      (void)filter(*layout);
      (void)nullspace(*layout);
      (void)coshape(*layout);
    }
    (void)int_tuple_from_text(text).has_value();
    (void)swizzle_from_text(text).has_value();
    if (const auto tiler = tiler_from_text(text))
      LAPIDARY_CHECK(*tiler_from_text(lapidary::text(*tiler)) == *tiler);
    return 0;
  }
  laws::Draws draws(0, {data + 1, size - 1});
  const laws::Verdict verdict = laws::kLaws[data[0]].holds(draws);
  if (!verdict.broken.empty()) std::fprintf(stderr, "%s\n", verdict.broken.c_str());
  LAPIDARY_CHECK(verdict.broken.empty());
  return 0;
}
