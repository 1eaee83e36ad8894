// Our own CPU kernels: any types, layouts, scales and programs, the epilogue fused. Two kinds:
//   tile    packs blocks of A and B as f32 and runs a register tile over them (many rows);
//   stream  widens rows of B on the way and takes dot products (few rows, B contiguous along k).
#include <algorithm>
#include <memory>

#include "backends/backend.h"
#include "backends/cpu_common.h"
#include "backends/cpu_epilogue.h"
#include "numeric/numeric.h"
#include "support/parallel.h"

namespace lapidary::backends {
namespace {

constexpr std::int64_t kScaleBlock = 128;  // k (and n of B) that one block scale covers
constexpr std::int64_t kStreamMaxRows = 32;

struct PortableConfig {
  bool stream = false;
  std::int64_t tile_m = 0, tile_n = 0, tile_k = 0;
};

Config config_of(const PortableConfig& c) {
  return {{"kind", c.stream ? "stream" : "tile"},
          {"tile_m", c.tile_m},
          {"tile_n", c.tile_n},
          {"tile_k", c.tile_k}};
}

constexpr PortableConfig kConfigs[] = {
    {false, 120, 256, 256}, {false, 240, 256, 256}, {false, 60, 512, 256}, {false, 120, 128, 512},
    {false, 24, 512, 256},  {true, 32, 64, 1024},   {true, 32, 32, 2048},  {true, 32, 16, 4096},
};

Result<PortableConfig> parse(const Config& config) {
  for (const PortableConfig& known : kConfigs) {
    if (config_of(known) == config) return known;
  }
  return fail(ErrorCode::invalid_argument,
              "portable: no config {}; `lapidary tune` lists those there are", text(config));
}

std::string refusal(const GemmProblem& p, const PortableConfig& c) {
  if (!c.stream) return "";
  if (p.m > kStreamMaxRows)
    return fmt::format("stream: m = {} is over {} rows", p.m, kStreamMaxRows);
  if (lanes_of_b(p).k_stride != 1)
    return fmt::format("stream: B of layout {} is not contiguous along k", name(p.layout));
  return "";
}

/// Packs lanes [lane, lane + lanes) and k in [k0, k0 + k) as f32 in [k][width], missing lanes as 0.
/// `row` holds width * k floats.
void pack_panel(const Lanes& from, const void* base, std::int64_t lane, std::int64_t lanes,
                int width, std::int64_t k0, std::int64_t k, float* row, float* to) {
  if (from.k_stride == 1) {
    for (int l = 0; l < width; ++l) {
      if (l < lanes) {
        widen(from.type, from.at(base, lane + l, k0), k, row + l * k);
      } else {
        std::fill_n(row + l * k, k, 0.0f);
      }
    }
    isa_kernels().transpose(row, k, width, k, to);
    return;
  }
  for (std::int64_t p = 0; p < k; ++p) {
    widen(from.type, from.at(base, lane, k0 + p), lanes, to + p * width);
    std::fill(to + p * width + lanes, to + (p + 1) * width, 0.0f);
  }
}

class PortableGemm final : public Executable {
 public:
  PortableGemm(const GemmProblem& problem, const PortableConfig& config)
      : p_(problem),
        config_(config),
        a_(lanes_of_a(problem)),
        b_(lanes_of_b(problem)),
        epilogue_(problem, config.tile_m, config.tile_n, /*rounded=*/false) {}

  std::int64_t workspace_bytes() const override { return epilogue_.partial_bytes(); }

  Status run(const Arguments& arguments) const override {
    return without_throwing([&]() -> Status {
      // Entries whose results do not meet share one range: a batch of small products is one piece
      // of work, not many.
      const std::int64_t together = epilogue_.entries_apart() ? p_.batch : 1;
      const std::int64_t tiles = epilogue_.row_tiles() * epilogue_.column_tiles();
      for (std::int64_t entry = 0; entry < p_.batch; entry += together) {
        const CpuEpilogue::Call first =
            epilogue_.begin(arguments.operands, entry, arguments.workspace);
        LAPIDARY_TRY_STATUS(each_with_scratch(
            p_, together * tiles, grain(), layout(config_.tile_m, config_.tile_n).floats,
            [&](std::int64_t begin, std::int64_t end, float* floats) {
              CpuEpilogue::Call call = first;
              for (std::int64_t i = begin; i < end; ++i) {
                call.entry = entry + i / tiles;
                const std::int64_t tile = i % tiles;
                run_tile(call, tile % epilogue_.row_tiles(), tile / epilogue_.row_tiles(), floats);
              }
            }));
        epilogue_.finish(first);
      }
      return {};
    });
  }

 private:
  /// Scale of a block: row m of A times block column of B, for k block kb (block scales only).
  float block_scale(const CpuEpilogue::Call& call, std::int64_t m, std::int64_t n,
                    std::int64_t kb) const {
    const std::int64_t m4 = (p_.m + 3) / 4 * 4, blocks = (p_.k + kScaleBlock - 1) / kScaleBlock;
    const auto* sa = reinterpret_cast<const float*>(epilogue_.at(call, 2));
    const auto* sb = reinterpret_cast<const float*>(epilogue_.at(call, 3));
    return sa[kb * m4 + m] * sb[(n / kScaleBlock) * blocks + kb];
  }

  int halves() const { return p_.epilogue.gated ? 2 : 1; }
  bool scaled() const { return p_.scales == ScaleMode::block; }
  std::int64_t tile_k() const { return scaled() ? kScaleBlock : config_.tile_k; }

  /// Where things lie in a thread's scratch, for a tile of m rows and n columns: accumulators
  /// first, padded to whole micro tiles, gate and up one after the other.
  struct ScratchLayout {
    std::int64_t pitch, acc, packed_a, packed_b, row, values, floats;
  };
  ScratchLayout layout(std::int64_t m, std::int64_t n) const {
    const IsaKernels& isa = isa_kernels();
    m = std::min(m, p_.m);
    n = std::min(n, columns(p_));
    ScratchLayout at{};
    at.pitch = (n + isa.columns - 1) / isa.columns * isa.columns;
    at.acc = halves() * m * at.pitch;
    at.packed_a = (scaled() ? 2 : 1) * at.acc;
    const std::int64_t padded_m = (m + isa.rows - 1) / isa.rows * isa.rows;
    const std::int64_t staged = std::max<std::int64_t>(isa.columns, isa.rows) * tile_k();
    at.packed_b = at.packed_a + padded_m * tile_k();
    at.row = at.packed_b + staged;
    at.values = at.row + staged + 4 * tile_k();
    at.floats = at.values + epilogue_.scratch_floats();
    return at;
  }

  /// Tiles that are worth a thread of their own.
  std::int64_t grain() const {
    const auto m = static_cast<double>(std::min(config_.tile_m, p_.m)),
               n = static_cast<double>(std::min(config_.tile_n, columns(p_)) * halves()),
               k = static_cast<double>(p_.k);
    return worthwhile_grain(2 * m * n * k, (m * static_cast<double>(size_bytes(p_.a)) +
                                            n * static_cast<double>(size_bytes(p_.b))) *
                                               k);
  }

  void run_tile(const CpuEpilogue::Call& call, std::int64_t tile_m, std::int64_t tile_n,
                float* floats) const {
    const IsaKernels& isa = isa_kernels();
    const std::int64_t columns_of_d = columns(p_);
    const std::int64_t m0 = tile_m * config_.tile_m, m = std::min(config_.tile_m, p_.m - m0);
    const std::int64_t n0 = tile_n * config_.tile_n,
                       n = std::min(config_.tile_n, columns_of_d - n0);
    const ScratchLayout layout = this->layout(m, n);
    const std::int64_t pitch = layout.pitch, tile_k = this->tile_k();
    float *acc = floats, *partial = scaled() ? acc + layout.acc : acc,
          *packed_a = floats + layout.packed_a, *packed_b = floats + layout.packed_b,
          *row = floats + layout.row;
    const char *a = epilogue_.at(call, 0), *b = epilogue_.at(call, 1);
    std::fill_n(acc, layout.acc, 0.0f);

    for (std::int64_t k0 = 0; k0 < p_.k; k0 += tile_k) {
      const std::int64_t k = std::min(tile_k, p_.k - k0);
      const bool add = k0 > 0 && !scaled();
      if (config_.stream) {
        for (std::int64_t i = 0; i < m; ++i) load_row(a_, a, m0 + i, k0, k, packed_a + i * tile_k);
      } else {
        for (std::int64_t i = 0; i < m; i += isa.rows) {
          pack_panel(a_, a, m0 + i, std::min<std::int64_t>(isa.rows, m - i), isa.rows, k0, k, row,
                     packed_a + i * k);
        }
      }
      for (int half = 0; half < halves(); ++half) {
        const std::int64_t lane0 = half * columns_of_d + n0;
        float* c = partial + half * m * pitch;
        if (config_.stream) {
          for (std::int64_t j = 0; j < n; j += 4) {
            const int columns_now = static_cast<int>(std::min<std::int64_t>(4, n - j));
            for (int l = 0; l < columns_now; ++l)
              widen(b_.type, b_.at(b, lane0 + j + l, k0), k, row + l * tile_k);
            for (std::int64_t i = 0; i < m; i += 4) {
              isa.dot(static_cast<int>(std::min<std::int64_t>(4, m - i)), columns_now, k,
                      packed_a + i * tile_k, tile_k, row, tile_k, c + i * pitch + j, pitch, add);
            }
          }
        } else {
          for (std::int64_t j = 0; j < n; j += isa.columns) {
            pack_panel(b_, b, lane0 + j, std::min<std::int64_t>(isa.columns, n - j), isa.columns,
                       k0, k, row, packed_b);
            for (std::int64_t i = 0; i < m; i += isa.rows) {
              isa.micro(static_cast<int>(std::min<std::int64_t>(isa.rows, m - i)), k,
                        packed_a + i * k, packed_b, c + i * pitch + j, pitch, add);
            }
          }
        }
        if (!scaled()) continue;
        for (std::int64_t i = 0; i < m; ++i) {
          for (std::int64_t j = 0; j < n; ++j) {
            acc[(half * m + i) * pitch + j] +=
                c[i * pitch + j] * block_scale(call, m0 + i, lane0 + j, k0 / kScaleBlock);
          }
        }
      }
    }
    epilogue_.tile(call, tile_m, tile_n, acc, acc + (halves() - 1) * m * pitch, pitch,
                   floats + layout.values);
  }

  /// k elements of one lane, whatever its stride, as f32.
  static void load_row(const Lanes& lanes, const void* base, std::int64_t lane, std::int64_t k0,
                       std::int64_t k, float* to) {
    if (lanes.k_stride == 1) return widen(lanes.type, lanes.at(base, lane, k0), k, to);
    for (std::int64_t p = 0; p < k; ++p)
      to[p] = numeric::load(lanes.type, lanes.at(base, lane, k0 + p), 0);
  }

  GemmProblem p_;
  PortableConfig config_;
  Lanes a_, b_;
  CpuEpilogue epilogue_;
};

class Portable final : public Backend {
 public:
  std::string_view name() const override { return "portable"; }

  Result<std::string> version() const override {
    return fmt::format("our own kernels, {}", driver::name(driver::cpu_isa()));
  }

  std::vector<Offer> candidates(const GemmProblem& problem,
                                const DeviceInfo& device) const override {
    std::vector<Offer> offers;
    for (const PortableConfig& config : kConfigs) {
      Offer offer{.candidate = {"portable", config_of(config)},
                  .refused = refusal(problem, config)};
      if (offer.refused.empty()) {
        const PortableGemm gemm(problem, config);
        offer.workspace_bytes = gemm.workspace_bytes();
        offer.refused = size_refusal(offer.workspace_bytes);
        // A register tile reaches over half of the peak; rows that do not fill it are lost.
        const double rows = static_cast<double>(std::min<std::int64_t>(problem.m, config.tile_m));
        const double efficiency = config.stream ? 0.35 : 0.6 * rows / (rows + 10.0);
        offer.predicted_us =
            roofline_us(device, flops(problem), efficiency, operand_bytes(problem));
      }
      offers.push_back(std::move(offer));
    }
    return offers;
  }

  Result<std::unique_ptr<Executable>> compile(const GemmProblem& problem, const Config& config,
                                              const DeviceInfo&) const override {
    LAPIDARY_TRY(const PortableConfig parsed, parse(config));
    if (const std::string why = refusal(problem, parsed); !why.empty()) {
      return fail(ErrorCode::unsupported, "portable: {}", why);
    }
    auto made = std::make_unique<PortableGemm>(problem, parsed);
    if (const std::string why = size_refusal(made->workspace_bytes()); !why.empty())
      return fail(ErrorCode::resource_limit, "portable: {}", why);
    return std::unique_ptr<Executable>(std::move(made));
  }
};

}  // namespace

const Backend& portable() {
  static const Portable backend;
  return backend;
}

}  // namespace lapidary::backends
