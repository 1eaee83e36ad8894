// oneDNN 2.x through its C API, loaded at run time. Two ways to serve a problem:
//   fused    matmul with the epilogue as bias and post-ops, straight into D;
//   chunk_*  matmul into f32, then our separate pass (library_gemm.h).
#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "backends/backend.h"
#include "backends/cpu_common.h"
#include "backends/library_gemm.h"
#include "backends/onednn_api.h"
#include "driver/library.h"
#include "driver/owned.h"
#include "support/env.h"

namespace lapidary::backends {
namespace {

using namespace onednn_api;

struct OneDnn {
#define X(name, ...) std::add_pointer_t<__VA_ARGS__> name = nullptr;
  LAPIDARY_ONEDNN_FUNCTIONS(X)
#undef X
  Handle engine = nullptr;
  std::string text;
};

Result<OneDnn> load() {
  LAPIDARY_TRY(const driver::Library library,
               driver::Library::open(env("LAPIDARY_ONEDNN").value_or(""), {"libdnnl.so.2"}));
  OneDnn dnn;
#define X(name, ...)                                   \
  dnn.name = library.find<__VA_ARGS__>("dnnl_" #name); \
  if (dnn.name == nullptr)                             \
    return fail(ErrorCode::unsupported, "{} lacks dnnl_" #name, library.path());
  LAPIDARY_ONEDNN_FUNCTIONS(X)
#undef X
  const Version* v = dnn.version();
  if (v->major != 2 || v->minor < 6) {
    return fail(ErrorCode::unsupported, "{} is version {}.{}; 2.6 or a later 2.x is needed",
                library.path(), v->major, v->minor);
  }
  if (dnn.engine_create(&dnn.engine, kCpu, 0) != kSuccess)
    return fail(ErrorCode::unsupported, "{}: no CPU engine", library.path());
  dnn.text = fmt::format("oneDNN {}.{}.{} at {}", v->major, v->minor, v->patch, library.path());
  return dnn;
}

const Result<OneDnn>& library() {
  static const Result<OneDnn> loaded = load();
  return loaded;
}

constexpr const char* kMissing =
    "oneDNN is not here ({}); install libdnnl2, or set LAPIDARY_ONEDNN to libdnnl.so.2";

Result<int> data_type(DType type) {
  switch (type) {
    case DType::f32:
      return kF32;
    case DType::bf16:
      return kBf16;
    case DType::f16:
      return kF16;
    default:
      return fail(ErrorCode::unsupported, "oneDNN 2.x has no {}", name(type));
  }
}

/// A row-major matrix, or its transpose, with a pitch.
Result<MemoryDesc> matrix(std::int64_t rows, std::int64_t columns, int type,
                          std::int64_t row_stride, std::int64_t column_stride) {
  MemoryDesc desc;
  const Dims dims = {rows, columns}, strides = {row_stride, column_stride};
  if (const int status = library()->memory_desc_init_by_strides(&desc, 2, dims, type, strides);
      status != kSuccess) {
    return fail(ErrorCode::unsupported,
                "oneDNN has no matrix of {} x {} with strides {} and {} (status {})", rows, columns,
                row_stride, column_stride, status);
  }
  return desc;
}

using Owned = driver::Owned<Handle>;

/// One step of an epilogue that a post-op does.
struct PostOp {
  int alg;
  float alpha = 0, beta = 0;
  int input = -1;  ///< of the program, for a binary post-op
};

/// The program as a chain v -> f(v) from the accumulator to d, or why it is none.
class ChainMatcher {
 public:
  explicit ChainMatcher(const Epilogue& e) : e_(e) {
    // Arguments stand before their users, and a name may be used often: once a node, bottom up.
    for (const EpilogueNode& n : e.nodes) {
      const auto arg = [&](std::size_t i) { return static_cast<std::size_t>(n.args[i]); };
      holds_acc_.push_back(n.op == EpilogueOp::acc || std::ranges::any_of(n.args, [&](int i) {
                             return i >= 0 && holds_acc_[static_cast<std::size_t>(i)];
                           }));
      std::optional<double> number;  // numbers may be negated
      if (n.op == EpilogueOp::number) number = n.number;
      if (n.op == EpilogueOp::local) number = constant_[arg(0)];
      if (n.op == EpilogueOp::neg && constant_[arg(0)]) number = -*constant_[arg(0)];
      constant_.push_back(number);
    }
  }

  Result<std::vector<PostOp>> match() {
    if (e_.gated) return fail(ErrorCode::unsupported, "a gated program is no chain of post-ops");
    const auto outputs = std::ranges::count_if(e_.assignments, &EpilogueAssignment::output);
    if (outputs != 1) return fail(ErrorCode::unsupported, "{} outputs; oneDNN writes one", outputs);
    int index = std::ranges::find_if(e_.assignments, &EpilogueAssignment::output)->root;
    std::vector<PostOp> chain;  // from d down to the accumulator
    while (node(index).op != EpilogueOp::acc) {
      LAPIDARY_TRY(const Step step, step_at(node(index)));
      if (step.post_op) chain.push_back(*step.post_op);
      index = step.next;
    }
    if (chain.size() > 32)
      return fail(ErrorCode::unsupported, "{} post-ops; oneDNN takes 32", chain.size());
    std::ranges::reverse(chain);
    return chain;
  }

 private:
  /// What a node does to the value of `next`, the argument that holds the accumulator.
  struct Step {
    int next;
    std::optional<PostOp> post_op{};
  };

  const EpilogueNode& node(int i) const { return e_.nodes[static_cast<std::size_t>(i)]; }
  bool holds_acc(int i) const { return holds_acc_[static_cast<std::size_t>(i)]; }
  std::optional<double> constant(int i) const { return constant_[static_cast<std::size_t>(i)]; }

  static Step eltwise(int argument, int alg, float alpha = 0, float beta = 0) {
    return {argument, PostOp{.alg = alg, .alpha = alpha, .beta = beta}};
  }

  Result<Step> step_at(const EpilogueNode& n) const {
    using Op = EpilogueOp;
    switch (n.op) {
      case Op::local:
        return Step{n.args[0]};
      case Op::neg:
        return eltwise(n.args[0], kLinear, -1, 0);
      case Op::abs:
        return eltwise(n.args[0], kAbs);
      case Op::exp:
        return eltwise(n.args[0], kExp);
      case Op::sqrt:
        return eltwise(n.args[0], kSqrt);
      case Op::tanh:
        return eltwise(n.args[0], kTanh);
      case Op::sigmoid:
        return eltwise(n.args[0], kLogistic);
      case Op::relu:
        return eltwise(n.args[0], kRelu);
      case Op::gelu:
        return eltwise(n.args[0], kGeluErf);
      case Op::gelu_tanh:
        return eltwise(n.args[0], kGeluTanh);
      case Op::silu:
        return eltwise(n.args[0], kSwish, 1);
      case Op::softplus:
        return eltwise(n.args[0], kSoftRelu);
      case Op::leaky_relu:
        if (const auto slope = constant(n.args[1]))
          return eltwise(n.args[0], kRelu, static_cast<float>(*slope));
        return fail(ErrorCode::unsupported, "leaky_relu with a slope that is no number");
      case Op::clamp: {
        const auto low = constant(n.args[1]), high = constant(n.args[2]);
        if (low && high)
          return eltwise(n.args[0], kClip, static_cast<float>(*low), static_cast<float>(*high));
        return fail(ErrorCode::unsupported, "clamp with bounds that are no numbers");
      }
      case Op::add:
        return binary(n, kBinaryAdd, true);
      case Op::mul:
        return binary(n, kBinaryMul, true);
      case Op::max:
        return binary(n, kBinaryMax, true);
      case Op::min:
        return binary(n, kBinaryMin, true);
      case Op::sub:
        return binary(n, kBinarySub, false);
      case Op::div:
        return binary(n, kBinaryDiv, false);
      default:
        return fail(ErrorCode::unsupported, "no post-op does '{}'",
                    std::string(n.op == Op::cast ? "cast" : "this function"));
    }
  }

  Result<Step> binary(const EpilogueNode& n, int alg, bool commutes) const {
    const bool left = holds_acc(n.args[0]), right = holds_acc(n.args[1]);
    if (left && right) return fail(ErrorCode::unsupported, "the accumulator is used twice");
    if (!left && !commutes)
      return fail(ErrorCode::unsupported, "the accumulator stands right of - or /");
    const int chain = left ? n.args[0] : n.args[1], other = left ? n.args[1] : n.args[0];
    if (const auto number = constant(other)) {
      const auto value = static_cast<float>(*number);
      if (alg == kBinaryAdd) return eltwise(chain, kLinear, 1, value);
      if (alg == kBinarySub) return eltwise(chain, kLinear, 1, -value);
      if (alg == kBinaryMul) return eltwise(chain, kLinear, value, 0);
      return fail(ErrorCode::unsupported, "a number at max, min or /");
    }
    const EpilogueNode& o = node(other);
    if (o.op != EpilogueOp::operand)
      return fail(ErrorCode::unsupported, "more than one operand beside the accumulator");
    const EpilogueInput& input = e_.inputs[static_cast<std::size_t>(o.symbol)];
    // A scalar factor may be 0, and then what it multiplies must not matter; a post-op would
    // multiply all the same.
    if (alg == kBinaryMul && input.axes == Axes::none)
      return fail(ErrorCode::unsupported, "the scalar factor {} may be 0", input.name);
    return Step{chain, PostOp{.alg = alg, .input = o.symbol}};
  }

  const Epilogue& e_;
  std::vector<bool> holds_acc_;                  // by node
  std::vector<std::optional<double>> constant_;  // by node
};

/// A matmul and what it is run with.
struct Matmul {
  Owned desc;  // of the primitive
  MemoryDesc src, weights, dst, scratchpad;
  std::vector<MemoryDesc> binary;
  std::int64_t scratchpad_bytes = 0;
};

Result<Matmul> describe_matmul(const MemoryDesc& src, const MemoryDesc& weights,
                               const MemoryDesc& dst, const std::vector<PostOp>& chain,
                               const std::vector<MemoryDesc>& binary) {
  const OneDnn& d = *library();
  Handle ops = nullptr, attr = nullptr, desc = nullptr;
  d.post_ops_create(&ops);
  const Owned own_ops(ops, d.post_ops_destroy);
  std::size_t next = 0;
  for (const PostOp& op : chain) {
    const int status = op.input < 0
                           ? d.post_ops_append_eltwise(ops, 1.0f, op.alg, op.alpha, op.beta)
                           : d.post_ops_append_binary(ops, op.alg, &binary[next++]);
    if (status != kSuccess)
      return fail(ErrorCode::unsupported, "oneDNN refuses post-op {} (status {})", op.alg, status);
  }
  d.primitive_attr_create(&attr);
  const Owned own_attr(attr, d.primitive_attr_destroy);
  d.primitive_attr_set_scratchpad_mode(attr, kScratchpadUser);
  d.primitive_attr_set_post_ops(attr, ops);
  MatmulDesc matmul;
  if (const int status = d.matmul_desc_init(&matmul, &src, &weights, nullptr, &dst);
      status != kSuccess) {
    return fail(ErrorCode::unsupported, "oneDNN has no such matmul (status {})", status);
  }
  if (const int status = d.primitive_desc_create(&desc, &matmul, attr, d.engine, nullptr);
      status != kSuccess) {
    return fail(ErrorCode::unsupported,
                "oneDNN has no matmul for these types and post-ops (status {})", status);
  }
  Matmul made{.desc = Owned(desc, d.primitive_desc_destroy),
              .src = src,
              .weights = *d.primitive_desc_query_md(desc, kQueryWeights, 0),
              .dst = dst,
              .scratchpad = *d.primitive_desc_query_md(desc, kQueryScratchpad, 0),
              .binary = binary};
  made.scratchpad_bytes = static_cast<std::int64_t>(d.memory_desc_get_size(&made.scratchpad));
  return made;
}

Result<Owned> make_primitive(const Matmul& matmul) {
  Handle primitive = nullptr;
  if (const int status = library()->primitive_create(&primitive, matmul.desc.get());
      status != kSuccess) {
    return fail(ErrorCode::compile_failed, "oneDNN cannot make its matmul (status {})", status);
  }
  return Owned(primitive, library()->primitive_destroy);
}

/// Executes with the given buffers. Memory objects are made per call, so that calls share nothing.
Status execute(Handle primitive,
               const std::vector<std::tuple<int, const MemoryDesc*, void*>>& buffers) {
  const OneDnn& d = *library();
  std::vector<Owned> memories;
  std::vector<ExecArg> arguments;
  for (const auto& [arg, desc, data] : buffers) {
    Handle memory = nullptr;
    if (d.memory_create(&memory, desc, d.engine, data) != kSuccess)
      return fail(ErrorCode::launch_failed, "onednn: cannot wrap a buffer");
    memories.emplace_back(memory, d.memory_destroy);
    arguments.push_back({arg, memory});
  }
  Handle stream = nullptr;
  if (d.stream_create(&stream, d.engine, unsigned{kInOrder}) != kSuccess)
    return fail(ErrorCode::launch_failed, "onednn: cannot make a stream");
  const Owned own_stream(stream, d.stream_destroy);
  const int status =
      d.primitive_execute(primitive, stream, static_cast<int>(arguments.size()), arguments.data());
  if (status != kSuccess || d.stream_wait(stream) != kSuccess)
    return fail(ErrorCode::launch_failed, "onednn: execute gives status {}", status);
  return {};
}

/// Matmul and epilogue in one primitive. `reordered`: constant weights in the layout that oneDNN
/// prefers.
class FusedMatmul final : public Executable {
 public:
  static Result<std::unique_ptr<FusedMatmul>> make(const GemmProblem& p, bool reordered) {
    if (p.scales != ScaleMode::none)
      return fail(ErrorCode::unsupported, "scales are no post-op of ours");
    if (p.m == 0 || p.n == 0 || p.k == 0)
      return fail(ErrorCode::unsupported, "nothing to multiply");
    if (p.numerics.rounded)
      return fail(ErrorCode::unsupported, "the class 'rounded' asks for a separate pass");
    LAPIDARY_TRY(std::vector<PostOp> chain, ChainMatcher(p.epilogue).match());
    LAPIDARY_TRY(const int a, data_type(p.a));
    LAPIDARY_TRY(const int b, data_type(p.b));
    LAPIDARY_TRY(const int dst_type, data_type(*p.d));
    const Lanes la = lanes_of_a(p), lb = lanes_of_b(p);
    std::unique_ptr<FusedMatmul> made(new FusedMatmul(p, reordered));
    std::vector<MemoryDesc> binary;
    for (const PostOp& op : chain) {
      if (op.input < 0) continue;
      const EpilogueInput& input = p.epilogue.inputs[static_cast<std::size_t>(op.input)];
      // D is written before the post-ops of the same element have run, where the product is
      // accumulated in it.
      if (std::ranges::find(p.alias, input.name + "=d") != p.alias.end())
        return fail(ErrorCode::unsupported, "{}, read by a post-op, may share memory with d",
                    input.name);
      for (std::size_t i = 0; i < made->specs_.size(); ++i) {
        if (made->specs_[i].name != input.name || made->specs_[i].output) continue;
        const OperandSpec& spec = made->specs_[i];
        LAPIDARY_TRY(const int type, data_type(spec.type));
        if (type == kF16) return fail(ErrorCode::unsupported, "an f16 operand of a post-op");
        const bool has_m = within(Axes::m, input.axes), has_n = within(Axes::n, input.axes);
        LAPIDARY_TRY(const MemoryDesc desc, matrix(has_m ? p.m : 1, has_n ? p.n : 1, type,
                                                   has_m && has_n ? spec.pitch
                                                   : has_n        ? p.n
                                                                  : 1,
                                                   1));
        binary.push_back(desc);
        made->binary_operands_.push_back(i);
      }
    }
    LAPIDARY_TRY(MemoryDesc weights, matrix(p.k, p.n, b, lb.k_stride, lb.lane_stride));
    made->plain_weights_ = weights;
    if (reordered) {
      const Dims dims = {p.k, p.n};
      if (library()->memory_desc_init_by_tag(&weights, 2, dims, b, kFormatAny) != kSuccess)
        return fail(ErrorCode::unsupported, "oneDNN has no weights of {} x {}", p.k, p.n);
    }
    LAPIDARY_TRY(const MemoryDesc src, matrix(p.m, p.k, a, la.lane_stride, la.k_stride));
    LAPIDARY_TRY(const MemoryDesc dst, matrix(p.m, p.n, dst_type, p.ldd, 1));
    LAPIDARY_TRY(Matmul matmul, describe_matmul(src, weights, dst, chain, binary));
    if (reordered && library()->memory_desc_equal(&matmul.weights, &made->plain_weights_) != 0) {
      return fail(ErrorCode::unsupported, "oneDNN prefers the weights as they are");
    }
    LAPIDARY_TRY(Owned primitive, make_primitive(matmul));
    made->primitive_.emplace(std::move(primitive));
    made->matmul_.emplace(std::move(matmul));
    return made;
  }

  std::int64_t workspace_bytes() const override { return matmul_->scratchpad_bytes; }
  std::int64_t packed_bytes() const override {
    return reordered_ ? entry_bytes() * specs_[1].batch : 0;
  }

  Status pack(const Arguments& arguments) const override {
    if (!reordered_) return {};
    return without_throwing([&] { return reorder_weights(arguments); });
  }

  Status run(const Arguments& arguments) const override {
    return without_throwing([&] { return run_entries(arguments); });
  }

 private:
  Status reorder_weights(const Arguments& arguments) const {
    const OneDnn& d = *library();
    Handle desc = nullptr, primitive = nullptr;
    if (d.reorder_primitive_desc_create(&desc, &plain_weights_, d.engine, &matmul_->weights,
                                        d.engine, nullptr) != kSuccess) {
      return fail(ErrorCode::compile_failed, "onednn: no reorder of the weights");
    }
    const Owned own_desc(desc, d.primitive_desc_destroy);
    if (d.primitive_create(&primitive, desc) != kSuccess)
      return fail(ErrorCode::compile_failed, "onednn: cannot make the reorder");
    const Owned own(primitive, d.primitive_destroy);
    for (std::int64_t entry = 0; entry < specs_[1].batch; ++entry) {
      LAPIDARY_TRY_STATUS(
          execute(primitive, {{kSrc, &plain_weights_, at(arguments.operands, 1, entry)},
                              {kDst, &matmul_->weights,
                               static_cast<char*>(arguments.packed) + entry * entry_bytes()}}));
    }
    return {};
  }

  Status run_entries(const Arguments& arguments) const {
    for (std::int64_t entry = 0; entry < p_.batch; ++entry) {
      void* weights = reordered_ ? static_cast<char*>(arguments.packed) +
                                       (specs_[1].batch > 1 ? entry : 0) * entry_bytes()
                                 : at(arguments.operands, 1, entry);
      std::vector<std::tuple<int, const MemoryDesc*, void*>> buffers = {
          {kSrc, &matmul_->src, at(arguments.operands, 0, entry)},
          {kWeights, &matmul_->weights, weights},
          {kDst, &matmul_->dst, at(arguments.operands, d_, entry)},
          {kScratchpad, &matmul_->scratchpad, arguments.workspace},
      };
      // Post-ops are numbered with the element-wise ones among them.
      for (std::size_t i = 0; i < binary_operands_.size(); ++i) {
        buffers.emplace_back(kPostOp * (positions_[i] + 1) | kPostOpOperand, &matmul_->binary[i],
                             at(arguments.operands, binary_operands_[i], entry));
      }
      LAPIDARY_TRY_STATUS(execute(primitive_->get(), buffers));
    }
    return {};
  }

  FusedMatmul(const GemmProblem& p, bool reordered)
      : p_(p), reordered_(reordered), specs_(operands(p)) {
    while (!specs_[d_].output || specs_[d_].name != "d") ++d_;
    const auto chain = ChainMatcher(p.epilogue).match();
    for (std::size_t i = 0; chain && i < chain->size(); ++i) {
      if ((*chain)[i].input >= 0) positions_.push_back(static_cast<int>(i));
    }
  }

  void* at(std::span<void* const> all, std::size_t operand, std::int64_t entry) const {
    return static_cast<char*>(all[operand]) +
           entry * specs_[operand].batch_stride * size_bytes(specs_[operand].type);
  }
  std::int64_t entry_bytes() const {
    return (static_cast<std::int64_t>(library()->memory_desc_get_size(&matmul_->weights)) + 63) /
           64 * 64;
  }

  GemmProblem p_;
  bool reordered_;
  std::vector<OperandSpec> specs_;
  std::size_t d_ = 0;
  std::vector<std::size_t> binary_operands_;
  std::vector<int> positions_;
  std::optional<Matmul> matmul_;
  std::optional<Owned> primitive_;
  MemoryDesc plain_weights_;
};

Config fused_config(bool reordered) {
  return {{"fused", std::int64_t{1}}, {"reorder", std::int64_t{reordered}}};
}

/// The plain product for library_gemm.h.
Result<Matmul> describe_product(DType input, const Product& p) {
  LAPIDARY_TRY(const int type, data_type(input));
  LAPIDARY_TRY(const MemoryDesc src,
               matrix(p.m, p.k, type, p.a_km ? 1 : p.lda, p.a_km ? p.lda : 1));
  LAPIDARY_TRY(const MemoryDesc weights,
               matrix(p.k, p.n, type, p.b_kn ? p.ldb : 1, p.b_kn ? 1 : p.ldb));
  LAPIDARY_TRY(const MemoryDesc dst, matrix(p.m, p.n, kF32, p.ldc, 1));
  return describe_matmul(src, weights, dst, {}, {});
}

Products products(DType input) {
  return {.scratchpad_bytes = [input](const Product& p) -> Result<std::int64_t> {
            LAPIDARY_TRY(const Matmul matmul, describe_product(input, p));
            return matmul.scratchpad_bytes;
          },
          .prepare = [input](const Product& p) -> Result<Multiply> {
            struct Made {
              Matmul matmul;
              Owned primitive;
            };
            LAPIDARY_TRY(Matmul matmul, describe_product(input, p));
            LAPIDARY_TRY(Owned primitive, make_primitive(matmul));
            auto made = std::make_shared<const Made>(Made{std::move(matmul), std::move(primitive)});
            return Multiply([made](const void* a, const void* b, float* c, void* scratchpad) {
              return execute(made->primitive.get(),
                             {{kSrc, &made->matmul.src, const_cast<void*>(a)},
                              {kWeights, &made->matmul.weights, const_cast<void*>(b)},
                              {kDst, &made->matmul.dst, c},
                              {kScratchpad, &made->matmul.scratchpad, scratchpad}});
            });
          }};
}

class OneDnnBackend final : public Backend {
 public:
  std::string_view name() const override { return "onednn"; }

  Result<std::string> version() const override {
    if (!library()) return fail(ErrorCode::unsupported, kMissing, library().error().message);
    return library()->text;
  }

  std::vector<Offer> candidates(const GemmProblem& problem,
                                const DeviceInfo& device) const override {
    if (!library())
      return {{.candidate = {"onednn", {}},
               .refused = fmt::format(kMissing, library().error().message)}};
    std::vector<Offer> offers;
    const bool constant_b = std::ranges::find(problem.constant, "b") != problem.constant.end();
    const std::string threads = thread_refusal(problem, device);
    for (const bool reordered : {false, true}) {
      if (reordered && !constant_b) continue;
      if (!threads.empty()) {
        offers.push_back({.candidate = {"onednn", fused_config(reordered)}, .refused = threads});
        continue;
      }
      Offer offer{.candidate = {"onednn", fused_config(reordered)}, .refused = ""};
      if (const auto made = FusedMatmul::make(problem, reordered); !made) {
        offer.refused = "fused: " + made.error().message;
      } else {
        offer.workspace_bytes = (*made)->workspace_bytes();
        offer.packed_bytes = (*made)->packed_bytes();
        offer.predicted_us =
            roofline_us(device, flops(problem), efficiency(problem.a) * (reordered ? 1.1 : 1.0),
                        operand_bytes(problem));
      }
      offers.push_back(std::move(offer));
    }
    for (const DType input : {DType::f32, DType::bf16}) {
      // A product in bf16 of what is f32 would round; a product in f32 of what is bf16 only costs.
      for (Offer& offer : library_offers(problem, device, "onednn", input, efficiency(input) * 0.9,
                                         products(input)))
        offers.push_back(std::move(offer));
    }
    return offers;
  }

  Result<std::unique_ptr<Executable>> compile(const GemmProblem& problem, const Config& config,
                                              const DeviceInfo&) const override {
    if (!library()) return fail(ErrorCode::unsupported, kMissing, library().error().message);
    for (const bool reordered : {false, true}) {
      if (config != fused_config(reordered)) continue;
      LAPIDARY_TRY(auto made, FusedMatmul::make(problem, reordered));
      return std::unique_ptr<Executable>(std::move(made));
    }
    const auto input = config.find("input");
    const bool bf16 = input != config.end() && input->second == ConfigValue(std::string("bf16"));
    return library_gemm(problem, "onednn", config, products(bf16 ? DType::bf16 : DType::f32));
  }

 private:
  /// bf16 runs on its own instructions where the processor has them, at about twice f32's rate.
  static double efficiency(DType input) {
    static const bool native = driver::cpu_facts().features.find("bf16") != std::string::npos;
    return input == DType::f32 ? 0.7 : native ? 1.2 : 0.4;
  }
};

}  // namespace

const Backend& onednn() {
  static const OneDnnBackend backend;
  return backend;
}

}  // namespace lapidary::backends
