// What the ptx room prints, assembled where there is a ptxas: every operation, for each target.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "assembler/assembler.h"
#include "ir/testing_every_op.h"
#include "ptx/ptx.h"

namespace lapidary {
namespace {

TEST(PtxAssembles, AKernelOfEveryOperation) {
  if (const auto ptxas = assembler::find_ptxas(); !ptxas) GTEST_SKIP() << ptxas.error();
  for (const Arch arch : {Arch::sm_80, Arch::sm_89, Arch::sm_90a}) {
    for (const bool lines : {false, true}) {
      SCOPED_TRACE(fmt::format("{}{}", name(arch), lines ? " with lines" : ""));
      const Result<Kernel> kernel = testing::every_op(arch);
      ASSERT_TRUE(kernel) << kernel.error();
      const std::string ptx = ptx::print(kernel->ir(), {.lines = lines});
      const auto cubin = assembler::assemble(
          ptx, {.target = std::string(name(arch)), .line_info = lines, .cache = false});
      ASSERT_TRUE(cubin) << cubin.error();
      EXPECT_FALSE(cubin->image.empty());
      EXPECT_THAT(assembler::unknown_messages(*cubin), ::testing::IsEmpty());
    }
  }
}

// Words that mean something to PTX, as names of a kernel and of what it has. `ir::verify` refuses
// the two that PTX does not let us have.
TEST(PtxAssembles, NamesThatPtxKnows) {
  if (const auto ptxas = assembler::find_ptxas(); !ptxas) GTEST_SKIP() << ptxas.error();
  for (const char* word :
       {"add", "max", "ret", "pred", "s32", "shared", "shared_memory", "param", "printed_values",
        "reg", "entry", "mov", "L0", "tid", "r0", "a_text_0"}) {
    SCOPED_TRACE(word);
    KernelBuilder k({.name = word, .threads = 32});
    Array x = k.array_param(word, Scalar::s32);
    Array s = k.shared(word, Scalar::s32, 32);
    s[k.thread()] = k.thread();
    k.print("value", {s[k.thread()]});
    x[k.thread()] = s[k.thread()];
    const Result<Kernel> kernel = k.finish();
    ASSERT_TRUE(kernel) << kernel.error();
    const auto cubin =
        assembler::assemble(ptx::print(kernel->ir()), {.target = "sm_80", .cache = false});
    EXPECT_TRUE(cubin) << cubin.error();
  }
}

}  // namespace
}  // namespace lapidary
