// Every backend's every legal candidate, against a float64 loop of this file's own, on small
// integers (bit for bit) over types, layouts, pitches, batch, scales and programs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu_common.h"
#include "numeric/numeric.h"
#include "support/random.h"

namespace lapidary::backends {
namespace {

const DeviceInfo kDevice{.id = "cpu",
                         .name = "test",
                         .key = "test",
                         .threads = 2,
                         .cache_bytes = 1 << 20,
                         .memory_bytes = 1 << 30};

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
      product *= static_cast<const float*>(d.pointers[2])[k / 128 * m4 + m] *
                 static_cast<const float*>(d.pointers[3])[n / 128 * blocks + k / 128];
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

}  // namespace
}  // namespace lapidary::backends
