#include "reference/view.h"

#include "numeric/numeric.h"

namespace lapidary::reference {

double Entry::Matrix::at(std::int64_t row, std::int64_t col) const {
  return numeric::load(type, base, row * pitch + col);
}

double Entry::factor_a(std::int64_t i, std::int64_t kb) const {
  switch (scales) {
    case ScaleMode::none:
      return 1;
    case ScaleMode::tensor:
      return scale_a.at(0, 0);
    case ScaleMode::row:
      return scale_a.at(0, i);
    case ScaleMode::block:
      return scale_a.at(kb, i);
  }
  return 1;
}

double Entry::factor_b(std::int64_t j, std::int64_t kb) const {
  switch (scales) {
    case ScaleMode::none:
      return 1;
    case ScaleMode::tensor:
      return scale_b.at(0, 0);
    case ScaleMode::row:
      return scale_b.at(0, j);
    case ScaleMode::block:
      return scale_b.at(j / 128, kb);
  }
  return 1;
}

Entry entry_of(const GemmProblem& problem, std::span<const OperandSpec> specs,
               std::span<void* const> pointers, std::int64_t entry) {
  Entry e;
  e.m = problem.m;
  e.n = problem.n;
  e.k = problem.k;
  e.a_transposed = problem.layout == GemmLayout::tn || problem.layout == GemmLayout::tt;
  e.b_transposed = problem.layout == GemmLayout::nt || problem.layout == GemmLayout::tt;
  e.scales = problem.scales;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const OperandSpec& spec = specs[i];
    const std::int64_t skipped =
        spec.batch > 1 ? entry * spec.batch_stride * size_bytes(spec.type) : 0;
    const Entry::Matrix matrix{static_cast<const std::byte*>(pointers[i]) + skipped, spec.type,
                               spec.axes, spec.pitch, spec.name};
    if (i == 0)
      e.a = matrix;
    else if (i == 1)
      e.b = matrix;
    else if (i == 2 && problem.scales != ScaleMode::none)
      e.scale_a = matrix;
    else if (i == 3 && problem.scales != ScaleMode::none)
      e.scale_b = matrix;
    else if (spec.output)
      e.outputs.push_back(matrix);
    else
      e.inputs.push_back(matrix);
  }
  return e;
}

}  // namespace lapidary::reference
