// Programs and what cuBLASLt is asked to compute of them, or the exact reason that it is not.
#include "backends/cublaslt_match.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "backends/testing_problem.h"
#include "support/files.h"

namespace lapidary::backends {
namespace {

using cublaslt_match::Fused;
using cublaslt_match::match;

/// "4: alpha 1, beta 0, bias b": the epilogue's number, the factors, and which operands there are.
std::string text(const Fused& f) {
  const auto factor = [](float number, const std::string& operand) {
    return operand.empty() ? fmt::format("{}", number) : operand;
  };
  std::string out = fmt::format("{}: alpha {}, beta {}", f.epilogue,
                                factor(f.alpha, f.alpha_operand), factor(f.beta, f.beta_operand));
  for (const auto& [what, operand] :
       {std::pair("c", &f.c), std::pair("bias", &f.bias), std::pair("aux", &f.aux),
        std::pair("scale_d", &f.scale_d), std::pair("amax", &f.amax)}) {
    if (!operand->empty()) out += fmt::format(", {} {}", what, *operand);
  }
  return out + (f.multiplies_at_zero ? ", multiplies at zero" : "");
}

std::string outcome(const GemmProblem& problem) {
  const Result<Fused> fused = match(problem);
  if (!fused) {
    EXPECT_EQ(fused.error().code, ErrorCode::unsupported);
  }
  return fused ? text(*fused) : fused.error().message;
}

struct Case {
  const char* program;
  const char* expected;
  const char* more = R"("a":"bf16","b":"bf16")";
};

constexpr const char* kBf16R = R"("a":"bf16","b":"bf16","types":{"r":"bf16"})";
constexpr const char* kBf16X = R"("a":"bf16","b":"bf16","types":{"x":"bf16"})";
constexpr const char* kFp8 = R"("a":"e4m3","b":"e4m3","d":"e4m3")";
constexpr const char* kFp8Bias = R"("a":"e4m3","b":"e5m2","d":"e4m3","types":{"bias":"bf16"})";

constexpr Case kMatched[] = {
    {"d = acc", "1: alpha 1, beta 0"},
    {"d = 2 * acc", "1: alpha 2, beta 0"},
    {"d = 0.1 * acc", "1: alpha 0.1, beta 0"},
    {"d = -acc / 4", "1: alpha -0.25, beta 0"},
    {"d = 2 * 3 * acc", "1: alpha 6, beta 0"},
    {"d = (1 + 1 / 2) * acc", "1: alpha 1.5, beta 0"},
    {"d = -(-acc)", "1: alpha 1, beta 0"},
    {"d = acc + c[m,n]", "1: alpha 1, beta 1, c c"},
    {"d = acc - r[m,n]", "1: alpha 1, beta -1, c r", kBf16R},
    {"d = r[m,n] - 0.5 * acc", "1: alpha -0.5, beta 1, c r", kBf16R},
    {"d = 2 * (acc + c[m,n])", "1: alpha 2, beta 2, c c"},
    {"d = acc + beta * c[m,n]", "1: alpha 1, beta beta, c c"},
    {"h = beta * c[m,n]; d = 2 * acc + h", "1: alpha 2, beta beta, c c"},
    {"d = alpha * acc", "1: alpha alpha, beta 0, multiplies at zero"},
    {"d = alpha * acc + beta * c[m,n]", "1: alpha alpha, beta beta, c c, multiplies at zero"},
    {"d = s * (acc + c[m,n])", "1: alpha s, beta s, c c, multiplies at zero"},
    {"d = acc + bias[n]", "4: alpha 1, beta 0, bias bias"},
    {"d = acc + r[n]", "4: alpha 1, beta 0, bias r", kBf16R},
    {"d = acc + bias[n] + c[m,n]", "4: alpha 1, beta 1, c c, bias bias"},
    {"d = bias[n] + beta * c[m,n] + 2 * acc", "4: alpha 2, beta beta, c c, bias bias"},
    {"d = relu(acc)", "2: alpha 1, beta 0"},
    {"d = relu(acc + bias[n])", "6: alpha 1, beta 0, bias bias"},
    {"d = max(acc, 0)", "2: alpha 1, beta 0"},
    {"d = max(-0, acc + bias[n])", "6: alpha 1, beta 0, bias bias"},
    {"d = max(acc, 1 - 1)", "2: alpha 1, beta 0"},
    // Below a function alpha = 0 keeps NaN, in our language as in the library.
    {"d = relu(alpha * acc + bias[n])", "6: alpha alpha, beta 0, bias bias"},
    {"x = acc; y = x + bias[n]; d = relu(y)", "6: alpha 1, beta 0, bias bias"},
    {"d = gelu_tanh(acc)", "32: alpha 1, beta 0"},
    {"d = gelu_tanh(2 * acc + c[m,n] + bias[n])", "36: alpha 2, beta 1, c c, bias bias"},
    {"x[m,n] = acc; d = gelu_tanh(acc)", "160: alpha 1, beta 0, aux x", kBf16X},
    {"h = acc + bias[n]; d = gelu_tanh(h); x[m,n] = h", "164: alpha 1, beta 0, bias bias, aux x",
     kBf16X},
    {"h = acc + bias[n]; d = gelu_tanh(h); x[m,n] = bias[n] + acc",
     "164: alpha 1, beta 0, bias bias, aux x", kBf16X},
    {"d = dgelu_tanh(x[m,n]) * acc", "192: alpha 1, beta 0, aux x", kBf16X},
    {"d = 2 * acc * dgelu_tanh(x[m,n]) / 8", "192: alpha 0.25, beta 0, aux x", kBf16X},
    {"d = -dgelu_tanh(x[m,n]) * (acc + c[m,n])", "192: alpha -1, beta -1, c c, aux x", kBf16X},
    {"h = acc * dgelu_tanh(x[m,n]); d = h; g[n] = sum(h, m)", "208: alpha 1, beta 0, bias g, aux x",
     R"("a":"bf16","b":"bf16","types":{"x":"bf16","g":"bf16"})"},
    {"d = acc", "1: alpha 1, beta 0", R"("a":"e4m3","b":"e5m2","scales":"tensor")"},
    {"d = acc + bias[n]", "4: alpha 1, beta 0, bias bias",
     R"("a":"e4m3","b":"e4m3","scales":"row")"},
    {"d = acc", "1: alpha 1, beta 0", R"("a":"e4m3","b":"e4m3","scales":"block")"},
    {"d = acc * s", "1: alpha 1, beta 0, scale_d s, multiplies at zero", kFp8},
    {"d = s * (2 * acc + bias[n])", "4: alpha 2, beta 0, bias bias, scale_d s, multiplies at zero",
     kFp8Bias},
    {"d = relu(acc + bias[n]) * s", "6: alpha 1, beta 0, bias bias, scale_d s, multiplies at zero",
     kFp8Bias},
    {"h = alpha * acc; d = h * s; amax = max(abs(h))",
     "1: alpha alpha, beta 0, scale_d s, amax amax, multiplies at zero", kFp8},
    {"h = s * acc; d = h * alpha; x = abs(h); amax = max(x)",
     "1: alpha s, beta 0, scale_d alpha, amax amax, multiplies at zero", kFp8},
    {"h = s * acc; d = h; amax = max(abs(h))", "1: alpha s, beta 0, amax amax, multiplies at zero",
     kFp8},
    {"h = gelu_tanh(acc); d = h; amax = max(abs(h))", "32: alpha 1, beta 0, amax amax", kFp8},
    {"d = acc + c[m,n]", "1: alpha 1, beta 1, c c", R"("a":"bf16","b":"bf16","alias":["c=d"])"},
};

constexpr const char* kGelu = "cuBLASLt's GELU is the tanh form: it has gelu_tanh, not gelu";
constexpr const char* kOneActivation = "cuBLASLt applies one activation, as the last step";
constexpr const char* kNoOutput = "cuBLASLt writes no such output beside d";
constexpr const char* kNoReduction = "cuBLASLt has no such reduction";
constexpr const char* kOneScalar = "cuBLASLt takes one scalar operand as a factor";
constexpr const char* kNotBoth =
    "cuBLASLt takes a number or a scalar operand as a factor, not both";
constexpr const char* kFactor = "cuBLASLt takes a factor that is finite, not 0 and exact in f32";
constexpr const char* kUnreadC = "cuBLASLt does not read an [m,n] operand whose factor is 0";

constexpr Case kRefused[] = {
    {"d = silu(gate) * up", "cuBLASLt has no gated epilogue"},
    {"d = gelu(acc)", kGelu},
    {"d = dgelu(x[m,n]) * acc", "cuBLASLt's GELU is the tanh form: it has dgelu_tanh, not dgelu",
     kBf16X},
    {"d = silu(acc + bias[n])", "cuBLASLt has no epilogue with 'silu'"},
    {"d = drelu(acc)", "cuBLASLt has no epilogue with 'drelu'"},
    {"d = leaky_relu(acc, 0.1)", "cuBLASLt has no epilogue with 'leaky_relu'"},
    {"d = clamp(acc, 0, 6)", "cuBLASLt has no epilogue with 'clamp'"},
    {"d = select(acc > 0, acc, 0)", "cuBLASLt has no epilogue with '>'"},
    {"d = cast(acc, f16)", "cuBLASLt has no epilogue with 'cast'"},
    {"d = min(acc, 0)", "cuBLASLt has no epilogue with 'min'"},
    {"d = max(acc, 1)", "cuBLASLt has no epilogue with 'max', but for max(x, 0)"},
    {"d = max(acc, c[m,n])", "cuBLASLt has no epilogue with 'max', but for max(x, 0)"},
    {"d = acc + row[m]", "cuBLASLt takes no operand [m]"},
    {"d = acc * v[n]", "cuBLASLt multiplies by scalars only"},
    {"d = acc * acc", "cuBLASLt multiplies by scalars only"},
    {"d = relu(acc) * c[m,n]", "cuBLASLt multiplies by scalars only"},
    {"d = acc + c[m,n] + r[m,n]", "cuBLASLt adds one [m,n] operand", kBf16R},
    {"d = acc + c[m,n] + c[m,n]", "cuBLASLt adds one [m,n] operand"},
    {"d = acc + bias[n] + r[n]", "cuBLASLt adds one [n] operand", kBf16R},
    {"d = acc + acc", "cuBLASLt takes acc once"},
    {"d = acc + 1", "cuBLASLt adds no scalars"},
    {"d = acc - s", "cuBLASLt adds no scalars"},
    {"d = relu(acc) + c[m,n]", kOneActivation},
    {"d = relu(gelu_tanh(acc))", kOneActivation},
    {"d = dgelu_tanh(x[m,n]) + acc", kOneActivation, kBf16X},
    {"d = relu(acc) * 2", "cuBLASLt multiplies after an activation only where D is e4m3 or e5m2"},
    {"d = relu(acc) * s", "cuBLASLt multiplies after an activation only where D is e4m3 or e5m2"},
    {"d = relu(acc) * 2", "cuBLASLt scales D by an operand, not by a number", kFp8},
    {"d = relu(acc) * s * t", kOneScalar, kFp8},
    {"d = acc / scale_d", "cuBLASLt cannot divide by an operand"},
    {"d = acc / c[m,n]", "cuBLASLt cannot divide by an operand"},
    {"d = acc / 3", "cuBLASLt cannot divide, and only a power of two has an exact reciprocal"},
    {"d = acc / 0", "cuBLASLt cannot divide, and only a power of two has an exact reciprocal"},
    {"d = c[m,n]", "cuBLASLt computes nothing without acc"},
    {"d = bias[n]", "cuBLASLt computes nothing without acc"},
    {"d = 0", "cuBLASLt computes nothing without acc"},
    {"d = relu(c[m,n])", "cuBLASLt computes nothing without acc"},
    {"d = dgelu_tanh(x[m,n])", "cuBLASLt computes nothing without acc", kBf16X},
    {"d = relu(s) * acc", "cuBLASLt computes no scalars"},
    {"d = alpha * beta * acc", kOneScalar},
    {"d = r * s * t * acc", kOneScalar},
    {"d = 2 * alpha * acc", kNotBoth},
    {"d = acc - beta * c[m,n]", kNotBoth},
    {"d = acc + 0 * c[m,n]", kFactor},
    {"d = (1e+38 * 10) * acc", kFactor},
    {"d = acc * 0.1 * 0.3", kFactor},
    {"d = acc + 2 * bias[n]", "cuBLASLt adds an [n] operand as it is"},
    {"d = acc + s * bias[n]", "cuBLASLt adds an [n] operand as it is"},
    // beta = 0 keeps what NaN there is in c, and the library would not look.
    {"d = gelu_tanh(acc + beta * c[m,n])", kUnreadC},
    {"d = relu(acc + beta * c[m,n])", kUnreadC},
    {"d = dgelu_tanh(x[m,n]) * (acc + beta * c[m,n])", kUnreadC, kBf16X},
    {"d = dgelu_tanh(acc) * acc", "cuBLASLt takes dgelu_tanh of an [m,n] operand only"},
    {"d = dgelu_tanh(v[n]) * acc", "cuBLASLt takes dgelu_tanh of an [m,n] operand only"},
    {"d = dgelu_tanh(x[m,n]) * (acc + bias[n])", "cuBLASLt adds no [n] operand under dgelu_tanh",
     kBf16X},
    {"h = acc; d = h; x[m,n] = h", kNoOutput, kBf16X},
    {"d = relu(acc); x[m,n] = acc", kNoOutput, kBf16X},
    {"d = gelu_tanh(acc); x[m,n] = 2 * acc", kNoOutput, kBf16X},
    {"d = gelu_tanh(acc); x[m,n] = acc; y[m,n] = acc", kNoOutput,
     R"("a":"bf16","b":"bf16","types":{"x":"bf16","y":"bf16"})"},
    {"d = acc; y[m] = row[m]", kNoOutput},
    {"h = acc + c[m,n]; d = h; sumsq[m] = sum(h * h, n)", kNoReduction},
    {"d = acc; g[n] = sum(acc, m)", kNoReduction},
    {"h = acc * dgelu_tanh(x[m,n]); d = h; g[m] = sum(h, n)", kNoReduction, kBf16X},
    {"h = acc * dgelu_tanh(x[m,n]); d = h; g[n] = sum(acc, m)", kNoReduction, kBf16X},
    {"d = acc; low = min(acc)", kNoReduction},
    {"d = acc; amax = max(abs(acc))", kNoReduction},
    {"d = acc; top = max(acc); amax = max(abs(acc))", kNoReduction, kFp8},
    {"d = relu(acc); amax = max(abs(acc))", kNoReduction, kFp8},
    {"d = acc; amax = max(abs(acc)); again = max(abs(acc))", kNoReduction, kFp8},
    {"d = acc + bias[n]", "cuBLASLt adds an [n] operand of D's type only",
     R"("a":"bf16","b":"bf16","types":{"bias":"f32"})"},
    {"d = acc + c[m,n]", "cuBLASLt adds an [m,n] operand of D's type only",
     R"("a":"bf16","b":"bf16","c":"f32")"},
    {"d = gelu_tanh(acc); x[m,n] = acc", "cuBLASLt writes what gelu_tanh takes in D's type only"},
    {"d = dgelu_tanh(x[m,n]) * acc", "cuBLASLt takes dgelu_tanh of D's type only"},
    {"h = acc * dgelu_tanh(x[m,n]); d = h; g[n] = sum(h, m)",
     "cuBLASLt writes sums over m in D's type only", kBf16X},
    {"d = acc + s * c[m,n]", "cuBLASLt takes scalars in f32",
     R"("a":"bf16","b":"bf16","types":{"s":"bf16"})"},
    {"d = acc + s * c[m,n]", "cuBLASLt takes one scalar for the whole batch",
     R"("a":"bf16","b":"bf16","batch":2,"stride_s":1)"},
    {"d = acc; amax = max(abs(acc))", "cuBLASLt takes one scalar for the whole batch",
     R"("a":"e4m3","b":"e4m3","d":"e4m3","batch":2)"},
    {"d = dgelu_tanh(x[m,n]) * acc", "cuBLASLt lets C and D share memory, no others",
     R"("a":"bf16","b":"bf16","types":{"x":"bf16"},"alias":["x=d"])"},
    {"d = dgelu_tanh(c[m,n]) * (acc + c[m,n])", "cuBLASLt lets C and D share memory, no others",
     R"("a":"bf16","b":"bf16","alias":["c=d"])"},
    {"d = acc", "cuBLASLt multiplies matrices of one type, or e4m3 and e5m2",
     R"("a":"bf16","b":"f32")"},
    {"d = acc", "cuBLASLt scales matrices of e4m3 and e5m2 only",
     R"("a":"bf16","b":"bf16","scales":"tensor")"},
};

/// The same outcome at any extents: k is a whole number of blocks of scales in both.
void expect_outcomes(std::span<const Case> cases) {
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.program) + " with " + c.more);
    for (const char* extents : {R"("m":64,"n":256,"k":512)", R"("m":5,"n":38,"k":1024)"}) {
      EXPECT_EQ(outcome(problem_of(
                    fmt::format(R"({{{},{},"epilogue":"{}"}})", extents, c.more, c.program))),
                c.expected);
    }
  }
}

TEST(CublasLtMatch, SaysProgramsInTheLibrarysWords) { expect_outcomes(kMatched); }

TEST(CublasLtMatch, RefusesTheOthersWithAReason) { expect_outcomes(kRefused); }

TEST(CublasLtMatch, KnowsEveryProgramOfTheSuite) {
  const std::map<std::string, std::string> expected = {
      {"epi.0", kGelu},
      {"epi.1", "36: alpha 1, beta 0, bias bias"},
      {"epi.2", "6: alpha 1, beta 0, bias bias"},
      {"epi.3", "1: alpha alpha, beta beta, c c, multiplies at zero"},
      {"epi.4", "4: alpha 1, beta 1, c c, bias bias"},
      {"epi.5", "cuBLASLt has no gated epilogue"},
      {"epi.6", "cuBLASLt has no gated epilogue"},
      {"epi.7", kGelu},
      {"epi.8", kNoReduction},
      {"epi.9", "cuBLASLt takes no operand [m]"},
      {"epi.10", "cuBLASLt has no epilogue with 'sigmoid'"},
      {"epi.11", "cuBLASLt has no epilogue with 'clamp'"},
      {"epi.12", kNoReduction},
  };
  const std::string path = LAPIDARY_SOURCE_DIR "/suites/epilogues.json";
  const auto json = read_file(path);
  ASSERT_TRUE(json) << json.error();
  const auto suite = suite_from_json(*json, path);
  ASSERT_TRUE(suite) << suite.error();
  std::set<std::string> seen;
  for (const SuiteLine& line : suite->lines) {
    SCOPED_TRACE(line.name + ": " + summary(line.problem));
    ASSERT_TRUE(expected.contains(line.name));
    EXPECT_EQ(outcome(line.problem), expected.at(line.name));
    seen.insert(line.name);
  }
  EXPECT_EQ(seen.size(), expected.size());
}

TEST(CublasLtMatch, TakesBlockScalesOfBWhoseRowsNeedNoPadding) {
  const auto of = [](int n, int k) {
    return outcome(problem_of(
        fmt::format(R"({{"m":64,"n":{},"k":{},"a":"e4m3","b":"e4m3","scales":"block"}})", n, k)));
  };
  const std::string refused = "cuBLASLt wants rows of B's block scales padded to a multiple of 4";
  EXPECT_EQ(of(256, 512), "1: alpha 1, beta 0");
  EXPECT_EQ(of(256, 496), "1: alpha 1, beta 0");  // a short last block counts
  EXPECT_EQ(of(256, 384), refused);
  EXPECT_EQ(of(256, 528), refused);
  EXPECT_EQ(of(129, 384), refused);
  EXPECT_EQ(of(128, 384), "1: alpha 1, beta 0");  // one row
}

TEST(CublasLtMatch, IsDoneInLinearTime) {
  for (const char* start : {"acc + 0", "acc * 2", "1 + 1", "c[m,n]"}) {
    std::string program = fmt::format("h0 = {}; ", start);
    for (int i = 1; i <= 40; ++i) program += fmt::format("h{0} = h{1} + h{1}; ", i, i - 1);
    program += "d = acc + h40";
    const GemmProblem problem =
        problem_of(fmt::format(R"({{"m":4,"n":5,"k":6,"epilogue":"{}"}})", program));
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_FALSE(match(problem)) << program;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << program;
  }
  std::string deep = "d = acc";
  for (int i = 0; i < 2000; ++i) deep += " * 1";
  EXPECT_EQ(outcome(problem_of(fmt::format(R"({{"m":4,"n":5,"k":6,"epilogue":"{}"}})", deep))),
            "1: alpha 1, beta 0");
}

}  // namespace
}  // namespace lapidary::backends
