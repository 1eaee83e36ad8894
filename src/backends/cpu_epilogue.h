#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lapidary/problem.h"
#include "support/result.h"

namespace lapidary::backends {

/// An epilogue program run on a CPU, over tiles of f32 accumulators. Used inside our own kernels
/// and, over the whole of D, as the separate pass behind a library's product. All arithmetic is
/// f32; functions are exact to a few units in the last place (docs/epilogues.md states each).
///
/// Rows and columns are cut into tiles of fixed extents, so that a reduction is summed in the same
/// order whoever runs which tile: a tile leaves partial results, and `finish` combines them in
/// order.
class CpuEpilogue {
 public:
  /// `scaled`: the accumulators that tiles get are scaled already; else tensor and row scales are
  /// applied here.
  CpuEpilogue(const GemmProblem& problem, std::int64_t tile_rows, std::int64_t tile_columns,
              bool scaled);

  std::int64_t partial_bytes() const;  ///< of workspace for the partial results of one batch entry
  std::int64_t row_tiles() const { return row_tiles_; }
  std::int64_t column_tiles() const { return column_tiles_; }

  /// The program of one run, its zero factors taken out, for one entry of the batch.
  struct Call {
    Epilogue program;
    std::vector<char*> operands;  ///< of this entry
    float* partials = nullptr;
  };
  Call begin(std::span<void* const> operands, std::int64_t entry, void* partials) const;

  /// Computes D and the other outputs of tile (tile_m, tile_n). acc(i, j) = acc[i * pitch + j]
  /// relative to the tile's origin; for a gated program that is the gate, and `up` the other half.
  void tile(const Call& call, std::int64_t tile_m, std::int64_t tile_n, const float* acc,
            const float* up, std::int64_t pitch) const;

  /// Writes the reductions, after all tiles.
  void finish(const Call& call) const;

 private:
  struct Slot {  // partial results of one reduction
    int assignment;
    int operand;          // its output
    std::int64_t offset;  // into partials, in floats
  };
  GemmProblem problem_;
  std::vector<OperandSpec> specs_;
  std::vector<int> input_operand_;       // program input -> operand
  std::vector<int> assignment_operand_;  // assignment -> operand or -1
  std::vector<Slot> slots_;
  std::int64_t rows_, columns_, tile_rows_, tile_columns_, row_tiles_, column_tiles_,
      partial_floats_ = 0;
  int scale_a_ = -1, scale_b_ = -1;  // operands, when scales are applied here
};

}  // namespace lapidary::backends
