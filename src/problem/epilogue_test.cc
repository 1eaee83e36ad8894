#include "problem/epilogue.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "problem/testing_random.h"
#include "support/files.h"
#include "support/random.h"
#include "support/result.h"

namespace lapidary {
namespace {

std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = text.substr(i);
    if (rest.starts_with("\\n"))
      out += '\n', ++i;
    else if (rest.starts_with("\\t"))
      out += '\t', ++i;
    else if (rest.starts_with("\\_"))
      out += ' ', ++i;
    else if (rest.starts_with("\\x"))
      out += char(std::stoi(std::string(rest.substr(2, 2)), nullptr, 16)), i += 3;
    else
      out += text[i];
  }
  return out;
}

/// Without the spaces at the ends of lines, which the file of cases has not.
std::string without_trailing_spaces(const std::string& text) {
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

TEST(Epilogue, EveryCaseOfTheFile) {
  const auto file = read_file(LAPIDARY_SOURCE_DIR "/src/problem/epilogue_cases.txt");
  ASSERT_TRUE(file) << file.error();
  std::istringstream lines(*file);
  int accepted = 0, refused = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::string kind = line.substr(0, line.find(' '));
    const std::string program =
        unescaped(line.size() > kind.size() ? line.substr(kind.size() + 1) : "");
    ASSERT_TRUE(kind == "ok" || kind == "bad" || kind == "ok+scales" || kind == "bad+scales")
        << line;
    std::string want;
    while (std::getline(lines, line) && !line.empty()) {
      ASSERT_TRUE(line.starts_with("  = ") || line.starts_with("  |")) << line;
      want += (line.size() > 4 ? line.substr(4) : "") + "\n";
    }
    SCOPED_TRACE(program);
    const auto parsed = parse_epilogue(program, kind.ends_with("+scales"));
    if (kind.starts_with("ok")) {
      ASSERT_TRUE(parsed) << parsed.error();
      EXPECT_EQ(text(*parsed) + "\n", want);
      const auto again = parse_epilogue(text(*parsed));
      ASSERT_TRUE(again) << again.error();
      EXPECT_EQ(*again, *parsed);
      ++accepted;
    } else {
      ASSERT_FALSE(parsed);
      EXPECT_EQ(parsed.error().code, ErrorCode::invalid_argument);
      EXPECT_EQ(without_trailing_spaces(parsed.error().message), want);
      ++refused;
    }
  }
  EXPECT_GE(accepted, 30);
  EXPECT_GE(refused, 40);
}

TEST(Epilogue, PrintingAndParsingAreInverse) {
  int with_outputs = 0, gated = 0;
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    const std::string program = problem::random_program(seed);
    const auto parsed = parse_epilogue(program);
    ASSERT_TRUE(parsed) << "seed " << seed << ": " << parsed.error();
    const std::string canonical = text(*parsed);
    const auto again = parse_epilogue(canonical);
    ASSERT_TRUE(again) << "seed " << seed << ": " << again.error();
    ASSERT_EQ(*again, *parsed) << "seed " << seed << "\n" << program << "\n" << canonical;
    ASSERT_EQ(text(*again), canonical) << "seed " << seed;
    with_outputs += parsed->assignments.size() > 2;
    gated += parsed->gated;
  }
  EXPECT_GT(with_outputs, 2000);
  EXPECT_GT(gated, 2000);
}

TEST(Epilogue, NoPairOfParenthesesIsSuperfluous) {
  int pairs = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const Epilogue parsed = *parse_epilogue(problem::random_program(seed));
    const std::string canonical = text(parsed);
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < canonical.size(); ++i) {
      if (canonical[i] == '(') open.push_back(i);
      if (canonical[i] != ')') continue;
      std::string without = canonical;
      without[i] = without[open.back()] = ' ';
      open.pop_back();
      const auto other = parse_epilogue(without);
      ASSERT_TRUE(!other || !(*other == parsed)) << canonical << "\n" << without;
      ++pairs;
    }
  }
  EXPECT_GT(pairs, 5000);
}

TEST(Epilogue, ArgumentsStandBeforeTheirUsers) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const Epilogue e = *parse_epilogue(problem::random_program(seed));
    for (std::size_t i = 0; i < e.nodes.size(); ++i) {
      const EpilogueNode& node = e.nodes[i];
      for (std::size_t a = 0; a < node.args.size(); ++a) {
        const bool has = int(a) < problem::arity(node.op);
        ASSERT_EQ(node.args[a] >= 0, has);
        ASSERT_LT(node.args[a], int(i));
      }
    }
    for (const EpilogueAssignment& made : e.assignments) {
      ASSERT_TRUE(made.root >= 0 && made.root < int(e.nodes.size()));
      const Axes value = e.nodes[std::size_t(made.root)].axes;
      ASSERT_TRUE(made.reduction != Reduction::none || within(value, made.axes));
    }
  }
}

TEST(Epilogue, ANodeKnowsItsAxes) {
  const auto axes = [](const char* expression) {
    const Epilogue e = *parse_epilogue(std::string("h = ") + expression + "; d = h");
    return e.assignments[0].axes;
  };
  EXPECT_EQ(axes("1 + alpha"), Axes::none);
  EXPECT_EQ(axes("gelu(bias[n]) * 2"), Axes::n);
  EXPECT_EQ(axes("row[m] < alpha"), Axes::m);
  EXPECT_EQ(axes("row[m] + bias[n]"), Axes::mn);
  EXPECT_EQ(axes("acc"), Axes::mn);
  EXPECT_EQ(axes("cast(max(up, 1), bf16)"), Axes::mn);
}

TEST(Epilogue, LimitsAreErrorsNotCrashes) {
  const auto message = [](const std::string& program) {
    const auto parsed = parse_epilogue(program);
    return parsed ? std::string("accepted")
                  : parsed.error().message.substr(0, parsed.error().message.find('\n'));
  };
  const auto nested = [](int depth, const std::string& open) {
    std::string program = "d = ";
    for (int i = 0; i < depth; ++i) program += open;
    program += "acc";
    for (int i = 0; i < depth; ++i) program += ")";
    return program;
  };
  EXPECT_EQ(message(nested(200, "(")), "accepted");
  EXPECT_EQ(message(nested(201, "(")),
            "epilogue: parentheses and calls nest deeper than 200; use intermediates");
  EXPECT_EQ(message(nested(200, "-gelu(")), "accepted");
  EXPECT_EQ(message(nested(10000, "-(")),
            "epilogue: parentheses and calls nest deeper than 200; use intermediates");
  EXPECT_EQ(message("d = " + std::string(60000, '(')),
            "epilogue: parentheses and calls nest deeper than 200; use intermediates");
  EXPECT_EQ(message("d = " + std::string(60000, '-')),
            "epilogue: a second '-' needs parentheses: -(-x)");

  std::string sum = "d = acc";
  for (int i = 1; i < 2048; ++i) sum += " + x";  // 2048 leaves, 2047 sums
  EXPECT_EQ(message(sum), "accepted");
  EXPECT_EQ(text(*parse_epilogue(sum)), sum);
  EXPECT_EQ(message(sum + " + x"),
            "epilogue: the program has more than 4096 operations and operands; split it");

  const std::string padded = "d = acc" + std::string(65536 - 7, ' ');
  EXPECT_EQ(message(padded), "accepted");
  EXPECT_EQ(message(padded + " "),
            "epilogue: the program has 65537 bytes; at most 65536 are allowed");
}

TEST(Epilogue, MessagesStayShort) {
  for (const std::string& program :
       {"d = acc " + std::string(60000, 'x'), "d = 1" + std::string(60000, '0') + "e9",
        std::string(60000, 'y') + " = 1; d = acc", "d = acc + " + std::string(60000, '\xff')}) {
    const auto parsed = parse_epilogue(program);
    ASSERT_FALSE(parsed);
    EXPECT_LT(parsed.error().message.size(), 800u) << program.substr(0, 20);
  }
}

TEST(Epilogue, TheTableAndTheParserAgree) {
  int functions = 0;
  for (int i = 0; i <= int(EpilogueOp::cast); ++i) {
    const auto op = EpilogueOp(i);
    if (op < EpilogueOp::neg) continue;
    std::string call = std::string(problem::text(op)) + "(acc";
    for (int a = 1; a < problem::arity(op); ++a) call += ", 1";
    call += op == EpilogueOp::cast ? ", f16)" : ")";
    const auto parsed = parse_epilogue("d = " + call + " + 1");
    ASSERT_TRUE(parsed) << call;
    EXPECT_EQ(parsed->nodes[parsed->nodes.size() - 3].op, op) << call;
    ++functions;
  }
  EXPECT_EQ(functions, 24);
}

std::string without_zero(const char* program, std::initializer_list<std::string_view> zeros,
                         double zero = 0) {
  const Epilogue e = *parse_epilogue(program);
  const auto scalar = [&](int i) {
    const EpilogueInput& input = e.inputs[std::size_t(i)];
    EXPECT_EQ(input.axes, Axes::none) << "only scalars have one value";
    return std::ranges::find(zeros, input.name) != zeros.end() ? zero : 2.0;
  };
  const Epilogue dropped = problem::drop_zero_terms(e, scalar);
  EXPECT_EQ(dropped.inputs, e.inputs) << "inputs keep their places";
  EXPECT_EQ(dropped.gated, e.gated);
  return text(dropped);
}

TEST(Epilogue, ZeroTermsAreDropped) {
  EXPECT_EQ(without_zero("d = alpha * acc + beta * c[m,n]", {"beta"}), "d = alpha * acc + 0");
  EXPECT_EQ(without_zero("d = alpha * acc + beta * c[m,n]", {"beta"}, -0.0), "d = alpha * acc + 0");
  EXPECT_EQ(without_zero("d = alpha * acc + beta * c[m,n]", {"alpha"}), "d = 0 + beta * c[m,n]");
  EXPECT_EQ(without_zero("d = alpha * acc + beta * c[m,n]", {}), "d = alpha * acc + beta * c[m,n]");
  EXPECT_EQ(without_zero("d = alpha * acc + beta * c[m,n]", {"beta"}, std::nan("")),
            "d = alpha * acc + beta * c[m,n]");
  // On either side, in brackets, negated, below a quotient's line or above it.
  EXPECT_EQ(without_zero("d = acc - c[m,n] * (2 * -beta) / x", {"beta"}), "d = acc - 0");
  EXPECT_EQ(without_zero("d = acc + -(c[m,n] * beta)", {"beta"}), "d = acc + 0");
  EXPECT_EQ(without_zero("d = acc + x / beta", {"beta"}), "d = acc + x / beta");
  EXPECT_EQ(without_zero("d = acc + x[m] / (2 / beta)", {"beta"}), "d = acc + x[m] / (2 / beta)");
  EXPECT_EQ(without_zero("d = acc + (c[m,n] - (x[m] + beta * y[m]))", {"beta"}),
            "d = acc + (c[m,n] - (x[m] + 0))");
  // A literal 0 is no operand; below the top level nothing is dropped.
  EXPECT_EQ(without_zero("d = acc + 0 * c[m,n]", {}), "d = acc + 0 * c[m,n]");
  EXPECT_EQ(without_zero("d = gelu(acc + beta * c[m,n])", {"beta"}),
            "d = gelu(acc + beta * c[m,n])");
  EXPECT_EQ(without_zero("d = acc + x[m] * (1 + beta * c[m,n])", {"beta"}),
            "d = acc + x[m] * (1 + beta * c[m,n])");
  EXPECT_EQ(without_zero("d = acc + beta", {"beta"}), "d = acc + beta");
  // Every assignment has a top-level sum of its own, and so has what a reduction reduces.
  EXPECT_EQ(without_zero("h = acc + beta * c[m,n]; d = relu(h)", {"beta"}),
            "h = acc + 0; d = relu(h)");
  EXPECT_EQ(without_zero("x = sum(acc + beta * acc); d = -(beta * acc)", {"beta"}),
            "x = sum(acc + 0); d = 0");
  // Intermediates are no scalars, whatever their value; those that lose their reader go.
  EXPECT_EQ(without_zero("s = 2 * beta; d = acc + s * c[m,n]", {"beta"}),
            "s = 0; d = acc + s * c[m,n]");
  EXPECT_EQ(without_zero("h = c[m,n] + 1; g = h * h; d = -(alpha * acc + beta * g)", {"beta"}),
            "d = -(alpha * acc + 0)");
  EXPECT_EQ(without_zero("d = silu(gate) * up * alpha", {"alpha"}), "d = 0");
}

TEST(Epilogue, ReadsFollowsWhatIsLeft) {
  const Epilogue e = *parse_epilogue("h = c[m,n] + x[n]; d = alpha * acc + beta * h + bias[n]");
  EXPECT_EQ(problem::reads(e), std::vector<bool>({true, true, true, true, true}));
  const auto is_beta = [&](int i) { return e.inputs[std::size_t(i)].name == "beta" ? 0.0 : 1.0; };
  EXPECT_EQ(problem::reads(problem::drop_zero_terms(e, is_beta)),
            std::vector<bool>({false, false, true, false, true}));
}

TEST(Epilogue, DroppingLeavesAProgram) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const Epilogue e = *parse_epilogue(problem::random_program(seed));
    const Epilogue dropped = problem::drop_zero_terms(
        e, [&](int i) { return mix(seed, std::uint64_t(i)) % 2 == 0 ? 0.0 : 1.0; });
    const auto again = parse_epilogue(text(dropped));
    ASSERT_TRUE(again) << text(e) << "\n" << again.error();
    ASSERT_EQ(text(*again), text(dropped));
    ASSERT_EQ(again->assignments, dropped.assignments);
    ASSERT_EQ(again->nodes.size(), dropped.nodes.size());
    for (std::size_t i = 0; i < again->nodes.size(); ++i) {
      ASSERT_EQ(again->nodes[i].op, dropped.nodes[i].op);
      ASSERT_EQ(again->nodes[i].args, dropped.nodes[i].args);
      ASSERT_EQ(again->nodes[i].axes, dropped.nodes[i].axes);
    }
  }
}

}  // namespace
}  // namespace lapidary
