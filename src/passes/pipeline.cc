#include "passes/passes.h"
#include "support/result.h"

namespace lapidary::passes {
namespace {

constexpr Pass kPipeline[] = {
    {"simplify",
     "folds and shares: the code that a layout's arithmetic becomes is full of constants, and is "
     "the same at each use",
     simplify},
    {"drop_dead", "takes out what the pass before it has made useless", drop_dead},
};

}  // namespace

std::span<const Pass> pipeline() { return kPipeline; }

Result<ir::Kernel> run(const ir::Kernel& kernel,
                       const std::function<void(const Pass&, const ir::Kernel&)>& after) {
  ir::Kernel now = kernel;
  for (const Pass& pass : kPipeline) {
    now = pass.run(now);
    if (const auto broken = ir::verify(now); !broken.empty()) {
      return fail(ErrorCode::internal, "pass {}: {} is broken at {}: {}", pass.name, kernel.name,
                  text(now.locations[broken.front().location]), broken.front().message);
    }
    if (after) after(pass, now);
  }
  return now;
}

}  // namespace lapidary::passes
