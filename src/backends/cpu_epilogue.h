#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lapidary/problem.h"
#include "support/result.h"

namespace lapidary::backends {

/// An epilogue program run on a CPU, over tiles of f32 accumulators. Used inside our own kernels
/// and, over the whole of D, as the separate pass behind a library's product. All arithmetic is
/// f32; functions are exact to a few units in the last place.
///
/// Rows and columns are cut into tiles of fixed extents, so that a reduction is summed in the same
/// order whoever runs which tile: a tile leaves partial results, and `finish` combines them in
/// order.
class CpuEpilogue {
 public:
  /// Tensor and row scales are applied here; under block scales, the accumulators that tiles get
  /// are scaled already. `rounded`: the scaled accumulator passes through D's type.
  CpuEpilogue(const GemmProblem& problem, std::int64_t tile_rows, std::int64_t tile_columns,
              bool rounded);

  /// Of workspace for the partial results of one batch entry; kManyBytes when it is that much.
  std::int64_t partial_bytes() const { return partial_bytes_; }
  std::int64_t scratch_floats() const;  ///< that `tile` works in
  /// May tiles of different entries run at the same time? Not when there are reductions.
  bool entries_apart() const { return slots_.empty() && !scalars_vary_; }
  std::int64_t row_tiles() const { return row_tiles_; }
  std::int64_t column_tiles() const { return column_tiles_; }

  struct Program {
    Epilogue epilogue;
    std::vector<int> order;  ///< nodes that an output needs
  };
  /// The program of one run, its zero factors taken out, for one entry of the batch; with
  /// entries_apart(), `entry` may be set to any other.
  struct Call {
    std::shared_ptr<const Program> program;
    std::span<void* const> operands;  ///< of entry 0
    std::int64_t entry = 0;
    float* partials = nullptr;
  };
  Call begin(std::span<void* const> operands, std::int64_t entry, void* partials) const;

  /// Where the call's entry of an operand begins.
  char* at(const Call& call, std::size_t operand) const {
    const OperandSpec& spec = specs_[operand];
    return static_cast<char*>(call.operands[operand]) +
           call.entry * spec.batch_stride * size_bytes(spec.type);
  }
  const std::vector<OperandSpec>& specs() const { return specs_; }

  /// Computes D and the other outputs of tile (tile_m, tile_n). acc(i, j) = acc[i * pitch + j]
  /// relative to the tile's origin; for a gated program that is the gate, and `up` the other half.
  /// `values`: scratch_floats() of the thread's scratch.
  void tile(const Call& call, std::int64_t tile_m, std::int64_t tile_n, const float* acc,
            const float* up, std::int64_t pitch, float* values) const;

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
  std::shared_ptr<const Program> program_;
  bool has_scalars_ = false, scalars_vary_ = false, rounded_;
  std::int64_t rows_, columns_, tile_rows_, tile_columns_, row_tiles_, column_tiles_,
      partial_bytes_ = 0;
  int scale_a_ = -1, scale_b_ = -1;  // operands, when scales are applied here
};

}  // namespace lapidary::backends
