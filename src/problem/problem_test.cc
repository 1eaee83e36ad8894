#include "lapidary/problem.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "problem/epilogue.h"
#include "problem/json.h"
#include "problem/testing_random.h"
#include "support/files.h"
#include "support/result.h"

namespace lapidary {
namespace {

GemmProblem problem_of(std::string_view json) {
  const auto parsed = problem_from_json(json);
  EXPECT_TRUE(parsed) << parsed.error() << "\n" << json;
  return parsed ? *parsed : GemmProblem{};
}

OperandSpec operand(const GemmProblem& p, std::string_view name) {
  for (const OperandSpec& spec : operands(p)) {
    if (spec.name == name) return spec;
  }
  ADD_FAILURE() << "no operand " << name;
  return {};
}

std::string shape(const GemmProblem& p, std::string_view name) {
  const OperandSpec spec = operand(p, name);
  return fmt::format("{} {}x{} pitch {} stride {} of {}", lapidary::name(spec.type), spec.rows,
                     spec.cols, spec.pitch, spec.batch_stride, spec.batch);
}

TEST(Problem, EveryCaseOfTheFile) {
  const auto file = read_file(LAPIDARY_SOURCE_DIR "/src/problem/json_cases.txt");
  ASSERT_TRUE(file) << file.error();
  std::istringstream lines(*file);
  int cases = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::string kind = line.substr(0, line.find(' '));
    ASSERT_TRUE(kind == "problem" || kind == "suite") << line;
    const std::string json = line.size() > kind.size() ? line.substr(kind.size() + 1) : "";
    SCOPED_TRACE(json);
    std::string want, got;
    while (std::getline(lines, line) && !line.empty()) {
      ASSERT_TRUE(line.starts_with("  |")) << line;
      want += (line.size() > 4 ? line.substr(4) : "") + "\n";
    }
    Error error{ErrorCode::invalid_argument, "accepted"};
    if (kind == "problem") {
      if (const auto parsed = problem_from_json(json); !parsed) error = parsed.error();
    } else {
      if (const auto parsed = suite_from_json(json, "x.json"); !parsed) error = parsed.error();
    }
    EXPECT_EQ(error.code, ErrorCode::invalid_argument);
    std::istringstream message(error.message);
    for (std::string one; std::getline(message, one);) {
      one.erase(one.find_last_not_of(' ') + 1);
      got += one + "\n";
    }
    EXPECT_EQ(got, want);
    ++cases;
  }
  EXPECT_GE(cases, 100);
}

TEST(Problem, CheckedFillsInAndIsIdempotent) {
  GemmProblem p{.m = 16, .n = 32, .k = 64, .a = DType::bf16, .b = DType::bf16};
  p.epilogue = *parse_epilogue("h = acc + c[m,n] + bias[n]; d = h; sumsq[m] = sum(h * h, n)");
  p.types["sumsq"] = DType::bf16;
  p.ldc = 40;
  const auto settled = checked(p);
  ASSERT_TRUE(settled) << settled.error();
  EXPECT_EQ(text(*settled),
            R"j({"m":16,"n":32,"k":64,"a":"bf16","b":"bf16","types":{"sumsq":"bf16"},"ldc":40,)j"
            R"j("epilogue":"h = acc + c[m,n] + bias[n]; d = h; sumsq[m] = sum(h * h, n)"})j");
  const auto again = checked(*settled);
  ASSERT_TRUE(again) << again.error();
  EXPECT_EQ(*again, *settled);
  EXPECT_EQ(settled->d, DType::bf16);
  EXPECT_EQ(settled->c, DType::bf16);
  EXPECT_EQ(settled->lda, 64);
  EXPECT_EQ(settled->types.at("bias"), DType::bf16);
}

TEST(Problem, EmptyProgramIsTheProduct) {
  const auto p = checked({.m = 2, .n = 3, .k = 4});
  ASSERT_TRUE(p) << p.error();
  EXPECT_EQ(text(p->epilogue), "d = acc");
  EXPECT_EQ(text(*p), R"j({"m":2,"n":3,"k":4,"a":"f32","b":"f32"})j");
  EXPECT_EQ(summary(*p), "m=2 n=3 k=4 f32*f32->f32 nt: d = acc");
  EXPECT_EQ(flops(*p), 48);
}

TEST(Problem, SummaryNamesWhatIsNotUsual) {
  const GemmProblem p = problem_of(
      R"j({"m":16,"n":64,"k":32,"batch":3,"layout":"tn","a":"e4m3","b":"e5m2","scales":"row",
                                       "numerics":["tf32","fast_fp8"],"epilogue":"d=relu(acc)"})j");
  EXPECT_EQ(summary(p),
            "batch=3 m=16 n=64 k=32 e4m3*e5m2->bf16 tn scales=row numerics=fast_fp8, tf32: d = "
            "relu(acc)");
  EXPECT_EQ(flops(p), 2.0 * 16 * 64 * 32 * 3);
}

TEST(Problem, TypesByDefault) {
  const std::string program =
      R"j("epilogue":"d = acc + c[m,n] + bias[n] + x[m,n] + s; r[m] = sum(acc, n); y[m,n] = acc"})j";
  const GemmProblem half = problem_of(R"j({"m":4,"n":8,"k":16,"a":"f16","b":"bf16",)j" + program);
  for (const auto& [name, type] : {std::pair{"d", DType::f16},
                                   {"c", DType::f16},
                                   {"bias", DType::f16},
                                   {"x", DType::f32},
                                   {"s", DType::f32},
                                   {"r", DType::f32},
                                   {"y", DType::f32}}) {
    EXPECT_EQ(operand(half, name).type, type) << name;
  }
  const GemmProblem fp8 = problem_of(R"j({"m":4,"n":8,"k":16,"a":"e5m2",)j" + program);
  EXPECT_EQ(operand(fp8, "b").type, DType::e5m2);
  EXPECT_EQ(operand(fp8, "d").type, DType::bf16);
  EXPECT_EQ(operand(fp8, "bias").type, DType::bf16);
  const GemmProblem own = problem_of(
      R"j({"m":4,"n":8,"k":16,"types":{"a":"bf16","d":"e4m3","r":"f16","bias":"f32"},)j" + program);
  EXPECT_EQ(operand(own, "a").type, DType::bf16);
  EXPECT_EQ(operand(own, "b").type, DType::bf16);
  EXPECT_EQ(operand(own, "d").type, DType::e4m3);
  EXPECT_EQ(operand(own, "c").type, DType::e4m3);
  EXPECT_EQ(operand(own, "bias").type, DType::f32);
  EXPECT_EQ(operand(own, "r").type, DType::f16);
}

TEST(Problem, LayoutsSayHowMatricesAreStored) {
  for (const auto& [layout, a, b] : {std::tuple{"nt", "4x16", "8x16"},
                                     {"nn", "4x16", "16x8"},
                                     {"tn", "16x4", "16x8"},
                                     {"tt", "16x4", "8x16"}}) {
    const GemmProblem p =
        problem_of(fmt::format(R"j({{"m":4,"n":8,"k":16,"layout":"{}"}})j", layout));
    const OperandSpec A = operand(p, "a"), B = operand(p, "b");
    EXPECT_EQ(fmt::format("{}x{}", A.rows, A.cols), a) << layout;
    EXPECT_EQ(fmt::format("{}x{}", B.rows, B.cols), b) << layout;
    EXPECT_EQ(A.pitch, A.cols);
    EXPECT_EQ(operand(p, "d").rows, 4);
  }
}

TEST(Problem, OperandsInTheOrderOfKernels) {
  const GemmProblem p = problem_of(
      R"j({"m":4,"n":8,"k":16,"batch":3,"scales":"row","epilogue":"r[m] = max(acc, n); x = sum(acc); d = acc * s + bias[n] + row[m] + c[m,n]"})j");
  std::string names;
  for (const OperandSpec& spec : operands(p)) names += spec.name + (spec.output ? "! " : " ");
  EXPECT_EQ(names, "a b scale_a scale_b s bias row c d! r! x! ");
  // [n], [m] and scalar inputs are shared by the batch; matrices, scales and outputs have an entry
  // each.
  EXPECT_EQ(shape(p, "a"), "f32 4x16 pitch 16 stride 64 of 3");
  EXPECT_EQ(shape(p, "b"), "f32 8x16 pitch 16 stride 128 of 3");
  EXPECT_EQ(shape(p, "scale_a"), "f32 1x4 pitch 4 stride 4 of 3");
  EXPECT_EQ(shape(p, "scale_b"), "f32 1x8 pitch 8 stride 8 of 3");
  EXPECT_EQ(shape(p, "s"), "f32 1x1 pitch 1 stride 0 of 1");
  EXPECT_EQ(shape(p, "bias"), "f32 1x8 pitch 8 stride 0 of 1");
  EXPECT_EQ(shape(p, "row"), "f32 1x4 pitch 4 stride 0 of 1");
  EXPECT_EQ(shape(p, "c"), "f32 4x8 pitch 8 stride 32 of 3");
  EXPECT_EQ(shape(p, "d"), "f32 4x8 pitch 8 stride 32 of 3");
  EXPECT_EQ(shape(p, "r"), "f32 1x4 pitch 4 stride 4 of 3");
  EXPECT_EQ(shape(p, "x"), "f32 1x1 pitch 1 stride 1 of 3");
}

TEST(Problem, ScalesAreStoredAsTheirModeSays) {
  const GemmProblem block =
      problem_of(R"j({"m":5,"n":130,"k":257,"batch":2,"a":"e4m3","scales":"block"})j");
  EXPECT_EQ(shape(block, "scale_a"), "f32 3x5 pitch 8 stride 24 of 2");  // [ceil(k/128)][m up to 4]
  EXPECT_EQ(shape(block, "scale_b"),
            "f32 2x3 pitch 3 stride 6 of 2");  // [ceil(n/128)][ceil(k/128)]
  EXPECT_EQ(
      shape(problem_of(R"j({"m":5,"n":130,"k":257,"batch":2,"scales":"tensor"})j"), "scale_b"),
      "f32 1x1 pitch 1 stride 0 of 1");
  const GemmProblem shared =
      problem_of(R"j({"m":5,"n":4,"k":8,"batch":2,"scales":"row","stride_scale_b":0})j");
  EXPECT_EQ(shape(shared, "scale_b"), "f32 1x4 pitch 4 stride 0 of 1");
  EXPECT_EQ(shape(shared, "scale_a"), "f32 1x5 pitch 5 stride 5 of 2");
  // Without a mode they are ordinary operands.
  EXPECT_EQ(
      shape(problem_of(R"j({"m":5,"n":4,"k":8,"epilogue":"d = acc * scale_a[m]"})j"), "scale_a"),
      "f32 1x5 pitch 5 stride 0 of 1");
}

TEST(Problem, GatedHalvesTheColumns) {
  const GemmProblem p = problem_of(
      R"j({"m":4,"n":8,"k":16,"scales":"row","epilogue":"d = silu(gate + bias[n]) * up; r[n] = sum(up, m)"})j");
  EXPECT_EQ(columns(p), 4);
  EXPECT_EQ(shape(p, "b"), "f32 8x16 pitch 16 stride 128 of 1");
  EXPECT_EQ(shape(p, "scale_b"), "f32 1x8 pitch 8 stride 8 of 1");
  EXPECT_EQ(shape(p, "bias"), "f32 1x4 pitch 4 stride 0 of 1");
  EXPECT_EQ(shape(p, "d"), "f32 4x4 pitch 4 stride 16 of 1");
  EXPECT_EQ(shape(p, "r"), "f32 1x4 pitch 4 stride 4 of 1");
}

TEST(Problem, EmptyExtentsAreLegal) {
  for (const char* json :
       {R"j({"m":0,"n":8,"k":16})j",
        R"j({"m":4,"n":0,"k":16,"epilogue":"d = gate; r[m] = max(up, n)"})j",
        R"j({"m":4,"n":8,"k":0,"scales":"block"})j", R"j({"m":4,"n":8,"k":16,"batch":0})j",
        R"j({"m":0,"n":0,"k":0,"batch":2,"scales":"row"})j"}) {
    const GemmProblem p = problem_of(json);
    for (const OperandSpec& spec : operands(p)) {
      const bool empty = spec.rows == 0 || spec.cols == 0 || spec.batch == 0;
      EXPECT_EQ(spec.span_elems() == 0, empty) << json << " " << spec.name;
      EXPECT_GE(spec.pitch, 1) << json << " " << spec.name;
    }
  }
  EXPECT_EQ(operand(problem_of(R"j({"m":4,"n":8,"k":16,"batch":0})j"), "d").bytes(), 0);
}

TEST(Problem, SpansReachPastTwoToThe31) {
  const GemmProblem p = problem_of(
      R"j({"m":65537,"n":65536,"k":1,"a":"bf16","b":"bf16","batch":2,"ldd":65600,"offset_d":64})j");
  const OperandSpec d = operand(p, "d");
  EXPECT_EQ(d.batch_stride, std::int64_t(65537) * 65600);
  EXPECT_EQ(d.span_elems(), std::int64_t(65537) * 65600 + std::int64_t(65536) * 65600 + 65536);
  EXPECT_EQ(d.bytes(), 64 + 2 * d.span_elems());
  // 2^62 bytes is the limit of an operand: 2^30 * 2^30 of f32.
  EXPECT_FALSE(problem_from_json(R"j({"m":1073741824,"n":1,"k":1073741824})j"));
  EXPECT_TRUE(problem_from_json(R"j({"m":1073741824,"n":1,"k":1073741823})j"));
  EXPECT_FALSE(problem_from_json(R"j({"m":1099511627776,"n":1,"k":1,"lda":1099511627776})j"));
}

TEST(Problem, AStrideOfOneEntrySaysNothing) {
  EXPECT_EQ(problem_of(R"j({"m":4,"n":8,"k":16,"stride_a":7,"stride_d":0})j"),
            problem_of(R"j({"m":4,"n":8,"k":16})j"));
  const GemmProblem p = problem_of(
      R"j({"m":4,"n":8,"k":16,"batch":2,"stride_a":0,"stride_d":32,"offset_a":0,"offset_b":4})j");
  EXPECT_EQ(text(p),
            R"j({"m":4,"n":8,"k":16,"batch":2,"a":"f32","b":"f32","stride_a":0,"offset_b":4})j");
  EXPECT_EQ(operand(p, "a").batch, 1);
}

TEST(Problem, ListsAreSortedAndNormal) {
  const GemmProblem p = problem_of(
      R"j({"m":4,"n":8,"k":16,"constant":["x","b","x"],"alias":[" d = c"],"epilogue":"d = acc + c[m,n] + x[n]"})j");
  EXPECT_EQ(p.constant, (std::vector<std::string>{"b", "x"}));
  EXPECT_EQ(p.alias, std::vector<std::string>{"c=d"});
}

TEST(Problem, AHandMadeProblemIsCheckedToo) {
  const auto message = [](const GemmProblem& p) {
    const auto settled = checked(p);
    return settled ? "accepted" : settled.error().message;
  };
  GemmProblem p{.m = 4,
                .n = 8,
                .k = 16,
                .scales = ScaleMode::row,
                .epilogue = *parse_epilogue("d = acc * scale_b[n]")};
  EXPECT_EQ(message(p),
            "problem: key 'epilogue': 'scale_b' belongs to the scale mode 'row', which has already "
            "applied it to acc; "
            "call the operand something else, or set scales to none");
  EXPECT_EQ(
      message({.m = 4, .n = 8, .k = 16, .ldd = -7}),
      "problem: key 'ldd': -7 is less than the 8 columns of d as stored; it must be at least 8");
  EXPECT_EQ(message({.m = 4, .n = 8, .k = 16, .strides = {{"a", -2}}}),
            "problem: key 'stride_a': -2 is negative; it must be 0 (one entry for all) or the "
            "elements between entries");
  EXPECT_EQ(message({.m = 4, .n = 8, .k = 16, .strides = {{"a", kDense}}, .sms = 0}),
            "problem: key 'sms': 0 is too few; it must be at least 1");
}

TEST(Problem, MessagesStayShort) {
  const std::string name(100000, 'x');
  for (const std::string& json : {R"j({"m":1,"n":1,"k":1,"types":{")j" + name + R"j(":"f32"}})j",
                                  R"j({"m":1,"n":1,"k":1,"stride_)j" + name + R"j(":1})j",
                                  R"j({"m":1,"n":1,"k":1,"alias":[")j" + name + R"j("]})j",
                                  R"j({"m":")j" + name + R"j("})j"}) {
    const auto parsed = problem_from_json(json);
    ASSERT_FALSE(parsed);
    EXPECT_LT(parsed.error().message.size(), 600u);
  }
}

TEST(Problem, TextReadsBackToAnEqualProblem) {
  int aliased = 0, batched = 0, gated = 0;
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    const GemmProblem p = problem::random_problem(seed);
    const std::string json = text(p);
    const auto again = problem_from_json(json);
    ASSERT_TRUE(again) << "seed " << seed << ": " << again.error() << "\n" << json;
    ASSERT_EQ(*again, p) << "seed " << seed << "\n" << json << "\n" << text(*again);
    ASSERT_EQ(text(*again), json) << "seed " << seed;
    const auto twice = checked(p);
    ASSERT_TRUE(twice) << twice.error();
    ASSERT_EQ(*twice, p) << "seed " << seed << "\n" << json;
    ASSERT_EQ(operands(*twice), operands(p));
    aliased += !p.alias.empty();
    batched += p.batch > 1;
    gated += p.epilogue.gated;
  }
  EXPECT_GT(aliased, 50);
  EXPECT_GT(batched, 500);
  EXPECT_GT(gated, 200);
}

TEST(Suite, EveryLineOfTheSuitesRoundTrips) {
  int lines = 0;
  for (const auto& file : std::filesystem::directory_iterator(LAPIDARY_SOURCE_DIR "/suites")) {
    const auto suite = suite_from_json(*read_file(file.path()), file.path().filename().string());
    ASSERT_TRUE(suite) << suite.error();
    EXPECT_EQ(suite->name, file.path().stem());
    for (const SuiteLine& line : suite->lines) {
      const std::string json = text(line.problem);
      const auto again = problem_from_json(json);
      ASSERT_TRUE(again) << again.error() << "\n" << json;
      EXPECT_EQ(*again, line.problem) << json;
      EXPECT_EQ(text(*again), json);
      ++lines;
    }
  }
  EXPECT_GT(lines, 300);
}

TEST(Suite, DefaultsLinesAndExtents) {
  const auto suite = suite_from_json(
      R"j({"name": "s", "about": "what", "defaults": {"a": "bf16", "k": 16, "c": "f32", "ldc": 40, "stride_c": 0,
      "types": {"bias": "f32"}, "offset_bias": 4, "constant": ["b", "bias"], "alias": ["c=d"], "d": "f32", "ldd": 40, "batch": 2, "stride_d": 400},
    "gemms": [{"name": "plain", "m": "2:8:3", "n": 32},
              {"name": "biased", "m": [3, 1], "n": 32, "epilogue": "d = acc + bias[n]", "k": 8},
              {"name": "own", "m": 1, "n": 32, "alias": [], "epilogue": "d = acc + c[m,n]", "types": {}}]})j",
      "x.json");
  ASSERT_TRUE(suite) << suite.error();
  EXPECT_EQ(suite->name, "s");
  EXPECT_EQ(suite->about, "what");
  std::string lines;
  for (const SuiteLine& line : suite->lines) lines += line.name + " " + text(line.problem) + "\n";
  // What the defaults say of c and bias holds for the lines that read them.
  EXPECT_EQ(
      lines,
      R"j(plain {"m":2,"n":32,"k":16,"batch":2,"a":"bf16","b":"bf16","d":"f32","ldd":40,"stride_d":400,"constant":["b"]})j"
      "\n"
      R"j(plain {"m":5,"n":32,"k":16,"batch":2,"a":"bf16","b":"bf16","d":"f32","ldd":40,"stride_d":400,"constant":["b"]})j"
      "\n"
      R"j(plain {"m":8,"n":32,"k":16,"batch":2,"a":"bf16","b":"bf16","d":"f32","ldd":40,"stride_d":400,"constant":["b"]})j"
      "\n"
      R"j(biased {"m":3,"n":32,"k":8,"batch":2,"a":"bf16","b":"bf16","d":"f32","ldd":40,"stride_d":400,"offset_bias":4,"epilogue":"d = acc + bias[n]","constant":["b","bias"]})j"
      "\n"
      R"j(biased {"m":1,"n":32,"k":8,"batch":2,"a":"bf16","b":"bf16","d":"f32","ldd":40,"stride_d":400,"offset_bias":4,"epilogue":"d = acc + bias[n]","constant":["b","bias"]})j"
      "\n"
      R"j(own {"m":1,"n":32,"k":16,"batch":2,"a":"bf16","b":"bf16","d":"f32","ldc":40,"ldd":40,"stride_c":0,"stride_d":400,"epilogue":"d = acc + c[m,n]","constant":["b"]})j"
      "\n");
}

TEST(Suite, Extents) {
  const auto extents = [](std::string_view text) {
    const auto parsed = extents_from_text("m", text);
    if (!parsed) return parsed.error().message;
    std::string out;
    for (const std::int64_t one : *parsed) out += std::to_string(one) + " ";
    return out;
  };
  EXPECT_EQ(extents("16"), "16 ");
  EXPECT_EQ(extents("1,16, 2048"), "1 16 2048 ");
  EXPECT_EQ(extents("8:32:8"), "8 16 24 32 ");
  EXPECT_EQ(extents("8:31:8"), "8 16 24 ");
  EXPECT_EQ(extents("1,4:6:1,7:7:100"), "1 4 5 6 7 ");
  EXPECT_EQ(extents("9223372036854775806:9223372036854775807:1"),
            "9223372036854775806 9223372036854775807 ");
  EXPECT_EQ(extents("0:65535:1").size(), extents("0:65534:1").size() + 6);
  EXPECT_EQ(extents("0:65536:1"),
            "key 'm': '0:65536:1' has more than 65536 extents; take a larger step");
  EXPECT_EQ(extents("0:65535:1,1"),
            "key 'm': '0:65535:1,1' has more than 65536 extents; shorten it");
  EXPECT_EQ(
      extents(""),
      "key 'm': '' in '' is no extent; write 16, \"1,16,2048\" or \"8:4096:8\" (start:stop:step)");
  EXPECT_EQ(extents("1,,2").substr(0, 20), "key 'm': '' in '1,,2");
  EXPECT_EQ(extents("-4").substr(0, 21), "key 'm': '-4' in '-4'");
  EXPECT_EQ(extents("9223372036854775808").substr(0, 30), "key 'm': '9223372036854775808'");
  EXPECT_EQ(extents("1:2:3:4"),
            "key 'm': '1:2:3:4' has 4 parts; a range is start:stop:step, like 8:4096:8");
}

/// The contents of the fenced blocks of a document that are marked with `language`.
std::vector<std::string> blocks(const std::string& path, const std::string& language) {
  std::vector<std::string> found;
  const auto document = read_file(LAPIDARY_SOURCE_DIR + path);
  if (!document) return found;
  std::istringstream lines(*document);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line == "```" + language) {
      inside = true;
      found.emplace_back();
    } else if (line == "```") {
      inside = false;
    } else if (inside) {
      found.back() += line + "\n";
    }
  }
  return found;
}

TEST(Docs, ExamplesAreLegal) {
  const auto programs = blocks("/docs/epilogues.md", "epilogue");
  ASSERT_EQ(programs.size(), 1u);
  std::istringstream lines(programs[0]);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto parsed = parse_epilogue(line);
    ASSERT_TRUE(parsed) << parsed.error();
    EXPECT_EQ(text(*parsed), line) << "examples are canonical";
  }
  EXPECT_GE(count, 7);
  const auto json = blocks("/docs/problems.md", "json");
  ASSERT_EQ(json.size(), 2u);
  EXPECT_TRUE(problem_from_json(json[0]));
  const auto suite = suite_from_json(json[1], "problems.md");
  ASSERT_TRUE(suite) << suite.error();
  EXPECT_EQ(suite->lines.size(), 3u + 3u + 8u);
}

TEST(Docs, ListEveryFunction) {
  const auto document = read_file(LAPIDARY_SOURCE_DIR "/docs/epilogues.md");
  ASSERT_TRUE(document) << document.error();
  for (int op = int(EpilogueOp::neg); op <= int(EpilogueOp::cast); ++op) {
    const std::string name(problem::text(EpilogueOp(op)));
    EXPECT_TRUE(document->find("`" + name + "`") != std::string::npos ||
                document->find("`" + name + "(") != std::string::npos)
        << name;
  }
}

TEST(Json, BombsAndGarbage) {
  const auto message = [](const std::string& json) {
    const auto value = problem::read_json(json);
    return value ? "read" : value.error().message;
  };
  EXPECT_EQ(message(std::string(64, '[') + std::string(64, ']')), "read");
  EXPECT_EQ(message(std::string(65, '[') + std::string(65, ']')), "nests deeper than 64 levels");
  EXPECT_EQ(message(std::string(1000000, '[')), "nests deeper than 64 levels");
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += R"j({"a":)j";
  EXPECT_EQ(message(objects), "nests deeper than 64 levels");
  EXPECT_NE(message("{\"a\":\"\xff\"}"), "read") << "not UTF-8";
  EXPECT_NE(message("{} x"), "read") << "something after the value";
  EXPECT_NE(message("{\"a\":NaN}"), "read");
  EXPECT_EQ(message(R"j({"a":{"b":1},"c":{"b":1}})j"), "read") << "the same key in two objects";
}

TEST(Json, NumbersAsWritten) {
  const auto read = [](const char* json) { return *problem::read_json(json); };
  using Kind = problem::JsonValue::Kind;
  EXPECT_TRUE(read("9223372036854775807").is(Kind::integer));
  EXPECT_TRUE(read("-9223372036854775808").is(Kind::integer));
  EXPECT_TRUE(read("9223372036854775808").is(Kind::real));
  EXPECT_TRUE(read("1e3").is(Kind::real));
  EXPECT_EQ(problem::shown(read("1.50")), "1.50");
  EXPECT_EQ(problem::shown(read(R"j(["a",{"b":1},null,true])j")), "['a', {...}, null, true]");
  EXPECT_EQ(problem::shown(read(("\"" + std::string(100, 'x') + "\"").c_str())),
            "'" + std::string(60, 'x') + "...'");
  EXPECT_EQ(problem::json_quoted("a\"\\\n\x01\xff"), "\"a\\\"\\\\\\n\\u0001\xef\xbf\xbd\"");
  EXPECT_EQ(problem::json_number(0.1), "0.1");
  EXPECT_EQ(problem::json_number(1.0 / 0.0), "null");
}

}  // namespace
}  // namespace lapidary
