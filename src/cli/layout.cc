#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>

#include "arch/banks.h"
#include "cli/cli.h"
#include "cli/layout_expression.h"
#include "cli/layout_picture.h"
#include "cli/report.h"
#include "support/result.h"
#include "support/text.h"

namespace lapidary::cli {
namespace {

constexpr std::int64_t kTableRows = 64, kTableCols = 32;  // of the table on a terminal
constexpr std::int64_t kMostCells = 16384;                // of a picture
constexpr std::int64_t kMostValues = 65536;               // of the JSON
constexpr int kWarp = 32;

template <class... Args>
Error invalid(fmt::format_string<Args...> text, Args&&... args) {
  return fail(ErrorCode::invalid_argument, text, std::forward<Args>(args)...);
}

// ---- Accesses -------------------------------------------------------------------------------

/// What a warp does: a few instructions, each with an offset (in elements) for every thread.
struct Access {
  std::string name{};
  int elements = 1;  ///< that each thread touches at once
  std::vector<std::vector<std::int64_t>> instructions{};
};

/// The largest power of two of elements, up to 16 bytes, whose offsets follow one another in all
/// threads and values: one instruction moves as many.
int widest(const std::vector<std::vector<std::int64_t>>& offsets, int bits) {
  const int values = static_cast<int>(offsets[0].size());
  for (int n = std::min(128 / bits, values); n > 1; n /= 2) {
    if (values % n != 0 || (n & (n - 1)) != 0) continue;
    const auto whole = [&](const std::vector<std::int64_t>& thread) {
      for (int v = 0; v < values; ++v) {
        const std::int64_t first = thread[static_cast<std::size_t>(v / n * n)];
        if (first % n != 0 || thread[static_cast<std::size_t>(v)] != first + v % n) return false;
      }
      return true;
    };
    if (std::ranges::all_of(offsets, whole)) return n;
  }
  return 1;
}

/// The access of a (thread, value) -> element map; elements count through the layout's domain, or
/// down the columns of the tile at its corner.
Result<Access> mapped_access(const Layout& layout, const LayoutValue& value, int bits) {
  const auto* map = std::get_if<Layout>(&value.is);
  if (map == nullptr || map->rank() != 2 || !map->is_integral()) {
    return invalid(
        "layout: --access: '{}' is no map (thread, value) -> element; give a layout of two "
        "modes, an atom such as mma_a(m16n8k16), row, column or ldmatrix",
        text(value));
  }
  const std::int64_t values = (*map)[1].size();
  if (values > 1024)
    return invalid("layout: --access: '{}' has {} values a thread; at most 1024", text(value),
                   values);
  const std::int64_t threads = std::min<std::int64_t>((*map)[0].size(), kWarp);
  Access access;
  std::vector<std::vector<std::int64_t>> offsets;
  for (std::int64_t t = 0; t < threads; ++t) {
    std::vector<std::int64_t> mine;
    for (std::int64_t v = 0; v < values; ++v) {
      std::int64_t offset = 0;
      if (value.tile) {
        const std::int64_t rows = (*value.tile)[0].value(), element = (*map)(t, v);
        if (layout.rank() != 2 || layout[0].size() < rows ||
            layout[1].size() < (*value.tile)[1].value())
          return invalid("layout: --access: the tile {} of the atom does not fit in {}",
                         text(*value.tile), text(layout));
        offset = layout(element % rows, element / rows);
      } else {
        const std::int64_t element = (*map)(t, v);
        if (element < 0 || element >= layout.size())
          return invalid("layout: --access: element {} lies outside of the {} of the layout",
                         element, layout.size());
        offset = layout(element);
      }
      mine.push_back(offset);
    }
    offsets.push_back(std::move(mine));
  }
  access.elements = widest(offsets, bits);
  for (std::size_t v = 0; v < static_cast<std::size_t>(values);
       v += static_cast<std::size_t>(access.elements)) {
    std::vector<std::int64_t> instruction;
    for (const auto& thread : offsets) instruction.push_back(thread[v]);
    access.instructions.push_back(std::move(instruction));
  }
  return access;
}

/// row: thread t at column t * vector of row 0. column: at row t. ldmatrix: 16 bytes from each of 8
/// rows, four times: the 8x8 matrices below each other, then to the right.
Result<Access> named_access(const Layout& layout, const std::string& name, int bits, int vector) {
  if (layout.rank() != 2)
    return invalid("layout: --access {} needs a layout of two modes, and {} has {}", name,
                   text(layout), layout.rank());
  const std::int64_t rows = layout[0].size(), cols = layout[1].size();
  Access access{.name = name, .elements = name == "ldmatrix" ? 128 / bits : vector};
  std::vector<std::int64_t> offsets;
  for (std::int64_t t = 0; t < kWarp; ++t) {
    std::int64_t row = 0, col = 0;
    if (name == "row") col = t * vector;
    if (name == "column") row = t;
    if (name == "ldmatrix") {
      row = t % 8 + t / 8 % 2 * 8;
      col = t / 16 * access.elements;
    }
    if (row >= rows || col + access.elements > cols) break;
    for (std::int64_t k = 1; k < access.elements; ++k) {
      if (layout(row, col + k) != layout(row, col) + k)
        return invalid("layout: --access {}: {} elements from ({},{}) on are not contiguous in {}",
                       name, access.elements, row, col, text(layout));
    }
    offsets.push_back(layout(row, col));
  }
  if (offsets.empty())
    return invalid("layout: --access {}: {} elements do not fit in {}", name, access.elements,
                   text(layout));
  access.instructions.push_back(std::move(offsets));
  return access;
}

Result<Access> access_of(const Layout& layout, const std::string& name, int bits, int vector) {
  if (name == "row" || name == "column" || name == "ldmatrix")
    return named_access(layout, name, bits, vector);
  LAPIDARY_TRY(const LayoutValue value, evaluate_layout(name));
  LAPIDARY_TRY(Access access, mapped_access(layout, value, bits));
  access.name = name;
  return access;
}

/// "column: 32 threads, 1 element (2 bytes) each: 1 phase, 16 wavefronts where 1 would do: ...".
struct Judged {
  std::string line;
  int wavefronts = 0, ideal = 0;
};
Result<Judged> judge(const Access& access, int bits) {
  const int bytes = std::max(1, access.elements * bits / 8);
  if (bytes > 16 || (bytes & (bytes - 1)) != 0) {
    return invalid(
        "layout: --vector: {} elements of {} bits are {} bytes; one thread moves 1, 2, 4, 8 "
        "or 16",
        access.elements, bits, bytes);
  }
  Judged judged;
  std::string worst;
  int most = -1;
  std::size_t threads = 0;
  for (const auto& offsets : access.instructions) {
    threads = offsets.size();
    std::vector<std::int64_t> addresses;
    for (const std::int64_t offset : offsets) addresses.push_back(offset * bits / 8);
    const arch::BankReport report = arch::bank_conflicts(addresses, bytes);
    judged.wavefronts += report.wavefronts;
    judged.ideal += report.ideal;
    if (report.wavefronts - report.ideal <= most) continue;
    most = report.wavefronts - report.ideal;
    worst = arch::summary(report, static_cast<int>(threads));
  }
  judged.line = fmt::format("{}: {} threads, {} element{} ({} bytes) each", access.name, threads,
                            access.elements, access.elements == 1 ? "" : "s", bytes);
  if (access.instructions.size() > 1)
    judged.line += fmt::format(", {} instructions, the worst", access.instructions.size());
  judged.line += ": " + worst;
  return judged;
}

// ---- Output ---------------------------------------------------------------------------------

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) > '~') {
      out += '?';  // evaluates to an error, and never comes here
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string json_of(const std::string& expression, const LayoutValue& value,
                    const std::vector<Judged>& accesses) {
  static constexpr const char* kKinds[] = {"bool",    "number", "tuple", "layout",
                                           "swizzle", "tiler",  "name"};
  const bool bare =
      std::holds_alternative<bool>(value.is) || std::holds_alternative<std::int64_t>(value.is);
  std::string out =
      fmt::format("{{\"version\": 1, \"expression\": {}, \"kind\": \"{}\", \"value\": {}",
                  json_string(expression), kKinds[value.is.index()],
                  bare ? text(value) : json_string(text(value)));
  if (const auto* layout = std::get_if<Layout>(&value.is)) {
    out += fmt::format(
        ", \"shape\": {}, \"stride\": {}, \"rank\": {}, \"size\": {}, \"cosize\": {}, "
        "\"swizzles\": [",
        json_string(text(layout->shape())), json_string(text(layout->stride())), layout->rank(),
        layout->size(),
        layout->is_integral() ? std::to_string(cosize(*layout))
                              : json_string(text(coshape(*layout))));
    for (std::size_t i = 0; i < layout->stages().size(); ++i) {
      const Layout::Stage& stage = layout->stages()[i];
      out += fmt::format("{}{{\"bits\": {}, \"base\": {}, \"shift\": {}, \"offset\": {}}}",
                         i == 0 ? "" : ", ", stage.bits, stage.base, stage.shift, stage.offset);
    }
    out += "], \"values\": ";
    if (layout->size() > kMostValues) {
      out += "null";
    } else {
      out += '[';
      for (std::int64_t i = 0; i < layout->size(); ++i) {
        out += i > 0 ? ", " : "";
        if (layout->is_integral()) {
          out += std::to_string((*layout)(i));
        } else {
          const auto found = lapidary::evaluate(*layout, i);
          out += found ? json_string(text(*found)) : "null";
        }
      }
      out += ']';
    }
  }
  if (value.tile) out += fmt::format(", \"tile\": {}", json_string(text(*value.tile)));
  if (!accesses.empty()) {
    out += ", \"accesses\": [";
    for (std::size_t i = 0; i < accesses.size(); ++i)
      out +=
          fmt::format("{}{{\"text\": {}, \"wavefronts\": {}, \"ideal\": {}}}", i == 0 ? "" : ", ",
                      json_string(accesses[i].line), accesses[i].wavefronts, accesses[i].ideal);
    out += ']';
  }
  return out + "}\n";
}

/// Colours and numbers by bank in place of offsets.
void show_banks(LayoutGrid& grid, int bits) {
  for (LayoutGrid::Cell& cell : grid.cells) {
    const std::int64_t word = cell.key * bits / 8 / arch::kBankBytes;
    cell.key = (word % arch::kBanks + arch::kBanks) % arch::kBanks;
    cell.text = std::to_string(cell.key);
  }
}

/// Marks the cells that an access touches.
void mark(LayoutGrid& grid, const Layout& layout, const Access& access) {
  std::map<std::int64_t, bool> touched;
  for (const auto& instruction : access.instructions)
    for (const std::int64_t offset : instruction)
      for (int k = 0; k < access.elements; ++k) touched[offset + k] = true;
  for (std::int64_t i = 0; i < grid.shown_rows; ++i) {
    for (std::int64_t j = 0; j < grid.shown_cols; ++j)
      grid.at(i, j).accessed = touched.contains(grid.one_row ? layout(j) : layout(i, j));
  }
}

/// The value of --vector: elements that a thread moves at once.
Result<int> vector_of(const std::string& text) {
  if (text.empty()) return 1;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > 32)
    return invalid("layout: --vector: '{}' is no number of elements from 1 to 32", text);
  return value;
}

Status write_all(const LayoutArguments& arguments, const LayoutValue& value, const Layout* layout,
                 const std::vector<Access>& accesses, const std::vector<Judged>& judged, int bits) {
  if (arguments.json)
    LAPIDARY_TRY_STATUS(
        write_report(*arguments.json, json_of(arguments.expression, value, judged)));
  if (arguments.svg) {
    if (layout == nullptr)
      return invalid("layout: --svg draws layouts, and '{}' is none", text(value));
    if (layout->size() > kMostCells) {
      return invalid("layout: --svg: {} has {} cells; at most {}", text(*layout), layout->size(),
                     kMostCells);
    }
    LayoutGrid grid =
        value.tile ? map_grid(*layout, *value.tile) : grid_of(*layout, kMostCells, kMostCells);
    if (arguments.banks) show_banks(grid, bits);
    if (!accesses.empty() && !value.tile) mark(grid, *layout, accesses.front());
    std::vector<std::string> lines;
    if (arguments.banks)
      lines.push_back(fmt::format("banks of {}-bit elements, {} of {} bytes", bits, arch::kBanks,
                                  arch::kBankBytes));
    for (const Judged& one : judged) lines.push_back(one.line);
    const Hues hues = arguments.banks ? Hues{arch::kBanks, 1} : value.tile ? Hues{32, 11} : Hues{};
    LAPIDARY_TRY_STATUS(write_report(*arguments.svg, svg(grid, text(value), lines, hues)));
  }
  if (arguments.json == "-" || arguments.svg == "-") return {};
  std::string out = text(value) + "\n";
  if (!arguments.quiet && layout != nullptr) {
    LayoutGrid grid =
        value.tile ? map_grid(*layout, *value.tile) : grid_of(*layout, kTableRows, kTableCols);
    if (arguments.banks) show_banks(grid, bits);
    out += table(grid);
  }
  for (const Judged& one : judged) out += one.line + "\n";
  return write_report("-", out);
}

Status layout_verb(const LayoutArguments& arguments) {
  LAPIDARY_TRY(const LayoutValue value, evaluate_layout(arguments.expression));
  const auto* layout = std::get_if<Layout>(&value.is);
  LAPIDARY_TRY(const int bits,
               element_bits("layout: --type", arguments.type.empty() ? "f16" : arguments.type));
  LAPIDARY_TRY(const int vector, vector_of(arguments.vector));
  std::vector<Access> accesses;
  std::vector<Judged> judged;
  if (arguments.banks || !arguments.access.empty()) {
    const char* flag = arguments.banks ? "--banks" : "--access";
    if (layout == nullptr || !layout->is_integral() || value.tile) {
      return invalid(
          "layout: {} needs a layout of shared memory, from coordinates to offsets, and '{}' "
          "is {}",
          flag, text(value), value.tile ? "a thread-value map" : "none");
    }
    if (!arguments.access.empty()) {
      LAPIDARY_TRY(Access access, access_of(*layout, arguments.access, bits, vector));
      accesses.push_back(std::move(access));
    }
  }
  for (const Access& access : accesses) {
    LAPIDARY_TRY(Judged one, judge(access, bits));
    judged.push_back(std::move(one));
  }
  return write_all(arguments, value, layout, accesses, judged, bits);
}

}  // namespace

int run_layout(const LayoutArguments& arguments) {
  const Status done = layout_verb(arguments);
  if (done) return kOk;
  print_error(done.error());
  return exit_code(done.error());
}

}  // namespace lapidary::cli
