#pragma once

#include <string>
#include <vector>

#include "cli/layout_expression.h"

// Tables and pictures of what `lapidary layout` finds.
namespace lapidary::cli {

/// A layout as a grid: rows and columns of a rank-2 one, one row otherwise; of a thread-value map
/// the elements of its tile with who holds them.
struct LayoutGrid {
  struct Cell {
    std::string text;       ///< an offset, a coordinate or "T4 V1"
    std::int64_t key = 0;   ///< what the colour follows: offset, thread or bank
    bool accessed = false;  ///< marked in pictures
  };
  std::int64_t rows = 0, cols = 0;  ///< of the layout; cells has the first of them alone
  std::int64_t shown_rows = 0, shown_cols = 0;
  std::vector<Cell> cells{};  ///< row by row, shown_rows * shown_cols
  bool one_row = false;       ///< the layout is not a matrix: cells in the order of its coordinates
  Cell& at(std::int64_t i, std::int64_t j) {
    return cells[static_cast<std::size_t>(i * shown_cols + j)];
  }
  const Cell& at(std::int64_t i, std::int64_t j) const {
    return cells[static_cast<std::size_t>(i * shown_cols + j)];
  }
};

/// The grid of a layout or of a thread-value map, at most so many rows and columns of it.
LayoutGrid grid_of(const Layout& layout, std::int64_t most_rows, std::int64_t most_cols);
LayoutGrid map_grid(const Layout& map, const IntTuple& tile);

/// As text, with the numbers of rows and columns; says what was left out.
std::string table(const LayoutGrid& grid);

/// How a picture's colours follow the keys of its cells: key * step counts round so many hues. A
/// step of 1 gives neighbours like colours, a larger one different colours.
struct Hues {
  int count = 8, step = 3;
};

/// As an SVG document; `lines` stand below the grid.
std::string svg(const LayoutGrid& grid, const std::string& title,
                const std::vector<std::string>& lines, const Hues& hues);

}  // namespace lapidary::cli
