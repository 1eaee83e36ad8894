#include "cli/layout_picture.h"

#include <fmt/format.h>

#include <algorithm>

namespace lapidary::cli {
namespace {

/// What the layout gives for a coordinate, without the parentheses of a coordinate's own tuple.
LayoutGrid::Cell cell_of(const Layout& layout, std::int64_t i, std::int64_t j, bool matrix) {
  if (layout.is_integral()) {
    const std::int64_t offset = matrix ? layout(i, j) : layout(j);
    return {.text = std::to_string(offset), .key = offset};
  }
  const auto found = evaluate(layout, matrix ? IntTuple{i, j} : IntTuple(j));
  return {.text = found ? text(*found) : "?", .key = i};
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text)
    out += c == '<'   ? "&lt;"
           : c == '>' ? "&gt;"
           : c == '&' ? "&amp;"
           : c == '"' ? "&quot;"
                      : std::string(1, c);
  return out;
}

}  // namespace

LayoutGrid grid_of(const Layout& layout, std::int64_t most_rows, std::int64_t most_cols) {
  LayoutGrid grid;
  const bool matrix = layout.rank() == 2;
  grid.one_row = !matrix;
  grid.rows = matrix ? layout[0].size() : 1;
  grid.cols = matrix ? layout[1].size() : layout.size();
  // One row is as long as all rows together.
  grid.shown_rows = std::min(grid.rows, most_rows);
  grid.shown_cols = std::min(grid.cols, matrix ? most_cols : most_rows * most_cols);
  for (std::int64_t i = 0; i < grid.shown_rows; ++i)
    for (std::int64_t j = 0; j < grid.shown_cols; ++j)
      grid.cells.push_back(cell_of(layout, i, j, matrix));
  return grid;
}

LayoutGrid map_grid(const Layout& map, const IntTuple& tile) {
  LayoutGrid grid;
  grid.rows = grid.shown_rows = tile[0].value();
  grid.cols = grid.shown_cols = tile[1].value();
  grid.cells.resize(static_cast<std::size_t>(grid.rows * grid.cols));
  for (std::int64_t t = 0; t < map[0].size(); ++t) {
    for (std::int64_t v = 0; v < map[1].size(); ++v) {
      const std::int64_t element = map(t, v);
      LayoutGrid::Cell& cell = grid.at(element % grid.rows, element / grid.rows);
      cell.text = fmt::format("T{} V{}", t, v);
      cell.key = t;
    }
  }
  return grid;
}

std::string table(const LayoutGrid& grid) {
  std::size_t width = 0;
  for (const LayoutGrid::Cell& cell : grid.cells) width = std::max(width, cell.text.size());
  // One row is broken into lines, each with the number of its first cell. A matrix is not: what
  // does not fit beside one another is left out.
  constexpr std::size_t kLine = 100, kLongest = 200;
  const std::int64_t per_line =
      grid.one_row ? std::clamp<std::int64_t>(static_cast<std::int64_t>(kLine / (width + 2)), 1, 16)
                   : std::clamp<std::int64_t>(static_cast<std::int64_t>(kLongest / (width + 2)), 1,
                                              std::max<std::int64_t>(grid.shown_cols, 1));
  const std::int64_t count = static_cast<std::int64_t>(grid.cells.size());
  width = std::max(width, std::to_string(std::max<std::int64_t>(per_line - 1, 0)).size());
  const std::size_t margin =
      std::to_string(grid.one_row ? std::max<std::int64_t>(count - 1, 0) : grid.shown_rows).size();
  std::string out;
  if (count > per_line || !grid.one_row) {
    out += std::string(margin + 1, ' ');
    for (std::int64_t j = 0; j < per_line; ++j) out += fmt::format("  {:>{}}", j, width);
    out += '\n';
  }
  const bool labels = count > per_line || !grid.one_row;
  const std::int64_t lines = grid.one_row ? (count + per_line - 1) / per_line : grid.shown_rows;
  for (std::int64_t i = 0; i < lines; ++i) {
    if (labels) out += fmt::format("{:>{}} ", grid.one_row ? i * per_line : i, margin);
    for (std::int64_t j = 0; j < per_line; ++j) {
      const std::int64_t at = i * (grid.one_row ? per_line : grid.shown_cols) + j;
      if (at >= count) break;
      out += fmt::format("  {:>{}}", grid.cells[static_cast<std::size_t>(at)].text, width);
    }
    out += '\n';
  }
  if (grid.one_row && grid.shown_cols < grid.cols)
    out += fmt::format("... the first {} of {}\n", grid.shown_cols, grid.cols);
  else if (!grid.one_row && (grid.shown_rows < grid.rows || per_line < grid.cols))
    out += fmt::format("... the first {}x{} of {}x{}\n", grid.shown_rows, per_line, grid.rows,
                       grid.cols);
  return out;
}

std::string svg(const LayoutGrid& grid, const std::string& title,
                const std::vector<std::string>& lines, const Hues& hues) {
  // A row that is long goes round.
  const std::int64_t per_line =
      grid.one_row ? std::min<std::int64_t>(grid.shown_cols, 16) : grid.shown_cols;
  const std::int64_t count = static_cast<std::int64_t>(grid.cells.size());
  const std::int64_t rows = per_line == 0 ? 0 : (count + per_line - 1) / per_line;
  std::size_t longest = 3;
  for (const LayoutGrid::Cell& cell : grid.cells) longest = std::max(longest, cell.text.size());
  constexpr int kHeight = 28, kMargin = 44, kHead = 52, kLetter = 8;
  const std::int64_t cell_width =
      std::max<std::int64_t>(kHeight, static_cast<std::int64_t>(longest) * kLetter + 8);
  std::size_t line_width = title.size();
  for (const std::string& line : lines) line_width = std::max(line_width, line.size());
  const std::int64_t width = std::max<std::int64_t>(
      kMargin + per_line * cell_width + 12, static_cast<std::int64_t>(line_width) * kLetter + 24);
  const std::int64_t height =
      kHead + rows * kHeight + 16 + 20 * static_cast<std::int64_t>(lines.size());
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
      "{1}\" "
      "font-family=\"monospace\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
      "<text x=\"12\" y=\"20\" font-size=\"13\">{2}</text>\n",
      width, height, escaped(title));
  for (std::int64_t j = 0; j < per_line; ++j)
    out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"#777\">{}</text>\n",
                       kMargin + j * cell_width + cell_width / 2, kHead - 6, j);
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t y = kHead + i * kHeight;
    out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#777\">{}</text>\n",
                       kMargin - 6, y + 18, grid.one_row ? i * per_line : i);
    for (std::int64_t j = 0; j < per_line && i * per_line + j < count; ++j) {
      const LayoutGrid::Cell& cell = grid.cells[static_cast<std::size_t>(i * per_line + j)];
      const std::int64_t turn = cell.key % hues.count * hues.step % hues.count;
      const std::int64_t hue = (turn + hues.count) % hues.count * 360 / hues.count;
      out += fmt::format(
          "<rect x=\"{0}\" y=\"{1}\" width=\"{2}\" height=\"{3}\" fill=\"hsl({4},65%,{5}%)\" "
          "stroke=\"{6}\" stroke-width=\"{7}\"/>"
          "<text x=\"{8}\" y=\"{9}\" text-anchor=\"middle\">{10}</text>\n",
          kMargin + j * cell_width + (cell.accessed ? 1 : 0), y + (cell.accessed ? 1 : 0),
          cell_width - (cell.accessed ? 2 : 0), kHeight - (cell.accessed ? 2 : 0), hue,
          cell.accessed ? 68 : 84, cell.accessed ? "#000" : "#fff", cell.accessed ? 2 : 1,
          kMargin + j * cell_width + cell_width / 2, y + 18, escaped(cell.text));
    }
  }
  for (std::size_t i = 0; i < lines.size(); ++i)
    out += fmt::format("<text x=\"12\" y=\"{}\">{}</text>\n",
                       kHead + rows * kHeight + 20 + 20 * static_cast<std::int64_t>(i),
                       escaped(lines[i]));
  return out + "</svg>\n";
}

}  // namespace lapidary::cli
