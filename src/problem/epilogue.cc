#include "problem/epilogue.h"

#include <array>
#include <charconv>

#include "support/result.h"

namespace lapidary {
namespace {

/// How tightly an expression binds: a part is put in parentheses when it binds less than its place
/// asks for.
enum Level { kComparison, kSum, kProduct, kUnary, kPrimary };

Level level(EpilogueOp op) {
  switch (op) {
    case EpilogueOp::lt:
    case EpilogueOp::le:
    case EpilogueOp::gt:
    case EpilogueOp::ge:
    case EpilogueOp::eq:
    case EpilogueOp::ne:
      return kComparison;
    case EpilogueOp::add:
    case EpilogueOp::sub:
      return kSum;
    case EpilogueOp::mul:
    case EpilogueOp::div:
      return kProduct;
    case EpilogueOp::neg:
      return kUnary;
    default:
      return kPrimary;
  }
}

std::string index_text(Axes axes) {
  return axes == Axes::mn ? "[m,n]" : axes == Axes::m ? "[m]" : axes == Axes::n ? "[n]" : "";
}

/// The shortest decimal that reads back as the same f32 (the standard pins every digit, so keys
/// stay).
std::string number_text(double number) {
  std::array<char, 32> buffer;
  const auto [end, code] =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), static_cast<float>(number));
  return code == std::errc() ? std::string(buffer.data(), end) : "0";
}

}  // namespace

std::string text(const Epilogue& epilogue) {
  // Bottom up rather than by recursion: a sum of thousands of terms is a tree as deep.
  std::vector<int> uses(epilogue.nodes.size());
  for (const EpilogueNode& node : epilogue.nodes) {
    if (node.op == EpilogueOp::local) continue;
    for (const int argument : node.args) {
      if (argument >= 0) ++uses[std::size_t(argument)];
    }
  }
  std::vector<std::string> texts(epilogue.nodes.size());
  // The text of an argument for a place that needs `least`; moved out at its last use.
  const auto part = [&](int argument, Level least) {
    const auto i = std::size_t(argument);
    std::string inner = --uses[i] == 0 ? std::move(texts[i]) : texts[i];
    return level(epilogue.nodes[i].op) < least ? "(" + std::move(inner) + ")" : inner;
  };
  for (std::size_t i = 0; i < epilogue.nodes.size(); ++i) {
    const EpilogueNode& node = epilogue.nodes[i];
    std::string& out = texts[i];
    switch (node.op) {
      case EpilogueOp::number:
        out = number_text(node.number);
        break;
      case EpilogueOp::operand: {
        const EpilogueInput& input = epilogue.inputs[std::size_t(node.symbol)];
        out = input.name + index_text(input.axes);
        break;
      }
      case EpilogueOp::acc:
      case EpilogueOp::gate:
      case EpilogueOp::up:
        out = problem::text(node.op);
        break;
      case EpilogueOp::local:
        out = epilogue.assignments[std::size_t(node.symbol)].name;
        break;
      case EpilogueOp::neg:
        out = "-" + part(node.args[0], kPrimary);
        break;
      case EpilogueOp::cast:
        out = "cast(" + part(node.args[0], kComparison) + ", " + std::string(name(node.type)) + ")";
        break;
      default: {
        const Level mine = level(node.op);
        if (mine != kPrimary) {  // an operator; a chain of sums or products leans to the left
          out = part(node.args[0], mine == kComparison ? kSum : mine);
          out += ' ';
          out += problem::text(node.op);
          out += ' ';
          out += part(node.args[1], static_cast<Level>(mine + 1));
          break;
        }
        out = std::string(problem::text(node.op)) + "(";
        for (int a = 0; a < problem::arity(node.op); ++a) {
          if (a > 0) out += ", ";
          out += part(node.args[std::size_t(a)], kComparison);
        }
        out += ")";
      }
    }
  }
  std::string program;
  for (const EpilogueAssignment& made : epilogue.assignments) {
    if (!program.empty()) program += "; ";
    program += made.name;
    if (made.output && made.name != "d") program += index_text(made.axes);
    program += " = ";
    const std::string& value = texts[std::size_t(made.root)];
    switch (made.reduction) {
      case Reduction::none:
        program += value;
        continue;
      case Reduction::sum:
        program += "sum(";
        break;
      case Reduction::max:
        program += "max(";
        break;
      case Reduction::min:
        program += "min(";
        break;
    }
    program += value;
    program += made.reduced == Axes::m ? ", m)" : made.reduced == Axes::n ? ", n)" : ")";
  }
  return program;
}

namespace problem {
namespace {
struct OpInfo {
  int arity;
  std::string_view text;
};
constexpr OpInfo kOps[] = {
#define LAPIDARY_EPILOGUE_OP(id, arity, text) {arity, text},
#include "lapidary/epilogue_ops.inc"
#undef LAPIDARY_EPILOGUE_OP
};
}  // namespace

int arity(EpilogueOp op) { return kOps[std::size_t(op)].arity; }
std::string_view text(EpilogueOp op) { return kOps[std::size_t(op)].text; }

namespace {

/// Nodes that an output depends on. `ends(i)`: the arguments of node i do not count.
template <class Ends>
std::vector<bool> live_nodes(const Epilogue& epilogue, const Ends& ends) {
  std::vector<bool> live(epilogue.nodes.size());
  for (const EpilogueAssignment& made : epilogue.assignments) {
    if (made.output) live[std::size_t(made.root)] = true;
  }
  for (std::size_t i = epilogue.nodes.size(); i-- > 0;) {  // arguments stand before their users
    if (!live[i] || ends(i)) continue;
    for (const int argument : epilogue.nodes[i].args) {
      if (argument >= 0) live[std::size_t(argument)] = true;
    }
  }
  return live;
}

/// Has the product at `node` (a chain of factors, of numerators of quotients, of negated ones) a
/// factor that is a scalar operand of value 0? No when there is no product at all.
bool has_zero_factor(const Epilogue& epilogue, std::size_t node,
                     const std::function<double(int)>& scalar) {
  const auto product = [](EpilogueOp op) { return op == EpilogueOp::mul || op == EpilogueOp::div; };
  std::vector<std::size_t> factors{node};
  bool any_product = false, zero = false;
  while (!factors.empty()) {
    const EpilogueNode& factor = epilogue.nodes[factors.back()];
    factors.pop_back();
    if (factor.op == EpilogueOp::operand && factor.axes == Axes::none)
      zero = zero || scalar(factor.symbol) == 0;
    if (product(factor.op) || factor.op == EpilogueOp::neg)
      factors.push_back(std::size_t(factor.args[0]));
    if (factor.op == EpilogueOp::mul) factors.push_back(std::size_t(factor.args[1]));
    any_product = any_product || product(factor.op);
  }
  return any_product && zero;
}

}  // namespace

std::vector<bool> live_nodes(const Epilogue& epilogue) {
  return live_nodes(epilogue, [](std::size_t) { return false; });
}

std::vector<bool> reads(const Epilogue& epilogue) {
  const std::vector<bool> live = live_nodes(epilogue);
  std::vector<bool> read(epilogue.inputs.size());
  for (std::size_t i = 0; i < live.size(); ++i) {
    if (live[i] && epilogue.nodes[i].op == EpilogueOp::operand)
      read[std::size_t(epilogue.nodes[i].symbol)] = true;
  }
  return read;
}

Epilogue drop_zero_terms(const Epilogue& epilogue, const std::function<double(int input)>& scalar) {
  const std::size_t count = epilogue.nodes.size();
  std::vector<bool> term(count), zero(count);
  for (const EpilogueAssignment& made : epilogue.assignments) term[std::size_t(made.root)] = true;
  for (std::size_t i = count; i-- > 0;) {
    if (!term[i]) continue;
    const EpilogueNode& node = epilogue.nodes[i];
    if (has_zero_factor(epilogue, i, scalar)) {
      zero[i] = true;
    } else if (node.op == EpilogueOp::add || node.op == EpilogueOp::sub ||
               node.op == EpilogueOp::neg) {
      term[std::size_t(node.args[0])] = true;
      if (node.args[1] >= 0) term[std::size_t(node.args[1])] = true;
    }
  }

  // Rebuilt without what nothing reads any more. The names of intermediates go with their last
  // reader.
  const std::vector<bool> live = live_nodes(epilogue, [&](std::size_t i) { return bool(zero[i]); });
  Epilogue out{.inputs = epilogue.inputs, .gated = epilogue.gated};
  std::vector<bool> read(epilogue.assignments.size());
  for (std::size_t i = 0; i < count; ++i) {
    if (live[i] && epilogue.nodes[i].op == EpilogueOp::local)
      read[std::size_t(epilogue.nodes[i].symbol)] = true;
  }
  std::vector<int> assignment_at(epilogue.assignments.size(), -1), node_at(count, -1);
  int kept = 0;
  for (std::size_t a = 0; a < epilogue.assignments.size(); ++a) {
    if (epilogue.assignments[a].output || read[a]) assignment_at[a] = kept++;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (!live[i]) continue;
    EpilogueNode node = zero[i] ? EpilogueNode{} : epilogue.nodes[i];
    if (node.op == EpilogueOp::local) node.symbol = assignment_at[std::size_t(node.symbol)];
    if (node.op != EpilogueOp::number && node.op != EpilogueOp::operand) {
      if (node.op != EpilogueOp::acc && node.op != EpilogueOp::gate && node.op != EpilogueOp::up)
        node.axes = Axes::none;
      for (int& argument : node.args) {
        if (argument < 0) continue;
        argument = node_at[std::size_t(argument)];
        node.axes = node.axes | out.nodes[std::size_t(argument)].axes;
      }
    }
    node_at[i] = static_cast<int>(out.nodes.size());
    out.nodes.push_back(node);
  }
  for (std::size_t a = 0; a < epilogue.assignments.size(); ++a) {
    if (assignment_at[a] < 0) continue;
    EpilogueAssignment made = epilogue.assignments[a];
    made.root = node_at[std::size_t(made.root)];
    if (!made.output) made.axes = out.nodes[std::size_t(made.root)].axes;
    out.assignments.push_back(std::move(made));
  }
  return out;
}

}  // namespace problem
}  // namespace lapidary
