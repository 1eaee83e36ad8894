// `lapidary layout` as a person runs it, and its language on the cases of room layout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "cli/layout_expression.h"
#include "support/files.h"
#include "support/subprocess.h"
#include "support/text.h"

namespace lapidary {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

RunOutput run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {LAPIDARY_BUILD_DIR "/bin/lapidary", "layout"});
  const auto output = run_process(arguments, "", std::chrono::milliseconds(60000));
  EXPECT_TRUE(output) << output.error();
  return output ? *output : RunOutput{};
}

std::string value_of(const std::string& expression) {
  const auto value = cli::evaluate_layout(expression);
  return value ? cli::text(*value) : value.error().message;
}

/// The strings of a line of the cases, between quotes: op, its name, inputs, ... They have no
/// escapes.
struct Line {
  std::string op, expected;
  std::vector<std::string> inputs;
};
std::vector<Line> lines() {
  std::vector<Line> all;
  const std::string file = *read_file(LAPIDARY_SOURCE_DIR "/src/layout/cute_layout_cases.jsonl");
  for (const std::string_view line : split(file, '\n')) {
    const std::vector<std::string_view> words = split(line, '"');
    if (words.size() < 8) continue;
    Line one{.op = std::string(words[3])};
    std::size_t i = 7;
    for (; words[i] != "expected"; i += 2) one.inputs.emplace_back(words[i]);
    one.expected = words[i + 2];
    all.push_back(std::move(one));
  }
  return all;
}

// Each operation of the cases as an expression; {} are the inputs.
TEST(LayoutLanguage, SaysTheCases) {
  const std::map<std::string, std::string> as = {
      {"append", "append({0}, {1})"},
      {"blocked_product", "blocked_product({0}, {1})"},
      {"coalesce", "coalesce({0})"},
      {"coalesce_profile", "coalesce({0}, {1})"},
      {"compact_col_major", "compact_col_major({0})"},
      {"compact_row_major", "compact_row_major({0})"},
      {"compatible", "compatible({0}, {1})"},
      {"complement", "complement({0}, {1})"},
      {"composition", "composition({0}, {1})"},
      {"composition_tiler", "composition({0}, {1})"},
      {"cosize", "cosize({0})"},
      {"crd2idx", "crd2idx({0}, {1}, {2})"},
      {"dice", "dice({1}, {0})"},
      {"domain_distribute", "domain_distribute({0}, {1})"},
      {"downcast", "downcast({0}, {1})"},
      {"evenly_divides", "evenly_divides({0}, {1})"},
      {"filter", "filter({0})"},
      {"flat_divide_tiler", "flat_divide({0}, {1})"},
      {"flat_product", "flat_product({0}, {1})"},
      {"flatten", "flatten({0})"},
      {"get_mode", "get({0}, ({1}))"},
      {"group_modes", "group_modes({0}, {1})"},
      {"idx2crd", "idx2crd({0}, {1})"},
      {"inner_product", "inner_product({0}, {1})"},
      {"left_inverse", "left_inverse({0})"},
      {"logical_divide", "logical_divide({0}, {1})"},
      {"logical_divide_tiler", "logical_divide({0}, {1})"},
      {"logical_product", "logical_product({0}, {1})"},
      {"make_identity_layout", "make_identity_layout({0})"},
      {"make_layout_like", "make_layout_like({0})"},
      {"make_ordered_layout", "make_ordered_layout({0}, {1})"},
      {"max_alignment", "max_alignment({0})"},
      {"max_common_vector", "max_common_vector({0}, {1})"},
      {"nullspace", "nullspace({0})"},
      {"prefix_product", "prefix_product({0})"},
      {"prepend", "prepend({0}, {1})"},
      {"product", "product({0})"},
      {"raked_product", "raked_product({0}, {1})"},
      {"recast_layout", "recast({0}, {1}, {2})"},
      {"replace", "replace({0}, {1}, {2})"},
      {"right_inverse", "right_inverse({0})"},
      {"select", "select({0}, ({1}))"},
      {"shape_div", "shape_div({0}, {1})"},
      {"shape_mod", "shape_mod({0}, {1})"},
      {"slice", "slice({1}, {0})"},
      {"swizzle_downcast", "downcast({0}, {1})"},
      {"swizzle_upcast", "upcast({0}, {1})"},
      {"take", "take({0}, {1})"},
      {"tiled_divide_tiler", "tiled_divide({0}, {1})"},
      {"tiled_product", "tiled_product({0}, {1})"},
      {"upcast", "upcast({0}, {1})"},
      {"weakly_congruent", "weakly_congruent({0}, {1})"},
      {"zipped_divide_tiler", "zipped_divide({0}, {1})"},
      {"zipped_divide_tiler_shape", "shape(zipped_divide(make_layout({0}), {1}))"},
      {"zipped_product", "zipped_product({0}, {1})"},
  };
  int said = 0;
  std::vector<std::string> others;
  for (const Line& line : lines()) {
    if (!as.contains(line.op)) continue;
    std::string expression = as.at(line.op);
    for (std::size_t i = 0; i < line.inputs.size(); ++i) {
      const std::string hole = "{" + std::to_string(i) + "}";
      if (const std::size_t at = expression.find(hole); at != std::string::npos)
        expression.replace(at, hole.size(), line.inputs[i]);
    }
    ++said;
    if (const std::string got = value_of(expression); got != line.expected)
      others.push_back(expression + " = " + got);
  }
  EXPECT_GE(said, 440);
  // The five whose form is free (layout_cases_test.cc).
  EXPECT_THAT(others, testing::UnorderedElementsAre("complement(12:1, 12) = 1:0",
                                                    "complement(12:1, 1) = 1:0",
                                                    "complement((3,6):(1,3), 18) = 1:0",
                                                    "left_inverse(((3,7)):((0,0))) = 1:0",
                                                    "logical_divide(2:1, 32:1) = (32,1):(1,0)"));
}

TEST(LayoutLanguage, HasOperatorsTilersAndAtoms) {
  const std::pair<const char*, const char*> cases[] = {
      {"(20,2):(16,4) o (4,5):(1,4)", "(4,5):(16,64)"},
      {"S<3,4,3> o (8,64):(64,1)", "S<3,4,3> o 0 o (8,64):(64,1)"},
      {"Sw<3,4,3> o 16 o S<1,0,1> o 4:1", "S<3,4,3> o 16 o S<1,0,1> o 0 o 4:1"},
      {"zipped_divide((6,8):(8,1), (3,4))", "((3,4),(2,2)):((8,1),(24,4))"},
      {"zipped_divide((6,8):(8,1), (3:1, _))", "((3,8),(2,1)):((8,1),(24,0))"},
      {"composition(4:1, complement(2:1, 4))", "2:2"},
      {"get(zipped_divide((6,8):(8,1), <3:1;4:1>), 0)", "(3,4):(8,1)"},
      {"make_layout(3:1, (4,2):(3,12))", "(3,(4,2)):(1,(3,12))"},
      {"make_layout((4,8))", "(4,8):(1,4)"},
      {"make_layout((4,8), (8,1))", "(4,8):(8,1)"},
      {"crd2idx((2,3), (4,8):(8,1))", "19"},
      {"crd2idx(5, make_identity_layout((4,8)))", "(1,1)"},
      {"compatible(24, (4,6))", "true"},
      {"swizzle(S<3,4,3>, 0x80)", "144"},
      {"mma_a(m16n8k8)", "((4,8),(2,2)):((32,1),(16,8))"},
      {"mma_a(m16n8k8, tf32)", "((4,8),(2,2)):((16,1),(8,64))"},
      {"wgmma_c(m64n16k16)", "((4,8,4),(2,2,2)):((128,1,16),(64,8,512))"},
      {"tile_to_shape(smem_atom(128, bf16), (128,64))",
       "S<3,3,3> o 0 o ((8,16),(64,1)):((64,512),(1,0))"},
      {"smem_atom(64, e4m3, mn)", "S<2,4,3> o 0 o (64,8):(1,64)"},
      {"1@0@1", "1@0@1"},
      {"(4, (2, 3))", "(4,(2,3))"},
  };
  for (const auto& [expression, value] : cases)
    EXPECT_EQ(value_of(expression), value) << expression;
}

TEST(LayoutLanguage, PointsAtWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"(4,8", "layout: got the end, expected ',' or ')'\n(4,8\n    ^"},
      {"(4,8)):(1,4)", "layout: got ')', expected the end\n(4,8)):(1,4)\n     ^"},
      {"compostion(4:1, 2:1)",
       "layout: 'compostion' is no function, number or layout; did you mean 'composition'?\n"
       "compostion(4:1, 2:1)\n^"},
      {"coalesce(composition((8,8):(8,1), 4:3))",
       "layout: composition((8,8):(8,1), 4:3): mode 4:3 of the right meets mode 8:8 of the left: "
       "its "
       "step there, 3, does not divide extent 8, and its 4 steps leave it; use a step that divides "
       "8 "
       "or a multiple of it\ncoalesce(composition((8,8):(8,1), 4:3))\n         ^"},
      {"composition(4:1)",
       "layout: 1 argument given; it is composition(L, L or tiler)\ncomposition(4:1)\n^"},
      {"upcast(8:1, (2,2))",
       "layout: '(2,2)' is a tuple, and this must be a number\nupcast(8:1, (2,2))\n            ^"},
      {"(4,0):(1,4)",
       "layout: make_layout: an extent of 0; extents are numbers from 1\n(4,0):(1,4)\n^"},
      {"4:1 o S<1,0,1>",
       "layout: 'S<1,0,1>' is a swizzle, and this must be a layout\n4:1 o S<1,0,1>\n      ^"},
      {"S<4,0,2>",
       "layout: S<4,0,2>: bits > |shift|: 4 bits 2 apart would overlap; use at most 2 bits\n"
       "S<4,0,2>\n^"},
      {"mma_c(m16n8k7)",
       "layout: no mma.sync is m16n8k7; there are m16n8k16 (16 bits), m16n8k8 (16 bits), m16n8k8 "
       "(32 "
       "bits), m16n8k4 (32 bits), m16n8k32 (8 bits)\nmma_c(m16n8k7)\n^"},
      {"wgmma_c(m64n12k16)",
       "layout: no wgmma has n = 12; it is a multiple of 8 from 8 to 256\nwgmma_c(m64n12k16)\n^"},
      {"99999999999999999999:1",
       "layout: '99999999999999999999' is no number: got '9', expected a number that fits in 64 "
       "bits\n99999999999999999999:1\n^"},
      {"12ab", "layout: '12ab' is no number: got 'a', expected the end\n12ab\n^"},
      {"foo", "layout: 'foo' is no function, number or layout\nfoo\n^"},
  };
  for (const auto& [expression, message] : cases)
    EXPECT_EQ(value_of(expression), message) << expression;
  // However deep or long.
  EXPECT_THAT(value_of(std::string(100000, '(')),
              AllOf(HasSubstr("more than 64 nests"), EndsWith("^")));
  EXPECT_THAT(value_of("(" + std::string(3000, '1') + ")"), HasSubstr("..."));
}

TEST(LayoutVerb, PrintsTheResultAndItsTable) {
  const RunOutput small = run({"(2,4):(4,1)"});
  EXPECT_EQ(small.out,
            "(2,4):(4,1)\n"
            "    0  1  2  3\n"
            "0   0  1  2  3\n"
            "1   4  5  6  7\n");
  EXPECT_EQ(small.state.code, 0);
  EXPECT_EQ(small.err, "");
  EXPECT_EQ(run({"(2,4):(4,1)", "--quiet"}).out, "(2,4):(4,1)\n");
  EXPECT_EQ(run({"8:2"}).out, "8:2\n   0   2   4   6   8  10  12  14\n");
  EXPECT_EQ(run({"compatible(24, (4,6))"}).out, "true\n");
  EXPECT_THAT(run({"mma_c(m16n8k16)"}).out, HasSubstr("\n 9    T4 V2   T4 V3   T5 V2"));
  // Enormous ones cost nothing: the table is cut, and says so.
  const std::string large = run({"(1000000000,1000000000):(1,1000000000)"}).out;
  EXPECT_EQ(large.substr(large.rfind("...")), "... the first 64x15 of 1000000000x1000000000\n");
  EXPECT_THAT(run({"1000000000000000000:1"}).out, EndsWith("of 1000000000000000000\n"));
}

TEST(LayoutVerb, WritesJsonAndPictures) {
  EXPECT_EQ(
      run({"(2,2):(2,1)", "--json"}).out,
      "{\"version\": 1, \"expression\": \"(2,2):(2,1)\", \"kind\": \"layout\", \"value\": "
      "\"(2,2):(2,1)\", \"shape\": \"(2,2)\", \"stride\": \"(2,1)\", \"rank\": 2, \"size\": 4, "
      "\"cosize\": 4, \"swizzles\": [], \"values\": [0, 2, 1, 3]}\n");
  EXPECT_THAT(run({"size(4:1)", "--json"}).out, HasSubstr("\"kind\": \"number\", \"value\": 4}"));
  EXPECT_THAT(run({"1000000:1", "--json"}).out, HasSubstr("\"values\": null"));
  const auto folder = TempFolder::make();
  ASSERT_TRUE(folder);
  const std::string file = (folder->path() / "a.svg").string();
  const RunOutput beside = run({"(2,4):(4,1)", "-q", "--svg=" + file});
  EXPECT_EQ(beside.out, "(2,4):(4,1)\n");
  const std::string picture = *read_file(file);
  EXPECT_THAT(picture, AllOf(StartsWith("<svg "), EndsWith("</svg>\n"), HasSubstr(">7</text>")));
  // Eight cells and the paper.
  std::size_t cells = 0;
  for (std::size_t at = 0; (at = picture.find("<rect", at)) != std::string::npos; ++at) ++cells;
  EXPECT_EQ(cells, 9u);
  EXPECT_THAT(run({"S<1,0,1> o 4:1", "--svg"}).out,
              AllOf(StartsWith("<svg "), HasSubstr("S&lt;1,0,1&gt;")));
  const RunOutput both = run({"4:1", "--svg", "--json"});
  EXPECT_EQ(both.state.code, 2);
  EXPECT_THAT(both.err, HasSubstr("both want stdout"));
  EXPECT_THAT(run({"(1000,1000):(1,1000)", "--svg"}).err,
              HasSubstr("has 1000000 cells; at most 16384"));
  EXPECT_THAT(run({"size(4:1)", "--svg"}).err, HasSubstr("'4' is none"));
  EXPECT_NE(run({"4:1", "--svg=/no/such/folder/a.svg"}).state.code, 0);
}

TEST(LayoutVerb, CountsBankConflicts) {
  const auto last = [](const RunOutput& output) {
    EXPECT_EQ(output.state.code, 0) << output.err;
    return output.out.substr(output.out.rfind('\n', output.out.size() - 2) + 1);
  };
  EXPECT_EQ(
      last(run({"(32,64):(64,1)", "-q", "--access", "column"})),
      "column: 32 threads, 1 element (2 bytes) each: 1 phase, 32 wavefronts where 1 would do: "
      "32-way bank conflict (bank 0)\n");
  EXPECT_EQ(
      last(run({"(32,64):(64,1)", "-q", "--access", "row", "--vector", "2"})),
      "row: 32 threads, 2 elements (4 bytes) each: 1 phase, 1 wavefront: no bank conflicts\n");
  EXPECT_EQ(
      last(run({"(64,64):(64,1)", "-q", "--access", "ldmatrix"})),
      "ldmatrix: 32 threads, 8 elements (16 bytes) each: 4 phases of 8 threads, 32 wavefronts "
      "where 4 would do: 8-way bank conflict (bank 0)\n");
  EXPECT_EQ(
      last(run({"tile_to_shape(smem_atom(128, f16), (64,64))", "-q", "--access", "ldmatrix"})),
      "ldmatrix: 32 threads, 8 elements (16 bytes) each: 4 phases of 8 threads, 4 wavefronts: no "
      "bank conflicts\n");
  EXPECT_EQ(last(run({"(64,64):(64,1)", "-q", "--access", "mma_a(m16n8k16)"})),
            "mma_a(m16n8k16): 32 threads, 2 elements (4 bytes) each, 4 instructions, the worst: 1 "
            "phase, 8 wavefronts where 1 would do: 8-way bank conflict (bank 0)\n");
  // 32 threads a row of 16 f32 apart, from a map of one's own.
  EXPECT_EQ(last(run({"512:1", "-q", "--type", "f32", "--access", "(32,4):(16,1)"})),
            "(32,4):(16,1): 32 threads, 4 elements (16 bytes) each: 4 phases of 8 threads, 16 "
            "wavefronts where 4 would do: 4-way bank conflict (bank 0)\n");
  EXPECT_THAT(run({"(2,32):(32,1)", "--type", "f32", "--banks"}).out,
              HasSubstr("\n1    0   1   2"));
}

TEST(LayoutVerb, RefusesInOneLine) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"4:1", "--type", "f17"}, "lapidary: layout: --type: 'f17' is no element type; one of "},
      {{"4:1", "--vector", "0"}, "lapidary: layout: --vector: '0' is no number of elements"},
      {{"4:1", "--access", "column"},
       "lapidary: layout: --access column needs a layout of two modes"},
      {{"(8,8):(1,8)", "--access", "row", "--vector", "4"}, "are not contiguous in (8,8):(1,8)"},
      {{"(8,64):(64,1)", "--access", "mma_a(m16n8k16)"}, "does not fit in (8,64):(64,1)"},
      {{"64:1", "--access", "(32,4):(4,1)"}, "element 64 lies outside"},
      {{"mma_c(m16n8k16)", "--banks"}, "is a thread-value map"},
      {{"make_identity_layout((4,4))", "--banks"}, "needs a layout of shared memory"},
      {{"(8,64):(64,1)", "--access", "row", "--vector", "16", "--type", "f32"}, "are 64 bytes"},
      {{"(8,64):(64,1)", "--access", "(8"}, "got the end, expected ',' or ')'"},
  };
  for (const auto& [arguments, message] : cases) {
    const RunOutput output = run(arguments);
    EXPECT_EQ(output.state.code, 2) << message;
    EXPECT_EQ(output.out, "") << message;
    EXPECT_THAT(output.err, HasSubstr(message));
  }
  EXPECT_EQ(run({}).state.code, 2);
  EXPECT_EQ(run({"4:1", "4:1"}).state.code, 2);
  EXPECT_EQ(run({""}).state.code, 2);
  EXPECT_THAT(run({"--help"}).out, HasSubstr("zipped_divide(L, L or tiler)"));
}

// The transcripts of the tutorial, run again. "[...]" stands for the rest of an output.
TEST(LayoutVerb, DoesWhatTheTutorialShows) {
  const std::string page = *read_file(LAPIDARY_SOURCE_DIR "/docs/layouts.md");
  const std::string prompt = "$ lapidary layout ";
  int commands = 0;
  std::string command, shown;
  const auto check = [&] {
    if (command.empty()) return;
    SCOPED_TRACE(command);
    const auto output = run_process(
        {"/bin/sh", "-c", "'" LAPIDARY_BUILD_DIR "/bin/lapidary' layout " + command + " 2>&1"}, "",
        std::chrono::milliseconds(60000));
    ASSERT_TRUE(output) << output.error();
    if (const std::size_t cut = shown.find("[...]\n"); cut != std::string::npos) {
      EXPECT_THAT(output->out, StartsWith(shown.substr(0, cut)));
    } else {
      EXPECT_EQ(output->out, shown);
    }
    ++commands;
    command.clear();
  };
  for (const std::string_view line : split(page, '\n')) {
    if (line.starts_with("```") || line.starts_with(prompt)) check();
    if (line.starts_with(prompt)) {
      command = line.substr(prompt.size());
      shown.clear();
    } else if (!command.empty()) {
      shown += std::string(line) + "\n";
    }
  }
  EXPECT_GE(commands, 15);
}

}  // namespace
}  // namespace lapidary
