#include "backends/library_gemm.h"

#include <algorithm>
#include <climits>
#include <cstring>

#include "backends/cpu_common.h"
#include "backends/cpu_epilogue.h"
#include "numeric/numeric.h"
#include "support/parallel.h"

namespace lapidary::backends {
namespace {

constexpr std::int64_t kScaleBlock = 128;
constexpr std::int64_t kPassRows =
    32;  // of the separate pass: enough for a thread to be worth waking

std::int64_t align64(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

/// Copies lanes [lane, lane + lanes) over all of k as `input`, dense, in the orientation in which
/// they are stored. `scale(lane, block)` multiplies elements of 128 of k (block scales); null
/// otherwise.
template <class Scale>
void convert(const Lanes& from, const void* base, std::int64_t lane, std::int64_t lanes,
             std::int64_t k, DType input, char* to, const Scale* scale) {
  const bool by_lane = from.k_stride == 1;
  const std::int64_t rows = by_lane ? lanes : k, columns = by_lane ? k : lanes;
  shared_pool().each(
      rows, std::max<std::int64_t>(1, 65536 / std::max<std::int64_t>(1, columns)),
      [&](std::int64_t begin, std::int64_t end) {
        std::vector<float> row(static_cast<std::size_t>(columns));
        for (std::int64_t r = begin; r < end; ++r) {
          const char* source = by_lane ? from.at(base, lane + r, 0) : from.at(base, lane, r);
          float* wide =
              input == DType::f32 ? reinterpret_cast<float*>(to) + r * columns : row.data();
          widen(from.type, source, columns, wide);
          if (scale != nullptr) {
            for (std::int64_t c = 0; c < columns; ++c)
              wide[c] *= by_lane ? (*scale)(lane + r, c / kScaleBlock)
                                 : (*scale)(lane + c, r / kScaleBlock);
          }
          if (input != DType::f32)
            numeric::narrow(input, wide, columns, to + r * columns * size_bytes(input));
        }
      });
}

/// With the extents of this problem in place of "all".
Chunks resolved(const GemmProblem& p, Chunks chunks) {
  if (chunks.m == 0) chunks.m = p.m;
  if (chunks.n == 0) chunks.n = columns(p);
  return chunks;
}

class LibraryGemm final : public Executable {
 public:
  LibraryGemm(const GemmProblem& problem, const Chunks& chunks, Multiply multiply)
      : p_(problem),
        chunks_(resolved(problem, chunks)),
        multiply_(std::move(multiply)),
        a_(lanes_of_a(problem)),
        b_(lanes_of_b(problem)),
        pass_(problem, kPassRows, chunks_.n, problem.scales == ScaleMode::block),
        halves_(problem.epilogue.gated ? 2 : 1),
        convert_a_(problem.a != chunks.input || problem.scales == ScaleMode::block),
        convert_b_(problem.b != chunks.input || problem.scales == ScaleMode::block),
        direct_(is_plain(problem.epilogue) && *problem.d == DType::f32 &&
                (problem.scales == ScaleMode::none || problem.scales == ScaleMode::block)) {
    const std::int64_t size = size_bytes(chunks.input);
    acc_bytes_ = direct_ ? 0 : align64(halves_ * chunks_.m * chunks_.n * 4);
    a_bytes_ = convert_a_ ? align64(chunks_.m * p_.k * size) : 0;
    b_bytes_ = convert_b_ && !chunks_.pack ? align64(halves_ * chunks_.n * p_.k * size) : 0;
  }

  std::int64_t workspace_bytes() const override {
    return acc_bytes_ + a_bytes_ + b_bytes_ + align64(pass_.partial_bytes());
  }
  std::int64_t packed_bytes() const override {
    return chunks_.pack ? entries_of_b() * p_.n * p_.k * size_bytes(chunks_.input) : 0;
  }

  Status pack(const Arguments& arguments) const override {
    if (!chunks_.pack) return {};
    const OperandSpec b = operands(p_)[1];
    for (std::int64_t entry = 0; entry < entries_of_b(); ++entry) {
      const char* from = static_cast<const char*>(arguments.operands[1]) +
                         entry * b.batch_stride * size_bytes(b.type);
      char* to =
          static_cast<char*>(arguments.packed) + entry * p_.n * p_.k * size_bytes(chunks_.input);
      convert_b(from, scale_b(arguments.operands, entry), 0, p_.n, to);
    }
    return {};
  }

  Status run(const Arguments& arguments) const override {
    char* workspace = static_cast<char*>(arguments.workspace);
    auto* acc = reinterpret_cast<float*>(workspace);
    char *wide_a = workspace + acc_bytes_, *wide_b = wide_a + a_bytes_,
         *partials = wide_b + b_bytes_;
    const std::int64_t columns_of_d = columns(p_), size = size_bytes(chunks_.input);
    for (std::int64_t entry = 0; entry < p_.batch; ++entry) {
      const CpuEpilogue::Call call = pass_.begin(arguments.operands, entry, partials);
      for (std::int64_t n0 = 0; n0 < columns_of_d; n0 += chunks_.n) {
        const std::int64_t n = std::min(chunks_.n, columns_of_d - n0);
        const void* b[2] = {};
        std::int64_t ldb = p_.ldb;
        for (int half = 0; half < halves_; ++half) {
          const std::int64_t lane = half * columns_of_d + n0;
          if (chunks_.pack) {
            ldb = b_.k_stride == 1 ? p_.k : p_.n;
            const char* base = static_cast<const char*>(arguments.packed) +
                               (entries_of_b() > 1 ? entry : 0) * p_.n * p_.k * size;
            b[half] = base + (b_.k_stride == 1 ? lane * p_.k : lane) * size;
          } else if (convert_b_) {
            ldb = b_.k_stride == 1 ? p_.k : n;
            char* to = wide_b + half * chunks_.n * p_.k * size;
            convert_b(call.operands[1], scale_b(arguments.operands, entry), lane, n, to);
            b[half] = to;
          } else {
            b[half] = b_.at(call.operands[1], lane, 0);
          }
        }
        for (std::int64_t m0 = 0; m0 < p_.m; m0 += chunks_.m) {
          const std::int64_t m = std::min(chunks_.m, p_.m - m0);
          const void* a = a_.at(call.operands[0], m0, 0);
          std::int64_t lda = p_.lda;
          if (convert_a_) {
            convert_a(call.operands[0], scale_a(arguments.operands, entry), m0, m, wide_a);
            a = wide_a;
            lda = a_.k_stride == 1 ? p_.k : m;
          }
          const bool to_d = direct_;
          const std::int64_t ldc = to_d ? p_.ldd : chunks_.n;
          for (int half = 0; half < halves_; ++half) {
            float* c = to_d
                           ? reinterpret_cast<float*>(call.operands[d_operand()]) + m0 * p_.ldd + n0
                           : acc + half * chunks_.m * chunks_.n;
            if (p_.k == 0) {
              for (std::int64_t i = 0; i < m; ++i) std::fill_n(c + i * ldc, n, 0.0f);
              continue;
            }
            LAPIDARY_TRY_STATUS(multiply_({.m = m,
                                           .n = n,
                                           .k = p_.k,
                                           .a = a,
                                           .lda = lda,
                                           .a_km = a_.k_stride != 1,
                                           .b = b[half],
                                           .ldb = ldb,
                                           .b_kn = b_.k_stride != 1,
                                           .c = c,
                                           .ldc = ldc}));
          }
          if (!to_d) finish_chunk(call, acc, m0, m, n0);
        }
      }
      if (!direct_) pass_.finish(call);
    }
    return {};
  }

 private:
  /// The separate pass over rows [m0, m0 + m) of the chunk whose f32 product lies in `acc`.
  void finish_chunk(const CpuEpilogue::Call& call, float* acc, std::int64_t m0, std::int64_t m,
                    std::int64_t n0) const {
    if (p_.numerics.rounded) round(acc, halves_ * chunks_.m * chunks_.n);
    shared_pool().each((m + kPassRows - 1) / kPassRows, 1,
                       [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t t = begin; t < end; ++t) {
                           const float* rows = acc + t * kPassRows * chunks_.n;
                           pass_.tile(call, m0 / kPassRows + t, n0 / chunks_.n, rows,
                                      rows + (halves_ - 1) * chunks_.m * chunks_.n, chunks_.n);
                         }
                       });
  }

  /// The numerics class that keeps the intermediate in D's type.
  void round(float* acc, std::int64_t count) const {
    for (std::int64_t i = 0; i < count; ++i)
      acc[i] =
          numeric::to_f32(*p_.d, numeric::from_f32(*p_.d, acc[i], numeric::store_overflow(*p_.d)));
  }

  std::size_t d_operand() const {
    std::size_t i = 0;
    for (const OperandSpec& spec : operands(p_)) {
      if (spec.output && spec.name == "d") return i;
      ++i;
    }
    return i;
  }

  std::int64_t entries_of_b() const { return operands(p_)[1].batch; }

  const float* scale_a(std::span<void* const> all, std::int64_t entry) const {
    return scale(all, entry, 2);
  }
  const float* scale_b(std::span<void* const> all, std::int64_t entry) const {
    return scale(all, entry, 3);
  }
  const float* scale(std::span<void* const> all, std::int64_t entry, std::size_t operand) const {
    if (p_.scales != ScaleMode::block) return nullptr;
    return static_cast<const float*>(all[operand]) + entry * operands(p_)[operand].batch_stride;
  }

  void convert_a(const void* base, const float* scales, std::int64_t lane, std::int64_t lanes,
                 char* to) const {
    const std::int64_t m4 = (p_.m + 3) / 4 * 4;
    const auto scale = [=](std::int64_t m, std::int64_t kb) { return scales[kb * m4 + m]; };
    convert(a_, base, lane, lanes, p_.k, chunks_.input, to, scales != nullptr ? &scale : nullptr);
  }
  void convert_b(const void* base, const float* scales, std::int64_t lane, std::int64_t lanes,
                 char* to) const {
    const std::int64_t blocks = (p_.k + kScaleBlock - 1) / kScaleBlock;
    const auto scale = [=](std::int64_t n, std::int64_t kb) {
      return scales[n / kScaleBlock * blocks + kb];
    };
    convert(b_, base, lane, lanes, p_.k, chunks_.input, to, scales != nullptr ? &scale : nullptr);
  }

  GemmProblem p_;
  Chunks chunks_;
  Multiply multiply_;
  Lanes a_, b_;
  CpuEpilogue pass_;
  int halves_;
  bool convert_a_, convert_b_, direct_;
  std::int64_t acc_bytes_ = 0, a_bytes_ = 0, b_bytes_ = 0;
};

std::vector<Chunks> all_chunks(const GemmProblem& p, DType input) {
  const std::int64_t d_columns = columns(p);
  std::vector<Chunks> chunks;
  const bool constant_b = std::ranges::find(p.constant, "b") != p.constant.end() &&
                          (p.scales != ScaleMode::block ||
                           std::ranges::find(p.constant, "scale_b") != p.constant.end());
  const bool converts_b = p.b != input || p.scales == ScaleMode::block;
  static_assert(256 % kPassRows == 0);  // a chunk of rows is whole tiles of the pass
  for (const std::int64_t n : {0L, 4096L, 1024L, 256L}) {
    for (const std::int64_t m : {0L, 256L}) {
      if (n >= d_columns || m >= p.m) continue;
      for (const bool pack : {false, true}) {
        if (pack && !(constant_b && converts_b)) continue;
        chunks.push_back({.m = m, .n = n, .pack = pack, .input = input});
      }
    }
  }
  return chunks;
}

std::string refusal(const GemmProblem& p, DType input) {
  for (const auto& [what, value] : {std::pair("m", p.m),
                                    {"n", p.n},
                                    {"k", p.k},
                                    {"lda", p.lda},
                                    {"ldb", p.ldb},
                                    {"ldd", p.ldd}}) {
    if (value > INT_MAX)
      return fmt::format("{} = {} does not fit the library's 32-bit sizes", what, value);
  }
  if (input != DType::f32 && p.scales == ScaleMode::block)
    return fmt::format("block scales applied ahead would be rounded to {}", name(input));
  for (const DType type : {p.a, p.b}) {
    if (!widens_exactly(type, input))
      return fmt::format("{} does not widen to {} without rounding", name(type), name(input));
  }
  return "";
}

}  // namespace

bool widens_exactly(DType type, DType input) {
  // bf16 has 8 significant bits and f32's range: it holds both fp8 types, but not f16's 11 bits.
  return type == input || input == DType::f32 ||
         (input == DType::bf16 && (type == DType::e4m3 || type == DType::e5m2));
}

bool is_plain(const Epilogue& e) {
  return e.assignments.size() == 1 && e.assignments[0].reduction == Reduction::none &&
         e.nodes[static_cast<std::size_t>(e.assignments[0].root)].op == EpilogueOp::acc;
}

Config config_of(const Chunks& c) {
  return {{"chunk_m", c.m},
          {"chunk_n", c.n},
          {"input", std::string(name(c.input))},
          {"pack", std::int64_t{c.pack}}};
}

std::vector<Offer> library_offers(const GemmProblem& problem, const DeviceInfo& device,
                                  std::string_view backend, DType input, double efficiency) {
  std::vector<Offer> offers;
  std::string refused = refusal(problem, input);
  if (refused.empty()) refused = thread_refusal(problem, device);
  for (const Chunks& chunks : all_chunks(problem, input)) {
    Offer offer{.candidate = {std::string(backend), config_of(chunks)}, .refused = refused};
    if (refused.empty()) {
      const LibraryGemm gemm(problem, chunks, nullptr);
      offer.workspace_bytes = gemm.workspace_bytes();
      offer.packed_bytes = gemm.packed_bytes();
      // What is widened is written and read again; the intermediate likewise.
      const double kn = static_cast<double>(problem.n) * static_cast<double>(problem.k) *
                        static_cast<double>(problem.batch);
      const double passes = std::max<double>(
          1, static_cast<double>(chunks.m == 0 ? 1 : (problem.m + chunks.m - 1) / chunks.m));
      double bytes = operand_bytes(problem) * passes;
      if (problem.b != input) bytes += kn * size_bytes(input) * (chunks.pack ? 1 : 2);
      bytes += 8.0 * static_cast<double>(problem.m) * static_cast<double>(problem.n) *
               static_cast<double>(problem.batch);
      offer.predicted_us =
          roofline_us(device, flops(problem),
                      efficiency * std::min(1.0, static_cast<double>(problem.m) / 8.0), bytes);
    }
    offers.push_back(std::move(offer));
    if (!refused.empty()) break;  // the reason is the same for all
  }
  return offers;
}

Result<std::unique_ptr<Executable>> library_gemm(const GemmProblem& problem,
                                                 std::string_view backend, const Config& config,
                                                 Multiply multiply) {
  for (const DType input : {DType::f32, DType::bf16}) {
    for (const Chunks& chunks : all_chunks(problem, input)) {
      if (config_of(chunks) != config) continue;
      if (const std::string why = refusal(problem, input); !why.empty())
        return fail(ErrorCode::unsupported, "{}: {}", backend, why);
      return std::unique_ptr<Executable>(
          std::make_unique<LibraryGemm>(problem, chunks, std::move(multiply)));
    }
  }
  return fail(ErrorCode::invalid_argument, "{}: no config {} for {}", backend, text(config),
              summary(problem));
}

}  // namespace lapidary::backends
