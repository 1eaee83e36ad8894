// cuBLASLt, NVIDIA's GEMM library, loaded at run time: every algorithm that its heuristic offers
// for a problem is a candidate. What its epilogues can say is read in cublaslt_match.h.
//
// The library's matrices are column-major. Ours, row-major, are their transposes to it, so it is
// asked for D^T (n, m) = B' * A': its first matrix is our B, its second our A, its bias along rows
// is ours along columns.
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu_common.h"
#include "backends/cublaslt_match.h"
#include "driver/cublaslt_api.h"
#include "driver/cuda_api.h"
#include "driver/device.h"
#include "driver/owned.h"

namespace lapidary::backends {
namespace {

using cublaslt_match::Fused, cublaslt_match::narrow;
using driver::CuPointer, driver::CuStream, driver::LtAlgo, driver::LtApi, driver::LtCompute,
    driver::LtConfig, driver::LtDesc, driver::LtHandle, driver::LtHeuristicResult, driver::LtLayout,
    driver::LtMatmulDesc, driver::LtPref, driver::LtPreference, driver::LtStatus, driver::LtType,
    driver::Owned;

constexpr std::string_view kNoAlgorithm =
    "cuBLASLt has no algorithm for these types, layout, scales and alignment";
/// Measured on an H200 with cuBLASLt 13.1: most algorithms that split k skip acc where its factor
/// is 0, no other does. Which of them, the verifier finds out.
constexpr std::string_view kMultipliesAtZero =
    "cuBLASLt multiplies acc by a scalar operand even where that is 0, and NaN stays NaN";
constexpr int kAsked = 64;  // more than it ever gives: 8 in 13.1

/// cublasStatus_t by name.
std::string_view status_name(LtStatus status) {
  switch (status) {
    case 1:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case 3:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case 7:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case 8:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case 11:
      return "CUBLAS_STATUS_MAPPING_ERROR";
    case 13:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case 14:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case 15:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "unknown";
  }
}

Status check(LtStatus status, std::string_view call) {
  if (status == driver::kLtSuccess) return {};
  const ErrorCode code = status == 3                         ? ErrorCode::resource_limit
                         : status == driver::kLtNotSupported ? ErrorCode::unsupported
                                                             : ErrorCode::launch_failed;
  return fail(code, "cublaslt: {}: status {} ({})", call, status, status_name(status));
}

LtType lt_type(DType type) {
  switch (type) {
    case DType::f32:
      return LtType::f32;
    case DType::bf16:
      return LtType::bf16;
    case DType::f16:
      return LtType::f16;
    case DType::e4m3:
      return LtType::e4m3;
    case DType::e5m2:
      return LtType::e5m2;
  }
  return LtType::f32;
}

/// Device memory with an executable's numbers, for when a scalar operand stands beside one: the
/// library then wants both in device memory.
class DeviceNumbers {
 public:
  static Result<DeviceNumbers> make(const std::array<float, 2>& numbers, std::string device) {
    LAPIDARY_TRY(const driver::CudaApi* const cuda, driver::cuda_api());
    CuPointer pointer = 0;
    LAPIDARY_TRY_STATUS(
        driver::cuda_status(*cuda, cuda->alloc(&pointer, sizeof numbers), "cublaslt: cuMemAlloc"));
    DeviceNumbers made(*cuda, pointer, std::move(device));
    LAPIDARY_TRY_STATUS(
        driver::cuda_status(*cuda, cuda->upload(pointer, numbers.data(), sizeof numbers, nullptr),
                            "cublaslt: cuMemcpyHtoDAsync"));
    LAPIDARY_TRY_STATUS(driver::cuda_status(*cuda, cuda->stream_synchronize(nullptr),
                                            "cublaslt: cuStreamSynchronize"));
    return made;
  }
  DeviceNumbers(DeviceNumbers&& other) noexcept
      : cuda_(other.cuda_),
        pointer_(std::exchange(other.pointer_, 0)),
        device_(std::move(other.device_)) {}
  DeviceNumbers& operator=(DeviceNumbers&&) = delete;
  ~DeviceNumbers() {
    if (pointer_ == 0) return;
    // A plan may end in any thread. What is lost with a context needs no freeing.
    if (const auto current = driver::Current::make(device_)) (void)cuda_.free(pointer_);
  }
  const void* at(std::size_t i) const {
    return reinterpret_cast<const void*>(pointer_ + i * sizeof(float));
  }

 private:
  DeviceNumbers(const driver::CudaApi& cuda, CuPointer pointer, std::string device)
      : cuda_(cuda), pointer_(pointer), device_(std::move(device)) {}
  const driver::CudaApi& cuda_;
  CuPointer pointer_;
  std::string device_;
};

struct Library {
  const LtApi* api;
  LtHandle handle;
};

/// A handle takes 17 ms to make: one a device is kept for the process. The device's context is
/// current.
Result<Library> library_on(const DeviceInfo& device) {
  static std::mutex mutex;
  static std::map<std::string, LtHandle> handles;
  LAPIDARY_TRY(const LtApi* const api, driver::cublaslt_api());
  const std::lock_guard lock(mutex);
  LtHandle& handle = handles[device.id];
  if (handle == nullptr) {
    LAPIDARY_TRY_STATUS(check(api->create(&handle), "cublasLtCreate"));
  }
  return Library{api, handle};
}

/// One way of multiplying that the problem's numerics class admits.
struct Variant {
  LtCompute compute = LtCompute::f32;
  bool fast = false;  ///< fp8 sums that are not promoted on the way
  DType compute_type() const { return compute == LtCompute::f16 ? DType::f16 : DType::f32; }
  bool operator==(const Variant&) const = default;
};

/// The fastest first.
std::vector<Variant> variants(const GemmProblem& p, const Fused& fused) {
  std::vector<Variant> made;
  if (p.numerics.fast_fp8 && narrow(p.a)) made.push_back({.fast = true});
  if (p.numerics.tf32 && p.a == DType::f32) made.push_back({.compute = LtCompute::tf32});
  // With f16 sums all that follows them is f16 as well, and only the sums may be.
  const bool bare =
      fused.alpha == 1 && fused.alpha_operand.empty() && fused.c.empty() && fused.bias.empty() &&
      fused.aux.empty() &&
      (fused.epilogue == driver::kLtEpilogueDefault || fused.epilogue == driver::kLtEpilogueRelu);
  if (p.numerics.f16_acc && p.a == DType::f16 && p.d == DType::f16 && bare)
    made.push_back({.compute = LtCompute::f16});
  made.push_back({});
  return made;
}

Config config_of(const Variant& variant) {
  Config config;
  if (variant.compute == LtCompute::tf32) config["compute"] = "tf32";
  if (variant.compute == LtCompute::f16) config["compute"] = "f16";
  if (variant.fast) config["fast"] = std::int64_t{1};
  return config;
}

/// Schemes of adding up the parts of a split k that round nowhere but where the class's sums may:
/// parts in the output's type do, unless it is the sums' own. All of them are deterministic
/// (cublasLtReductionScheme_t: in place too, counters keep the order).
std::uint32_t reduction_schemes(const GemmProblem& p, const Variant& variant) {
  std::uint32_t mask = driver::kLtReduceComputeType;
  if (p.d == variant.compute_type()) mask |= driver::kLtReduceInPlace | driver::kLtReduceOutputType;
  return mask;
}

/// Microseconds at best, for ranking before anything is measured: an H200 (132 SMs) computes at
/// these rates while it is cool, and reads 4.3 TB/s.
double predicted_us(const GemmProblem& p, const Variant& variant, const DeviceInfo& device) {
  const double tflops = variant.compute == LtCompute::tf32 ? 400
                        : p.a == DType::f32                ? 50
                        : narrow(p.a)                      ? 1500
                                                           : 800;
  const int sms = std::max(1, std::min(device.threads, p.sms.value_or(device.threads)));
  const double share = sms / 132.0;
  return std::max(flops(p) / (tflops * 1e6), operand_bytes(p) / 4.3e6) / share;
}

/// Bytes to which every batch entry of an operand is aligned, at most the 256 of its base.
std::uint32_t alignment(const OperandSpec& spec) {
  const auto stride =
      spec.batch > 1 ? static_cast<std::uint64_t>(spec.batch_stride * size_bytes(spec.type)) : 0;
  const std::uint64_t bits = 256 | static_cast<std::uint64_t>(spec.offset_bytes) | stride;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

/// Attributes that make an algorithm, by their names in configs.
struct Field {
  std::string_view name;
  LtConfig attribute;
  std::size_t bytes;
};
constexpr Field kId = {"id", LtConfig::id, 4};
constexpr Field kSplitK = {"split_k", LtConfig::split_k, 4};
constexpr Field kReduction = {"reduction", LtConfig::reduction, 4};
constexpr Field kFields[] = {
    {"tile", LtConfig::tile, 4},
    {"stages", LtConfig::stages, 4},
    kSplitK,
    kReduction,
    {"swizzle", LtConfig::swizzle, 4},
    {"custom", LtConfig::custom, 4},
    {"inner", LtConfig::inner_shape, 2},
    {"cluster", LtConfig::cluster, 2},
};

Result<std::uint32_t> read(const LtApi& api, const LtAlgo& algo, const Field& field) {
  std::array<std::uint8_t, 4> bytes{};
  std::size_t written = 0;
  LAPIDARY_TRY_STATUS(check(
      api.config_get(&algo, static_cast<int>(field.attribute), bytes.data(), field.bytes, &written),
      "cublasLtMatmulAlgoConfigGetAttribute"));
  return std::bit_cast<std::uint32_t>(bytes);  // little-endian, as every host of a GPU
}

/// A field of a config; 0 when it is left out.
Result<std::uint32_t> field_of(const Config& config, const Field& field) {
  const auto found = config.find(std::string(field.name));
  if (found == config.end()) return std::uint32_t{0};
  const auto* number = std::get_if<std::int64_t>(&found->second);
  const std::int64_t most = field.bytes == 2 ? std::numeric_limits<std::uint16_t>::max()
                                             : std::numeric_limits<std::uint32_t>::max();
  if (number == nullptr || *number < 0 || *number > most) {
    return fail(ErrorCode::invalid_argument,
                "cublaslt: config {}: {} must be a whole number from 0 to {}", text(config),
                field.name, most);
  }
  return static_cast<std::uint32_t>(*number);
}

std::string hex(const LtAlgo& algo) {
  std::string digits;
  for (const std::uint64_t word : algo.data) digits += fmt::format("{:016x}", word);
  return digits;
}

std::optional<LtAlgo> from_hex(std::string_view digits) {
  LtAlgo algo;
  if (digits.size() != 16 * algo.data.size()) return std::nullopt;
  for (std::uint64_t& word : algo.data) {
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + 16, word, 16);
    if (code != std::errc() || end != digits.data() + 16) return std::nullopt;
    digits.remove_prefix(16);
  }
  return algo;
}

/// A problem in the library's words. Immutable.
class Matmul {
 public:
  static Result<Matmul> make(const Library& library, const GemmProblem& problem, const Fused& fused,
                             const Variant& variant, const DeviceInfo& device) {
    Matmul made(library, problem, fused, variant, device);
    const std::vector<OperandSpec>& specs = made.specs_;
    LAPIDARY_TRY(made.a_layout_, made.layout(specs[made.a_], specs[made.a_].type));
    LAPIDARY_TRY(made.b_layout_, made.layout(specs[made.b_], specs[made.b_].type));
    LAPIDARY_TRY(made.c_layout_, made.layout(specs[made.c_.value_or(made.d_)], made.c_type()));
    LAPIDARY_TRY(made.d_layout_, made.layout(specs[made.d_], specs[made.d_].type));
    return made;
  }

  /// What the heuristic gives, best first; `unsupported` with kNoAlgorithm when that is nothing.
  Result<std::vector<LtAlgo>> algorithms() const {
    LAPIDARY_TRY(const Owned<LtMatmulDesc> desc, describe(pretended()));
    LtPreference raw = nullptr;
    LAPIDARY_TRY_STATUS(check(api().preference_create(&raw), "cublasLtMatmulPreferenceCreate"));
    const Owned<LtPreference> preference(raw, api().preference_destroy);
    const auto prefer = [&](LtPref attribute, const auto& value) {
      return check(api().preference_set(raw, static_cast<int>(attribute), &value, sizeof value),
                   "cublasLtMatmulPreferenceSetAttribute");
    };
    LAPIDARY_TRY_STATUS(
        prefer(LtPref::workspace_bytes, static_cast<std::uint64_t>(problem_.workspace)));
    LAPIDARY_TRY_STATUS(prefer(LtPref::reduction_schemes, reduction_schemes(problem_, variant_)));
    LAPIDARY_TRY_STATUS(prefer(LtPref::alignment_a, alignment(specs_[b_])));
    LAPIDARY_TRY_STATUS(prefer(LtPref::alignment_b, alignment(specs_[a_])));
    LAPIDARY_TRY_STATUS(prefer(LtPref::alignment_c, alignment(specs_[passed_as_c()])));
    LAPIDARY_TRY_STATUS(prefer(LtPref::alignment_d, alignment(specs_[d_])));
    std::vector<LtHeuristicResult> results(kAsked);
    int found = 0;
    const LtStatus status =
        api().heuristic(library_.handle, desc.get(), b_layout_.get(), a_layout_.get(),
                        c_layout_.get(), d_layout_.get(), raw, kAsked, results.data(), &found);
    if (status == driver::kLtNotSupported) return fail(ErrorCode::unsupported, "{}", kNoAlgorithm);
    LAPIDARY_TRY_STATUS(check(status, "cublasLtMatmulAlgoGetHeuristic"));
    std::vector<LtAlgo> algorithms;
    for (int i = 0; i < std::min(found, kAsked); ++i) {
      const LtHeuristicResult& result = results[static_cast<std::size_t>(i)];
      if (result.state == driver::kLtSuccess) algorithms.push_back(result.algo);
    }
    if (algorithms.empty()) return fail(ErrorCode::unsupported, "{}", kNoAlgorithm);
    return algorithms;
  }

  /// The config from which `configured` makes the same algorithm.
  Result<Config> config(const LtAlgo& algo) const {
    Config config = config_of(variant_);
    LAPIDARY_TRY(const std::uint32_t id, read(api(), algo, kId));
    config["id"] = std::int64_t{id};
    for (const Field& field : kFields) {
      LAPIDARY_TRY(const std::uint32_t value, read(api(), algo, field));
      if (value != 0) config[std::string(field.name)] = std::int64_t{value};
    }
    if (const Result<LtAlgo> again = made_of(config); again && *again == algo) return config;
    // What else it holds has no attributes: kept as it is, good for this version alone.
    config["algo"] = hex(algo);
    config["lt"] = static_cast<std::int64_t>(api().version());
    return config;
  }

  /// The algorithm of a config, if the problem's numerics admit it.
  Result<LtAlgo> configured(const Config& config) const {
    LAPIDARY_TRY_STATUS(check_names(config));
    LAPIDARY_TRY(const LtAlgo algo, made_of(config));
    LAPIDARY_TRY(const std::uint32_t scheme, read(api(), algo, kReduction));
    if ((scheme & ~reduction_schemes(problem_, variant_)) != 0) {
      return fail(ErrorCode::invalid_argument,
                  "cublaslt: config {}: reduction {} rounds parts of sums to D's type, which the "
                  "problem's numerics do not allow",
                  text(config), scheme);
    }
    LAPIDARY_TRY(const std::uint32_t parts, read(api(), algo, kSplitK));
    if (fused_.multiplies_at_zero && parts <= 1)
      return fail(ErrorCode::unsupported, "{}", kMultipliesAtZero);
    return algo;
  }

  /// Of workspace that the algorithm takes, or that it cannot serve the problem.
  Result<std::int64_t> workspace_bytes(const LtAlgo& algo) const {
    LAPIDARY_TRY(const Owned<LtMatmulDesc> desc, describe(pretended()));
    LtHeuristicResult result{};
    LAPIDARY_TRY_STATUS(
        check(api().algo_check(library_.handle, desc.get(), b_layout_.get(), a_layout_.get(),
                               c_layout_.get(), d_layout_.get(), &algo, &result),
              "cublasLtMatmulAlgoCheck"));
    LAPIDARY_TRY_STATUS(check(result.state, "cublasLtMatmulAlgoCheck"));
    return static_cast<std::int64_t>(result.workspace_bytes);
  }

  /// Does a scalar operand stand for alpha or beta? Then both lie in device memory.
  bool device_scalars() const { return alpha_.has_value() || beta_.has_value(); }
  std::array<float, 2> numbers() const { return {fused_.alpha, fused_.beta}; }

  Status run(const Arguments& arguments, const LtAlgo& algo, std::int64_t workspace_bytes,
             const DeviceNumbers* on_device) const {
    const std::span<void* const> operands = arguments.operands;
    LAPIDARY_TRY(const Owned<LtMatmulDesc> desc, describe(operands));
    // In the type of the sums; for f16 ones `variants` has seen to it that they are 1 and 0.
    const std::array<float, 2> wide = numbers();
    constexpr std::array<std::uint16_t, 2> kHalf = {0x3c00, 0};
    const bool half = variant_.compute == LtCompute::f16;
    const auto scalar = [&](std::optional<std::size_t> operand, std::size_t i) -> const void* {
      if (operand) return operands[*operand];
      if (on_device != nullptr) return on_device->at(i);
      return half ? static_cast<const void*>(&kHalf[i]) : &wide[i];
    };
    return check(
        api().matmul(library_.handle, desc.get(), scalar(alpha_, 0), operands[b_], b_layout_.get(),
                     operands[a_], a_layout_.get(), scalar(beta_, 1), operands[passed_as_c()],
                     c_layout_.get(), operands[d_], d_layout_.get(), &algo, arguments.workspace,
                     static_cast<std::size_t>(workspace_bytes),
                     static_cast<CuStream>(arguments.stream)),
        "cublasLtMatmul");
  }

 private:
  Matmul(const Library& library, const GemmProblem& problem, const Fused& fused,
         const Variant& variant, const DeviceInfo& device)
      : library_(library),
        problem_(problem),
        fused_(fused),
        variant_(variant),
        specs_(operands(problem)) {
    const auto place = [&](std::string_view name) -> std::optional<std::size_t> {
      const auto found = std::ranges::find(specs_, name, &OperandSpec::name);
      if (found == specs_.end()) return std::nullopt;
      return static_cast<std::size_t>(found - specs_.begin());
    };
    if (problem.scales != ScaleMode::none) {
      a_scale_ = place("scale_a");
      b_scale_ = place("scale_b");
    }
    alpha_ = place(fused.alpha_operand);
    beta_ = place(fused.beta_operand);
    c_ = place(fused.c);
    bias_ = place(fused.bias);
    aux_ = place(fused.aux);
    d_ = *place("d");
    d_scale_ = place(fused.scale_d);
    amax_ = place(fused.amax);
    if (problem.sms && *problem.sms < device.threads) sms_ = *problem.sms;
  }

  const LtApi& api() const { return *library_.api; }

  /// Where there is no C, beta is 0 and what is passed in its place is not read, but it may be no
  /// null with scalars in device memory, nor D where the types differ.
  std::size_t passed_as_c() const { return c_.value_or(c_type() == specs_[d_].type ? d_ : a_); }

  /// The type that the library wants to be told of C. A D of 8 bits goes with a C, and then a bias
  /// and an aux, of 16; an aux of 8 with a C of f16 (measured on an H200 with 13.1).
  DType c_type() const {
    if (c_) return specs_[*c_].type;
    const DType d = specs_[d_].type;
    if (!narrow(d)) return d;
    if (bias_) return specs_[*bias_].type == DType::f16 ? DType::f16 : DType::bf16;
    return aux_ && specs_[*aux_].type != DType::bf16 ? DType::f16 : DType::bf16;
  }

  Result<Owned<LtLayout>> layout(const OperandSpec& spec, DType type) const {
    LtLayout raw = nullptr;
    LAPIDARY_TRY_STATUS(
        check(api().layout_create(&raw, static_cast<int>(lt_type(type)),
                                  static_cast<std::uint64_t>(spec.cols),
                                  static_cast<std::uint64_t>(spec.rows), spec.pitch),
              "cublasLtMatrixLayoutCreate"));
    Owned<LtLayout> made(raw, api().layout_destroy);
    if (problem_.batch == 1) return made;
    const auto count = static_cast<std::int32_t>(problem_.batch);
    const std::int64_t stride = spec.batch_stride;
    const auto set = [&](driver::LtLayoutAttribute attribute, const auto& value) {
      return check(api().layout_set(raw, static_cast<int>(attribute), &value, sizeof value),
                   "cublasLtMatrixLayoutSetAttribute");
    };
    LAPIDARY_TRY_STATUS(set(driver::LtLayoutAttribute::batch_count, count));
    LAPIDARY_TRY_STATUS(set(driver::LtLayoutAttribute::batch_stride, stride));
    return made;
  }

  /// Addresses as aligned as those of every entry of a batch will be: the heuristic reads that off
  /// some of them, and follows none.
  std::vector<void*> pretended() const {
    constexpr std::uintptr_t kBase = std::uintptr_t{1} << 32;
    std::vector<void*> pointers;
    for (const OperandSpec& spec : specs_)
      pointers.push_back(reinterpret_cast<void*>(kBase + alignment(spec)));
    return pointers;
  }

  /// The product and its epilogue over such operands. Made for every run (0.04 us): runs then share
  /// nothing that changes.
  Result<Owned<LtMatmulDesc>> describe(std::span<void* const> operands) const {
    LtMatmulDesc raw = nullptr;
    LAPIDARY_TRY_STATUS(check(api().desc_create(&raw, static_cast<int>(variant_.compute),
                                                static_cast<int>(lt_type(variant_.compute_type()))),
                              "cublasLtMatmulDescCreate"));
    Owned<LtMatmulDesc> desc(raw, api().desc_destroy);
    const auto set = [&](LtDesc attribute, const auto& value) {
      return check(api().desc_set(raw, static_cast<int>(attribute), &value, sizeof value),
                   "cublasLtMatmulDescSetAttribute");
    };
    const auto point = [&](LtDesc attribute, std::optional<std::size_t> operand) -> Status {
      if (!operand) return {};
      const void* const pointer = operands[*operand];
      return set(attribute, pointer);
    };
    // Stored with k in rows or in columns: its first matrix must come out (n, k), its second (k,
    // m).
    const bool b_is_kn = problem_.layout == GemmLayout::nn || problem_.layout == GemmLayout::tn;
    const bool a_is_km = problem_.layout == GemmLayout::tn || problem_.layout == GemmLayout::tt;
    LAPIDARY_TRY_STATUS(set(LtDesc::trans_a, b_is_kn ? driver::kLtOpN : driver::kLtOpT));
    LAPIDARY_TRY_STATUS(set(LtDesc::trans_b, a_is_km ? driver::kLtOpT : driver::kLtOpN));
    if (device_scalars()) LAPIDARY_TRY_STATUS(set(LtDesc::pointer_mode, driver::kLtPointerDevice));
    if (fused_.epilogue != driver::kLtEpilogueDefault)
      LAPIDARY_TRY_STATUS(set(LtDesc::epilogue, fused_.epilogue));
    if (bias_) {
      LAPIDARY_TRY_STATUS(point(LtDesc::bias_pointer, bias_));
      LAPIDARY_TRY_STATUS(
          set(LtDesc::bias_type, static_cast<std::int32_t>(lt_type(specs_[*bias_].type))));
      if (problem_.batch > 1)
        LAPIDARY_TRY_STATUS(set(LtDesc::bias_batch_stride, specs_[*bias_].batch_stride));
    }
    if (aux_) {
      LAPIDARY_TRY_STATUS(point(LtDesc::aux_pointer, aux_));
      LAPIDARY_TRY_STATUS(set(LtDesc::aux_ld, specs_[*aux_].pitch));
      LAPIDARY_TRY_STATUS(
          set(LtDesc::aux_type, static_cast<std::int32_t>(lt_type(specs_[*aux_].type))));
      if (problem_.batch > 1)
        LAPIDARY_TRY_STATUS(set(LtDesc::aux_batch_stride, specs_[*aux_].batch_stride));
    }
    if (problem_.scales == ScaleMode::row || problem_.scales == ScaleMode::block) {
      const bool row = problem_.scales == ScaleMode::row;
      LAPIDARY_TRY_STATUS(
          set(LtDesc::a_scale_mode, row ? driver::kLtScaleOuterVector : driver::kLtScaleBlock128));
      LAPIDARY_TRY_STATUS(
          set(LtDesc::b_scale_mode, row ? driver::kLtScaleOuterVector : driver::kLtScaleVector128));
    }
    LAPIDARY_TRY_STATUS(point(LtDesc::a_scale_pointer, b_scale_));
    LAPIDARY_TRY_STATUS(point(LtDesc::b_scale_pointer, a_scale_));
    LAPIDARY_TRY_STATUS(point(LtDesc::d_scale_pointer, d_scale_));
    LAPIDARY_TRY_STATUS(point(LtDesc::amax_d_pointer, amax_));
    if (variant_.fast) LAPIDARY_TRY_STATUS(set(LtDesc::fast_accumulation, std::int8_t{1}));
    if (sms_ != 0) LAPIDARY_TRY_STATUS(set(LtDesc::sm_count, sms_));
    return desc;
  }

  Result<LtAlgo> made_of(const Config& config) const {
    if (const auto bits = config.find("algo"); bits != config.end())
      return kept(config, bits->second);
    const auto type = [](DType t) { return static_cast<int>(lt_type(t)); };
    LAPIDARY_TRY(const std::uint32_t id, field_of(config, kId));
    LtAlgo algo;
    LAPIDARY_TRY_STATUS(check(
        api().algo_init(library_.handle, static_cast<int>(variant_.compute),
                        type(variant_.compute_type()), type(specs_[b_].type), type(specs_[a_].type),
                        type(c_type()), type(specs_[d_].type), static_cast<int>(id), &algo),
        "cublasLtMatmulAlgoInit"));
    for (const Field& field : kFields) {
      LAPIDARY_TRY(const std::uint32_t value, field_of(config, field));
      const auto bytes = std::bit_cast<std::array<std::uint8_t, 4>>(value);
      LAPIDARY_TRY_STATUS(check(
          api().config_set(&algo, static_cast<int>(field.attribute), bytes.data(), field.bytes),
          "cublasLtMatmulAlgoConfigSetAttribute"));
    }
    return algo;
  }

  /// An algorithm that a config holds bit by bit.
  Result<LtAlgo> kept(const Config& config, const ConfigValue& bits) const {
    const auto* digits = std::get_if<std::string>(&bits);
    const std::optional<LtAlgo> algo = digits != nullptr ? from_hex(*digits) : std::nullopt;
    if (!algo) {
      return fail(ErrorCode::invalid_argument,
                  "cublaslt: config {}: algo must be 128 hexadecimal digits", text(config));
    }
    const auto version = config.find("lt");
    const auto here = static_cast<std::int64_t>(api().version());
    if (version == config.end() || version->second != ConfigValue(here)) {
      return fail(ErrorCode::unsupported,
                  "cublaslt: config {} is of another version of the library; this is {}: tune with "
                  "--retune",
                  text(config), here);
    }
    return *algo;
  }

  static Status check_names(const Config& config) {
    for (const auto& [name, value] : config) {
      const bool known = name == "id" || name == "compute" || name == "fast" || name == "algo" ||
                         name == "lt" ||
                         std::ranges::find(kFields, name, &Field::name) != std::end(kFields);
      if (!known) {
        return fail(ErrorCode::invalid_argument, "cublaslt: config {}: '{}' is none of its fields",
                    text(config), name);
      }
    }
    if (!config.contains("id"))
      return fail(ErrorCode::invalid_argument, "cublaslt: config {}: no id", text(config));
    return {};
  }

  Library library_;
  GemmProblem problem_;
  Fused fused_;
  Variant variant_;
  std::vector<OperandSpec> specs_;
  // Places in specs_.
  std::size_t a_ = 0, b_ = 1, d_ = 0;
  std::optional<std::size_t> a_scale_, b_scale_, alpha_, beta_, c_, bias_, aux_, d_scale_, amax_;
  std::int32_t sms_ = 0;  // limit; 0: none
  Owned<LtLayout> a_layout_, b_layout_, c_layout_, d_layout_;
};

class CublasLtExecutable final : public Executable {
 public:
  CublasLtExecutable(Matmul matmul, const LtAlgo& algo, std::int64_t workspace_bytes,
                     std::optional<DeviceNumbers> numbers)
      : matmul_(std::move(matmul)),
        algo_(algo),
        workspace_bytes_(workspace_bytes),
        numbers_(std::move(numbers)) {}

  std::int64_t workspace_bytes() const override { return workspace_bytes_; }

  Status run(const Arguments& arguments) const override {
    return without_throwing([&] {
      return matmul_.run(arguments, algo_, workspace_bytes_, numbers_ ? &*numbers_ : nullptr);
    });
  }

 private:
  Matmul matmul_;
  LtAlgo algo_;
  std::int64_t workspace_bytes_;
  std::optional<DeviceNumbers> numbers_;
};

/// Why a run would end in a misaligned address, with algorithms that the heuristic offers all the
/// same; "" when it would not. Measured on an H200 with cuBLASLt 13.1, D of 16 bits.
std::string_view fault(const GemmProblem& p, const Fused& fused) {
  if ((fused.epilogue & driver::kLtEpilogueGelu) == 0 || p.d == DType::f32) return "";
  for (const OperandSpec& spec : operands(p)) {
    if (spec.name == fused.bias && alignment(spec) < 4)
      return "cuBLASLt faults on an [n] operand below gelu_tanh that is not aligned to 4 bytes";
    if (spec.name == fused.aux && alignment(spec) < 16)
      return "cuBLASLt faults on an output before gelu_tanh that is not aligned to 16 bytes";
  }
  return "";
}

/// What stands between the problem and the library, before it is asked.
Result<Fused> admitted(const GemmProblem& p) {
  const auto no = [](std::string_view why) {
    return Error{ErrorCode::unsupported, std::string(why)};
  };
  LAPIDARY_TRY(const Fused fused, cublaslt_match::match(p));
  if (p.m == 0 || p.n == 0 || p.k == 0 || p.batch == 0)
    return no("cuBLASLt is not asked where there is nothing to multiply");
  if (p.batch > std::numeric_limits<std::int32_t>::max())
    return no("cuBLASLt counts a batch with 31 bits");
  if (const std::string_view why = fault(p, fused); !why.empty()) return no(why);
  return fused;
}

class CublasLtBackend final : public Backend {
 public:
  std::string_view name() const override { return "cublaslt"; }

  bool serves(const DeviceInfo& device) const override { return device.id.starts_with("cuda:"); }

  Result<std::string> version() const override {
    LAPIDARY_TRY(const LtApi* const api, driver::cublaslt_api());
    const std::size_t v = api->version();
    return fmt::format("cuBLASLt {}.{}.{} at {}", v / 10000, v / 100 % 100, v % 100, api->path);
  }

  std::vector<Offer> candidates(const GemmProblem& problem,
                                const DeviceInfo& device) const override {
    const auto refused = [](const Variant& variant, const Error& why) {
      return Offer{.candidate = {"cublaslt", config_of(variant)}, .refused = why.message};
    };
    if (!serves(device)) {
      return {refused({}, fail(ErrorCode::unsupported, "cuBLASLt serves CUDA devices alone"))};
    }
    const Result<Fused> fused = admitted(problem);
    if (!fused) return {refused({}, fused.error())};
    const Result<Library> library = library_on(device);
    if (!library) return {refused({}, library.error())};
    std::vector<Offer> offers;
    for (const Variant& variant : variants(problem, *fused)) {
      const Result<Matmul> matmul = Matmul::make(*library, problem, *fused, variant, device);
      if (!matmul) {
        offers.push_back(refused(variant, matmul.error()));
        continue;
      }
      const Result<std::vector<LtAlgo>> algorithms = matmul->algorithms();
      if (!algorithms) {
        offers.push_back(refused(variant, algorithms.error()));
        continue;
      }
      const double best_us = predicted_us(problem, variant, device);
      for (const LtAlgo& algo : *algorithms) {
        // The heuristic's order is kept: its first pick is what a plan without a store uses.
        Offer next = offer(*matmul, variant, algo);
        next.predicted_us = best_us * (1 + 0.01 * static_cast<double>(offers.size()));
        const bool known = std::ranges::any_of(
            offers, [&](const Offer& o) { return o.candidate == next.candidate; });
        if (!known) offers.push_back(std::move(next));
      }
    }
    return offers;
  }

  Result<std::unique_ptr<Executable>> compile(const GemmProblem& problem, const Config& config,
                                              const DeviceInfo& device) const override {
    if (!serves(device))
      return fail(ErrorCode::unsupported, "cuBLASLt serves CUDA devices alone, not {}", device.id);
    LAPIDARY_TRY(const Fused fused, admitted(problem));
    LAPIDARY_TRY(const Library library, library_on(device));
    Config wanted;
    for (const char* const name : {"compute", "fast"}) {
      if (const auto field = config.find(name); field != config.end()) wanted.insert(*field);
    }
    const std::vector<Variant> all = variants(problem, fused);
    const auto variant = std::ranges::find(all, wanted, &config_of);
    if (variant == all.end()) {
      return fail(ErrorCode::invalid_argument,
                  "cublaslt: config {} computes in a way that the problem's numerics do not admit",
                  text(config));
    }
    LAPIDARY_TRY(Matmul matmul, Matmul::make(library, problem, fused, *variant, device));
    LAPIDARY_TRY(const LtAlgo algo, matmul.configured(config));
    LAPIDARY_TRY(const std::int64_t workspace, matmul.workspace_bytes(algo));
    if (workspace > problem.workspace) {
      return fail(ErrorCode::resource_limit,
                  "cublaslt: config {} needs {} bytes of workspace; the problem allows {}",
                  text(config), workspace, problem.workspace);
    }
    std::optional<DeviceNumbers> numbers;
    if (matmul.device_scalars()) {
      LAPIDARY_TRY(DeviceNumbers made, DeviceNumbers::make(matmul.numbers(), device.id));
      numbers.emplace(std::move(made));
    }
    return std::unique_ptr<Executable>(std::make_unique<CublasLtExecutable>(
        std::move(matmul), algo, workspace, std::move(numbers)));
  }

 private:
  static Offer offer(const Matmul& matmul, const Variant& variant, const LtAlgo& algo) {
    Offer made{.candidate = {"cublaslt", config_of(variant)}, .refused = ""};
    const Result<Config> config = matmul.config(algo);
    if (!config) {
      made.refused = config.error().message;
      return made;
    }
    made.candidate.config = *config;
    // Asked of the algorithm that compile() will make: what is offered is what runs.
    const Result<LtAlgo> again = matmul.configured(*config);
    const Result<std::int64_t> workspace =
        again ? matmul.workspace_bytes(*again) : Result<std::int64_t>(again.error());
    if (workspace)
      made.workspace_bytes = *workspace;
    else
      made.refused = workspace.error().message;
    return made;
  }
};

}  // namespace

const Backend& cublaslt() {
  static const CublasLtBackend backend;
  return backend;
}

}  // namespace lapidary::backends
