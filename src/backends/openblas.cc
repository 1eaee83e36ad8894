// OpenBLAS: f32 products; what is no f32 goes through a timed widening pass. It has no bf16 product
// of its own that accumulates as our numerics classes ask.

#include "backends/backend.h"
#include "backends/library_gemm.h"
#include "driver/library.h"
#include "support/env.h"
#include "support/parallel.h"

namespace lapidary::backends {
namespace {

// cblas.h: the enumerators' values are part of the CBLAS standard.
constexpr int kRowMajor = 101, kNoTrans = 111, kTrans = 112;
using Sgemm = void(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                   const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc);

struct OpenBlas {
  Sgemm* sgemm = nullptr;
  void (*set_threads)(int) = nullptr;
  std::string version;
};

Result<OpenBlas> load() {
  LAPIDARY_TRY(const driver::Library library,
               driver::Library::open(env("LAPIDARY_OPENBLAS").value_or(""),
                                     {"libopenblas.so.0", "libopenblas.so"}));
  OpenBlas blas{.sgemm = library.find<Sgemm>("cblas_sgemm"),
                .set_threads = library.find<void(int)>("openblas_set_num_threads"),
                .version = ""};
  const auto config = library.find<char*()>("openblas_get_config");
  if (blas.sgemm == nullptr || blas.set_threads == nullptr || config == nullptr) {
    return fail(ErrorCode::unsupported, "{} lacks cblas_sgemm or openblas_get_config",
                library.path());
  }
  blas.set_threads(default_threads());
  blas.version = fmt::format("{} at {}", config(), library.path());
  return blas;
}

/// Loaded once: a library that was not there does not appear while we run.
const Result<OpenBlas>& library() {
  static const Result<OpenBlas> loaded = load();
  return loaded;
}

constexpr const char* kMissing =
    "OpenBLAS is not here ({}); install libopenblas0-pthread, or set LAPIDARY_OPENBLAS to "
    "libopenblas.so";

class OpenBlasBackend final : public Backend {
 public:
  std::string_view name() const override { return "openblas"; }

  Result<std::string> version() const override {
    if (!library()) return fail(ErrorCode::unsupported, kMissing, library().error().message);
    return library()->version;
  }

  std::vector<Offer> candidates(const GemmProblem& problem,
                                const DeviceInfo& device) const override {
    if (!library()) {
      return {{.candidate = {"openblas", {}},
               .refused = fmt::format(kMissing, library().error().message)}};
    }
    return library_offers(problem, device, "openblas", DType::f32, 0.7, products());
  }

  Result<std::unique_ptr<Executable>> compile(const GemmProblem& problem, const Config& config,
                                              const DeviceInfo&) const override {
    if (!library()) return fail(ErrorCode::unsupported, kMissing, library().error().message);
    return library_gemm(problem, "openblas", config, products());
  }

 private:
  static Products products() {
    return {.scratchpad_bytes = [](const Product&) -> Result<std::int64_t> { return 0; },
            .prepare = [](const Product& p) -> Result<Multiply> {
              return Multiply([p, sgemm = library()->sgemm](const void* a, const void* b, float* c,
                                                            void*) -> Status {
                sgemm(kRowMajor, p.a_km ? kTrans : kNoTrans, p.b_kn ? kNoTrans : kTrans,
                      static_cast<int>(p.m), static_cast<int>(p.n), static_cast<int>(p.k), 1.0f,
                      static_cast<const float*>(a), static_cast<int>(p.lda),
                      static_cast<const float*>(b), static_cast<int>(p.ldb), 0.0f, c,
                      static_cast<int>(p.ldc));
                return {};
              });
            }};
  }
};

}  // namespace

const Backend& openblas() {
  static const OpenBlasBackend backend;
  return backend;
}

}  // namespace lapidary::backends
