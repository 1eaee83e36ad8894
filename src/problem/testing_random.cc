#include "problem/testing_random.h"

#include <algorithm>
#include <vector>

#include "support/random.h"
#include "support/result.h"

namespace lapidary::problem {
namespace {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}
  /// 0 .. sides - 1.
  std::size_t roll(std::size_t sides) { return mix(seed_, count_++) % sides; }
  bool one_in(std::size_t sides) { return roll(sides) == 0; }
  template <class List>
  auto pick(const List& list) {
    return list[roll(std::size(list))];
  }

 private:
  std::uint64_t seed_, count_ = 0;
};

class ProgramWriter {
 public:
  explicit ProgramWriter(Dice& dice, bool scales) : dice_(dice), gated_(dice.one_in(4)) {
    const std::vector<std::pair<std::string, Axes>> pool = {
        {"bias", Axes::n},    {"c", Axes::mn},  {"alpha", Axes::none},
        {"beta", Axes::none}, {"row", Axes::m}, {"_x1", Axes::mn}};
    for (const auto& one : pool) {
      if (dice_.one_in(2)) inputs_.push_back(one);
    }
    if (!scales && dice_.one_in(4))
      inputs_.emplace_back("scale_a", dice_.one_in(2) ? Axes::m : Axes::none);
  }

  std::string write() {
    const std::size_t locals = dice_.roll(3), outputs = dice_.roll(3);
    for (std::size_t i = 0; i < locals; ++i) {
      const std::string name = "h" + std::to_string(i);
      statement(name, expression(4));
      unused_.push_back(name);
      locals_.push_back(name);
    }
    const std::size_t d_at = dice_.roll(outputs + 1);
    for (std::size_t i = 0; i <= outputs; ++i) {
      if (i == d_at) {
        std::string value = expression(5);
        while (!unused_.empty()) value += " + " + take_unused();
        statement(dice_.one_in(4) ? "d[m,n]" : "d", value);
      } else {
        extra_output("out" + std::to_string(i));
      }
    }
    return text_ + (dice_.one_in(5) ? ";" : "");
  }

 private:
  std::string space() {
    return dice_.pick(std::vector<std::string>{"", " ", " ", " ", "  ", "\n", "\t"});
  }

  std::string take_unused() {
    const std::string name = unused_.back();
    unused_.pop_back();
    return name;
  }

  void statement(const std::string& target, const std::string& value) {
    if (!text_.empty()) text_ += space() + ";" + space();
    text_ += target + space() + "=" + space() + value;
  }

  void extra_output(const std::string& name) {
    const std::string verb = dice_.pick(std::vector<std::string>{"sum", "max", "min"});
    switch (dice_.roll(4)) {
      case 0:
        return statement(name + "[m,n]", expression(3));
      case 1:
        return statement(name, verb + "(" + expression(3) + ")");
      case 2:
        return statement(name + "[m]", verb + "(" + expression(3) + " , n)");
      default:
        return statement(name + "[ n ]", verb + "(" + expression(3) + ",m)");
    }
  }

  std::string leaf() {
    const std::size_t kind = dice_.roll(4);
    if (kind == 0) {
      return dice_.pick(std::vector<std::string>{"0", "1", "2.5", "1e-3", ".125", "7.", "1E+20",
                                                 "0.1", "16777216", "3.4e38", "1e-45"});
    }
    if (kind == 1 && !inputs_.empty()) {
      const auto& [name, axes] = dice_.pick(inputs_);
      return name + (axes == Axes::mn  ? "[m, n]"
                     : axes == Axes::m ? "[m]"
                     : axes == Axes::n ? "[n]"
                                       : "");
    }
    if (kind == 2 && !locals_.empty()) {
      const std::string name = dice_.pick(locals_);
      std::erase(unused_, name);
      return name;
    }
    if (gated_) return dice_.one_in(2) ? "gate" : "up";
    return "acc";
  }

  /// Without a care for precedence: every operand may get parentheses, a composed one gets them
  /// always.
  std::string operand(int depth) {
    if (depth <= 0 || dice_.one_in(3)) {
      const std::string one = leaf();
      return dice_.one_in(8) ? "(" + one + ")" : one;
    }
    return "(" + space() + expression(depth - 1) + space() + ")";
  }

  std::string expression(int depth) {
    if (depth <= 0) return leaf();
    switch (dice_.roll(8)) {
      case 0:
        return leaf();
      case 1:
        return (dice_.one_in(2) ? "-" : "neg") + ("(" + expression(depth - 1) + ")");
      case 2: {
        static const std::vector<std::string> kUnary = {
            "abs",      "exp",     "log",   "sqrt",       "rsqrt",     "tanh",
            "erf",      "sigmoid", "relu",  "gelu",       "gelu_tanh", "silu",
            "softplus", "drelu",   "dgelu", "dgelu_tanh", "dsilu"};
        return dice_.pick(kUnary) + space() + "(" + expression(depth - 1) + ")";
      }
      case 3:
        switch (dice_.roll(6)) {
          case 0:
            return "min(" + expression(depth - 1) + "," + expression(depth - 1) + ")";
          case 1:
            return "max(" + expression(depth - 1) + "," + expression(depth - 1) + ")";
          case 2:
            return "leaky_relu(" + expression(depth - 1) + ", 0.01)";
          case 3:
            return "clamp(" + expression(depth - 1) + ",-7 ,7)";
          case 4:
            return "select(" + expression(depth - 1) + "," + expression(depth - 2) + "," +
                   expression(depth - 2) + ")";
          default:
            return "cast(" + expression(depth - 1) + "," + std::string(name(dice_.pick(kDTypes))) +
                   ")";
        }
      case 4:
        return operand(depth) + " " +
               dice_.pick(std::vector<std::string>{"<", "<=", ">", ">=", "==", "!="}) +
               operand(depth);
      case 5: {  // a chain, left to the parser to group
        std::string chain = operand(depth);
        for (std::size_t i = dice_.roll(4) + 1; i > 0; --i) {
          chain += space() + dice_.pick(std::vector<std::string>{"+", "-", "*", "/"}) + space() +
                   (dice_.one_in(6) ? "-" : "") + operand(depth - 1);
        }
        return chain;
      }
      default:
        return operand(depth) + space() + dice_.pick(std::vector<std::string>{"+", "-", "*", "/"}) +
               space() + operand(depth);
    }
  }

  Dice& dice_;
  bool gated_;
  std::vector<std::pair<std::string, Axes>> inputs_;
  std::vector<std::string> locals_, unused_;
  std::string text_;
};

}  // namespace

std::string random_program(std::uint64_t seed) {
  Dice dice(seed);
  return ProgramWriter(dice, false).write();
}

GemmProblem random_problem(std::uint64_t seed) {
  Dice dice(seed);
  GemmProblem p;
  p.m = std::int64_t(dice.roll(300));
  p.n = 2 * std::int64_t(dice.roll(300));
  p.k = std::int64_t(dice.roll(300));
  if (dice.one_in(2)) p.batch = std::int64_t(dice.roll(5));
  p.layout = dice.pick(std::vector{GemmLayout::nt, GemmLayout::nn, GemmLayout::tn, GemmLayout::tt});
  p.a = dice.pick(kDTypes);
  p.b = dice.pick(kDTypes);
  if (dice.one_in(2)) p.d = dice.pick(kDTypes);
  p.scales =
      dice.pick(std::vector{ScaleMode::none, ScaleMode::tensor, ScaleMode::row, ScaleMode::block});
  const bool scaled = p.scales != ScaleMode::none;
  if (!dice.one_in(3)) p.epilogue = *parse_epilogue(ProgramWriter(dice, scaled).write(), scaled);
  if (dice.one_in(4)) p.numerics.tf32 = p.numerics.nondeterministic = true;
  if (dice.one_in(4)) p.numerics.fast_fp8 = p.numerics.rounded = true;
  if (dice.one_in(5)) p.numerics.f16_acc = true;
  if (dice.one_in(4)) p.workspace = std::int64_t(dice.roll(1 << 30));
  if (dice.one_in(4)) p.sms = int(dice.roll(132)) + 1;

  // What the rest depends on is known once the plain problem is: shapes, names, types.
  const auto plain = checked(p);
  LAPIDARY_CHECK(plain);
  for (const OperandSpec& spec : operands(*plain)) {
    const bool scale = p.scales != ScaleMode::none && spec.name.starts_with("scale_");
    std::int64_t* pitch = spec.name == "a"   ? &p.lda
                          : spec.name == "b" ? &p.ldb
                          : spec.name == "c" ? &p.ldc
                          : spec.name == "d" ? &p.ldd
                                             : nullptr;
    std::int64_t padded = spec.pitch;
    if (pitch != nullptr && dice.one_in(3))
      *pitch = padded = spec.pitch + std::int64_t(dice.roll(9));
    if (dice.one_in(4)) {
      const bool shared = !spec.output && dice.one_in(2);
      const bool tensor = scale && p.scales == ScaleMode::tensor;
      p.strides[spec.name] =
          shared || tensor ? 0 : spec.rows * padded + std::int64_t(dice.roll(100));
    }
    const bool own_key =
        spec.name == "a" || spec.name == "b" || spec.name == "c" || spec.name == "d";
    if (spec.name == "c" && dice.one_in(2)) p.c = dice.pick(kDTypes);
    if (!own_key && !scale && dice.one_in(3)) p.types[spec.name] = dice.pick(kDTypes);
    if (dice.one_in(5)) p.offsets[spec.name] = 4 * std::int64_t(dice.roll(1024));
    if (!spec.output && dice.one_in(4)) p.constant.push_back(spec.name);
  }
  const auto settled = checked(p);
  LAPIDARY_CHECK(settled);
  GemmProblem aliased = *settled;
  aliased.alias = {"c=d"};
  if (const auto both = checked(aliased); both && dice.one_in(2)) return *both;
  return *settled;
}

}  // namespace lapidary::problem
