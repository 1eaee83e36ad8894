// Every backend's every legal candidate, against a float64 loop of this file's own, on small
// integers (bit for bit) over types, layouts, pitches, batch, scales and programs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <new>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu_common.h"
#include "backends/library_gemm.h"
#include "backends/testing_memory.h"
#include "backends/testing_problem.h"
#include "numeric/numeric.h"
#include "support/random.h"

namespace lapidary::backends {
namespace {

struct Case {
  const char* why;
  const char* json;
};

constexpr Case kCases[] = {
    {"one of everything", R"j({"m":1,"n":1,"k":1})j"},
    {"f32, tails in all extents", R"j({"m":37,"n":131,"k":77})j"},
    {"bf16, one row", R"j({"m":1,"n":300,"k":513,"a":"bf16","b":"bf16"})j"},
    {"bf16, few rows", R"j({"m":5,"n":67,"k":1100,"a":"bf16","b":"bf16"})j"},
    {"bf16, two row tiles", R"j({"m":250,"n":70,"k":130,"a":"bf16","b":"bf16"})j"},
    {"f16, nn", R"j({"m":33,"n":65,"k":40,"a":"f16","b":"f16","layout":"nn"})j"},
    {"bf16, tn", R"j({"m":33,"n":65,"k":40,"a":"bf16","b":"bf16","layout":"tn"})j"},
    {"f32, tt, few rows", R"j({"m":3,"n":65,"k":40,"layout":"tt"})j"},
    {"e4m3 times e5m2", R"j({"m":9,"n":31,"k":50,"a":"e4m3","b":"e5m2","d":"f32"})j"},
    {"pitches", R"j({"m":17,"n":19,"k":23,"lda":31,"ldb":29,"ldd":41,"a":"bf16","b":"bf16"})j"},
    {"batch, B shared", R"j({"m":7,"n":20,"k":33,"batch":3,"stride_b":0})j"},
    {"K = 0 gives the epilogue of 0", R"j({"m":4,"n":5,"k":0,"epilogue":"d = acc + bias[n]"})j"},
    {"tensor scales",
     R"j({"m":6,"n":40,"k":64,"a":"e4m3","b":"e4m3","d":"f32","scales":"tensor"})j"},
    {"row scales", R"j({"m":6,"n":40,"k":64,"a":"e4m3","b":"e4m3","d":"f32","scales":"row"})j"},
    {"block scales, short last block",
     R"j({"m":6,"n":140,"k":300,"a":"e4m3","b":"e4m3","d":"f32","scales":"block"})j"},
    {"gated", R"j({"m":6,"n":140,"k":30,"d":"f32","epilogue":"d = relu(gate) * up"})j"},
    {"gated, row scales",
     R"j({"m":6,"n":20,"k":30,"d":"f32","scales":"row","epilogue":"d = gate * up"})j"},
    {"residual and bias",
     R"j({"m":6,"n":140,"k":30,"epilogue":"d = 2 * acc + bias[n] - c[m,n] + row[m]"})j"},
    {"reductions",
     R"j({"m":130,"n":300,"k":5,"epilogue":"d = acc; s[m] = sum(acc, n); t[n] = max(acc, m); u = min(acc)"})j"},
    {"chunks with tails",
     R"j({"m":300,"n":600,"k":9,"a":"bf16","b":"bf16","epilogue":"d = acc + bias[n]; s[m] = sum(acc, n)"})j"},
    {"constant B, nn",
     R"j({"m":5,"n":600,"k":90,"a":"bf16","b":"bf16","layout":"nn","constant":["b"]})j"},
    {"constant fp8 B, nt, batch",
     R"j({"m":5,"n":300,"k":90,"a":"e4m3","b":"e4m3","batch":2,"constant":["b"]})j"},
    {"a chain of post-ops",
     R"j({"m":5,"n":30,"k":9,"a":"bf16","b":"bf16","d":"f32","epilogue":"d = clamp(relu((acc + bias[n]) * 2 - c[m,n]), 1, 7)"})j"},
    {"a residual of D's type",
     R"j({"m":5,"n":30,"k":9,"a":"bf16","b":"bf16","epilogue":"d = row[m] + relu(acc) * c[m,n]"})j"},
    {"one thread", R"j({"m":250,"n":70,"k":130,"sms":1})j"},
    {"one row, A transposed, batch",
     R"j({"m":1,"n":38,"k":2157,"batch":3,"layout":"tt","d":"e4m3","scales":"row","epilogue":"d = relu(acc + bias[n])"})j"},
    {"one row, A transposed, bf16",
     R"j({"m":1,"n":38,"k":215,"layout":"tn","a":"bf16","b":"bf16"})j"},
    {"one column, B stored (k, n)", R"j({"m":9,"n":1,"k":77,"layout":"nn"})j"},
    {"one column, B stored (k, n), constant, bf16",
     R"j({"m":9,"n":1,"k":77,"layout":"tn","a":"bf16","b":"bf16","constant":["b"]})j"},
    {"one k, all transposed", R"j({"m":9,"n":11,"k":1,"layout":"tn"})j"},
    {"block scales by entry, B shared",
     R"j({"m":6,"n":140,"k":300,"batch":3,"stride_b":0,"a":"e4m3","b":"e4m3","d":"f32","scales":"block"})j"},
    {"block scales by entry, B shared, both constant",
     R"j({"m":6,"n":300,"k":300,"batch":3,"stride_b":0,"a":"e4m3","b":"e4m3","d":"f32","scales":"block","constant":["b","scale_b"]})j"},
    {"block scales shared, B by entry, both constant",
     R"j({"m":6,"n":300,"k":130,"batch":2,"stride_scale_b":0,"a":"e4m3","b":"e4m3","d":"f32","scales":"block","constant":["b","scale_b"]})j"},
    {"a batch of small products",
     R"j({"m":3,"n":5,"k":7,"batch":100,"epilogue":"d = acc + c[m,n]"})j"},
    {"a batch whose scalar varies, at times 0",
     R"j({"m":3,"n":5,"k":7,"batch":9,"stride_beta":1,"epilogue":"d = acc + beta * c[m,n]"})j"},
    {"a batch with reductions",
     R"j({"m":130,"n":5,"k":7,"batch":4,"epilogue":"d = acc; s[n] = sum(acc, m)"})j"},
    {"two outputs, select",
     R"j({"m":6,"n":14,"k":30,"epilogue":"h[m,n] = acc; d = select(acc > 0, acc, 3)"})j"},
};

/// Value of a scalar program over doubles, by the definition; only what the cases above use.
double evaluate(const Epilogue& e, int index, const std::vector<double>& leaves_acc,
                const std::vector<double>& inputs) {
  const EpilogueNode& node = e.nodes[static_cast<std::size_t>(index)];
  const auto arg = [&](std::size_t i) { return evaluate(e, node.args[i], leaves_acc, inputs); };
  switch (node.op) {
    case EpilogueOp::number:
      return node.number;
    case EpilogueOp::operand:
      return inputs[static_cast<std::size_t>(node.symbol)];
    case EpilogueOp::acc:
    case EpilogueOp::gate:
      return leaves_acc[0];
    case EpilogueOp::up:
      return leaves_acc[1];
    case EpilogueOp::local:
      return arg(0);
    case EpilogueOp::add:
      return arg(0) + arg(1);
    case EpilogueOp::sub:
      return arg(0) - arg(1);
    case EpilogueOp::mul:
      return arg(0) * arg(1);
    case EpilogueOp::gt:
      return arg(0) > arg(1) ? 1 : 0;
    case EpilogueOp::clamp:
      return std::min(std::max(arg(0), arg(1)), arg(2));
    case EpilogueOp::relu:
      return std::max(0.0, arg(0));
    case EpilogueOp::select:
      return arg(0) != 0 ? arg(1) : arg(2);
    default:
      ADD_FAILURE() << "the test does not know " << static_cast<int>(node.op);
      return 0;
  }
}

struct Data {
  GemmProblem problem;
  std::vector<OperandSpec> specs;
  std::vector<std::vector<std::byte>> bytes;
  std::vector<void*> pointers;

  double at(std::size_t operand, std::int64_t entry, std::int64_t r, std::int64_t c) const {
    const OperandSpec& s = specs[operand];
    return numeric::load(s.type, pointers[operand], entry * s.batch_stride + r * s.pitch + c);
  }
  std::size_t find(std::string_view name, bool output) const {
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].name == name && specs[i].output == output) return i;
    }
    return specs.size();
  }
};

Data make(const char* json) {
  Data data;
  auto problem = problem_from_json(json);
  EXPECT_TRUE(problem) << problem.error();
  problem = checked(*problem);
  EXPECT_TRUE(problem) << problem.error();
  data.problem = *problem;
  data.specs = operands(*problem);
  for (const OperandSpec& spec : data.specs) {
    data.bytes.emplace_back(static_cast<std::size_t>(spec.bytes() + 64), std::byte{0x7f});
    data.pointers.push_back(data.bytes.back().data() + spec.offset_bytes);
    if (spec.output) continue;
    const bool scale = spec.name == "scale_a" || spec.name == "scale_b";
    for (std::int64_t i = 0; i < spec.span_elems(); ++i) {
      const auto bits =
          mix(data.specs.size(), static_cast<std::uint64_t>(i) + 7919 * data.pointers.size());
      const float value = scale ? static_cast<float>(1 << (bits % 3))
                                : static_cast<float>(static_cast<int>(bits % 3) - 1);
      numeric::store(spec.type, data.pointers.back(), i, value);
    }
  }
  return data;
}

/// The accumulator at (m, n) of an entry, scaled, in float64.
double accumulate(const Data& d, std::int64_t entry, std::int64_t m, std::int64_t n) {
  const GemmProblem& p = d.problem;
  const bool a_km = p.layout == GemmLayout::tn || p.layout == GemmLayout::tt;
  const bool b_kn = p.layout == GemmLayout::nn || p.layout == GemmLayout::tn;
  double sum = 0;
  for (std::int64_t k = 0; k < p.k; ++k) {
    double product = (a_km ? d.at(0, entry, k, m) : d.at(0, entry, m, k)) *
                     (b_kn ? d.at(1, entry, k, n) : d.at(1, entry, n, k));
    if (p.scales == ScaleMode::block) {
      const std::int64_t m4 = (p.m + 3) / 4 * 4, blocks = (p.k + 127) / 128;
      product *=
          d.at(2, entry, 0, k / 128 * m4 + m) * d.at(3, entry, 0, n / 128 * blocks + k / 128);
    }
    sum += product;
  }
  if (p.scales == ScaleMode::tensor) sum *= d.at(2, entry, 0, 0) * d.at(3, entry, 0, 0);
  if (p.scales == ScaleMode::row) sum *= d.at(2, entry, 0, m) * d.at(3, entry, 0, n);
  return sum;
}

void compare(const Data& d, const std::string& who) {
  const GemmProblem& p = d.problem;
  const std::int64_t cols = columns(p);
  const Epilogue& e = p.epilogue;
  for (std::int64_t entry = 0; entry < p.batch; ++entry) {
    for (const EpilogueAssignment& a : e.assignments) {
      if (!a.output) continue;
      const std::size_t out = d.find(a.name, true);
      std::vector<double> reduced(static_cast<std::size_t>(a.axes == Axes::m   ? p.m
                                                           : a.axes == Axes::n ? cols
                                                                               : 1),
                                  a.reduction == Reduction::max   ? -INFINITY
                                  : a.reduction == Reduction::min ? INFINITY
                                                                  : 0);
      for (std::int64_t m = 0; m < p.m; ++m) {
        for (std::int64_t n = 0; n < cols; ++n) {
          const std::vector<double> acc = {accumulate(d, entry, m, n),
                                           e.gated ? accumulate(d, entry, m, cols + n) : 0};
          std::vector<double> inputs;
          for (const EpilogueInput& in : e.inputs) {
            inputs.push_back(d.at(d.find(in.name, false), entry, in.axes == Axes::mn ? m : 0,
                                  in.axes == Axes::m      ? m
                                  : in.axes == Axes::none ? 0
                                                          : n));
          }
          const double value = evaluate(e, a.root, acc, inputs);
          if (a.reduction == Reduction::none) {
            const double stored = numeric::to_f32(
                d.specs[out].type, numeric::from_f64(d.specs[out].type, value,
                                                     numeric::store_overflow(d.specs[out].type)));
            ASSERT_EQ(d.at(out, entry, m, n), stored)
                << who << " " << a.name << " at (" << m << ", " << n << ") of entry " << entry;
            continue;
          }
          double& cell = reduced[static_cast<std::size_t>(a.axes == Axes::m   ? m
                                                          : a.axes == Axes::n ? n
                                                                              : 0)];
          cell = a.reduction == Reduction::sum   ? cell + value
                 : a.reduction == Reduction::max ? std::max(cell, value)
                                                 : std::min(cell, value);
        }
      }
      for (std::size_t i = 0; a.reduction != Reduction::none && i < reduced.size(); ++i) {
        ASSERT_EQ(d.at(out, entry, 0, static_cast<std::int64_t>(i)), reduced[i])
            << who << " " << a.name << "[" << i << "]";
      }
    }
  }
}

TEST(Backends, AgreeBitForBitOnSmallIntegers) {
  int ran = 0;
  for (const auto& [why, json] : kCases) {
    SCOPED_TRACE(why);
    Data data = make(json);
    for (const Backend* backend : all()) {
      const std::vector<Offer> offers = backend->candidates(data.problem, kDevice);
      ASSERT_FALSE(offers.empty()) << backend->name();
      for (const Offer& offer : offers) {
        if (!offer.refused.empty()) continue;
        const auto executable = backend->compile(data.problem, offer.candidate.config, kDevice);
        ASSERT_TRUE(executable) << executable.error();
        ASSERT_EQ((*executable)->workspace_bytes(), offer.workspace_bytes) << text(offer.candidate);
        std::vector<std::byte> workspace(static_cast<std::size_t>(offer.workspace_bytes + 64),
                                         std::byte{0xff});
        std::vector<std::byte> packed(static_cast<std::size_t>((*executable)->packed_bytes() + 64),
                                      std::byte{0xff});
        const auto aligned = [](std::vector<std::byte>& v) {
          return reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(v.data()) + 63) / 64 *
                                         64);
        };
        for (std::size_t i = 0; i < data.specs.size(); ++i) {
          if (data.specs[i].output) std::memset(data.bytes[i].data(), 0x7f, data.bytes[i].size());
        }
        const Arguments arguments{
            .operands = data.pointers, .workspace = aligned(workspace), .packed = aligned(packed)};
        const Status pack = (*executable)->pack(arguments);
        ASSERT_TRUE(pack) << pack.error();
        const Status status = (*executable)->run(arguments);
        ASSERT_TRUE(status) << status.error();
        compare(data, text(offer.candidate));
        ++ran;
      }
    }
  }
  EXPECT_GT(ran, 60);
}

/// A library that multiplies f32 by the definition, after it has held the pitches against what a
/// BLAS asks for. Each product writes over all of the scratchpad that it asked for.
Products plain_products() {
  constexpr std::int64_t kScratchpad = 100;
  return {
      .scratchpad_bytes = [](const Product&) -> Result<std::int64_t> { return kScratchpad; },
      .prepare = [](const Product& p) -> Result<Multiply> {
        EXPECT_GE(std::min({p.m, p.n, p.k}), 1);
        EXPECT_GE(p.lda, p.a_km ? p.m : p.k);
        EXPECT_GE(p.ldb, p.b_kn ? p.n : p.k);
        EXPECT_GE(p.ldc, p.n);
        return Multiply([p](const void* a, const void* b, float* c, void* scratchpad) -> Status {
          std::memset(scratchpad, 0xff, kScratchpad);
          for (std::int64_t m = 0; m < p.m; ++m) {
            for (std::int64_t n = 0; n < p.n; ++n) {
              float sum = 0;
              for (std::int64_t k = 0; k < p.k; ++k) {
                sum += static_cast<const float*>(a)[p.a_km ? k * p.lda + m : m * p.lda + k] *
                       static_cast<const float*>(b)[p.b_kn ? k * p.ldb + n : n * p.ldb + k];
              }
              c[m * p.ldc + n] = sum;
            }
          }
          return {};
        });
      }};
}

struct Buffers {
  explicit Buffers(const Executable& executable)
      : workspace(static_cast<std::size_t>(executable.workspace_bytes() + 64)),
        packed(static_cast<std::size_t>(executable.packed_bytes() + 64)) {}
  static void* aligned(std::vector<std::byte>& v) {
    return reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(v.data()) + 63) / 64 * 64);
  }
  std::vector<std::byte> workspace, packed;
};

TEST(LibraryGemm, GivesLegalPitchesForEveryShape) {
  int ran = 0;
  for (const char* layout : {"nt", "nn", "tn", "tt"}) {
    for (const char* extents :
         {R"("m":1,"n":7,"k":5)", R"("m":6,"n":1,"k":5)", R"("m":6,"n":7,"k":1)",
          R"("m":1,"n":1,"k":1)", R"("m":1,"n":1,"k":9)", R"("m":1,"n":300,"k":3)",
          R"("m":300,"n":259,"k":2)"}) {
      for (const char* more :
           {R"("a":"f32","b":"f32")", R"("a":"bf16","b":"f32")", R"("a":"f32","b":"bf16")",
            R"("a":"bf16","b":"bf16","constant":["b"])",
            R"("a":"f32","b":"f32","epilogue":"d = acc + 1")"}) {
        const std::string json = fmt::format(R"({{"layout":"{}",{},{}}})", layout, extents, more);
        SCOPED_TRACE(json);
        Data data = make(json.c_str());
        for (const Offer& offer :
             library_offers(data.problem, kDevice, "plain", DType::f32, 1, plain_products())) {
          ASSERT_EQ(offer.refused, "");
          const auto executable =
              library_gemm(data.problem, "plain", offer.candidate.config, plain_products());
          ASSERT_TRUE(executable) << executable.error();
          ASSERT_EQ((*executable)->workspace_bytes(), offer.workspace_bytes);
          Buffers buffers(**executable);
          const Arguments arguments{.operands = data.pointers,
                                    .workspace = Buffers::aligned(buffers.workspace),
                                    .packed = Buffers::aligned(buffers.packed)};
          ASSERT_TRUE((*executable)->pack(arguments));
          ASSERT_TRUE((*executable)->run(arguments));
          compare(data, text(offer.candidate));
          ++ran;
        }
      }
    }
  }
  EXPECT_GE(ran, 140);
}

TEST(LibraryGemm, RoundsTheScaledAccumulator) {
  // 1.0078125 * 3 = 3.0234375: in bf16, whose neighbours there are 2^-6 apart, a tie that goes to
  // 3.03125 or 3.015625 by the last bit. Rounded before the scale it would stay 3.0234375.
  Data data = make(
      R"j({"m":33,"n":5,"k":1,"d":"bf16","types":{"h":"f32"},"scales":"tensor","numerics":["rounded"],"epilogue":"d = acc; h[m,n] = acc"})j");
  for (std::int64_t i = 0; i < 33; ++i) numeric::store(DType::f32, data.pointers[0], i, 1.0078125f);
  for (std::int64_t i = 0; i < 5; ++i) numeric::store(DType::f32, data.pointers[1], i, 1.0f);
  numeric::store(DType::f32, data.pointers[2], 0, 3.0f);
  numeric::store(DType::f32, data.pointers[3], 0, 1.0f);
  const float expected = numeric::to_f32(
      DType::bf16,
      numeric::from_f32(DType::bf16, 3.0234375f, numeric::store_overflow(DType::bf16)));
  ASSERT_NE(expected, 3.0234375f);
  for (const Offer& offer :
       library_offers(data.problem, kDevice, "plain", DType::f32, 1, plain_products())) {
    const auto executable =
        library_gemm(data.problem, "plain", offer.candidate.config, plain_products());
    ASSERT_TRUE(executable) << executable.error();
    Buffers buffers(**executable);
    ASSERT_TRUE(
        (*executable)
            ->run({.operands = data.pointers, .workspace = Buffers::aligned(buffers.workspace)}));
    const std::size_t h = data.find("h", true);
    for (std::int64_t m = 0; m < 33; ++m)
      for (std::int64_t n = 0; n < 5; ++n) ASSERT_EQ(data.at(h, 0, m, n), expected);
  }
}

TEST(Backends, RefuseSizesBeyondAllMemory) {
  // 2^62 bytes of D; four times as many of the f32 intermediate, which no 64-bit number counts.
  for (
      const char* json :
      {R"j({"m":2147483647,"n":2147483647,"k":1,"a":"e4m3","b":"e4m3","d":"e4m3","epilogue":"d = acc + 1"})j",
       R"j({"m":1,"n":2147483647,"k":2147483647,"a":"e4m3","b":"e4m3","constant":["b"]})j"}) {
    const GemmProblem problem = problem_of(json);
    int too_large = 0;
    for (const Offer& offer :
         library_offers(problem, kDevice, "plain", DType::f32, 1, plain_products())) {
      EXPECT_GE(offer.workspace_bytes, 0) << text(offer.candidate);
      EXPECT_GE(offer.packed_bytes, 0) << text(offer.candidate);
      if (offer.refused.empty()) continue;
      ++too_large;
      EXPECT_NE(offer.refused.find("bytes"), std::string::npos) << offer.refused;
      EXPECT_FALSE(library_gemm(problem, "plain", offer.candidate.config, plain_products()));
    }
    EXPECT_GT(too_large, 0) << json;
  }
}

TEST(Backends, ReportMemoryThatIsOut) {
  // No allocation of a pool's body may end the process: the vectors of a run are the caller's to
  // lose. Only our own code, as other libraries need not survive this.
  for (
      const char* json :
      {R"j({"m":70,"n":300,"k":700,"a":"e4m3","b":"e4m3","d":"f32","epilogue":"d = acc * alpha + bias[n]"})j",
       R"j({"m":2,"n":300,"k":700,"batch":3,"epilogue":"d = acc; s[m] = sum(acc, n)"})j"}) {
    Data data = make(json);
    std::vector<std::unique_ptr<Executable>> executables;
    for (const Backend* backend : all()) {
      if (backend->name() != "portable") continue;
      for (const Offer& offer : backend->candidates(data.problem, kDevice)) {
        if (!offer.refused.empty()) continue;
        auto made = backend->compile(data.problem, offer.candidate.config, kDevice);
        ASSERT_TRUE(made) << made.error();
        executables.push_back(std::move(*made));
      }
    }
    for (const DType input : {DType::f32, DType::bf16}) {
      // The product itself is left out: only what surrounds it is looked at.
      const Products idle{
          .scratchpad_bytes = [](const Product&) -> Result<std::int64_t> { return 0; },
          .prepare = [](const Product&) -> Result<Multiply> {
            return Multiply([](const void*, const void*, float*, void*) -> Status { return {}; });
          }};
      for (const Offer& offer : library_offers(data.problem, kDevice, "idle", input, 1, idle)) {
        if (!offer.refused.empty()) continue;
        auto made = library_gemm(data.problem, "idle", offer.candidate.config, idle);
        ASSERT_TRUE(made) << made.error();
        executables.push_back(std::move(*made));
      }
    }
    for (const auto& executable : executables) {
      Buffers buffers(*executable);
      const Arguments arguments{.operands = data.pointers,
                                .workspace = Buffers::aligned(buffers.workspace),
                                .packed = Buffers::aligned(buffers.packed)};
      refuse_memory(true);
      const Status status = executable->run(arguments);
      refuse_memory(false);
      if (!status) {
        EXPECT_EQ(status.error().code, ErrorCode::resource_limit);
      }
      EXPECT_TRUE(executable->run(arguments));
    }
  }
}

TEST(Backends, ReportMemoryThatIsOutInsideALibrary) {
  const Products throwing{
      .scratchpad_bytes = [](const Product&) -> Result<std::int64_t> { return 0; },
      .prepare = [](const Product&) -> Result<Multiply> {
        return Multiply(
            [](const void*, const void*, float*, void*) -> Status { throw std::bad_alloc(); });
      }};
  Data data = make(R"j({"m":2,"n":3,"k":4})j");
  const auto executable =
      library_gemm(data.problem, "throwing",
                   library_offers(data.problem, kDevice, "throwing", DType::f32, 1, throwing)[0]
                       .candidate.config,
                   throwing);
  ASSERT_TRUE(executable) << executable.error();
  const Status status = (*executable)->run({.operands = data.pointers});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::resource_limit);
}

TEST(Backends, PutSmallWorkOnOneThread) {
  EXPECT_EQ(worthwhile_grain(1e5, 0), 1);  // 10 us
  EXPECT_EQ(worthwhile_grain(0, 1e5), 1);  // 10 us
  EXPECT_EQ(worthwhile_grain(1e3, 0), 100);
  EXPECT_EQ(worthwhile_grain(2e3, 1e4), 10);
  EXPECT_GE(worthwhile_grain(0, 0), 1);
}

}  // namespace
}  // namespace lapidary::backends
