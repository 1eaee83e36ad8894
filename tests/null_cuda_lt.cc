// cuBLASLt on host memory: refuses what the real one refuses on a Hopper card (cuBLAS
// documentation, cublasLtMatmul and "Narrow Precision Data Types Usage"; statuses as an H200 gave
// them with 13.1) and computes the rest in float64.
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <numbers>

#include "null_cuda_core.h"
#include "numeric/numeric.h"

namespace lapidary::driver {
namespace {

using namespace null_cuda;  // NOLINT: this is its face

constexpr LtStatus kNotInitialised = 1, kExecutionFailed = 13, kInternalError = 14;
constexpr std::int64_t kScaleBlock = 128;  // elements along k that share a scale

struct Desc {
  int compute = 0, scale = 0;
  std::int32_t pointer_mode = kLtPointerHost, trans_a = kLtOpN, trans_b = kLtOpN;
  std::uint32_t epilogue = kLtEpilogueDefault;
  void* bias = nullptr;
  std::int64_t bias_stride = 0;
  void* aux = nullptr;
  std::int64_t aux_ld = 0, aux_stride = 0;
  std::int32_t sm_count = 0;
  const void *a_scale = nullptr, *b_scale = nullptr, *d_scale = nullptr;
  void* amax = nullptr;
  std::int32_t aux_type = -1, bias_type = -1;  // -1: as D
  std::int8_t fast_accumulation = 0;
  std::int32_t a_mode = kLtScaleScalar, b_mode = kLtScaleScalar;
};

struct Layout {
  int type = 0;
  std::uint64_t rows = 0, cols = 0;
  std::int64_t ld = 0;
  std::int32_t batch = 1;
  std::int64_t stride = 0;
};

struct Preference {
  std::uint64_t workspace_bytes = 0;
  std::uint32_t reductions = kLtReduceInPlace | kLtReduceComputeType | kLtReduceOutputType;
  std::uint32_t align_a = 256, align_b = 256, align_c = 256, align_d = 256;
};

/// What the 64 bytes of an algorithm say.
struct Algo {
  std::int32_t id = 0;
  std::uint32_t tile = 0, stages = 0;
  std::int32_t split_k = 1;
  std::uint32_t reduction = 0, swizzle = 0, custom = 0;
  std::uint16_t inner = 0, cluster = 0;
  std::int32_t compute = 0, scale = 0, a = 0, b = 0, c = 0, d = 0;
  std::uint32_t unused[2] = {};
  bool operator==(const Algo&) const = default;
};
static_assert(sizeof(Algo) == sizeof(LtAlgo));

struct Lt {
  Table<Desc> descs{Kind::lt_desc};
  Table<Layout> layouts{Kind::lt_layout};
  Table<Preference> preferences{Kind::lt_preference};
  std::vector<LtHandle> handles;
};

Lt& lt() {
  static Lt* const one = new Lt;  // never freed: see Process
  return *one;
}

using Lock = std::scoped_lock<std::mutex>;

template <int Symbol>
std::optional<int> entered() {
  static_assert(Symbol >= 0, "not an entry of cuBLASLt");
  return enter(Symbol);
}
#define ENTER(symbol)                                                                          \
  const char* const who = #symbol;                                                             \
  (void)who;                                                                                   \
  if (const std::optional<int> fault = entered<symbol_index(#symbol)>(); fault) return *fault; \
  const Lock lock(mutex())

bool is_handle(LtHandle handle) {
  if (std::ranges::find(lt().handles, handle) != lt().handles.end()) return true;
  misuse("cuBLASLt: no such handle");
  return false;
}

template <class T>
LtStatus assign(T& field, const void* value, std::size_t bytes) {
  if (value == nullptr || bytes != sizeof field) return kLtInvalidValue;
  std::memcpy(&field, value, sizeof field);
  return kLtSuccess;
}

template <class T>
LtStatus report(const T& field, void* value, std::size_t bytes, std::size_t* written) {
  if (bytes == 0) {
    if (written == nullptr) return kLtInvalidValue;
    *written = sizeof field;
    return kLtSuccess;
  }
  if (value == nullptr || bytes != sizeof field) return kLtInvalidValue;
  std::memcpy(value, &field, sizeof field);
  if (written != nullptr) *written = sizeof field;
  return kLtSuccess;
}

/// Calls act(field) on the field of an attribute.
template <class A, class Act>
LtStatus with_field(A& algo, int attribute, Act act) {
  switch (static_cast<LtConfig>(attribute)) {
    case LtConfig::id:
      return act(algo.id);
    case LtConfig::tile:
      return act(algo.tile);
    case LtConfig::split_k:
      return act(algo.split_k);
    case LtConfig::reduction:
      return act(algo.reduction);
    case LtConfig::swizzle:
      return act(algo.swizzle);
    case LtConfig::custom:
      return act(algo.custom);
    case LtConfig::stages:
      return act(algo.stages);
    case LtConfig::inner_shape:
      return act(algo.inner);
    case LtConfig::cluster:
      return act(algo.cluster);
  }
  return kLtInvalidValue;
}

// ---- what is supported

std::optional<DType> dtype(int type) {
  switch (static_cast<LtType>(type)) {
    case LtType::f32:
      return DType::f32;
    case LtType::f16:
      return DType::f16;
    case LtType::bf16:
      return DType::bf16;
    case LtType::e4m3:
      return DType::e4m3;
    case LtType::e5m2:
      return DType::e5m2;
  }
  return std::nullopt;
}

bool is_fp8(DType type) { return size_bytes(type) == 1; }

bool is_aligned(const void* pointer, std::uintptr_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

/// The whole question, with handles resolved.
struct Query {
  Desc desc;
  Layout a, b, c, d;
};
struct Types {
  DType a, b, c, d;
};
struct Shape {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
};

std::optional<Types> types_of(const Query& q) {
  const auto a = dtype(q.a.type), b = dtype(q.b.type), c = dtype(q.c.type), d = dtype(q.d.type);
  if (!a || !b || !c || !d) return std::nullopt;
  return Types{*a, *b, *c, *d};
}

Shape shape_of(const Query& q) {
  const bool transposed = q.desc.trans_a == kLtOpT;
  return {.m = static_cast<std::int64_t>(q.d.rows),
          .n = static_cast<std::int64_t>(q.d.cols),
          .k = static_cast<std::int64_t>(transposed ? q.a.rows : q.a.cols),
          .batch = q.d.batch};
}

/// Do the layouts fit each other?
bool fits(const Query& q) {
  const auto [m, n, k, batch] = shape_of(q);
  const auto is = [batches = batch](const Layout& x, bool transposed, std::int64_t rows,
                                    std::int64_t cols, bool broadcast) {
    if (transposed) std::swap(rows, cols);
    return x.rows == static_cast<std::uint64_t>(rows) &&
           x.cols == static_cast<std::uint64_t>(cols) && x.batch == batches &&
           (x.ld >= rows || (broadcast && x.ld == 0));
  };
  return batch >= 1 && is(q.a, q.desc.trans_a == kLtOpT, m, k, false) &&
         is(q.b, q.desc.trans_b == kLtOpT, k, n, false) && is(q.c, false, m, n, true) &&
         is(q.d, false, m, n, false);
}

/// Table 1 and 3 of cublasLtMatmul.
LtStatus check_types(const Desc& desc, const Types& t) {
  const auto all = [&](DType type) {
    return t.a == type && t.b == type && t.c == type && t.d == type;
  };
  const auto supported_if = [](bool is) { return is ? kLtSuccess : kLtNotSupported; };
  const bool half = desc.compute == static_cast<int>(LtCompute::f16);
  if (desc.scale != static_cast<int>(half ? LtType::f16 : LtType::f32)) return kLtNotSupported;
  if (half) return supported_if(all(DType::f16));
  if (desc.compute == static_cast<int>(LtCompute::tf32)) return supported_if(all(DType::f32));
  if (desc.compute != static_cast<int>(LtCompute::f32)) return kLtNotSupported;
  if (!is_fp8(t.d) && t.c != t.d) return kLtInvalidValue;
  if (is_fp8(t.a) != is_fp8(t.b)) return kLtNotSupported;
  if (!is_fp8(t.a)) {
    if (t.a != t.b) {
      return t.a == DType::f32 || t.b == DType::f32 ? kLtInvalidValue : kLtNotSupported;
    }
    return supported_if(t.d == t.a || t.d == DType::f32);
  }
  if (settings().sm < 89 || (t.a == DType::e5m2 && t.b == DType::e5m2)) return kLtNotSupported;
  if (!is_fp8(t.d)) return kLtSuccess;
  if (is_fp8(t.c) || t.c == DType::f32) return kLtNotSupported;
  return supported_if(t.d == DType::e4m3 || t.a == DType::e5m2 || t.b == DType::e5m2);
}

/// Scale modes, and pointers of scales and of an amax.
LtStatus check_scales(const Query& q, const Types& t, const Shape& shape) {
  const Desc& desc = q.desc;
  const bool any = desc.a_scale != nullptr || desc.b_scale != nullptr;
  const auto of_blocks = [](std::int32_t mode) {
    return mode == kLtScaleVector128 || mode == kLtScaleBlock128;
  };
  if (!is_fp8(t.a) && (any || desc.a_mode != kLtScaleScalar || desc.b_mode != kLtScaleScalar)) {
    return kLtInvalidValue;
  }
  if (!is_fp8(t.d) && (desc.d_scale != nullptr || desc.amax != nullptr)) return kLtNotSupported;
  if (desc.a_mode == kLtScaleScalar && desc.b_mode == kLtScaleScalar) return kLtSuccess;
  if (settings().sm != 90 || is_fp8(t.d) || shape.batch != 1) return kLtNotSupported;
  if (desc.a_mode == kLtScaleOuterVector) {
    return desc.b_mode == kLtScaleOuterVector ? kLtSuccess : kLtNotSupported;
  }
  if (!of_blocks(desc.a_mode) || !of_blocks(desc.b_mode)) return kLtNotSupported;
  if (desc.a_mode == kLtScaleBlock128 && desc.b_mode == kLtScaleBlock128) return kLtNotSupported;
  if (shape.m % 4 != 0 || shape.n % 4 != 0) return kLtNotSupported;
  return is_aligned(desc.a_scale, 16) && is_aligned(desc.b_scale, 16) ? kLtSuccess
                                                                      : kLtNotSupported;
}

DType or_type(std::int32_t type, DType otherwise) { return dtype(type).value_or(otherwise); }

/// The type of a bias: D's, with the exceptions for fp8 in table 3.
DType bias_type_needed(const Types& t) {
  if (!is_fp8(t.a)) return t.d;
  return t.c == DType::f32 ? DType::bf16 : t.c;
}

bool has_bias(const Desc& desc) {
  return (desc.epilogue & kLtEpilogueBias) != 0 ||
         desc.epilogue == static_cast<std::uint32_t>(kLtEpilogueDgeluBgrad);
}

LtStatus check_epilogue(const Query& q, const Types& t, const Shape& shape) {
  constexpr std::uint32_t kForward = kLtEpilogueRelu | kLtEpilogueBias | kLtEpilogueGelu;
  const Desc& desc = q.desc;
  const std::uint32_t e = desc.epilogue;
  const bool backward = e == kLtEpilogueDgelu || e == kLtEpilogueDgeluBgrad;
  const bool aux = (e & kLtEpilogueAux) != 0;
  if (!backward && e != kLtEpilogueDefault) {
    const std::uint32_t plain = e & ~static_cast<std::uint32_t>(kLtEpilogueAux);
    if (plain == 0 || (plain & ~kForward) != 0) return kLtNotSupported;
    if ((plain & kLtEpilogueRelu) != 0 && (aux || (plain & kLtEpilogueGelu) != 0)) {
      return kLtNotSupported;
    }
    if (aux && (plain & kLtEpilogueGelu) == 0) return kLtNotSupported;
  }
  if (aux) {
    // As D; with a D of 8 bits as C, or e4m3 beside a C of f16.
    const DType type = or_type(desc.aux_type, t.d);
    const bool fitting =
        is_fp8(t.d) ? type == t.c || (type == DType::e4m3 && t.c == DType::f16) : type == t.d;
    if (!fitting) return kLtInvalidValue;
    if (desc.aux_ld < shape.m || desc.aux_ld % 8 != 0 || desc.aux_stride % 8 != 0) {
      return kLtNotSupported;
    }
  }
  if (backward && is_fp8(t.d)) return kLtNotSupported;
  if (has_bias(desc) && or_type(desc.bias_type, bias_type_needed(t)) != bias_type_needed(t)) {
    return is_fp8(t.a) ? kLtNotSupported : kLtInvalidValue;
  }
  return kLtSuccess;
}

/// Algorithm 66, and any of fp8, wants 16 bytes of it. A null bias is yet to be set.
bool bias_aligned(const Desc& desc) { return !has_bias(desc) || is_aligned(desc.bias, 16); }

/// Do rows and matrices keep 16 bytes of alignment when the first one has it?
bool rows_aligned(const Query& q, const Types& t) {
  const auto is = [](const Layout& x, DType type) {
    const int size = size_bytes(type);
    return x.ld * size % 16 == 0 && (x.batch == 1 || x.stride * size % 16 == 0);
  };
  return is(q.a, t.a) && is(q.b, t.b) && is(q.c, t.c) && is(q.d, t.d);
}

LtStatus supported(const Query& q) {
  const auto types = types_of(q);
  if (!types) return kLtNotSupported;
  if (const LtStatus status = check_types(q.desc, *types); status != kLtSuccess) return status;
  if (!fits(q)) return kLtInvalidValue;
  const Shape shape = shape_of(q);
  if (shape.m == 0 || shape.n == 0) return kLtNotSupported;
  if (q.desc.pointer_mode != kLtPointerHost && q.desc.pointer_mode != kLtPointerDevice) {
    return kLtNotSupported;
  }
  if (is_fp8(types->a)) {
    const bool tn = q.desc.trans_a == kLtOpT && q.desc.trans_b == kLtOpN;
    const bool whole = shape.k % 16 == 0 && shape.m * size_bytes(types->d) % 16 == 0;
    if (!tn || !whole || !rows_aligned(q, *types)) return kLtNotSupported;
  }
  const LtStatus scales = check_scales(q, *types, shape);
  if (scales != kLtSuccess) return scales;
  const LtStatus epilogue = check_epilogue(q, *types, shape);
  if (epilogue != kLtSuccess) return epilogue;
  return is_fp8(types->a) && !bias_aligned(q.desc) ? kLtNotSupported : kLtSuccess;
}

// ---- algorithms

/// The three there are, best estimate first.
std::array<Algo, 3> offered(int compute, int scale, int a, int b, int c, int d) {
  const auto type = dtype(a);
  const bool fp8 = type && is_fp8(*type);
  std::array<Algo, 3> all = {
      Algo{.id = 66, .tile = 15, .stages = fp8 ? 36u : 35u, .custom = 1, .cluster = 4},
      Algo{.id = 24, .tile = 20, .split_k = 2, .reduction = kLtReduceComputeType, .inner = 1},
      Algo{.id = 20, .tile = 18, .stages = 28, .swizzle = 1, .custom = 2}};
  if (fp8) {  // none that splits k was ever seen
    all[1].split_k = 1;
    all[1].reduction = 0;
  }
  for (Algo& algo : all) {
    algo.compute = compute;
    algo.scale = scale;
    algo.a = a;
    algo.b = b;
    algo.c = c;
    algo.d = d;
  }
  return all;
}
std::array<Algo, 3> offered(const Query& q) {
  return offered(q.desc.compute, q.desc.scale, q.a.type, q.b.type, q.c.type, q.d.type);
}

int wait_us(const Algo& algo) {
  return settings().waits_us[algo.id == 66 ? 0 : algo.id == 24 ? 1 : 2];
}

/// Can the algorithm run with what the layouts and the descriptor say? Only 66 copies in pieces of
/// 16 bytes, and only 20 knows how to do without any k.
bool serves(const Algo& algo, const Query& q, const Types& types) {
  if (algo.id == 66 && !(rows_aligned(q, types) && bias_aligned(q.desc))) return false;
  return algo.id == 20 || shape_of(q).k > 0;
}

std::size_t workspace_of(const Algo& algo, const Shape& shape) {
  if (algo.split_k == 1) return 0;
  return static_cast<std::size_t>(shape.m * shape.n * shape.batch * algo.split_k) * sizeof(float);
}

LtHeuristicResult result_of(const Algo& algo, const Shape& shape) {
  LtHeuristicResult result{};
  result.algo = std::bit_cast<LtAlgo>(algo);
  result.workspace_bytes = workspace_of(algo, shape);
  result.state = kLtSuccess;
  result.waves = 0.5f;
  return result;
}

// ---- products

struct Product {
  Query q;
  Types types;
  Shape shape;
  Algo algo;
  const void *a = nullptr, *b = nullptr, *c = nullptr;
  void *d = nullptr, *workspace = nullptr;
  double alpha = 1, beta = 0;  // in host mode; else
  const void *alpha_at = nullptr, *beta_at = nullptr;
};

const void* element(const void* base, std::int64_t i, DType type) {
  return static_cast<const char*>(base) + i * size_bytes(type);
}

std::size_t extent_bytes(const Layout& x, DType type) {
  if (x.rows == 0 || x.cols == 0) return 0;
  const std::int64_t last = (x.batch - 1) * x.stride +
                            (static_cast<std::int64_t>(x.cols) - 1) * x.ld +
                            static_cast<std::int64_t>(x.rows);
  return static_cast<std::size_t>(last * size_bytes(type));
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The scales of one operand of `extent` rows (of A) or columns (of B).
class Scales {
 public:
  Scales(std::int32_t mode, const void* values, std::int64_t extent, std::int64_t k)
      : mode_(mode),
        values_(static_cast<const float*>(values)),
        extent_(extent),
        blocks_(ceil_div(k, kScaleBlock)) {}
  std::size_t bytes() const {
    if (values_ == nullptr) return 0;
    std::int64_t count = 1;
    if (mode_ == kLtScaleOuterVector) count = extent_;
    if (mode_ == kLtScaleVector128) count = extent_ * blocks_;
    if (mode_ == kLtScaleBlock128) {
      count = (ceil_div(extent_, kScaleBlock) - 1) * pitch() + blocks_;
    }
    return static_cast<std::size_t>(count) * sizeof(float);
  }
  bool by_block() const { return mode_ == kLtScaleVector128 || mode_ == kLtScaleBlock128; }
  const void* values() const { return values_; }
  double at(std::int64_t i, std::int64_t block) const {
    if (values_ == nullptr) return 1;
    switch (mode_) {
      case kLtScaleOuterVector:
        return values_[i];
      case kLtScaleVector128:  // contiguous along m or n
        return values_[block * extent_ + i];
      case kLtScaleBlock128:  // contiguous along k, a column begins at a multiple of 4
        return values_[i / kScaleBlock * pitch() + block];
      default:
        return values_[0];
    }
  }

 private:
  std::int64_t pitch() const { return ceil_div(blocks_, 4) * 4; }
  std::int32_t mode_;
  const float* values_;
  std::int64_t extent_, blocks_;
};

// Sums are taken in tiles of 8 rows of A by 4 columns of B, which both lie in panels: whole tunes
// under the null driver spend their time here.
constexpr std::int64_t kTileRows = 8, kTileCols = 4;

/// One operand of a batch entry in float64, in panels of `width` rows of A or columns of B; within
/// one, k by k. What fills up the last panel is 0.
class Panels {
 public:
  Panels(const void* base, const Layout& x, DType type, bool k_is_rows, std::int64_t entry,
         bool as_tf32, std::int64_t width)
      : k_(static_cast<std::int64_t>(k_is_rows ? x.rows : x.cols)) {
    const auto rows = static_cast<std::int64_t>(x.rows), cols = static_cast<std::int64_t>(x.cols);
    const std::int64_t extent = k_is_rows ? cols : rows;
    values_.resize(static_cast<std::size_t>(ceil_div(extent, width) * width * k_));
    std::vector<float> column(static_cast<std::size_t>(rows));
    for (std::int64_t c = 0; c < cols; ++c) {
      numeric::widen(type, element(base, entry * x.stride + c * x.ld, type), rows, column.data());
      for (std::int64_t r = 0; r < rows; ++r) {
        const float value = column[static_cast<std::size_t>(r)];
        const std::int64_t i = k_is_rows ? c : r, l = k_is_rows ? r : c;
        values_[static_cast<std::size_t>((i / width * k_ + l) * width + i % width)] =
            as_tf32 ? numeric::round_to_tf32(value) : value;
      }
    }
  }
  /// The panel that begins at row or column i.
  const double* at(std::int64_t i) const { return values_.data() + i * k_; }

 private:
  std::int64_t k_;
  std::vector<double> values_;
};

/// sums[c * 8 + r] = sum over l in [from, to) of a(r, l) * b(l, c), in the order of l.
[[gnu::always_inline]] inline void add_up_tile(const double* a, const double* b, std::int64_t from,
                                               std::int64_t to, double* sums) {
  using Four [[gnu::vector_size(32)]] = double;
  Four s[kTileCols][2] = {};
  for (std::int64_t l = from; l < to; ++l) {
    // One by one: GCC 12 copies more than a vector through memory.
    Four upper, lower;
    std::memcpy(&upper, a + l * kTileRows, sizeof upper);
    std::memcpy(&lower, a + l * kTileRows + 4, sizeof lower);
    for (int c = 0; c < kTileCols; ++c) {
      const double factor = b[l * kTileCols + c];
      s[c][0] += upper * factor;
      s[c][1] += lower * factor;
    }
  }
  for (int c = 0; c < kTileCols; ++c) {
    std::memcpy(sums + c * kTileRows, &s[c][0], sizeof(Four));
    std::memcpy(sums + c * kTileRows + 4, &s[c][1], sizeof(Four));
  }
}
void tile_anywhere(const double* a, const double* b, std::int64_t from, std::int64_t to,
                   double* sums) {
  add_up_tile(a, b, from, to, sums);
}
#ifdef __x86_64__
// No FMA: the same sums everywhere.
[[gnu::target("avx2")]] void tile_avx2(const double* a, const double* b, std::int64_t from,
                                       std::int64_t to, double* sums) {
  add_up_tile(a, b, from, to, sums);
}
#endif
void tile(const double* a, const double* b, std::int64_t from, std::int64_t to, double* sums) {
#ifdef __x86_64__
  static const bool wide = __builtin_cpu_supports("avx2");
  if (wide) return tile_avx2(a, b, from, to, sums);
#endif
  tile_anywhere(a, b, from, to, sums);
}

constexpr double kCubic = 0.044715;
double tanh_argument(double x) {
  return std::sqrt(2 / std::numbers::pi) * (x + kCubic * x * x * x);
}
double gelu(double x) { return 0.5 * x * (1 + std::tanh(tanh_argument(x))); }
double dgelu(double x) {
  const double t = std::tanh(tanh_argument(x));
  const double slope = std::sqrt(2 / std::numbers::pi) * (1 + 3 * kCubic * x * x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope;
}

/// The work of a product, which is asked for once and may run often.
class Run {
 public:
  explicit Run(const Product& p)
      : p_(p),
        a_scales_(p.q.desc.a_mode, p.q.desc.a_scale, p.shape.m, p.shape.k),
        b_scales_(p.q.desc.b_mode, p.q.desc.b_scale, p.shape.n, p.shape.k) {}

  void operator()() {
    const Desc& desc = p_.q.desc;
    alpha_ = p_.alpha;
    beta_ = p_.beta;
    if (p_.alpha_at != nullptr) {
      const DType type = or_type(desc.scale, DType::f32);
      const auto size = static_cast<std::size_t>(size_bytes(type));
      if (!touch(p_.alpha_at, size, kWho) || !touch(p_.beta_at, size, kWho)) return;
      alpha_ = numeric::load(type, p_.alpha_at, 0);
      beta_ = numeric::load(type, p_.beta_at, 0);
    }
    if (!touch_all()) return;
    amax_ = 0;
    for (std::int64_t entry = 0; entry < p_.shape.batch; ++entry) multiply(entry);
    if (desc.amax != nullptr) {
      const auto amax = static_cast<float>(amax_);
      std::memcpy(desc.amax, &amax, sizeof amax);
    }
    // A slower algorithm is one that waits longer.
    using Clock = std::chrono::steady_clock;
    const auto until = Clock::now() + std::chrono::microseconds(wait_us(p_.algo));
    while (Clock::now() < until) {
    }
  }

 private:
  static constexpr std::string_view kWho = "cublasLtMatmul";

  bool has(std::uint32_t flag) const { return (p_.q.desc.epilogue & flag) != 0; }
  bool backward() const { return has(kLtEpilogueDgelu & ~kLtEpilogueAux); }
  bool bgrad() const { return p_.q.desc.epilogue == kLtEpilogueDgeluBgrad; }

  bool touch_all() const {
    const Query& q = p_.q;
    const Types& types = p_.types;
    const Shape& shape = p_.shape;
    const Desc& desc = q.desc;
    bool all = touch(p_.a, extent_bytes(q.a, types.a), kWho) &&
               touch(p_.b, extent_bytes(q.b, types.b), kWho) &&
               touch(p_.d, extent_bytes(q.d, types.d), kWho) &&
               touch(p_.workspace, workspace_of(p_.algo, shape), kWho) &&
               touch(a_scales_.values(), a_scales_.bytes(), kWho) &&
               touch(b_scales_.values(), b_scales_.bytes(), kWho) &&
               touch(desc.d_scale, desc.d_scale != nullptr ? sizeof(float) : 0, kWho) &&
               touch(desc.amax, desc.amax != nullptr ? sizeof(float) : 0, kWho);
    if (beta_ != 0) all = all && touch(p_.c, extent_bytes(q.c, types.c), kWho);
    if (has_bias(desc)) {
      const std::int64_t count = (shape.batch - 1) * desc.bias_stride + shape.m;
      all =
          all && touch(desc.bias, static_cast<std::size_t>(count * size_bytes(bias_type())), kWho);
    }
    if (has(kLtEpilogueAux)) {
      const std::int64_t count =
          (shape.batch - 1) * desc.aux_stride + (shape.n - 1) * desc.aux_ld + shape.m;
      all = all && touch(desc.aux, static_cast<std::size_t>(count * size_bytes(aux_type())), kWho);
    }
    return all;
  }

  DType bias_type() const { return or_type(p_.q.desc.bias_type, bias_type_needed(p_.types)); }
  DType aux_type() const { return or_type(p_.q.desc.aux_type, p_.types.d); }

  /// Sums of four columns, the first of which is j.
  using Columns = std::array<std::vector<double>, kTileCols>;

  /// Over a part of k, with the scales of blocks.
  void add_up(const Panels& a, const Panels& b, std::int64_t j, std::int64_t from, std::int64_t to,
              Columns& sums) const {
    double one[kTileRows * kTileCols];
    for (std::int64_t i = 0; i < p_.shape.m; i += kTileRows) {
      const auto each = [&](const auto& act) {
        for (std::int64_t c = 0; c < std::min(kTileCols, p_.shape.n - j); ++c) {
          for (std::int64_t r = 0; r < std::min(kTileRows, p_.shape.m - i); ++r) {
            act(sums[static_cast<std::size_t>(c)][static_cast<std::size_t>(i + r)],
                one[c * kTileRows + r], i + r, j + c);
          }
        }
      };
      if (!a_scales_.by_block()) {
        tile(a.at(i), b.at(j), from, to, one);
        each([](double& sum, double part, std::int64_t, std::int64_t) { sum = part; });
        continue;
      }
      each([](double& sum, double, std::int64_t, std::int64_t) { sum = 0; });
      for (std::int64_t first = from; first < to; first += kScaleBlock) {
        tile(a.at(i), b.at(j), first, std::min(first + kScaleBlock, to), one);
        const std::int64_t block = first / kScaleBlock;
        each([&](double& sum, double part, std::int64_t row, std::int64_t col) {
          sum += part * a_scales_.at(row, block) * b_scales_.at(col, block);
        });
      }
    }
  }

  void multiply(std::int64_t entry) {
    const auto [m, n, k, batch] = p_.shape;
    const Query& q = p_.q;
    const bool tf32 = q.desc.compute == static_cast<int>(LtCompute::tf32);
    const Panels a(p_.a, q.a, p_.types.a, q.desc.trans_a == kLtOpT, entry, tf32, kTileRows);
    const Panels b(p_.b, q.b, p_.types.b, q.desc.trans_b == kLtOpN, entry, tf32, kTileCols);
    Columns sums;
    for (std::vector<double>& column : sums) column.resize(static_cast<std::size_t>(m));
    std::vector<double> gradients(static_cast<std::size_t>(m));
    const std::int64_t split = p_.algo.split_k == 1 ? k : k / 2;
    for (std::int64_t j = 0; j < n; j += kTileCols) {
      const std::int64_t columns = std::min(kTileCols, n - j);
      add_up(a, b, j, 0, split, sums);
      if (p_.algo.split_k == 2) {
        // Parts of k meet in the workspace, in f32, as the reduction scheme says.
        float* const parts = static_cast<float*>(p_.workspace) + (entry * n + j) * 2 * m;
        for (std::int64_t at = 0; at < columns * m; ++at) {
          parts[at] = static_cast<float>(sum_at(sums, at));
        }
        add_up(a, b, j, split, k, sums);
        for (std::int64_t at = 0; at < columns * m; ++at) {
          parts[columns * m + at] = static_cast<float>(sum_at(sums, at));
          sum_at(sums, at) = parts[at] + parts[columns * m + at];
        }
      }
      for (std::int64_t c = 0; c < columns; ++c) {
        finish_column(entry, j + c, sums[static_cast<std::size_t>(c)], gradients);
      }
    }
    if (bgrad()) {
      for (std::int64_t i = 0; i < m; ++i) {
        numeric::store_f64(bias_type(), q.desc.bias, entry * q.desc.bias_stride + i,
                           gradients[static_cast<std::size_t>(i)]);
      }
    }
  }

  double& sum_at(Columns& sums, std::int64_t at) const {
    const std::int64_t m = p_.shape.m;
    return sums[static_cast<std::size_t>(at / m)][static_cast<std::size_t>(at % m)];
  }

  void finish_column(std::int64_t entry, std::int64_t j, const std::vector<double>& sums,
                     std::vector<double>& gradients) {
    const std::int64_t m = p_.shape.m;
    const Desc& desc = p_.q.desc;
    const bool half = desc.compute == static_cast<int>(LtCompute::f16);
    const auto row = [m](DType type, const void* from) {
      std::vector<float> values(static_cast<std::size_t>(m));
      numeric::widen(type, from, m, values.data());
      return values;
    };
    std::vector<float> c, bias, aux, out(static_cast<std::size_t>(m));
    if (beta_ != 0) {
      const std::int64_t at = entry * p_.q.c.stride + j * p_.q.c.ld;
      c = row(p_.types.c, element(p_.c, at, p_.types.c));
    }
    if (has(kLtEpilogueBias)) {
      bias = row(bias_type(), element(desc.bias, entry * desc.bias_stride, bias_type()));
    }
    void* const aux_at = has(kLtEpilogueAux)
                             ? const_cast<void*>(element(
                                   desc.aux, entry * desc.aux_stride + j * desc.aux_ld, aux_type()))
                             : nullptr;
    if (backward()) aux = row(aux_type(), aux_at);
    if (aux_at != nullptr && !backward()) aux.resize(static_cast<std::size_t>(m));
    float d_scale = 1;
    if (desc.d_scale != nullptr) std::memcpy(&d_scale, desc.d_scale, sizeof d_scale);

    for (std::size_t i = 0; i < out.size(); ++i) {
      // The accumulator is f32, or f16.
      auto acc = static_cast<float>(sums[i]);
      if (half) {
        acc = numeric::to_f32(DType::f16,
                              numeric::from_f32(DType::f16, acc, numeric::Overflow::infinity));
      }
      // Where k is split a factor of 0 skips the product, and elsewhere NaN stays NaN.
      double x = alpha_ == 0 && p_.algo.split_k > 1 ? 0 : alpha_ * acc;
      if (!a_scales_.by_block()) {
        x *= a_scales_.at(static_cast<std::int64_t>(i), 0) * b_scales_.at(j, 0);
      }
      if (beta_ != 0) x += beta_ * c[i];
      if (!bias.empty()) x += bias[i];
      if (backward()) {
        x *= dgelu(aux[i]);
        gradients[i] += x;
      } else {
        if (!aux.empty()) aux[i] = static_cast<float>(x);
        if (has(kLtEpilogueGelu)) x = gelu(x);
        if (has(kLtEpilogueRelu)) x = x > 0 ? x : 0;
      }
      if (!std::isnan(amax_) && !(std::fabs(x) <= amax_)) amax_ = std::fabs(x);
      out[i] = static_cast<float>(x * d_scale);
    }
    const std::int64_t at = entry * p_.q.d.stride + j * p_.q.d.ld;
    numeric::narrow(p_.types.d, out.data(), m, const_cast<void*>(element(p_.d, at, p_.types.d)));
    if (!aux.empty() && !backward()) numeric::narrow(aux_type(), aux.data(), m, aux_at);
  }

  Product p_;
  Scales a_scales_, b_scales_;
  double alpha_ = 1, beta_ = 0, amax_ = 0;
};

/// The objects behind the handles; status 7 when one is not there. Without C, D's layout stands for
/// it.
LtStatus resolve(LtMatmulDesc desc, LtLayout a, LtLayout b, LtLayout c, LtLayout d,
                 std::string_view who, Query& query) {
  const Desc* found = lt().descs.find(desc, who);
  if (found == nullptr) return kLtInvalidValue;
  query.desc = *found;
  for (const auto& [handle, layout] :
       {std::pair(a, &query.a), std::pair(b, &query.b), std::pair(c != nullptr ? c : d, &query.c),
        std::pair(d, &query.d)}) {
    const Layout* there = lt().layouts.find(handle, who);
    if (there == nullptr) return kLtInvalidValue;
    *layout = *there;
  }
  return kLtSuccess;
}

}  // namespace

std::size_t cublasLtGetVersion() {
  const std::optional<int> fault = enter(symbol_index("cublasLtGetVersion"));
  return fault ? static_cast<std::size_t>(*fault) : settings().lt_version;
}

LtStatus cublasLtCreate(LtHandle* handle) {
  ENTER(cublasLtCreate);
  if (handle == nullptr) return kLtInvalidValue;
  if (settings().devices == 0 || lost() != 0) return kNotInitialised;
  *handle = reinterpret_cast<LtHandle>(next_handle());
  lt().handles.push_back(*handle);
  return kLtSuccess;
}

LtStatus cublasLtMatmulDescCreate(LtMatmulDesc* desc, int compute_type, int scale_type) {
  ENTER(cublasLtMatmulDescCreate);
  if (desc == nullptr) return kLtInvalidValue;
  *desc = lt().descs.add<LtMatmulDesc>({.compute = compute_type, .scale = scale_type});
  return kLtSuccess;
}

LtStatus cublasLtMatmulDescSetAttribute(LtMatmulDesc desc, int attribute, const void* value,
                                        std::size_t bytes) {
  ENTER(cublasLtMatmulDescSetAttribute);
  Desc* const found = lt().descs.find(desc, who);
  if (found == nullptr) return kLtInvalidValue;
  switch (static_cast<LtDesc>(attribute)) {
    case LtDesc::pointer_mode:
      return assign(found->pointer_mode, value, bytes);
    case LtDesc::trans_a:
      return assign(found->trans_a, value, bytes);
    case LtDesc::trans_b:
      return assign(found->trans_b, value, bytes);
    case LtDesc::epilogue:
      return assign(found->epilogue, value, bytes);
    case LtDesc::bias_pointer:
      return assign(found->bias, value, bytes);
    case LtDesc::bias_batch_stride:
      return assign(found->bias_stride, value, bytes);
    case LtDesc::aux_pointer:
      return assign(found->aux, value, bytes);
    case LtDesc::aux_ld:
      return assign(found->aux_ld, value, bytes);
    case LtDesc::aux_batch_stride:
      return assign(found->aux_stride, value, bytes);
    case LtDesc::sm_count:
      return assign(found->sm_count, value, bytes);
    case LtDesc::a_scale_pointer:
      return assign(found->a_scale, value, bytes);
    case LtDesc::b_scale_pointer:
      return assign(found->b_scale, value, bytes);
    case LtDesc::d_scale_pointer:
      return assign(found->d_scale, value, bytes);
    case LtDesc::amax_d_pointer:
      return assign(found->amax, value, bytes);
    case LtDesc::aux_type:
      return assign(found->aux_type, value, bytes);
    case LtDesc::fast_accumulation:
      return assign(found->fast_accumulation, value, bytes);
    case LtDesc::bias_type:
      return assign(found->bias_type, value, bytes);
    case LtDesc::a_scale_mode:
      return assign(found->a_mode, value, bytes);
    case LtDesc::b_scale_mode:
      return assign(found->b_mode, value, bytes);
  }
  return kLtInvalidValue;
}

LtStatus cublasLtMatmulDescDestroy(LtMatmulDesc desc) {
  const auto fault = entered<symbol_index("cublasLtMatmulDescDestroy")>();
  const Lock lock(mutex());
  const bool found = lt().descs.remove(desc, "cublasLtMatmulDescDestroy");
  return fault ? *fault : found ? kLtSuccess : kLtInvalidValue;
}

LtStatus cublasLtMatrixLayoutCreate(LtLayout* layout, int type, std::uint64_t rows,
                                    std::uint64_t cols, std::int64_t ld) {
  ENTER(cublasLtMatrixLayoutCreate);
  if (layout == nullptr) return kLtInvalidValue;
  *layout = lt().layouts.add<LtLayout>({.type = type, .rows = rows, .cols = cols, .ld = ld});
  return kLtSuccess;
}

LtStatus cublasLtMatrixLayoutSetAttribute(LtLayout layout, int attribute, const void* value,
                                          std::size_t bytes) {
  ENTER(cublasLtMatrixLayoutSetAttribute);
  Layout* const found = lt().layouts.find(layout, who);
  if (found == nullptr) return kLtInvalidValue;
  switch (static_cast<LtLayoutAttribute>(attribute)) {
    case LtLayoutAttribute::batch_count:
      return assign(found->batch, value, bytes);
    case LtLayoutAttribute::batch_stride:
      return assign(found->stride, value, bytes);
  }
  return kLtInvalidValue;
}

LtStatus cublasLtMatrixLayoutDestroy(LtLayout layout) {
  const auto fault = entered<symbol_index("cublasLtMatrixLayoutDestroy")>();
  const Lock lock(mutex());
  const bool found = lt().layouts.remove(layout, "cublasLtMatrixLayoutDestroy");
  return fault ? *fault : found ? kLtSuccess : kLtInvalidValue;
}

LtStatus cublasLtMatmulPreferenceCreate(LtPreference* preference) {
  ENTER(cublasLtMatmulPreferenceCreate);
  if (preference == nullptr) return kLtInvalidValue;
  *preference = lt().preferences.add<LtPreference>(Preference{});
  return kLtSuccess;
}

LtStatus cublasLtMatmulPreferenceSetAttribute(LtPreference preference, int attribute,
                                              const void* value, std::size_t bytes) {
  ENTER(cublasLtMatmulPreferenceSetAttribute);
  Preference* const found = lt().preferences.find(preference, who);
  if (found == nullptr) return kLtInvalidValue;
  switch (static_cast<LtPref>(attribute)) {
    case LtPref::workspace_bytes:
      return assign(found->workspace_bytes, value, bytes);
    case LtPref::reduction_schemes:
      return assign(found->reductions, value, bytes);
    case LtPref::alignment_a:
      return assign(found->align_a, value, bytes);
    case LtPref::alignment_b:
      return assign(found->align_b, value, bytes);
    case LtPref::alignment_c:
      return assign(found->align_c, value, bytes);
    case LtPref::alignment_d:
      return assign(found->align_d, value, bytes);
  }
  return kLtInvalidValue;
}

LtStatus cublasLtMatmulPreferenceDestroy(LtPreference preference) {
  const auto fault = entered<symbol_index("cublasLtMatmulPreferenceDestroy")>();
  const Lock lock(mutex());
  const bool found = lt().preferences.remove(preference, "cublasLtMatmulPreferenceDestroy");
  return fault ? *fault : found ? kLtSuccess : kLtInvalidValue;
}

LtStatus cublasLtMatmulAlgoGetHeuristic(LtHandle handle, LtMatmulDesc desc, LtLayout a, LtLayout b,
                                        LtLayout c, LtLayout d, LtPreference preference, int asked,
                                        LtHeuristicResult* results, int* found) {
  ENTER(cublasLtMatmulAlgoGetHeuristic);
  if (results == nullptr || found == nullptr || asked < 1) return kLtInvalidValue;
  *found = 0;
  if (lost() != 0) return kInternalError;
  if (!is_handle(handle)) return kNotInitialised;
  const Preference* wish = lt().preferences.find(preference, who);
  Query query;
  if (wish == nullptr || resolve(desc, a, b, c, d, who, query) != kLtSuccess) {
    return kLtInvalidValue;
  }
  if (const LtStatus status = supported(query); status != kLtSuccess) return status;
  const Types types = *types_of(query);
  const Shape shape = shape_of(query);
  const bool pointers_aligned =
      std::min({wish->align_a, wish->align_b, wish->align_c, wish->align_d}) >= 16;
  if (is_fp8(types.a) && !pointers_aligned) return kLtNotSupported;
  for (const Algo& algo : offered(query)) {
    if (*found == asked) break;
    if (workspace_of(algo, shape) > wish->workspace_bytes) continue;
    if (algo.split_k > 1 && (wish->reductions & algo.reduction) == 0) continue;
    if (algo.id == 66 && !pointers_aligned) continue;
    if (!serves(algo, query, types)) continue;
    results[(*found)++] = result_of(algo, shape);
  }
  return *found > 0 ? kLtSuccess : kLtNotSupported;
}

LtStatus cublasLtMatmulAlgoInit(LtHandle handle, int compute_type, int scale_type, int a_type,
                                int b_type, int c_type, int d_type, int id, LtAlgo* algo) {
  ENTER(cublasLtMatmulAlgoInit);
  if (algo == nullptr) return kLtInvalidValue;
  if (!is_handle(handle)) return kNotInitialised;
  Query query;
  query.desc = {.compute = compute_type, .scale = scale_type};
  query.a.type = a_type;
  query.b.type = b_type;
  query.c.type = c_type;
  query.d.type = d_type;
  const auto types = types_of(query);
  if (!types) return kLtNotSupported;
  if (const LtStatus status = check_types(query.desc, *types); status != kLtSuccess) return status;
  const auto all = offered(query);
  if (std::ranges::find(all, id, &Algo::id) == all.end()) return kLtInvalidValue;
  // What an id needs besides is for the caller to set.
  *algo = std::bit_cast<LtAlgo>(Algo{.id = id,
                                     .compute = compute_type,
                                     .scale = scale_type,
                                     .a = a_type,
                                     .b = b_type,
                                     .c = c_type,
                                     .d = d_type});
  return kLtSuccess;
}

LtStatus cublasLtMatmulAlgoCheck(LtHandle handle, LtMatmulDesc desc, LtLayout a, LtLayout b,
                                 LtLayout c, LtLayout d, const LtAlgo* algo,
                                 LtHeuristicResult* result) {
  ENTER(cublasLtMatmulAlgoCheck);
  if (algo == nullptr || result == nullptr) return kLtInvalidValue;
  if (!is_handle(handle)) return kNotInitialised;
  Query query;
  if (resolve(desc, a, b, c, d, who, query) != kLtSuccess) return kLtInvalidValue;
  if (const LtStatus status = supported(query); status != kLtSuccess) return status;
  const auto asked = std::bit_cast<Algo>(*algo);
  const auto all = offered(query);
  // A configuration that is not restored whole is another one, which nobody offered.
  if (std::ranges::find(all, asked) == all.end()) return kLtNotSupported;
  if (!serves(asked, query, *types_of(query))) return kLtNotSupported;
  const LtHeuristicResult checked = result_of(asked, shape_of(query));
  result->workspace_bytes = checked.workspace_bytes;
  result->state = checked.state;
  result->waves = checked.waves;
  return kLtSuccess;
}

LtStatus cublasLtMatmulAlgoConfigGetAttribute(const LtAlgo* algo, int attribute, void* value,
                                              std::size_t bytes, std::size_t* written) {
  ENTER(cublasLtMatmulAlgoConfigGetAttribute);
  if (algo == nullptr) return kLtInvalidValue;
  const auto config = std::bit_cast<Algo>(*algo);
  return with_field(config, attribute,
                    [&](const auto& field) { return report(field, value, bytes, written); });
}

LtStatus cublasLtMatmulAlgoConfigSetAttribute(LtAlgo* algo, int attribute, const void* value,
                                              std::size_t bytes) {
  ENTER(cublasLtMatmulAlgoConfigSetAttribute);
  if (algo == nullptr) return kLtInvalidValue;
  auto config = std::bit_cast<Algo>(*algo);
  const LtStatus status =
      with_field(config, attribute, [&](auto& field) { return assign(field, value, bytes); });
  *algo = std::bit_cast<LtAlgo>(config);
  return status;
}

LtStatus cublasLtMatmul(LtHandle handle, LtMatmulDesc desc, const void* alpha, const void* a,
                        LtLayout a_layout, const void* b, LtLayout b_layout, const void* beta,
                        const void* c, LtLayout c_layout, void* d, LtLayout d_layout,
                        const LtAlgo* algo, void* workspace, std::size_t workspace_bytes,
                        CuStream stream) {
  ENTER(cublasLtMatmul);
  if (lost() != 0) return kExecutionFailed;
  if (!is_handle(handle)) return kNotInitialised;
  if (alpha == nullptr || beta == nullptr || a == nullptr || b == nullptr || d == nullptr) {
    return kLtInvalidValue;
  }
  Product product{};
  Query& query = product.q;
  if (resolve(desc, a_layout, b_layout, c_layout, d_layout, who, query) != kLtSuccess) {
    return kLtInvalidValue;
  }
  if (const LtStatus status = supported(query); status != kLtSuccess) return status;
  product.types = *types_of(query);
  product.shape = shape_of(query);
  const auto all = offered(query);
  product.algo = algo != nullptr ? std::bit_cast<Algo>(*algo) : all[0];
  if (std::ranges::find(all, product.algo) == all.end()) return kLtInvalidValue;

  const Desc& what = query.desc;
  const bool aux = (what.epilogue & kLtEpilogueAux) != 0;
  if ((has_bias(what) && what.bias == nullptr) || (aux && what.aux == nullptr)) {
    return kLtInvalidValue;
  }
  // In place is with one type alone, also where beta is 0.
  if (c == d && product.types.c != product.types.d) return kLtInvalidValue;
  const auto needs_values = [](std::int32_t mode) { return mode != kLtScaleScalar; };
  if ((needs_values(what.a_mode) && what.a_scale == nullptr) ||
      (needs_values(what.b_mode) && what.b_scale == nullptr)) {
    return kLtInvalidValue;
  }
  const std::size_t needed = workspace_of(product.algo, product.shape);
  if (needed > workspace_bytes || (needed > 0 && workspace == nullptr) ||
      !is_aligned(workspace, 256)) {
    return kLtInvalidValue;
  }

  if (what.pointer_mode == kLtPointerHost) {
    const DType type = or_type(what.scale, DType::f32);
    product.alpha = numeric::load(type, alpha, 0);
    product.beta = numeric::load(type, beta, 0);
    if (product.beta != 0 && c == nullptr) return kLtInvalidValue;
  } else {
    if (c == nullptr) return kLtInvalidValue;
    product.alpha_at = alpha;
    product.beta_at = beta;
  }
  const bool is_read = product.beta != 0 || product.beta_at != nullptr;
  if (!serves(product.algo, query, product.types)) return kLtNotSupported;
  if ((product.algo.id == 66 || is_fp8(product.types.a)) &&
      !(is_aligned(a, 16) && is_aligned(b, 16) && is_aligned(d, 16) &&
        (!is_read || is_aligned(c, 16)))) {
    return kLtNotSupported;
  }
  product.a = a;
  product.b = b;
  product.c = c;
  product.d = d;
  product.workspace = workspace;
  const CuResult submitted = submit(stream, [run = Run(product)](Stream&) mutable { run(); }, who);
  return submitted == kCuSuccess ? kLtSuccess : kExecutionFailed;
}

}  // namespace lapidary::driver
