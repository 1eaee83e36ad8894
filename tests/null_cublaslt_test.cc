// The cuBLASLt backend on the null driver: what it offers, that every config comes back from its
// text, and how it refuses. That results are right is for tests with the verifier.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "backends/backend.h"
#include "backends/testing_problem.h"
#include "candidate/json.h"
#include "driver/cublaslt_api.h"
#include "driver/device.h"

namespace lapidary {
namespace {

using backends::problem_of;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Before anything is loaded.
const bool kNullDriver = [] {
  for (const char* name : {"LAPIDARY_LIBCUDA", "LAPIDARY_CUBLASLT", "LAPIDARY_NVML"})
    ::setenv(name, LAPIDARY_NULL_CUDA, 1);
  return true;
}();

const backends::Backend& cublaslt() {
  for (const backends::Backend* backend : backends::all()) {
    if (backend->name() == "cublaslt") return *backend;
  }
  ADD_FAILURE() << "no backend of that name";
  std::abort();
}

class NullCublasLt : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(kNullDriver);
    auto device = driver::open_device("cuda:0");
    ASSERT_TRUE(device) << device.error();
    device_ = std::move(*device);
  }
  const DeviceInfo& info() const { return device_->info(); }
  std::vector<Offer> offers(const std::string& json) const {
    return cublaslt().candidates(problem_of(json), info());
  }
  /// The one reason why nothing is offered.
  std::string refusal(const std::string& json) const {
    const std::vector<Offer> all = offers(json);
    EXPECT_EQ(all.size(), 1u) << json;
    return all.empty() ? "" : all[0].refused;
  }
  /// Why a config cannot be compiled; "" when it can.
  std::string compile_error(const std::string& json, const Config& config) const {
    const auto made = cublaslt().compile(problem_of(json), config, info());
    return made ? "" : fmt::format("{}: {}", name(made.error().code), made.error().message);
  }

  std::unique_ptr<driver::Device> device_;
};

constexpr const char* kPlain = R"({"m":64,"n":96,"k":128,"a":"bf16","b":"bf16"})";

TEST_F(NullCublasLt, TellsItsVersion) {
  const auto version = cublaslt().version();
  ASSERT_TRUE(version) << version.error();
  EXPECT_EQ(*version, "cuBLASLt 13.1.0 at " LAPIDARY_NULL_CUDA);
  EXPECT_TRUE(cublaslt().serves(info()));
  EXPECT_FALSE(cublaslt().serves({.id = "cpu"}));
}

TEST_F(NullCublasLt, CompilesWhatItOffersFromTheTextOfItsConfig) {
  int compiled = 0;
  for (
      const char* json : {
          kPlain,
          R"({"m":37,"n":51,"k":83,"a":"f16","b":"f16","layout":"tn"})",
          R"({"m":64,"n":96,"k":128,"lda":132,"ldb":140,"ldd":100,"layout":"nn"})",
          R"({"m":64,"n":96,"k":128,"layout":"tt","numerics":["tf32"]})",
          R"({"m":64,"n":96,"k":128,"a":"f16","b":"f16","numerics":["f16_acc"]})",
          R"({"m":64,"n":96,"k":128,"a":"e4m3","b":"e5m2","numerics":["fast_fp8"]})",
          R"({"m":64,"n":96,"k":128,"a":"e4m3","b":"e4m3","scales":"tensor"})",
          R"({"m":64,"n":96,"k":128,"a":"e4m3","b":"e4m3","scales":"row"})",
          R"({"m":64,"n":96,"k":512,"a":"e4m3","b":"e4m3","scales":"block"})",
          R"({"m":6,"n":40,"k":56,"a":"bf16","b":"bf16","batch":3,"stride_b":0})",
          R"j({"m":64,"n":96,"k":128,"a":"bf16","b":"bf16","epilogue":"d = relu(alpha * acc + bias[n])"})j",
          R"j({"m":64,"n":96,"k":128,"a":"bf16","b":"bf16","epilogue":"d = acc + beta * c[m,n]"})j",
          R"j({"m":64,"n":96,"k":128,"a":"e4m3","b":"e4m3","d":"e4m3","epilogue":"d = acc; amax = max(abs(acc))"})j",
      }) {
    SCOPED_TRACE(json);
    const GemmProblem problem = problem_of(json);
    const std::vector<Offer> all = offers(json);
    double last_us = 0;
    for (const Offer& offer : all) {
      SCOPED_TRACE(text(offer.candidate));
      ASSERT_EQ(offer.refused, "");
      EXPECT_GT(offer.predicted_us, last_us);  // the library's order
      last_us = offer.predicted_us;
      const auto config = config_from_json(text(offer.candidate.config));
      ASSERT_TRUE(config) << config.error();
      EXPECT_EQ(*config, offer.candidate.config);
      const auto made = cublaslt().compile(problem, *config, info());
      ASSERT_TRUE(made) << made.error();
      EXPECT_EQ((*made)->workspace_bytes(), offer.workspace_bytes);
      ++compiled;
    }
    EXPECT_EQ(offers(json), all);
  }
  EXPECT_GE(compiled, 30);
}

TEST_F(NullCublasLt, NamesTheAttributesOfAnAlgorithm) {
  const std::vector<Offer> all = offers(kPlain);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(text(all[0].candidate.config),
            R"({"cluster":4,"custom":1,"id":66,"split_k":1,"stages":35,"tile":15})");
  EXPECT_EQ(text(all[1].candidate.config),
            R"({"id":24,"inner":1,"reduction":2,"split_k":2,"tile":20})");
  EXPECT_EQ(all[1].workspace_bytes, 64 * 96 * 2 * 4);
}

TEST_F(NullCublasLt, AsksForWhatTheNumericsAdmit) {
  const auto variants = [&](const std::string& json) {
    std::string found;
    for (const Offer& offer : offers(json)) {
      Config config = offer.candidate.config;
      std::string variant;
      for (const char* name : {"compute", "fast"}) {
        if (const auto field = config.find(name); field != config.end())
          variant += text(Config{*field});
      }
      if (variant.empty()) variant = "f32";
      if (!found.ends_with(variant)) found += (found.empty() ? "" : " ") + variant;
    }
    return found;
  };
  const auto of = [&](const std::string& type, const std::string& numerics,
                      const std::string& more = "") {
    return variants(
        fmt::format(R"({{"m":64,"n":96,"k":128,"a":"{0}","b":"{0}","numerics":[{1}]{2}}})", type,
                    numerics, more));
  };
  const std::string all = R"("tf32","f16_acc","fast_fp8")";
  EXPECT_EQ(of("f32", ""), "f32");
  EXPECT_EQ(of("f32", all), R"({"compute":"tf32"} f32)");
  EXPECT_EQ(of("bf16", all), "f32");
  EXPECT_EQ(of("f16", all), R"({"compute":"f16"} f32)");
  EXPECT_EQ(of("f16", all, R"(,"d":"f32")"), "f32");
  EXPECT_EQ(of("f16", all, R"j(,"epilogue":"d = relu(acc)")j"), R"({"compute":"f16"} f32)");
  for (const char* program : {"d = 2 * acc", "d = acc + c[m,n]", "d = acc + bias[n]",
                              "d = gelu_tanh(acc)", "d = acc + beta * c[m,n]"}) {
    EXPECT_EQ(of("f16", all, fmt::format(R"(,"epilogue":"{}")", program)), "f32") << program;
  }
  EXPECT_EQ(of("e4m3", ""), "f32");
  EXPECT_EQ(of("e4m3", all), R"({"fast":1} f32)");
}

TEST_F(NullCublasLt, RefusesWithOneReason) {
  const std::string nothing = "cuBLASLt is not asked where there is nothing to multiply";
  for (const char* json : {R"({"m":0,"n":4,"k":4})", R"({"m":4,"n":0,"k":4})",
                           R"({"m":4,"n":4,"k":0})", R"({"m":4,"n":4,"k":4,"batch":0})"}) {
    EXPECT_EQ(refusal(json), nothing);
  }
  EXPECT_EQ(refusal(R"({"m":1,"n":1,"k":1,"batch":4294967296,"stride_a":0,"stride_b":0})"),
            "cuBLASLt counts a batch with 31 bits");
  EXPECT_EQ(refusal(R"j({"m":4,"n":8,"k":8,"epilogue":"d = silu(acc)"})j"),
            "cuBLASLt has no epilogue with 'silu'");
  const std::string gelu = R"j(,"a":"bf16","b":"bf16","epilogue":"d = gelu_tanh(acc + bias[n])")j";
  const std::string unaligned =
      "cuBLASLt faults on an [n] operand below gelu_tanh that is not aligned to 4 bytes";
  EXPECT_EQ(refusal(R"({"m":4,"n":8,"k":8,"offset_bias":2)" + gelu + "}"), unaligned);
  EXPECT_EQ(refusal(R"({"m":4,"n":9,"k":8,"batch":2,"stride_bias":9)" + gelu + "}"), unaligned);
  EXPECT_EQ(
      refusal(
          R"j({"m":4,"n":8,"k":8,"a":"bf16","b":"bf16","types":{"x":"bf16"},"offset_x":8,"epilogue":"x[m,n] = acc; d = gelu_tanh(acc)"})j"),
      "cuBLASLt faults on an output before gelu_tanh that is not aligned to 16 bytes");
  for (const std::string& json : {R"({"m":4,"n":8,"k":8,"offset_bias":4)" + gelu + "}",
                                  R"({"m":4,"n":9,"k":8,"stride_bias":9)" + gelu + "}"}) {
    EXPECT_GT(offers(json).size(), 1u) << json;
  }
  const std::string none =
      "cuBLASLt has no algorithm for these types, layout, scales and alignment";
  EXPECT_EQ(refusal(R"({"m":64,"n":96,"k":128,"a":"e4m3","b":"e4m3","layout":"nn"})"), none);
  EXPECT_EQ(refusal(R"({"m":64,"n":96,"k":128,"a":"e5m2","b":"e5m2"})"), none);
  EXPECT_EQ(refusal(R"({"m":64,"n":96,"k":128,"a":"e4m3","b":"e4m3","offset_a":8})"), none);
  EXPECT_EQ(refusal(R"({"m":64,"n":96,"k":128,"a":"bf16","b":"bf16","d":"f16"})"), none);
  const std::vector<Offer> cpu = cublaslt().candidates(problem_of(kPlain), {.id = "cpu"});
  ASSERT_EQ(cpu.size(), 1u);
  EXPECT_EQ(cpu[0].refused, "cuBLASLt serves CUDA devices alone");
}

TEST_F(NullCublasLt, RefusesWhatItDidNotOffer) {
  const Config offered = offers(kPlain)[1].candidate.config;
  ASSERT_EQ(compile_error(kPlain, offered), "");
  const auto with = [&](const char* name, const ConfigValue& value) {
    Config config = offered;
    config[name] = value;
    return config;
  };
  const auto number = [](std::int64_t value) { return ConfigValue(value); };
  EXPECT_THAT(compile_error(kPlain, {}),
              StartsWith("invalid_argument: cublaslt: config {}: no id"));
  EXPECT_THAT(compile_error(kPlain, with("color", number(1))),
              HasSubstr("'color' is none of its fields"));
  EXPECT_THAT(compile_error(kPlain, with("tile", ConfigValue(std::string("large")))),
              HasSubstr("tile must be a whole number from 0 to 4294967295"));
  EXPECT_THAT(compile_error(kPlain, with("cluster", number(65536))),
              HasSubstr("cluster must be a whole number from 0 to 65535"));
  EXPECT_THAT(compile_error(kPlain, with("id", number(-1))), StartsWith("invalid_argument"));
  EXPECT_THAT(compile_error(kPlain, with("id", number(1))),
              HasSubstr("cublasLtMatmulAlgoInit: status 7 (CUBLAS_STATUS_INVALID_VALUE)"));
  EXPECT_EQ(compile_error(kPlain, with("tile", number(99))),
            "unsupported: cublaslt: cublasLtMatmulAlgoCheck: status 15 "
            "(CUBLAS_STATUS_NOT_SUPPORTED)");
  EXPECT_THAT(compile_error(kPlain, with("compute", ConfigValue(std::string("tf32")))),
              HasSubstr("a way that the problem's numerics do not admit"));
  EXPECT_THAT(compile_error(kPlain, with("fast", number(1))),
              HasSubstr("a way that the problem's numerics do not admit"));
  EXPECT_THAT(compile_error(kPlain, with("reduction", number(4))),
              HasSubstr("reduction 4 rounds parts of sums to D's type"));
  EXPECT_EQ(
      compile_error(R"({"m":64,"n":96,"k":128,"a":"bf16","b":"bf16","workspace":1000})", offered),
      "resource_limit: cublaslt: config " + text(offered) +
          " needs 49152 bytes of workspace; the problem allows 1000");
}

TEST_F(NullCublasLt, ScalesAccByAnOperandOnlyWithAlgorithmsThatSplitK) {
  constexpr const char* kScaled =
      R"j({"m":64,"n":96,"k":128,"a":"bf16","b":"bf16","epilogue":"d = alpha * acc"})j";
  const std::string why =
      "cuBLASLt multiplies acc by a scalar operand even where that is 0, and NaN stays NaN";
  int split = 0;
  for (const Offer& offer : offers(kScaled)) {
    SCOPED_TRACE(text(offer.candidate));
    const bool splits = offer.candidate.config.at("split_k") != ConfigValue(std::int64_t{1});
    EXPECT_EQ(offer.refused, splits ? "" : why);
    EXPECT_FALSE(offer.candidate.config.contains("algo"));
    EXPECT_EQ(compile_error(kScaled, offer.candidate.config), splits ? "" : "unsupported: " + why);
    split += splits;
  }
  EXPECT_EQ(split, 1);
}

TEST_F(NullCublasLt, TakesAnAlgorithmBitByBitFromItsOwnVersion) {
  // Made by hand: every algorithm of the null driver is all in its attributes.
  const auto api = driver::cublaslt_api();
  ASSERT_TRUE(api);
  driver::LtHandle handle = nullptr;
  ASSERT_EQ((*api)->create(&handle), 0);
  driver::LtAlgo algo;
  const int bf16 = static_cast<int>(driver::LtType::bf16);
  ASSERT_EQ((*api)->algo_init(handle, static_cast<int>(driver::LtCompute::f32), 0, bf16, bf16, bf16,
                              bf16, 20, &algo),
            0);
  const auto set = [&](driver::LtConfig attribute, std::uint32_t value) {
    ASSERT_EQ((*api)->config_set(&algo, static_cast<int>(attribute), &value, 4), 0);
  };
  set(driver::LtConfig::tile, 18);
  set(driver::LtConfig::stages, 28);
  set(driver::LtConfig::swizzle, 1);
  set(driver::LtConfig::custom, 2);
  std::string digits;
  for (const std::uint64_t word : algo.data) digits += fmt::format("{:016x}", word);
  Config config = {{"id", std::int64_t{20}}, {"algo", digits}, {"lt", std::int64_t{130100}}};
  EXPECT_EQ(compile_error(kPlain, config), "");
  config["lt"] = std::int64_t{130000};
  EXPECT_THAT(
      compile_error(kPlain, config),
      HasSubstr("is of another version of the library; this is 130100: tune with --retune"));
  config.erase("lt");
  EXPECT_THAT(compile_error(kPlain, config), StartsWith("unsupported"));
  config["lt"] = std::int64_t{130100};
  for (const std::string& wrong : {digits.substr(1), digits + "0", std::string(128, 'g')}) {
    config["algo"] = wrong;
    EXPECT_THAT(compile_error(kPlain, config), HasSubstr("algo must be 128 hexadecimal digits"));
  }
}

TEST_F(NullCublasLt, RunsFromManyThreads) {
  const GemmProblem problem = problem_of(
      R"j({"m":8,"n":16,"k":32,"a":"bf16","b":"bf16","epilogue":"d = 2 * acc + beta * c[m,n]"})j");
  const auto made = cublaslt().compile(
      problem, cublaslt().candidates(problem, info())[0].candidate.config, info());
  ASSERT_TRUE(made) << made.error();
  std::vector<driver::Memory> memory;
  std::vector<void*> operands;
  for (const OperandSpec& spec : lapidary::operands(problem)) {
    auto block = driver::Memory::make(*device_, spec.bytes());
    ASSERT_TRUE(block) << block.error();
    // bf16 ones everywhere, and beta about 1.
    ASSERT_TRUE(device_->fill(block->data(), {.row_bytes = spec.bytes()},
                              spec.type == DType::f32 ? 0x3f800000u : 0x3f80u,
                              size_bytes(spec.type)));
    operands.push_back(block->data());
    memory.push_back(std::move(*block));
  }
  std::vector<std::thread> threads;
  std::atomic<int> ran = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const Status status = (*made)->run({.operands = operands, .stream = device_->stream()});
        ran += status ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ran, 200);
  std::vector<std::uint16_t> d(8 * 16);
  ASSERT_TRUE(device_->download(d.data(), operands.back(), 256));
  for (const std::uint16_t bits : d) ASSERT_EQ(bits, 0x4282);  // 65
}

}  // namespace
}  // namespace lapidary
