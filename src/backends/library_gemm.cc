#include "backends/library_gemm.h"

#include <algorithm>
#include <array>
#include <climits>

#include "backends/cpu_common.h"
#include "backends/cpu_epilogue.h"
#include "numeric/numeric.h"
#include "support/parallel.h"

namespace lapidary::backends {
namespace {

constexpr std::int64_t kScaleBlock = 128;
constexpr std::int64_t kPassRows = 32;  // of a tile of the separate pass

std::int64_t align64(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

/// Copies lanes [lane, lane + lanes) over all of k as `input`, dense, in the orientation in which
/// they are stored. `scale(lane, block)` multiplies elements of 128 of k (block scales); null
/// otherwise.
template <class Scale>
Status convert(const Lanes& from, const void* base, std::int64_t lane, std::int64_t lanes,
               std::int64_t k, DType input, char* to, const Scale* scale) {
  const bool by_lane = from.along_k();
  const std::int64_t rows = by_lane ? lanes : k, columns = by_lane ? k : lanes;
  const std::int64_t grain = std::max<std::int64_t>(1, 65536 / std::max<std::int64_t>(1, columns));
  std::atomic<bool> failed = false;
  shared_pool().each(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    float* row = input == DType::f32 ? nullptr : scratch(columns);
    if (input != DType::f32 && row == nullptr) {
      failed.store(true, std::memory_order_relaxed);
      return;
    }
    for (std::int64_t r = begin; r < end; ++r) {
      const char* source = by_lane ? from.at(base, lane + r, 0) : from.at(base, lane, r);
      float* wide = input == DType::f32 ? reinterpret_cast<float*>(to) + r * columns : row;
      widen(from.type, source, columns, wide);
      if (scale != nullptr) {
        for (std::int64_t c = 0; c < columns; ++c)
          wide[c] *=
              by_lane ? (*scale)(lane + r, c / kScaleBlock) : (*scale)(lane + c, r / kScaleBlock);
      }
      if (input != DType::f32)
        numeric::narrow(input, wide, columns, to + r * columns * size_bytes(input));
    }
  });
  if (failed) return out_of_memory();
  return {};
}

/// With the extents of this problem in place of "all".
Chunks resolved(const GemmProblem& p, Chunks chunks) {
  if (chunks.m == 0) chunks.m = p.m;
  if (chunks.n == 0) chunks.n = columns(p);
  return chunks;
}

class LibraryGemm final : public Executable {
 public:
  LibraryGemm(const GemmProblem& problem, const Chunks& chunks)
      : p_(problem),
        chunks_(resolved(problem, chunks)),
        a_(lanes_of_a(problem)),
        b_(lanes_of_b(problem)),
        pass_(problem, kPassRows, chunks_.n, problem.numerics.rounded),
        halves_(problem.epilogue.gated ? 2 : 1),
        convert_a_(problem.a != chunks.input || problem.scales == ScaleMode::block),
        convert_b_(problem.b != chunks.input || problem.scales == ScaleMode::block),
        direct_(is_plain(problem.epilogue) && *problem.d == DType::f32 &&
                (problem.scales == ScaleMode::none || problem.scales == ScaleMode::block)) {
    const std::int64_t size = size_bytes(chunks.input);
    const std::vector<OperandSpec>& specs = pass_.specs();
    while (!specs[d_].output || specs[d_].name != "d") ++d_;
    packed_entries_ = specs[1].batch;  // B times its scales: as many as either has
    if (p_.scales == ScaleMode::block) packed_entries_ = std::max(packed_entries_, specs[3].batch);
    acc_bytes_ = direct_ ? 0 : align64(bounded_product({halves_, chunks_.m, chunks_.n, 4}));
    a_bytes_ = convert_a_ ? align64(bounded_product({chunks_.m, p_.k, size})) : 0;
    b_bytes_ = convert_b_ && !chunks_.pack
                   ? align64(bounded_product({halves_, chunks_.n, p_.k, size}))
                   : 0;
  }

  /// The library's side of every shape that occurs: the whole chunks and what is left of m and n.
  Status ask(const Products& products) {
    return for_shapes([&](std::size_t, const Product& shape) -> Status {
      LAPIDARY_TRY(const std::int64_t bytes, products.scratchpad_bytes(shape));
      scratchpad_bytes_ = std::max(scratchpad_bytes_, bytes);
      return {};
    });
  }
  Status prepare(const Products& products) {
    return for_shapes([&](std::size_t i, const Product& shape) -> Status {
      LAPIDARY_TRY(multiply_[i], products.prepare(shape));
      return {};
    });
  }

  std::int64_t workspace_bytes() const override {
    return acc_bytes_ + a_bytes_ + b_bytes_ + align64(pass_.partial_bytes()) + scratchpad_bytes_;
  }
  std::int64_t packed_bytes() const override {
    if (!chunks_.pack) return 0;
    return bounded_product({packed_entries_, p_.n, p_.k, size_bytes(chunks_.input)});
  }

  Status pack(const Arguments& arguments) const override {
    if (!chunks_.pack) return {};
    return without_throwing([&]() -> Status {
      for (std::int64_t entry = 0; entry < packed_entries_; ++entry) {
        char* to =
            static_cast<char*>(arguments.packed) + entry * p_.n * p_.k * size_bytes(chunks_.input);
        const CpuEpilogue::Call call{
            .program = nullptr, .operands = arguments.operands, .entry = entry};
        LAPIDARY_TRY_STATUS(convert_b(call, 0, p_.n, to));
      }
      return {};
    });
  }

  Status run(const Arguments& arguments) const override {
    return without_throwing([&]() -> Status {
      const Workspace workspace(*this, arguments);
      for (std::int64_t entry = 0; entry < p_.batch; ++entry)
        LAPIDARY_TRY_STATUS(run_entry(entry, arguments, workspace));
      return {};
    });
  }

 private:
  struct Workspace {
    char *acc, *a, *b, *partials, *scratchpad;
    Workspace(const LibraryGemm& gemm, const Arguments& arguments)
        : acc(static_cast<char*>(arguments.workspace)),
          a(acc + gemm.acc_bytes_),
          b(a + gemm.a_bytes_),
          partials(b + gemm.b_bytes_),
          scratchpad(partials + align64(gemm.pass_.partial_bytes())) {}
  };

  Status run_entry(std::int64_t entry, const Arguments& arguments,
                   const Workspace& workspace) const {
    const CpuEpilogue::Call call = pass_.begin(arguments.operands, entry, workspace.partials);
    const std::int64_t columns_of_d = columns(p_), size = size_bytes(chunks_.input);
    for (std::int64_t n0 = 0; n0 < columns_of_d; n0 += chunks_.n) {
      const std::int64_t n = std::min(chunks_.n, columns_of_d - n0);
      const char* b[2] = {};
      for (int half = 0; half < halves_; ++half) {
        const std::int64_t lane = half * columns_of_d + n0;
        if (chunks_.pack) {
          const std::int64_t from = packed_entries_ > 1 ? entry : 0;
          b[half] = static_cast<const char*>(arguments.packed) +
                    (from * p_.n * p_.k + (b_.along_k() ? lane * p_.k : lane)) * size;
        } else if (convert_b_) {
          char* to = workspace.b + half * chunks_.n * p_.k * size;
          LAPIDARY_TRY_STATUS(convert_b(call, lane, n, to));
          b[half] = to;
        } else {
          b[half] = b_.at(pass_.at(call, 1), lane, 0);
        }
      }
      for (std::int64_t m0 = 0; m0 < p_.m; m0 += chunks_.m) {
        const std::int64_t m = std::min(chunks_.m, p_.m - m0);
        const char* a = convert_a_ ? workspace.a : a_.at(pass_.at(call, 0), m0, 0);
        // All rows at once stay widened from the first columns on.
        if (convert_a_ && (n0 == 0 || chunks_.m < p_.m))
          LAPIDARY_TRY_STATUS(convert_a(call, m0, m, workspace.a));
        for (int half = 0; half < halves_; ++half) {
          float* c = direct_
                         ? reinterpret_cast<float*>(pass_.at(call, d_)) + m0 * p_.ldd + n0
                         : reinterpret_cast<float*>(workspace.acc) + half * chunks_.m * chunks_.n;
          if (p_.k == 0) {
            for (std::int64_t i = 0; i < m; ++i) std::fill_n(c + i * ldc(), n, 0.0f);
            continue;
          }
          const Multiply& multiply = multiply_[shape_index(m < chunks_.m, n < chunks_.n)];
          LAPIDARY_TRY_STATUS(multiply(a, b[half], c, workspace.scratchpad));
        }
        if (!direct_) LAPIDARY_TRY_STATUS(finish_chunk(call, workspace, m0, m, n0, n));
      }
    }
    if (!direct_) pass_.finish(call);
    return {};
  }

  /// The separate pass over rows [m0, m0 + m) of the chunk whose f32 product lies in the workspace.
  Status finish_chunk(const CpuEpilogue::Call& call, const Workspace& workspace, std::int64_t m0,
                      std::int64_t m, std::int64_t n0, std::int64_t n) const {
    const auto* acc = reinterpret_cast<const float*>(workspace.acc);
    // About 1 ns a value: an activation takes ten, a sum a tenth.
    const double values = static_cast<double>(kPassRows) * static_cast<double>(n) *
                          static_cast<double>(call.program->order.size());
    return each_with_scratch(
        p_, (m + kPassRows - 1) / kPassRows, worthwhile_grain(10 * values, 0),
        pass_.scratch_floats(), [&](std::int64_t begin, std::int64_t end, float* values_of_tile) {
          for (std::int64_t t = begin; t < end; ++t) {
            const float* rows = acc + t * kPassRows * chunks_.n;
            pass_.tile(call, m0 / kPassRows + t, n0 / chunks_.n, rows,
                       rows + (halves_ - 1) * chunks_.m * chunks_.n, chunks_.n, values_of_tile);
          }
        });
  }

  std::int64_t ldc() const { return direct_ ? p_.ldd : chunks_.n; }

  /// The product of `m` rows and `n` columns, as the workspace or the operands hold it.
  Product shape_of(std::int64_t m, std::int64_t n) const {
    Product shape{.m = m,
                  .n = n,
                  .k = p_.k,
                  .lda = a_.pitch(),
                  .a_km = !a_.along_k(),
                  .ldb = b_.pitch(),
                  .b_kn = !b_.along_k(),
                  .ldc = ldc()};
    if (convert_a_) shape.lda = a_.along_k() ? p_.k : m;
    if (chunks_.pack) {
      shape.ldb = b_.along_k() ? p_.k : p_.n;
    } else if (convert_b_) {
      shape.ldb = b_.along_k() ? p_.k : n;
    }
    return shape;
  }
  static std::size_t shape_index(bool rest_of_m, bool rest_of_n) {
    return (rest_of_m ? 2U : 0U) + (rest_of_n ? 1U : 0U);
  }
  /// Calls body(index, shape) for every shape that a run multiplies.
  template <class Body>
  Status for_shapes(const Body& body) const {
    const std::int64_t columns_of_d = columns(p_);
    if (p_.m == 0 || columns_of_d == 0 || p_.k == 0) return {};
    for (const bool rest_of_m : {false, true}) {
      for (const bool rest_of_n : {false, true}) {
        const std::int64_t m = rest_of_m ? p_.m % chunks_.m : chunks_.m,
                           n = rest_of_n ? columns_of_d % chunks_.n : chunks_.n;
        if (m != 0 && n != 0)
          LAPIDARY_TRY_STATUS(body(shape_index(rest_of_m, rest_of_n), shape_of(m, n)));
      }
    }
    return {};
  }

  /// Block scales of the call's entry.
  const float* scales(const CpuEpilogue::Call& call, std::size_t operand) const {
    return reinterpret_cast<const float*>(pass_.at(call, operand));
  }
  Status convert_a(const CpuEpilogue::Call& call, std::int64_t lane, std::int64_t lanes,
                   char* to) const {
    const bool scaled = p_.scales == ScaleMode::block;
    const float* scales_of_a = scaled ? scales(call, 2) : nullptr;
    const std::int64_t m4 = (p_.m + 3) / 4 * 4;
    const auto scale = [=](std::int64_t m, std::int64_t kb) { return scales_of_a[kb * m4 + m]; };
    return convert(a_, pass_.at(call, 0), lane, lanes, p_.k, chunks_.input, to,
                   scaled ? &scale : nullptr);
  }
  Status convert_b(const CpuEpilogue::Call& call, std::int64_t lane, std::int64_t lanes,
                   char* to) const {
    const bool scaled = p_.scales == ScaleMode::block;
    const float* scales_of_b = scaled ? scales(call, 3) : nullptr;
    const std::int64_t blocks = (p_.k + kScaleBlock - 1) / kScaleBlock;
    const auto scale = [=](std::int64_t n, std::int64_t kb) {
      return scales_of_b[n / kScaleBlock * blocks + kb];
    };
    return convert(b_, pass_.at(call, 1), lane, lanes, p_.k, chunks_.input, to,
                   scaled ? &scale : nullptr);
  }

  GemmProblem p_;
  Chunks chunks_;
  std::array<Multiply, 4> multiply_;  // by shape_index
  Lanes a_, b_;
  CpuEpilogue pass_;
  int halves_;
  bool convert_a_, convert_b_, direct_;
  std::size_t d_ = 0;
  std::int64_t packed_entries_ = 1;
  std::int64_t acc_bytes_ = 0, a_bytes_ = 0, b_bytes_ = 0, scratchpad_bytes_ = 0;
};

/// What the run needs of memory, or why the library cannot serve it.
Status sized(LibraryGemm& gemm, const Products& products) {
  for (const std::int64_t bytes : {gemm.workspace_bytes(), gemm.packed_bytes()}) {
    if (const std::string why = size_refusal(bytes); !why.empty())
      return fail(ErrorCode::resource_limit, "{}", why);
  }
  return gemm.ask(products);
}

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
  if (p.m == 0 || p.n == 0) return "nothing to multiply";
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
                                  std::string_view backend, DType input, double efficiency,
                                  const Products& products) {
  std::string refused = refusal(problem, input);
  if (refused.empty()) refused = thread_refusal(problem, device);
  if (!refused.empty()) {
    return {{.candidate = {std::string(backend), config_of({.input = input})}, .refused = refused}};
  }
  std::vector<Offer> offers;
  for (const Chunks& chunks : all_chunks(problem, input)) {
    Offer offer{.candidate = {std::string(backend), config_of(chunks)}, .refused = ""};
    LibraryGemm gemm(problem, chunks);
    if (const Status possible = sized(gemm, products); !possible)
      offer.refused = possible.error().message;
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
    offers.push_back(std::move(offer));
  }
  return offers;
}

Result<std::unique_ptr<Executable>> library_gemm(const GemmProblem& problem,
                                                 std::string_view backend, const Config& config,
                                                 const Products& products) {
  for (const DType input : {DType::f32, DType::bf16}) {
    for (const Chunks& chunks : all_chunks(problem, input)) {
      if (config_of(chunks) != config) continue;
      if (const std::string why = refusal(problem, input); !why.empty())
        return fail(ErrorCode::unsupported, "{}: {}", backend, why);
      auto gemm = std::make_unique<LibraryGemm>(problem, chunks);
      LAPIDARY_TRY_STATUS(sized(*gemm, products));
      LAPIDARY_TRY_STATUS(gemm->prepare(products));
      return std::unique_ptr<Executable>(std::move(gemm));
    }
  }
  return fail(ErrorCode::invalid_argument, "{}: no config {} for {}", backend, text(config),
              summary(problem));
}

}  // namespace lapidary::backends
