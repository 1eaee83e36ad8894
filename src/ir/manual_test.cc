// docs/ir.md is made here, from ops.inc. `LAPIDARY_REGENERATE=1 ir_test` writes it anew.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "ir/kernel.h"
#include "ir/signature.h"
#include "ir/testing_golden.h"
#include "support/files.h"
#include "support/result.h"

namespace lapidary::ir {
namespace {

/// A group of rows of ops.inc: the comment above them, and their names.
struct Group {
  std::string comment;
  std::vector<std::string> names;
};

/// Groups begin with a comment; only rows and blank lines stand between them.
std::vector<Group> groups(const std::string& table) {
  std::vector<Group> all;
  std::istringstream lines(table);
  bool commenting = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("// ")) {
      if (!commenting) all.emplace_back();
      if (commenting) all.back().comment += ' ';
      all.back().comment += line.substr(3);
    }
    commenting = line.starts_with("//");
    constexpr std::string_view kRow = "LAPIDARY_OP(";
    if (line.starts_with(kRow)) {
      std::string name = line.substr(kRow.size(), line.find(',') - kRow.size());
      if (name.ends_with('_')) name.pop_back();
      all.back().names.push_back(std::move(name));
    }
  }
  std::erase_if(all, [](const Group& group) { return group.names.empty(); });
  return all;
}

/// Markdown shows < and | as they are in code alone.
std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2)
    text.insert(at, "\\");
  return text;
}

/// `text` in lines of up to 130 letters.
std::string wrapped(const std::string& text) {
  std::string out;
  std::istringstream words(text);
  std::size_t length = 0;
  for (std::string word; words >> word; length += word.size() + 1) {
    if (length + word.size() > 130) {
      out.back() = '\n';
      length = 0;
    }
    out += word + " ";
  }
  out.back() = '\n';
  return out;
}

std::string manual() {
  std::string out =
      "# The intermediate representation\n"
      "<!-- Made from src/ir/ops.inc: LAPIDARY_REGENERATE=1 build/release/bin/ir_test -->\n" +
      wrapped(
          "Every operation that a kernel is made of. A builder's calls (`lapidary/dsl.h`) add "
          "them, `Kernel::text` prints them, the simulator (`src/sim`) says what they do, and "
          "`src/ptx` prints them for a GPU. An operation has operands, attributes that are "
          "known while the kernel is built, regions that it runs, and at most one result; the "
          "result names the operation's value, which is there from the operation to the end "
          "of the region around it.") +
      "\n```\n"
      "  %4: pred = lt %0 %3            // a result, its type, two operands; where it was written\n"
      "  if %4                          // then a region, indented; an `else` where there is one\n"
      "    load_tile %6 %7 {first 0, count 4}\n"
      "```\n" +
      wrapped(
          "Types: `pred`, `s32`, `u32`, `s64`, `u64`, `f16`, `bf16`, `f32`, `f64`; `ptr global "
          "T` and `ptr shared T`, to elements of T; `tile n x T`, n elements in a thread's "
          "registers. In a signature T and U are one scalar type throughout, of the class "
          "behind `in`; `E of p` is the element type of p, `same p` the type of p; `...` takes "
          "any more scalars. Attributes are in braces, regions are named before the arrow.") +
      "\n| class | types |\n|---|---|\n";
  for (const Class c : {Class::any, Class::bits, Class::number, Class::integer, Class::floating,
                        Class::word, Class::logic}) {
    out += fmt::format("| `{}` |", name(c));
    for (const Scalar type : kScalars) {
      if (contains(c, type)) out += fmt::format(" {}", lapidary::name(type));
    }
    out += " |\n";
  }
  std::size_t row = 0;
  for (const Group& group : groups(*read_file(LAPIDARY_SOURCE_DIR "/src/ir/ops.inc"))) {
    // "Memory. Pointers hold ...": a title, and what there is to say of all.
    const std::size_t end = std::min(group.comment.find(". "), group.comment.find(": "));
    out += fmt::format("\n## {}\n", group.comment.substr(0, end));
    if (end != std::string::npos) {
      std::string about = group.comment.substr(end + 2);
      about[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(about[0])));
      out += wrapped(about) + "\n";
    }
    out += "| operation | signature | |\n|---|---|---|\n";
    for (const std::string& name : group.names) {
      const OpInfo& op = op_table()[row++];
      EXPECT_EQ(op.name, name);
      out += fmt::format("| `{}` | `{}` | {} |\n", op.name, cell(std::string(op.signature)),
                         cell(std::string(op.doc)));
    }
  }
  EXPECT_EQ(row, op_table().size());
  return out;
}

TEST(Manual, IsThatOfTheTable) { testing::expect_golden("docs/ir.md", manual()); }

}  // namespace
}  // namespace lapidary::ir
