#include "backends/cublaslt_match.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "driver/cublaslt_api.h"
#include "problem/epilogue.h"

namespace lapidary::backends::cublaslt_match {
namespace {

using Op = EpilogueOp;
using driver::kLtEpilogueAux, driver::kLtEpilogueBias, driver::kLtEpilogueDefault,
    driver::kLtEpilogueDgelu, driver::kLtEpilogueDgeluBgrad, driver::kLtEpilogueGelu,
    driver::kLtEpilogueRelu;

constexpr std::string_view kOneActivation = "cuBLASLt applies one activation, as the last step";
constexpr std::string_view kNoAcc = "cuBLASLt computes nothing without acc";
constexpr std::string_view kScalarsOnly = "cuBLASLt multiplies by scalars only";
constexpr std::string_view kOneScalar = "cuBLASLt takes one scalar operand as a factor";
constexpr std::string_view kNoOutput = "cuBLASLt writes no such output beside d";
constexpr std::string_view kNoReduction = "cuBLASLt has no such reduction";

Error no(std::string_view why) { return Error{ErrorCode::unsupported, std::string(why)}; }

/// A product of numbers and scalar operands.
struct Factor {
  double number = 1;
  std::vector<int> scalars{};  // inputs, sorted
  bool is_one() const { return number == 1 && scalars.empty(); }
  bool is_number() const { return scalars.empty(); }
  bool operator==(const Factor&) const = default;
};

constexpr std::size_t kMostScalars = 2;  // a factor of acc and the scale of D

Result<Factor> product(const Factor& x, const Factor& y) {
  Factor made{.number = x.number * y.number, .scalars = x.scalars};
  made.scalars.insert(made.scalars.end(), y.scalars.begin(), y.scalars.end());
  if (made.scalars.size() > kMostScalars) return no(kOneScalar);
  std::ranges::sort(made.scalars);
  return made;
}

constexpr int kAcc = -1;

/// factor * acc, or factor * an operand that has an index.
struct Term {
  int input = kAcc;
  Factor factor{};
  bool operator==(const Term&) const = default;
};

enum class Function { none, relu, gelu, dgelu };

/// What a node computes: after * function(the sum of the terms). No terms: `after` alone, a scalar,
/// or, under dgelu, a derivative that still wants its other factor. Two nodes of the same Value
/// compute the same number but for the order of f32 sums and products.
struct Value {
  std::vector<Term> terms{};  // acc first, then by input; at most acc, one [m,n] and one [n]
  Function function = Function::none;
  int dgelu = -1;  // input at which the derivative is taken
  Factor after{};  // 1 with terms, unless function is relu or gelu
  bool is_scalar() const { return terms.empty() && function == Function::none; }
  bool is_number() const { return is_scalar() && after.is_number(); }
  bool is_sum() const { return !terms.empty() && function == Function::none; }
  bool operator==(const Value&) const = default;
};

Value scalar(double number) { return {.after = {.number = number}}; }

Result<Value> scaled(Value v, const Factor& factor) {
  const bool inside =
      !v.terms.empty() && (v.function == Function::none || v.function == Function::dgelu);
  if (!inside) {
    LAPIDARY_TRY(v.after, product(v.after, factor));
    return v;
  }
  for (Term& term : v.terms) {
    LAPIDARY_TRY(term.factor, product(term.factor, factor));
  }
  return v;
}

/// Values of all nodes of a program, bottom up: a name may be used often, and what it stands for
/// is looked at once.
class Evaluator {
 public:
  explicit Evaluator(const Epilogue& e) : e_(e) {
    values_.reserve(e.nodes.size());
    for (const EpilogueNode& node : e.nodes) values_.push_back(value_of(node));
  }

  const Result<Value>& at(int node) const { return values_[static_cast<std::size_t>(node)]; }

  /// The node behind names.
  int behind(int node) const {
    while (e_.nodes[static_cast<std::size_t>(node)].op == Op::local)
      node = e_.nodes[static_cast<std::size_t>(node)].args[0];
    return node;
  }

 private:
  Result<Value> value_of(const EpilogueNode& n) const {
    std::array<Value, 3> args;
    for (std::size_t i = 0; i < args.size(); ++i) {
      if (n.args[i] < 0) continue;
      LAPIDARY_TRY(args[i], at(n.args[i]));
    }
    switch (n.op) {
      case Op::number:
        return scalar(n.number);
      case Op::operand:
        if (n.axes == Axes::none) return Value{.after = {.scalars = {n.symbol}}};
        if (n.axes == Axes::m) return no("cuBLASLt takes no operand [m]");
        return Value{.terms = {{.input = n.symbol}}};
      case Op::acc:
        return Value{.terms = {{.input = kAcc}}};
      case Op::local:
        return args[0];
      case Op::neg:
        return scaled(args[0], {.number = -1});
      case Op::add:
        return sum(args[0], args[1], 1);
      case Op::sub:
        return sum(args[0], args[1], -1);
      case Op::mul:
        return multiplied(args[0], args[1]);
      case Op::div:
        return divided(args[0], args[1]);
      case Op::relu:
        return applied(Function::relu, args[0]);
      case Op::gelu_tanh:
        return applied(Function::gelu, args[0]);
      case Op::max:  // as relu; where x is NaN either operand is right
        if (args[0].is_number() && args[0].after.number == 0)
          return applied(Function::relu, args[1]);
        if (args[1].is_number() && args[1].after.number == 0)
          return applied(Function::relu, args[0]);
        return no("cuBLASLt has no epilogue with 'max', but for max(x, 0)");
      case Op::dgelu_tanh: {
        const EpilogueNode& x = e_.nodes[static_cast<std::size_t>(behind(n.args[0]))];
        if (x.op != Op::operand || x.axes != Axes::mn)
          return no("cuBLASLt takes dgelu_tanh of an [m,n] operand only");
        return Value{.function = Function::dgelu, .dgelu = x.symbol};
      }
      case Op::gelu:
        return no("cuBLASLt's GELU is the tanh form: it has gelu_tanh, not gelu");
      case Op::dgelu:
        return no("cuBLASLt's GELU is the tanh form: it has dgelu_tanh, not dgelu");
      default:
        return no(fmt::format("cuBLASLt has no epilogue with '{}'", problem::text(n.op)));
    }
  }

  Result<Value> sum(Value x, const Value& y, double sign) const {
    if (x.is_number() && y.is_number()) {  // f32, as the program says
      return scalar(static_cast<float>(x.after.number) + static_cast<float>(sign * y.after.number));
    }
    if (x.is_scalar() || y.is_scalar()) return no("cuBLASLt adds no scalars");
    if (!x.is_sum() || !y.is_sum()) return no(kOneActivation);
    for (const Term& term : y.terms) {
      for (const Term& other : x.terms) {
        if (term.input == kAcc && other.input == kAcc) return no("cuBLASLt takes acc once");
        if (term.input == kAcc || other.input == kAcc || axes(term) != axes(other)) continue;
        return no(axes(term) == Axes::mn ? "cuBLASLt adds one [m,n] operand"
                                         : "cuBLASLt adds one [n] operand");
      }
    }
    for (const Term& term : y.terms) {
      x.terms.push_back(term);
      x.terms.back().factor.number *= sign;
    }
    std::ranges::sort(x.terms, {}, &Term::input);
    return x;
  }

  static Result<Value> multiplied(const Value& x, const Value& y) {
    if (x.is_number() && y.is_number()) {
      return scalar(static_cast<float>(x.after.number) * static_cast<float>(y.after.number));
    }
    if (y.is_scalar()) return scaled(x, y.after);
    if (x.is_scalar()) return scaled(y, x.after);
    const auto derivative = [](const Value& v) {
      return v.function == Function::dgelu && v.terms.empty();
    };
    if (!(derivative(x) && y.is_sum()) && !(derivative(y) && x.is_sum())) return no(kScalarsOnly);
    const Value& slope = derivative(x) ? x : y;
    LAPIDARY_TRY(Value made, scaled(derivative(x) ? y : x, slope.after));
    made.function = Function::dgelu;
    made.dgelu = slope.dgelu;
    return made;
  }

  static Result<Value> divided(const Value& x, const Value& y) {
    if (!y.is_number()) return no("cuBLASLt cannot divide by an operand");
    if (x.is_number()) {
      return scalar(static_cast<float>(x.after.number) / static_cast<float>(y.after.number));
    }
    int exponent = 0;
    if (std::abs(std::frexp(y.after.number, &exponent)) != 0.5)
      return no("cuBLASLt cannot divide, and only a power of two has an exact reciprocal");
    return scaled(x, {.number = 1 / y.after.number});
  }

  static Result<Value> applied(Function function, Value x) {
    if (x.is_scalar()) return no("cuBLASLt computes no scalars");
    if (!x.is_sum()) return no(kOneActivation);
    x.function = function;
    return x;
  }

  Axes axes(const Term& term) const { return e_.inputs[static_cast<std::size_t>(term.input)].axes; }

  const Epilogue& e_;
  std::vector<Result<Value>> values_;  // by node
};

/// Takes one scalar operand out of a factor.
Factor without(Factor f, int scalar) {
  f.scalars.erase(std::ranges::find(f.scalars, scalar));
  return f;
}

/// The value whose product with a scalar operand is `v`, when there is one.
std::optional<Value> unscaled(Value v, int scalar) {
  const auto has = [&](const Factor& f) { return std::ranges::count(f.scalars, scalar) > 0; };
  if (v.function == Function::relu || v.function == Function::gelu) {
    if (!has(v.after)) return std::nullopt;
    v.after = without(v.after, scalar);
    return v;
  }
  for (Term& term : v.terms) {
    if (!has(term.factor)) return std::nullopt;
    term.factor = without(term.factor, scalar);
  }
  return v;
}

class Matcher {
 public:
  explicit Matcher(const GemmProblem& p) : p_(p), specs_(operands(p)), values_(p.epilogue) {}

  Result<Fused> match() {
    const Epilogue& e = p_.epilogue;
    if (e.gated) return no("cuBLASLt has no gated epilogue");
    LAPIDARY_TRY_STATUS(check_product());
    const auto d = std::ranges::find(e.assignments, "d", &EpilogueAssignment::name);
    LAPIDARY_TRY(value_, values_.at(d->root));
    if (value_.terms.empty() || value_.terms[0].input != kAcc) return no(kNoAcc);
    LAPIDARY_TRY_STATUS(split_scale_of_d());
    LAPIDARY_TRY_STATUS(match_terms());
    LAPIDARY_TRY_STATUS(match_outputs());
    LAPIDARY_TRY_STATUS(check_operands());
    LAPIDARY_TRY_STATUS(check_zero_factors());
    return fused_;
  }

 private:
  const std::string& input(int i) const {
    return p_.epilogue.inputs[static_cast<std::size_t>(i)].name;
  }

  const OperandSpec& spec(std::string_view name) const {
    return *std::ranges::find(specs_, name, &OperandSpec::name);
  }

  /// Types of A and B, and their scales.
  Status check_product() const {
    if (p_.a != p_.b && !(narrow(p_.a) && narrow(p_.b)))
      return no("cuBLASLt multiplies matrices of one type, or e4m3 and e5m2");
    if (p_.scales == ScaleMode::none) return {};
    if (!narrow(p_.a)) return no("cuBLASLt scales matrices of e4m3 and e5m2 only");
    // Measured on an H200 with cuBLASLt 13.1: it finds row r of B's scales at r times ceil(k / 128)
    // rounded up to 4, where ours are dense.
    const std::int64_t blocks = (p_.k + 127) / 128;
    if (p_.scales == ScaleMode::block && blocks % 4 != 0 && p_.n > 128)
      return no("cuBLASLt wants rows of B's block scales padded to a multiple of 4");
    return {};
  }

  /// A D of 8 bits is stored times a scalar, which then multiplies all of the value.
  Status split_scale_of_d() {
    if (!narrow(*p_.d)) {
      if (value_.after.is_one()) return {};
      return no("cuBLASLt multiplies after an activation only where D is e4m3 or e5m2");
    }
    std::vector<int> candidates =
        value_.function == Function::none || value_.function == Function::dgelu
            ? value_.terms[0].factor.scalars
            : value_.after.scalars;
    std::erase_if(candidates, [&](int s) { return !unscaled(value_, s); });
    for (const EpilogueAssignment& made : p_.epilogue.assignments) {
      const int inside = magnitude(made);
      if (inside < 0) continue;  // else it is the value before the scale
      LAPIDARY_TRY(const Value before, values_.at(inside));
      if (before == value_) candidates.clear();
      std::erase_if(candidates, [&](int s) { return unscaled(value_, s) != before; });
    }
    if (!candidates.empty()) {
      fused_.scale_d = input(candidates.back());
      value_ = *unscaled(value_, candidates.back());
    }
    if (value_.after.is_one()) return {};
    return no(value_.after.scalars.empty() ? "cuBLASLt scales D by an operand, not by a number"
                                           : kOneScalar);
  }

  Status match_terms() {
    for (const Term& term : value_.terms) {
      const bool vector = term.input != kAcc &&
                          p_.epilogue.inputs[static_cast<std::size_t>(term.input)].axes == Axes::n;
      if (vector) {
        if (!term.factor.is_one()) return no("cuBLASLt adds an [n] operand as it is");
        fused_.bias = input(term.input);
        continue;
      }
      float& factor = term.input == kAcc ? fused_.alpha : fused_.beta;
      std::string& operand = term.input == kAcc ? fused_.alpha_operand : fused_.beta_operand;
      if (term.input != kAcc) fused_.c = input(term.input);
      if (term.factor.scalars.size() > 1) return no(kOneScalar);
      if (!term.factor.scalars.empty()) {
        if (term.factor.number != 1)
          return no("cuBLASLt takes a number or a scalar operand as a factor, not both");
        operand = input(term.factor.scalars[0]);
      }
      factor = static_cast<float>(term.factor.number);
      // A factor of 0 would keep the library from reading what NaN should come from.
      if (!std::isfinite(factor) || factor == 0 || factor != term.factor.number)
        return no("cuBLASLt takes a factor that is finite, not 0 and exact in f32");
    }
    switch (value_.function) {
      case Function::none:
        fused_.epilogue = fused_.bias.empty() ? kLtEpilogueDefault : kLtEpilogueBias;
        return {};
      case Function::relu:
        fused_.epilogue = kLtEpilogueRelu | (fused_.bias.empty() ? 0 : kLtEpilogueBias);
        return {};
      case Function::gelu:
        fused_.epilogue = kLtEpilogueGelu | (fused_.bias.empty() ? 0 : kLtEpilogueBias);
        return {};
      case Function::dgelu:
        if (!fused_.bias.empty()) return no("cuBLASLt adds no [n] operand under dgelu_tanh");
        fused_.epilogue = kLtEpilogueDgelu;
        fused_.aux = input(value_.dgelu);
        return {};
    }
    return {};
  }

  /// x of an output max(abs(x)) over both axes, -1 of any other.
  int magnitude(const EpilogueAssignment& made) const {
    if (made.reduction != Reduction::max || made.reduced != Axes::mn) return -1;
    const EpilogueNode& root =
        p_.epilogue.nodes[static_cast<std::size_t>(values_.behind(made.root))];
    return root.op == Op::abs ? root.args[0] : -1;
  }

  bool computes(int node, const Value& value) const {
    return values_.at(node) && *values_.at(node) == value;
  }

  /// What is written beside d.
  Status match_outputs() {
    for (const EpilogueAssignment& made : p_.epilogue.assignments) {
      if (!made.output || made.name == "d") continue;
      if (made.reduction == Reduction::none) {
        Value before = value_;
        before.function = Function::none;
        if (value_.function != Function::gelu || made.axes != Axes::mn || !fused_.aux.empty() ||
            !computes(made.root, before)) {
          return no(kNoOutput);
        }
        fused_.aux = made.name;
        fused_.epilogue |= kLtEpilogueAux;
      } else if (const int inside = magnitude(made); inside >= 0) {
        if (!narrow(*p_.d) || !fused_.amax.empty() || !computes(inside, value_))
          return no(kNoReduction);
        fused_.amax = made.name;
      } else {
        if (value_.function != Function::dgelu || made.reduction != Reduction::sum ||
            made.reduced != Axes::m || !fused_.bias.empty() || !fused_.scale_d.empty() ||
            !computes(made.root, value_)) {
          return no(kNoReduction);
        }
        fused_.bias = made.name;
        fused_.epilogue = kLtEpilogueDgeluBgrad;
      }
    }
    return {};
  }

  /// Types and strides of what the epilogue reads and writes, and what may share memory.
  Status check_operands() const {
    const DType d = *p_.d;
    for (const std::string* name :
         {&fused_.alpha_operand, &fused_.beta_operand, &fused_.scale_d, &fused_.amax}) {
      if (name->empty()) continue;
      if (spec(*name).type != DType::f32) return no("cuBLASLt takes scalars in f32");
      if (p_.batch > 1 && spec(*name).batch_stride != 0)
        return no("cuBLASLt takes one scalar for the whole batch");
    }
    if (!fused_.c.empty() && !narrow(d) && spec(fused_.c).type != d)
      return no("cuBLASLt adds an [m,n] operand of D's type only");
    if (!fused_.bias.empty() && !narrow(p_.a) && spec(fused_.bias).type != d) {
      return no(spec(fused_.bias).output ? "cuBLASLt writes sums over m in D's type only"
                                         : "cuBLASLt adds an [n] operand of D's type only");
    }
    if (!fused_.aux.empty() && !narrow(d) && spec(fused_.aux).type != d) {
      return no(spec(fused_.aux).output ? "cuBLASLt writes what gelu_tanh takes in D's type only"
                                        : "cuBLASLt takes dgelu_tanh of D's type only");
    }
    for (const std::string& pair : p_.alias) {
      // Documented for C and D alone: of the others it does not say when they are read.
      const bool c_and_d = pair == fused_.c + "=d" && fused_.aux != fused_.c;
      if (!c_and_d) return no("cuBLASLt lets C and D share memory, no others");
    }
    return {};
  }

  /// The program with the scalar operand at 0.
  Epilogue at_zero(std::string_view scalar) const {
    return problem::drop_zero_terms(p_.epilogue,
                                    [&](int i) { return input(i) == scalar ? 0.0 : 1.0; });
  }

  /// Where a factor is 0, cuBLASLt does not read C, but it multiplies acc.
  Status check_zero_factors() {
    if (!fused_.beta_operand.empty()) {
      const std::vector<bool> read = problem::reads(at_zero(fused_.beta_operand));
      for (std::size_t i = 0; i < read.size(); ++i) {
        if (read[i] && input(static_cast<int>(i)) == fused_.c)
          return no("cuBLASLt does not read an [m,n] operand whose factor is 0");
      }
    }
    for (const std::string* scalar : {&fused_.alpha_operand, &fused_.scale_d}) {
      if (!scalar->empty() && !d_reads_acc(at_zero(*scalar))) fused_.multiplies_at_zero = true;
    }
    return {};
  }

  static bool d_reads_acc(const Epilogue& e) {
    std::vector<bool> live(e.nodes.size());
    live[static_cast<std::size_t>(
        std::ranges::find(e.assignments, "d", &EpilogueAssignment::name)->root)] = true;
    for (std::size_t i = live.size(); i-- > 0;) {  // arguments stand before their users
      if (!live[i]) continue;
      if (e.nodes[i].op == Op::acc) return true;
      for (const int argument : e.nodes[i].args) {
        if (argument >= 0) live[static_cast<std::size_t>(argument)] = true;
      }
    }
    return false;
  }

  const GemmProblem& p_;
  std::vector<OperandSpec> specs_;
  Evaluator values_;
  Value value_;  // of d, without its scale
  Fused fused_;
};

}  // namespace

Result<Fused> match(const GemmProblem& problem) { return Matcher(problem).match(); }

}  // namespace lapidary::backends::cublaslt_match
