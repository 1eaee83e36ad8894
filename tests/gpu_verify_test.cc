// Every candidate that a backend offers on a GPU, proved on the card: all layouts, types, batches,
// pitches, offsets, scale modes and the epilogues that libraries fuse. What is refused is printed
// with its reason.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "backends/backend.h"
#include "driver/device.h"
#include "gpu.h"
#include "worker/verify.h"

namespace lapidary {
namespace {

struct Case {
  const char* why;
  GemmProblem problem;
  const char* program = "d = acc";
};

std::vector<Case> cases() {
  using enum DType;
  using enum GemmLayout;
  std::vector<Case> all;
  for (const GemmLayout layout : {nt, nn, tn, tt}) {
    for (const DType type : {bf16, f16, f32, e4m3})
      all.push_back(
          {"layouts", {.m = 96, .n = 160, .k = 224, .layout = layout, .a = type, .b = type}});
    all.push_back(
        {"odd extents", {.m = 37, .n = 51, .k = 83, .layout = layout, .a = bf16, .b = bf16}});
    all.push_back({"pitches",
                   {.m = 40,
                    .n = 48,
                    .k = 64,
                    .layout = layout,
                    .a = bf16,
                    .b = bf16,
                    .lda = 88,
                    .ldb = 104,
                    .ldd = 72}});
    all.push_back({"odd offsets",
                   {.m = 40,
                    .n = 48,
                    .k = 64,
                    .layout = layout,
                    .a = f16,
                    .b = f16,
                    .offsets = {{"a", 2}, {"b", 6}, {"d", 10}}}});
    all.push_back(
        {"batch", {.m = 24, .n = 40, .k = 56, .batch = 3, .layout = layout, .a = bf16, .b = bf16}});
  }
  all.push_back(
      {"broadcast B",
       {.m = 24, .n = 40, .k = 56, .batch = 3, .a = bf16, .b = bf16, .strides = {{"b", 0}}}});
  all.push_back({"tf32", {.m = 64, .n = 96, .k = 128, .numerics = {.tf32 = true}}});
  all.push_back({"f16 accumulation",
                 {.m = 64, .n = 96, .k = 128, .a = f16, .b = f16, .numerics = {.f16_acc = true}}});
  all.push_back({"f32 out", {.m = 64, .n = 96, .k = 4096, .a = bf16, .b = bf16, .d = f32}});
  for (const DType out : {bf16, f32, e4m3}) {
    all.push_back({"fp8 in", {.m = 64, .n = 96, .k = 256, .a = e4m3, .b = e4m3, .d = out}});
    all.push_back({"fp8 mixed", {.m = 64, .n = 96, .k = 256, .a = e5m2, .b = e4m3, .d = out}});
  }
  all.push_back(
      {"fast fp8",
       {.m = 64, .n = 96, .k = 2048, .a = e4m3, .b = e4m3, .numerics = {.fast_fp8 = true}}});
  for (const std::int64_t m : {1, 16, 64, 256}) {
    all.push_back(
        {"tensor scales",
         {.m = m, .n = 256, .k = 512, .a = e4m3, .b = e4m3, .scales = ScaleMode::tensor}});
    all.push_back({"row scales",
                   {.m = m, .n = 256, .k = 512, .a = e4m3, .b = e4m3, .scales = ScaleMode::row}});
    all.push_back({"block scales",
                   {.m = m, .n = 256, .k = 512, .a = e4m3, .b = e4m3, .scales = ScaleMode::block}});
  }
  all.push_back({"block scales, m no multiple of 4",
                 {.m = 63, .n = 256, .k = 512, .a = e4m3, .b = e4m3, .scales = ScaleMode::block}});
  all.push_back(
      {"block scales, n no multiple of 128",
       {.m = 64, .n = 2112, .k = 7168, .a = e4m3, .b = e4m3, .scales = ScaleMode::block}});
  for (const char* program :
       {"d = acc + bias[n]", "d = relu(acc)", "d = relu(acc + bias[n])", "d = gelu_tanh(acc)",
        "d = gelu_tanh(acc + bias[n])", "d = gelu(acc + bias[n])", "d = 0.5 * acc",
        "d = alpha * acc", "d = alpha * acc + beta * c[m,n]", "d = acc + c[m,n]",
        "d = acc + bias[n] + c[m,n]", "d = relu(alpha * acc + beta * c[m,n] + bias[n])",
        "h = acc + bias[n]; pre[m,n] = h; d = gelu_tanh(h)", "d = dgelu_tanh(x[m,n]) * acc",
        "h = dgelu_tanh(x[m,n]) * acc; d = h; db[n] = sum(h, m)", "d = silu(gate) * up"}) {
    GemmProblem p{.m = 96, .n = 128, .k = 192, .a = bf16, .b = bf16};
    p.types = {{"pre", bf16}, {"x", bf16}, {"db", bf16}};
    const std::string_view text = program;
    for (const char* name : {"pre", "x", "db"}) {
      if (text.find(std::string(name) + "[") == text.npos) p.types.erase(name);
    }
    all.push_back({"epilogues", p, program});
    p.batch = 2;
    all.push_back({"epilogues in a batch", p, program});
  }
  for (const char* program :
       {"d = dgelu_tanh(x[m,n]) * acc", "h = dgelu_tanh(x[m,n]) * acc; d = h; db[n] = sum(h, m)"}) {
    GemmProblem p{.m = 96, .n = 128, .k = 192, .a = bf16, .b = bf16, .numerics = {.rounded = true}};
    p.types = {{"x", bf16}};
    if (std::string_view(program).find("db") != std::string_view::npos) p.types["db"] = bf16;
    all.push_back({"dgelu, rounded", p, program});
  }
  all.push_back({"fp8 out, scaled",
                 {.m = 64, .n = 96, .k = 256, .a = e4m3, .b = e4m3, .d = e4m3},
                 "d = acc * s"});
  all.push_back({"in place",
                 {.m = 96, .n = 128, .k = 192, .a = bf16, .b = bf16, .alias = {"c=d"}},
                 "d = acc + c[m,n]"});
  all.push_back({"few SMs", {.m = 256, .n = 512, .k = 256, .a = bf16, .b = bf16, .sms = 16}});
  all.push_back(
      {"no workspace", {.m = 16, .n = 512, .k = 4096, .a = bf16, .b = bf16, .workspace = 0}});
  all.push_back({"k is zero", {.m = 16, .n = 32, .k = 0, .a = bf16, .b = bf16}});
  all.push_back({"one element", {.m = 1, .n = 1, .k = 1, .a = bf16, .b = bf16}});
  all.push_back({"one column", {.m = 300, .n = 1, .k = 70, .a = f16, .b = f16}});
  all.push_back({"large", {.m = 2048, .n = 1536, .k = 1024, .a = bf16, .b = bf16}});
  return all;
}

/// Programs behind which cuBLASLt was seen to round the accumulator to D's type.
bool may_be_rounded(const GemmProblem& problem) {
  if (problem.numerics.rounded) return false;
  const std::string program = text(problem.epilogue);
  const bool odd_rows = columns(problem) % 8 != 0 || !problem.offsets.empty();
  return program.find("dgelu") != program.npos || (program != "d = acc" && odd_rows);
}

TEST(GpuVerify, WhatIsOfferedIsRight) {
  if (const std::string why = no_gpu(); !why.empty()) GTEST_SKIP() << why;
  auto device = driver::open_device("cuda:0");
  ASSERT_TRUE(device) << device.error();
  const DeviceInfo& info = (*device)->info();
  int proved = 0, wrong = 0, without = 0;
  std::map<std::string, int> reasons;
  for (const Case& c : cases()) {
    GemmProblem p = c.problem;
    const auto epilogue = parse_epilogue(c.program, p.scales != ScaleMode::none);
    ASSERT_TRUE(epilogue) << epilogue.error();
    p.epilogue = *epilogue;
    const auto problem = checked(p);
    ASSERT_TRUE(problem) << c.why << ": " << problem.error();
    SCOPED_TRACE(std::string(c.why) + ": " + text(*problem));
    auto verifier = worker::Verifier::make(*problem, **device, {});
    ASSERT_TRUE(verifier) << verifier.error();
    bool any = false;
    for (const backends::Backend* backend : backends::all()) {
      if (!backend->serves(info)) continue;
      for (const Offer& offer : backend->candidates(*problem, info)) {
        if (!offer.refused.empty()) {
          ++reasons[offer.refused];
          continue;
        }
        auto executable = backend->compile(*problem, offer.candidate.config, info);
        ASSERT_TRUE(executable) << text(offer.candidate) << ": " << executable.error();
        EXPECT_LE((*executable)->workspace_bytes(), offer.workspace_bytes);
        const auto verdict = verifier->verify(**executable);
        ASSERT_TRUE(verdict) << text(offer.candidate) << ": " << verdict.error();
        // A library may round where it does not say so (docs/backends.md): the verifier's business,
        // and known of these programs alone.
        const bool may_round = may_be_rounded(*problem);
        EXPECT_TRUE(verdict->passed || may_round)
            << text(offer.candidate) << ": " << verdict->check << ": " << verdict->reason;
        any = any || verdict->passed;
        ++(verdict->passed ? proved : wrong);
      }
    }
    if (!any) {
      ++without;
      std::printf("no candidate: %s: %s\n", c.why, summary(*problem).c_str());
    }
  }
  std::printf("%d candidates proved, %d found wrong; %d problems without one\n", proved, wrong,
              without);
  for (const auto& [reason, count] : reasons)
    std::printf("  %d refused: %s\n", count, reason.c_str());
  EXPECT_GT(proved, 100);
}

}  // namespace
}  // namespace lapidary
