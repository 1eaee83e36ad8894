#include "lapidary/dsl.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "dsl/builder.h"
#include "ir/kernel.h"
#include "support/result.h"

namespace lapidary {
namespace detail {

using ir::Id;
using ir::kNone;
using ir::Opcode;
using ir::Type;
using Where = std::source_location;

/// The kernel so far, the regions that are open, and what was misused.
struct BuilderState {
  ir::Kernel kernel;
  std::vector<std::uint32_t> open{0};
  std::vector<ir::Violation> misuses;
  std::vector<Id> placeless;  ///< operations that wait for the place of the next
  std::string name;           ///< the kernel's, which goes with it
  bool finished = false;

  std::uint32_t location(const Where& where) {
    ir::Location place{where.file_name(), static_cast<int>(where.line())};
    // Calls of one line follow each other.
    if (kernel.locations.empty() || kernel.locations.back() != place)
      kernel.locations.push_back(std::move(place));
    settle();
    return static_cast<std::uint32_t>(kernel.locations.size() - 1);
  }
  /// Reading a variable has no place of its own: it stands in the call around it, which comes next.
  void settle() {
    for (const Id id : placeless)
      kernel.ops[id].location = static_cast<std::uint32_t>(kernel.locations.size() - 1);
    placeless.clear();
  }
  void misuse(const Where& where, std::string message) {
    // Without a place of its own it stands where the last call did.
    const bool placed = where.line() != 0 || kernel.locations.empty();
    misuses.push_back(
        {placed ? location(where) : static_cast<std::uint32_t>(kernel.locations.size() - 1),
         std::move(message)});
  }

  /// Adds an operation; its result's id, or kNone when it is misused or an operand is poisoned.
  Id add(const Where& where, ir::Op op) {
    if (finished || std::ranges::find(op.args, kNone) != op.args.end()) return kNone;
    const bool placed = where.line() != 0;
    if (placed) op.location = location(where);
    const Result<Type> type = ir::result_type(kernel, op);
    if (!type) {
      misuse(where, type.error().message);
      return kNone;
    }
    op.type = *type;
    const Id id = static_cast<Id>(kernel.ops.size());
    kernel.ops.push_back(std::move(op));
    kernel.regions[open.back()].ops.push_back(id);
    if (!placed) placeless.push_back(id);
    return id;
  }
  Value value(const Where& where, ir::Op op) {
    const Scalar wanted = op.type.scalar;
    const Id id = add(where, std::move(op));
    return {this, id, id == kNone ? wanted : kernel.op(id).type.scalar};
  }
  Id constant(const Where& where, Scalar type, const Operand& number) {
    const bool real = number.kind_ == Operand::Kind::real;
    // An unsigned number above 2^63 - 1 is negative in `integer_`.
    const std::int64_t x = number.integer_;
    const double as_real = real           ? number.real_
                           : number.wide_ ? static_cast<double>(static_cast<std::uint64_t>(x))
                                          : static_cast<double>(x);
    const std::string said = real           ? fmt::format("{}", number.real_)
                             : number.wide_ ? fmt::format("{}", static_cast<std::uint64_t>(x))
                                            : fmt::format("{}", x);
    const auto wrong = [&](const std::string& why) {
      misuse(where, fmt::format("constant: {} {}", said, why));
      return kNone;
    };
    std::int64_t bits = x;
    bool fits = true;
    switch (type) {
      case Scalar::f16:
      case Scalar::bf16:
        return wrong(fmt::format("as {}: make it f32 and cast it", lapidary::name(type)));
      case Scalar::f32:
        // Half a step above the largest rounds to infinity.
        fits = !(std::isfinite(as_real) && std::abs(as_real) >= 0x1.ffffffp127);
        if (fits) bits = std::bit_cast<std::uint32_t>(static_cast<float>(as_real));
        break;
      case Scalar::f64:
        bits = std::bit_cast<std::int64_t>(as_real);
        break;
      case Scalar::s32:
        fits = !number.wide_ && x == static_cast<std::int32_t>(x);
        break;
      case Scalar::u32:
        fits = !number.wide_ && x == static_cast<std::uint32_t>(x);
        break;
      case Scalar::s64:
        fits = !number.wide_;
        break;
      case Scalar::u64:
        fits = number.wide_ || x >= 0;
        break;
      case Scalar::pred:
        fits = x == 0 || x == 1;
        break;
    }
    if (real && type != Scalar::f32 && type != Scalar::f64)
      return wrong(fmt::format("is no {}; use an integer or cast", lapidary::name(type)));
    if (!fits) return wrong(fmt::format("does not fit in {}", lapidary::name(type)));
    return add(where, {.code = Opcode::constant, .type = Type::of(type), .attributes = {bits}});
  }
  /// The operand as a value, a number as a constant of `type`.
  Id id_of(const Operand& x, Scalar type) {
    if (x.kind_ != Operand::Kind::value) return constant(x.where_, type, x);
    return mine("value", x.value_.state_, x.value_.id_, x.where_);
  }
  Id id_of(const Array& x, const Where& where) { return mine("array", x.state_, x.id_, where); }
  Id id_of(const Tile& x, const Where& where) { return mine("tile", x.state_, x.id_, where); }
  /// The id, unless it is another kernel's or nobody's.
  Id mine(std::string_view what, const BuilderState* owner, Id id, const Where& where) {
    if (owner == this) return id;
    misuse(where, fmt::format("{}: expected one of this kernel, got {}", what,
                              owner == nullptr ? "an empty one" : "another kernel's"));
    return kNone;
  }
  static BuilderState* of(std::initializer_list<const Operand*> operands) {
    for (const Operand* x : operands) {
      if (x->value_.state_ != nullptr) return x->value_.state_;
    }
    return nullptr;
  }
  /// An operation over operands of one type: numbers take it from the first value among them.
  static Value uniform(Opcode code, std::initializer_list<const Operand*> operands) {
    return of(operands) == nullptr ? Value() : of(operands)->uniform_here(code, operands);
  }
  Value uniform_here(Opcode code, std::initializer_list<const Operand*> operands) {
    const auto* const first = std::ranges::find(operands, Operand::Kind::value,
                                                [](const Operand* x) { return x->kind_; });
    const Scalar type = (*first)->value_.type_;
    ir::Op op{.code = code, .type = Type::of(type)};
    for (const Operand* x : operands) op.args.push_back(id_of(*x, type));
    return value((*(operands.end() - 1))->where_, std::move(op));
  }
  static Value swapped(char op, Operand number, const Operand& y) {
    number.where_ = y.where_;
    return uniform(op == '+' ? Opcode::add : op == '-' ? Opcode::sub : Opcode::mul, {&number, &y});
  }
  static const Where& where(const Operand& x) { return x.where_; }
  static std::optional<std::int64_t> known(const Operand& x) {
    return x.kind_ == Operand::Kind::integer ? std::optional(x.integer_) : std::nullopt;
  }
  static Value value_of(const Operand& x) { return x.value_; }
  static void misuse_of(const Array& array, const Where& where, std::string message) {
    if (array.state_ != nullptr) array.state_->misuse(where, std::move(message));
  }
  static Value constant_of(const Array& array, std::int64_t number, const Where& where) {
    BuilderState* const state = array.state_;
    if (state == nullptr) return {};
    return {state, state->constant(where, Scalar::s32, Operand(number, where)), Scalar::s32};
  }
  static Element element_of(const Array& array, const Where& where) { return {array, where}; }
  static Scalar type(const Operand& x, Scalar number) {
    return x.kind_ == Operand::Kind::value ? x.value_.type_ : number;
  }
  static Value make(BuilderState* state, Id id, Scalar type) { return {state, id, type}; }
  static Array array(BuilderState* state, Id id, Scalar element, Space space) {
    return {state, id, element, space};
  }

  void region(std::uint32_t index, const std::function<void()>& body) {
    open.push_back(index);
    body();
    open.pop_back();
  }
  std::uint32_t new_region() {
    kernel.regions.emplace_back();
    return static_cast<std::uint32_t>(kernel.regions.size() - 1);
  }
  std::int64_t string(std::string text) {
    kernel.strings.push_back(std::move(text));
    return std::ssize(kernel.strings) - 1;
  }
};

std::optional<std::int64_t> known(const Operand& x) { return BuilderState::known(x); }
Value value(const Operand& x) { return BuilderState::value_of(x); }
std::source_location where(const Operand& x) { return BuilderState::where(x); }
void misuse(const Array& array, const std::source_location& where, std::string message) {
  BuilderState::misuse_of(array, where, std::move(message));
}
Value constant(const Array& array, std::int64_t number, const std::source_location& where) {
  return BuilderState::constant_of(array, number, where);
}
Element element(const Array& array, const std::source_location& where) {
  return BuilderState::element_of(array, where);
}

Value swapped(char op, Operand number, Operand y) { return BuilderState::swapped(op, number, y); }

}  // namespace detail

using detail::BuilderState;
using ir::Id;
using ir::kNone;
using ir::Opcode;
using ir::Type;

// An operator's place is that of its right side: operators take no argument for it.
#define LAPIDARY_BINARY(symbol, opcode)                        \
  Value operator symbol(Value x, Operand y) {                  \
    const Operand left(x, BuilderState::where(y));             \
    return BuilderState::uniform(Opcode::opcode, {&left, &y}); \
  }
LAPIDARY_BINARY(+, add)
LAPIDARY_BINARY(-, sub)
LAPIDARY_BINARY(*, mul)
LAPIDARY_BINARY(/, div)
LAPIDARY_BINARY(%, rem)
LAPIDARY_BINARY(&, and_)
LAPIDARY_BINARY(|, or_)
LAPIDARY_BINARY(^, xor_)
LAPIDARY_BINARY(&&, and_)
LAPIDARY_BINARY(||, or_)
LAPIDARY_BINARY(<, lt)
LAPIDARY_BINARY(<=, le)
LAPIDARY_BINARY(==, eq)
LAPIDARY_BINARY(!=, ne)
#undef LAPIDARY_BINARY

namespace {

/// x OP y as y OP x, at y's place and in x's kernel.
Value turned(Opcode code, Value x, const Operand& y) {
  const Operand right(x, BuilderState::where(y));
  BuilderState* const state = BuilderState::of({&right, &y});
  return state == nullptr ? Value() : state->uniform_here(code, {&y, &right});
}

Value shifted(Opcode code, Value x, const Operand& count) {
  const Operand left(x, BuilderState::where(count));
  BuilderState* const state = BuilderState::of({&left, &count});
  if (state == nullptr) return {};
  const Id by = state->id_of(count, Scalar::s32);
  return state->value(
      BuilderState::where(count),
      {.code = code, .type = Type::of(x.type()), .args = {state->id_of(left, x.type()), by}});
}

Value unary(Opcode code, const Operand& x) { return BuilderState::uniform(code, {&x}); }

Value converted(Opcode code, const Operand& x, Scalar type) {
  BuilderState* const state = BuilderState::of({&x});
  if (state == nullptr) return {};
  return state->value(
      BuilderState::where(x),
      {.code = code, .type = Type::of(type), .args = {state->id_of(x, Scalar::s32)}});
}

}  // namespace

Value operator<<(Value x, Operand count) { return shifted(Opcode::shl, x, count); }
Value operator>>(Value x, Operand count) { return shifted(Opcode::shr, x, count); }
Value operator>(Value x, Operand y) { return turned(Opcode::lt, x, y); }
Value operator>=(Value x, Operand y) { return turned(Opcode::le, x, y); }

Value negate(Operand x) { return unary(Opcode::neg, x); }
Value invert(Operand x) { return unary(Opcode::not_, x); }
Value abs(Operand x) { return unary(Opcode::abs, x); }
Value exp2(Operand x) { return unary(Opcode::exp2, x); }
Value log2(Operand x) { return unary(Opcode::log2, x); }
Value sqrt(Operand x) { return unary(Opcode::sqrt, x); }
Value rsqrt(Operand x) { return unary(Opcode::rsqrt, x); }
Value fma(Operand x, Operand y, Operand z) {
  return BuilderState::uniform(Opcode::fma, {&x, &y, &z});
}
Value min(Operand x, Operand y) { return BuilderState::uniform(Opcode::min, {&x, &y}); }
Value max(Operand x, Operand y) { return BuilderState::uniform(Opcode::max, {&x, &y}); }

Value select(Operand p, Operand x, Operand y) {
  BuilderState* const state = BuilderState::of({&p, &x, &y});
  if (state == nullptr) return {};
  const Scalar type = BuilderState::type(x, BuilderState::type(y, Scalar::s32));
  return state->value(
      BuilderState::where(p),
      {.code = Opcode::select,
       .type = Type::of(type),
       .args = {state->id_of(p, Scalar::pred), state->id_of(x, type), state->id_of(y, type)}});
}

Value cast(Operand x, Scalar type) {
  BuilderState* const state = BuilderState::of({&x});
  if (state != nullptr && BuilderState::type(x, type) == type)
    return BuilderState::make(state, state->id_of(x, type), type);
  return converted(Opcode::cast, x, type);
}
Value bitcast(Operand x, Scalar type) { return converted(Opcode::bitcast, x, type); }

Value shuffle_xor(Operand x, int mask) {
  BuilderState* const state = BuilderState::of({&x});
  if (state == nullptr) return {};
  return state->value(BuilderState::where(x), {.code = Opcode::shuffle_xor,
                                               .type = Type::of(BuilderState::type(x, Scalar::s32)),
                                               .args = {state->id_of(x, Scalar::s32)},
                                               .attributes = {mask}});
}
Value shuffle(Operand x, Operand lane) {
  BuilderState* const state = BuilderState::of({&x, &lane});
  if (state == nullptr) return {};
  return state->value(BuilderState::where(x),
                      {.code = Opcode::shuffle,
                       .type = Type::of(BuilderState::type(x, Scalar::s32)),
                       .args = {state->id_of(x, Scalar::s32), state->id_of(lane, Scalar::s32)}});
}
Value ballot(Operand p) {
  BuilderState* const state = BuilderState::of({&p});
  if (state == nullptr) return {};
  return state->value(BuilderState::where(p), {.code = Opcode::ballot,
                                               .type = Type::of(Scalar::u32),
                                               .args = {state->id_of(p, Scalar::pred)}});
}

Array Array::at(Operand index) const {
  if (state_ == nullptr) {
    BuilderState* const state = BuilderState::of({&index});
    if (state == nullptr) return {};
    state->id_of(*this, BuilderState::where(index));
    return {state, kNone, element_, space_};
  }
  const Id by = state_->id_of(index, Scalar::s64);
  const Id id =
      state_->add(BuilderState::where(index), {.code = Opcode::advance, .args = {id_, by}});
  return {state_, id, element_, space_};
}
Element Array::operator[](Operand index) const { return {at(index), BuilderState::where(index)}; }

Element::operator Value() const {
  if (at_.state_ == nullptr) return {};
  return at_.state_->value(
      where_, {.code = Opcode::load, .type = Type::of(at_.element_), .args = {at_.id_}});
}
void Element::operator=(Operand value) const {
  if (at_.state_ == nullptr) {
    if (BuilderState* const state = BuilderState::of({&value})) state->id_of(at_, where_);
    return;
  }
  at_.state_->add(
      where_, {.code = Opcode::store, .args = {at_.id_, at_.state_->id_of(value, at_.element_)}});
}
void Element::operator=(const Element& other) const { *this = Operand(other, other.where_); }
Value Element::atomic_add(Operand value) const {
  if (at_.state_ == nullptr) return {};
  return at_.state_->value(where_, {.code = Opcode::atomic_add,
                                    .type = Type::of(at_.element_),
                                    .args = {at_.id_, at_.state_->id_of(value, at_.element_)}});
}
Value Element::atomic_max(Operand value) const {
  if (at_.state_ == nullptr) return {};
  return at_.state_->value(where_, {.code = Opcode::atomic_max,
                                    .type = Type::of(at_.element_),
                                    .args = {at_.id_, at_.state_->id_of(value, at_.element_)}});
}

Var::operator Value() const {
  return state_->value(
      std::source_location(),
      {.code = Opcode::get, .type = Type::of(type_), .args = {tile_}, .attributes = {0}});
}
void Var::operator=(Operand value) {
  state_->add(
      BuilderState::where(value),
      {.code = Opcode::set, .args = {tile_, state_->id_of(value, type_)}, .attributes = {0}});
}
void Var::operator+=(Operand value) {
  *this = Operand(Value(*this) + value, BuilderState::where(value));
}
Var& Var::operator=(const Var& other) {
  *this = Operand(Value(other), std::source_location());
  return *this;
}

Tile::Cell Tile::operator[](At index) const {
  return {state_, id_, type_, index.index, index.where};
}
Tile::Cell::operator Value() const {
  return state_->value(
      where_,
      {.code = Opcode::get, .type = Type::of(type_), .args = {tile_}, .attributes = {index_}});
}
void Tile::Cell::operator=(Operand value) const {
  state_->add(
      where_,
      {.code = Opcode::set, .args = {tile_, state_->id_of(value, type_)}, .attributes = {index_}});
}
void Tile::Cell::operator=(const Cell& other) const { *this = Operand(other, other.where_); }
namespace {

/// Calls access(first, count) for the pieces of up to 16 bytes that make up `count` elements.
void in_pieces(int count, int element_bytes,
               const std::function<void(int first, int count)>& access) {
  for (int first = 0; first < count;) {
    int piece = 16 / element_bytes;
    while (piece > count - first) piece /= 2;
    access(first, std::max(piece, 1));
    first += std::max(piece, 1);
  }
}

}  // namespace
void Tile::load(const Array& from, std::source_location where) const {
  if (id_ == kNone || state_->id_of(from, where) == kNone) return;
  in_pieces(count_, size_bytes(type_), [&](int first, int count) {
    const Array at = first == 0 ? from : from.at(Operand(first, where));
    state_->add(where,
                {.code = Opcode::load_tile, .args = {at.id_, id_}, .attributes = {first, count}});
  });
}
void Tile::store(const Array& to, std::source_location where) const {
  if (id_ == kNone || state_->id_of(to, where) == kNone) return;
  in_pieces(count_, size_bytes(type_), [&](int first, int count) {
    const Array at = first == 0 ? to : to.at(Operand(first, where));
    state_->add(where,
                {.code = Opcode::store_tile, .args = {at.id_, id_}, .attributes = {first, count}});
  });
}

void Tile::load_matrix(const Array& row, int first, int matrices, bool transposed,
                       std::source_location where) const {
  state_->add(where, {.code = Opcode::load_matrix,
                      .args = {state_->id_of(row, where), id_},
                      .attributes = {first, matrices, transposed}});
}

KernelBuilder::KernelBuilder(KernelSpec spec, Where where)
    : state_(std::make_unique<BuilderState>()) {
  ir::Kernel& k = state_->kernel;
  k.name = state_->name = std::move(spec.name);
  k.arch = spec.arch;
  k.threads = spec.threads;
  k.regions.emplace_back();
  state_->location(where);
}
KernelBuilder::~KernelBuilder() = default;

Value KernelBuilder::param(std::string name, Scalar type, Where where) {
  if (type == Scalar::pred || type == Scalar::f16 || type == Scalar::bf16) {
    state_->misuse(
        where, fmt::format("param: expected an integer, f32 or f64, got {}", lapidary::name(type)));
    return BuilderState::make(state_.get(), kNone, type);
  }
  state_->kernel.params.push_back({std::move(name), Type::of(type)});
  return state_->value(where, {.code = Opcode::param,
                               .type = Type::of(type),
                               .attributes = {std::ssize(state_->kernel.params) - 1}});
}
Array KernelBuilder::array_param(std::string name, Scalar element, Where where) {
  const Type type = Type::pointer(element, Space::global);
  if (element == Scalar::pred) {
    state_->misuse(where, "array_param: expected elements with bits, got pred");
    return BuilderState::array(state_.get(), kNone, element, Space::global);
  }
  state_->kernel.params.push_back({std::move(name), type});
  const Id id = state_->add(
      where,
      {.code = Opcode::param, .type = type, .attributes = {std::ssize(state_->kernel.params) - 1}});
  return BuilderState::array(state_.get(), id, element, Space::global);
}

namespace {
Value place(BuilderState& state, ir::Special which, const std::source_location& where) {
  return state.value(where, {.code = Opcode::special,
                             .type = Type::of(Scalar::s32),
                             .attributes = {static_cast<std::int64_t>(which)}});
}
}  // namespace
Value KernelBuilder::thread(Where where) { return place(*state_, ir::Special::thread, where); }
Value KernelBuilder::lane(Where where) { return place(*state_, ir::Special::lane, where); }
Value KernelBuilder::warp(Where where) { return place(*state_, ir::Special::warp, where); }
Value KernelBuilder::block(int axis, Where where) {
  if (axis < 0 || axis > 2)
    state_->misuse(where, fmt::format("block: expected an axis from 0 to 2, got {}", axis));
  return place(*state_,
               ir::Special(static_cast<int>(ir::Special::block_x) + std::clamp(axis, 0, 2)), where);
}
Value KernelBuilder::grid(int axis, Where where) {
  if (axis < 0 || axis > 2)
    state_->misuse(where, fmt::format("grid: expected an axis from 0 to 2, got {}", axis));
  return place(*state_, ir::Special(static_cast<int>(ir::Special::grid_x) + std::clamp(axis, 0, 2)),
               where);
}

Value KernelBuilder::constant(Scalar type, Operand number) {
  return BuilderState::make(state_.get(),
                            state_->constant(BuilderState::where(number), type, number), type);
}

Array KernelBuilder::shared(std::string name, Scalar element, std::int64_t count, Where where) {
  ir::Kernel& k = state_->kernel;
  if (count < 1 || count > (std::int64_t{1} << 20) || element == Scalar::pred) {
    state_->misuse(where, fmt::format("shared: expected 1 to 2^20 elements with bits, got {} of {}",
                                      count, lapidary::name(element)));
    return BuilderState::array(state_.get(), kNone, element, Space::shared);
  }
  k.shared.push_back({std::move(name), element, count, (k.shared_bytes() + 15) / 16 * 16});
  const Id id = state_->add(where, {.code = Opcode::shared,
                                    .type = Type::pointer(element, Space::shared),
                                    .attributes = {std::ssize(k.shared) - 1}});
  return BuilderState::array(state_.get(), id, element, Space::shared);
}

Tile KernelBuilder::tile(Scalar element, int count, Where where) {
  const Id id = state_->add(
      where, {.code = Opcode::tile, .type = Type::tile(element, count), .attributes = {count}});
  return {state_.get(), id, element, count};
}
Var KernelBuilder::var(Scalar type, Operand first) {
  const Id id = state_->add(BuilderState::where(first),
                            {.code = Opcode::tile, .type = Type::tile(type, 1), .attributes = {1}});
  Var var(state_.get(), id, type);
  var = first;
  return var;
}

void KernelBuilder::if_(Operand p, const std::function<void()>& then) {
  if_(p, then, [] {});
}
void KernelBuilder::if_(Operand p, const std::function<void()>& then,
                        const std::function<void()>& otherwise) {
  const Id condition = state_->id_of(p, Scalar::pred);
  const std::uint32_t first = state_->new_region(), second = state_->new_region();
  state_->region(first, then);
  state_->region(second, otherwise);
  state_->add(BuilderState::where(p),
              {.code = Opcode::if_, .args = {condition}, .regions = {first, second}});
}
void KernelBuilder::for_range(Operand first, Operand end, Operand step,
                              const std::function<void(Value i)>& body) {
  const Scalar type =
      BuilderState::type(first, BuilderState::type(end, BuilderState::type(step, Scalar::s32)));
  const Id from = state_->id_of(first, type), to = state_->id_of(end, type),
           by = state_->id_of(step, type);
  const std::uint32_t inner = state_->new_region();
  state_->region(inner, [&] {
    body(state_->value(BuilderState::where(end), {.code = Opcode::turn, .type = Type::of(type)}));
  });
  state_->add(BuilderState::where(end),
              {.code = Opcode::for_, .args = {from, to, by}, .regions = {inner}});
}

void KernelBuilder::barrier(Where where) {
  state_->add(where, {.code = Opcode::barrier, .attributes = {0, state_->kernel.threads}});
}
void KernelBuilder::barrier(int id, int threads, Where where) {
  if (id == 0) {
    state_->misuse(where, "barrier: expected a barrier from 1 to 15, got 0, that of all threads");
    return;
  }
  state_->add(where, {.code = Opcode::barrier, .attributes = {id, threads}});
}
void KernelBuilder::copy_async(const Array& to, const Array& from, int bytes, Operand p) {
  state_->add(BuilderState::where(p), {.code = Opcode::copy_async,
                                       .args = {state_->id_of(to, BuilderState::where(p)),
                                                state_->id_of(from, BuilderState::where(p)),
                                                state_->id_of(p, Scalar::pred)},
                                       .attributes = {bytes}});
}
void KernelBuilder::commit_copies(Where where) {
  state_->add(where, {.code = Opcode::commit_copies});
}
void KernelBuilder::wait_copies(int left, Where where) {
  state_->add(where, {.code = Opcode::wait_copies, .attributes = {left}});
}
void KernelBuilder::mma(const Tile& d, int d_first, const Tile& a, int a_first, const Tile& b,
                        int b_first, Where where) {
  state_->add(where,
              {.code = Opcode::mma,
               .args = {state_->id_of(d, where), state_->id_of(a, where), state_->id_of(b, where)},
               .attributes = {d_first, a_first, b_first}});
}
void KernelBuilder::check(Operand p, std::string message) {
  const Id condition = state_->id_of(p, Scalar::pred);
  const std::int64_t text = state_->string(std::move(message));
  state_->add(BuilderState::where(p),
              {.code = Opcode::check, .args = {condition}, .attributes = {text}});
}
void KernelBuilder::print(std::string message, const std::vector<Value>& values, Where where) {
  ir::Op op{.code = Opcode::print, .attributes = {state_->string(std::move(message))}};
  for (const Value& value : values)
    op.args.push_back(state_->id_of(Operand(value, where), Scalar::s32));
  state_->add(where, std::move(op));
}

Result<Kernel> KernelBuilder::finish() {
  if (state_->finished)
    return fail(ErrorCode::invalid_argument, "kernel {}: finish was called before", state_->name);
  if (state_->open.size() > 1)
    return fail(ErrorCode::invalid_argument, "kernel {}: finish was called in an if or a loop",
                state_->name);
  state_->settle();
  state_->finished = true;
  // Locations count up with the calls.
  std::vector<ir::Violation> wrong = std::move(state_->misuses);
  for (ir::Violation& broken : ir::verify(state_->kernel)) {
    const auto after =
        std::ranges::upper_bound(wrong, broken.location, {}, &ir::Violation::location);
    wrong.insert(after, std::move(broken));
  }
  if (wrong.empty()) return Kernel(std::make_shared<ir::Kernel>(std::move(state_->kernel)));
  std::string all;
  for (const ir::Violation& violation : wrong) {
    all += fmt::format("{}{}: {}", all.empty() ? "" : "\n",
                       ir::text(state_->kernel.locations[violation.location]), violation.message);
  }
  return Error{ErrorCode::invalid_argument, std::move(all)};
}

}  // namespace lapidary
