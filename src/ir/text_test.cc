#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "ir/kernel.h"
#include "ir/testing_every_op.h"
#include "ir/testing_golden.h"

namespace lapidary::ir {
namespace {

// `LAPIDARY_REGENERATE=1 ir_test` writes the text anew.
TEST(Text, OfAKernelOfEveryOperation) {
  const Result<lapidary::Kernel> kernel = testing::every_op();
  ASSERT_TRUE(kernel) << kernel.error();
  std::set<std::string_view> used, all;
  for (const Op& op : kernel->ir().ops) used.insert(info(op.code).name);
  for (const OpInfo& row : op_table()) all.insert(row.name);
  EXPECT_EQ(used, all) << "add what is missing to testing_every_op.h";
  testing::expect_golden("src/ir/testdata/every_op.txt", kernel->text());
}

TEST(Text, OfASmallKernel) {
  KernelBuilder k({.name = "small", .arch = Arch::sm_90a, .threads = 32});
  Value n = k.param("n", Scalar::s32);
  k.array_param("x", Scalar::f16);
  Array s = k.shared("s", Scalar::f64, 2);
  k.if_(
      n < 3, [&] { k.for_range(0, n, 1, [&](Value) { s[0] = 1.5; }); },
      [&] { k.check(n == 3, "three"); });
  const Result<lapidary::Kernel> kernel = k.finish();
  ASSERT_TRUE(kernel) << kernel.error();
  EXPECT_EQ(kernel->name(), "small");
  std::string text = kernel->text();
  // Comments name the lines of this file.
  for (std::size_t at = 0; (at = text.find("  // text_test.cc:")) != std::string::npos;)
    text.erase(at, text.find('\n', at) - at);
  EXPECT_EQ(text, R"(kernel small on sm_90a, 32 threads
param 0: s32 n
param 1: ptr global f16 x
shared 0: 2 x f64 s at byte 0
  %0: s32 = param {index 0}
  %1: ptr global f16 = param {index 1}
  %2: ptr shared f64 = shared {allocation 0}
  %3: s32 = constant {bits 3}
  %4: pred = lt %0 %3
  if %4
    %5: s32 = constant {bits 0}
    %6: s32 = constant {bits 1}
    for %5 %0 %6
      %7: s32 = turn
      %8: s64 = constant {bits 0}
      %9: ptr shared f64 = advance %2 %8
      %10: f64 = constant {bits 1.5}
      store %9 %10
  else
    %13: s32 = constant {bits 3}
    %14: pred = eq %0 %13
    check %14 {message 'three'}
)");
}

// What `verify` refuses is printed all the same, to see why.
TEST(Text, OfAKernelThatIsNotSound) {
  Kernel k;
  k.name = "wrong";
  k.regions.push_back({{0, 1, 2}});
  k.ops = {{.code = Opcode::special, .type = Type::of(Scalar::s32), .attributes = {99}},
           {.code = Opcode::check, .args = {kNone}, .attributes = {7, 8}},
           {.code = Opcode::neg, .type = Type{}, .location = 5}};
  EXPECT_EQ(text(k),
            "kernel wrong on sm_80, 32 threads\n  %0: s32 = special {which 99}\n"
            "  check %4294967295 {message 7, ? 8}\n  neg\n");
  EXPECT_FALSE(verify(k).empty());
}

TEST(Text, OfTypesAndPlaces) {
  EXPECT_EQ(text(Type{}), "none");
  EXPECT_EQ(text(Type::of(Scalar::bf16)), "bf16");
  EXPECT_EQ(text(Type::pointer(Scalar::f32, Space::shared)), "ptr shared f32");
  EXPECT_EQ(text(Type::tile(Scalar::s64, 8)), "tile 8 x s64");
  EXPECT_EQ(text(Location{"/a/b/gemm.cc", 42}), "gemm.cc:42");
  EXPECT_EQ(text(Location{"gemm.cc", 1}), "gemm.cc:1");
  EXPECT_EQ(name(Special::thread), "thread");
  EXPECT_EQ(name(Special::grid_z), "grid_z");
}

}  // namespace
}  // namespace lapidary::ir
