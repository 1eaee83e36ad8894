#include "ptx/ptx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/testing_every_op.h"
#include "ir/testing_golden.h"

namespace lapidary::ptx {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// `LAPIDARY_REGENERATE=1 ptx_test` writes the text anew. That it is assembled is
// tests/ptx_assembles_test.cc's business.
TEST(Print, AKernelOfEveryOperation) {
  const Result<Kernel> kernel = lapidary::testing::every_op();
  ASSERT_TRUE(kernel) << kernel.error();
  lapidary::testing::expect_golden("src/ptx/testdata/every_op.ptx", print(kernel->ir()));
}

TEST(Print, NamesTheTargetOfTheKernel) {
  for (const Arch arch : {Arch::sm_80, Arch::sm_89, Arch::sm_90a}) {
    const Result<Kernel> kernel = lapidary::testing::every_op(arch);
    ASSERT_TRUE(kernel) << kernel.error();
    EXPECT_THAT(print(kernel->ir()), HasSubstr(fmt::format("\n.target {}\n", name(arch))));
  }
}

TEST(Print, DeclaresOnlyWhatThereIs) {
  KernelBuilder k({.name = "nothing", .threads = 96});
  const Result<Kernel> kernel = k.finish();
  ASSERT_TRUE(kernel) << kernel.error();
  EXPECT_EQ(print(kernel->ir()), R"(// nothing, printed by lapidary
.version 8.0
.target sm_80
.address_size 64

.visible .entry nothing(
)
.maxntid 96, 1, 1
{
  ret;
}
)");
}

TEST(Print, SaysTheLinesOfTheKernel) {
  KernelBuilder k({.name = "lines", .threads = 32});
  Array x = k.array_param("x", Scalar::s32);
  const int first = __LINE__ + 1;
  Value sum = k.thread() + 1;
  x[k.thread()] = sum;
  const Result<Kernel> kernel = k.finish();
  ASSERT_TRUE(kernel) << kernel.error();
  const std::string text = print(kernel->ir(), {.lines = true});
  // The sum stands below its line, the store below the next; the file is named once, at the end.
  EXPECT_THAT(text, HasSubstr(fmt::format("  .loc 1 {} 0\n  mov.u32 %r0, %tid.x;\n", first)));
  EXPECT_THAT(text, HasSubstr(fmt::format("  .loc 1 {} 0\n  mov.u32", first + 1)));
  EXPECT_EQ(text.find(".file 1 \""), text.rfind(".file"));
  EXPECT_THAT(text, HasSubstr("ptx_test.cc\"\n"));
  EXPECT_THAT(print(kernel->ir()), Not(HasSubstr(".loc")));
  EXPECT_THAT(print(kernel->ir()), Not(HasSubstr(".file")));
}

}  // namespace
}  // namespace lapidary::ptx
