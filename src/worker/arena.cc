#include "worker/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "numeric/numeric.h"
#include "support/files.h"
#include "support/hash.h"
#include "support/parallel.h"
#include "support/random.h"

namespace lapidary::worker {
namespace {

constexpr std::int64_t kGuardBytes = 4096, kAlign = 256;
constexpr std::int64_t kPiece = 1 << 16;  // elements that one thread fills or hashes at a time

std::int64_t round_up(std::int64_t x, std::int64_t to) { return (x + to - 1) / to * to; }

/// Guard bytes by position modulo 256: at every element a NaN of the type, and no two neighbours
/// alike, so that neither a shifted copy of a guard nor a constant fill passes for it.
using Pattern = std::array<std::uint8_t, 512>;

Pattern guard_pattern(DType type) {
  Pattern pattern{};
  const int size = size_bytes(type);
  for (int i = 0; i < 256; i += size) {
    const std::uint64_t r = mix(0x6775617264, std::uint64_t(i));
    std::uint32_t bits = 0;
    switch (type) {
      case DType::f32:
        bits = 0x7f800001u | (r & 0x807ffffe);
        break;
      case DType::bf16:
        bits = 0x7f81u | (r & 0x807e);
        break;
      case DType::f16:
        bits = 0x7c01u | (r & 0x83fe);
        break;
      case DType::e4m3:
        bits = 0x7fu | (r & 0x80);
        break;
      case DType::e5m2:
        bits = 0x7du | (r & 0x82);
        break;
    }
    std::memcpy(&pattern[std::size_t(i)], &bits, std::size_t(size));
  }
  std::copy_n(pattern.begin(), 256, pattern.begin() + 256);
  return pattern;
}

void put_pattern(const Pattern& pattern, std::byte* base, std::byte* begin, std::byte* end) {
  while (begin < end) {
    const auto phase = std::size_t(begin - base) % 256;
    const auto count = std::min<std::size_t>(256, std::size_t(end - begin));
    std::memcpy(begin, &pattern[phase], count);
    begin += count;
  }
}

struct Change {
  std::byte *first = nullptr, *last = nullptr;  // the first and the last changed byte
};

Change changed(const Pattern& pattern, std::byte* base, std::byte* begin, std::byte* end) {
  Change change;
  for (std::byte* at = begin; at < end;) {
    const auto phase = std::size_t(at - base) % 256;
    const auto count = std::min<std::size_t>(256, std::size_t(end - at));
    if (std::memcmp(at, &pattern[phase], count) != 0) {
      for (std::size_t i = 0; i < count; ++i) {
        if (at[i] == std::byte(pattern[phase + i])) continue;
        if (change.first == nullptr) change.first = at + i;
        change.last = at + i;
      }
    }
    at += count;
  }
  return change;
}

/// Bytes that the system can still give; a large number when it does not say.
std::int64_t available_bytes() {
  const auto text = read_file("/proc/meminfo");
  if (!text) return std::int64_t(1) << 62;
  const auto at = text->find("MemAvailable:");
  if (at == std::string::npos) return std::int64_t(1) << 62;
  return std::strtoll(text->c_str() + at + 13, nullptr, 10) * 1024;
}

/// Anonymous memory, zero until written.
class Mapping {
 public:
  static Result<Mapping> make(std::string_view what, std::int64_t bytes) {
    const std::int64_t available = available_bytes();
    void* memory = bytes <= available ? mmap(nullptr, std::size_t(bytes), PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                      : MAP_FAILED;
    if (memory == MAP_FAILED) {
      return fail(
          ErrorCode::resource_limit,
          "arena: {} need {} bytes of memory and {} are available; make the problem smaller", what,
          bytes, available);
    }
    // Large pages where the system has them: filling a gigabyte would fault 262144 times otherwise.
    madvise(memory, std::size_t(bytes), MADV_HUGEPAGE);
    return Mapping(static_cast<std::byte*>(memory), bytes);
  }
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping() {
    if (data_ != nullptr) munmap(data_, std::size_t(bytes_));
  }
  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  Mapping(std::byte* data, std::int64_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* data_;
  std::int64_t bytes_;
};

/// Elements [begin, end) of an operand's storage, counted from element (0,0).
struct Range {
  std::int64_t begin, end;
};

/// The ranges that hold elements, in order and merged: one where storage is dense. The gaps between
/// them belong to nobody. Batch entries may interleave (a stride below the pitch) or overlap.
std::vector<Range> element_ranges(const OperandSpec& spec) {
  std::vector<Range> ranges;
  if (spec.rows <= 0 || spec.cols <= 0 || spec.batch <= 0) return ranges;
  const bool rows_touch = spec.pitch == spec.cols || spec.rows == 1;
  for (std::int64_t i = 0; i < spec.batch; ++i) {
    const std::int64_t at = i * spec.batch_stride;
    if (rows_touch) {
      ranges.push_back({at, at + spec.rows * spec.cols});
      continue;
    }
    for (std::int64_t r = 0; r < spec.rows; ++r)
      ranges.push_back({at + r * spec.pitch, at + r * spec.pitch + spec.cols});
  }
  const auto begins_earlier = [](const Range& x, const Range& y) { return x.begin < y.begin; };
  if (!std::ranges::is_sorted(ranges, begins_earlier)) std::ranges::sort(ranges, begins_earlier);
  std::vector<Range> merged;
  for (const Range& range : ranges) {
    if (!merged.empty() && range.begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, range.end);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

enum class Kind { matrix, positive, plain };  // A and B; scales, scalars and divisors; other inputs

struct Buffer {
  OperandSpec spec;
  Kind kind = Kind::plain;
  std::vector<Range> ranges;  // of elements
  std::vector<Range> pieces;  // the same, cut for threads
  Pattern pattern{};
  std::byte *begin = nullptr, *base = nullptr, *first = nullptr,
            *end = nullptr;  // guard, aligned, (0,0), after guard

  std::byte* at(std::int64_t element) const { return first + element * size_bytes(spec.type); }
  std::byte* past() const { return at(ranges.empty() ? 0 : ranges.back().end); }

  /// Calls visit(begin, end) for every stretch of bytes that holds no element.
  template <class Visit>
  void each_gap(const Visit& visit) const {
    std::byte* from = begin;
    for (const Range& range : ranges) {
      visit(from, at(range.begin));
      from = at(range.end);
    }
    visit(from, end);
  }
  void restore_gaps() const {
    each_gap([&](std::byte* from, std::byte* to) { put_pattern(pattern, base, from, to); });
  }
};

/// Operands that make everything else large, small or undefined when they are near zero.
std::vector<bool> divisors(const Epilogue& epilogue) {
  std::vector<bool> found(epilogue.inputs.size());
  for (const EpilogueNode& node : epilogue.nodes) {
    if (node.op != EpilogueOp::div) continue;
    const EpilogueNode& by = epilogue.nodes[std::size_t(node.args[1])];
    if (by.op == EpilogueOp::operand) found[std::size_t(by.symbol)] = true;
  }
  return found;
}

Kind kind_of(const GemmProblem& problem, const OperandSpec& spec,
             const std::vector<bool>& divides) {
  if (spec.name == "a" || spec.name == "b") return Kind::matrix;
  if (spec.axes == Axes::none || spec.name.starts_with("scale")) return Kind::positive;
  for (std::size_t i = 0; i < problem.epilogue.inputs.size(); ++i) {
    if (problem.epilogue.inputs[i].name == spec.name && divides[i]) return Kind::positive;
  }
  return Kind::plain;
}

constexpr std::int64_t kStep = 1024;  // elements made at a time; they stay in the first-level cache

/// 16 random bits for each of the elements [begin, begin + count): four from one 64-bit word.
void random_bits(std::uint64_t seed, std::int64_t begin, std::int64_t count, std::uint16_t* out) {
  std::int64_t i = 0;
  const auto single = [&](std::int64_t element) {
    return std::uint16_t(mix(seed, std::uint64_t(element >> 2)) >> (16 * (element & 3)));
  };
  for (; i < count && ((begin + i) & 3) != 0; ++i) out[i] = single(begin + i);
  for (; i + 4 <= count; i += 4) {
    const std::uint64_t word = mix(seed, std::uint64_t((begin + i) >> 2));
    std::memcpy(out + i, &word, sizeof word);
  }
  for (; i < count; ++i) out[i] = single(begin + i);
}

/// [-1, 1), or [0.5, 2). 16 bits are more than any type but f32 resolves; f32 (`wide`) takes 25.
void uniform_values(std::uint64_t seed, std::int64_t begin, std::int64_t count, bool wide,
                    bool positive, float* out) {
  if (wide) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t element = begin + i;
      const std::uint64_t word = mix(seed, std::uint64_t(element >> 1));
      out[i] = uniform((element & 1) != 0 ? word << 32 : word);
    }
  } else {
    std::array<std::uint16_t, kStep> bits;
    random_bits(seed, begin, count, bits.data());
    for (std::int64_t i = 0; i < count; ++i)
      out[i] = float(std::int16_t(bits[std::size_t(i)])) * 0x1p-15f;
  }
  if (positive) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = 1.25f + 0.75f * out[i];
  }
}

/// {-1, 0, 1}: the low 15 of an element's 16 bits say whether it is zero, the top one its sign.
void ternary_values(std::uint64_t seed, std::int64_t begin, std::int64_t count, double density,
                    float* out) {
  const auto threshold = std::int32_t(std::lround(density * 32768));
  std::array<std::uint16_t, kStep> bits;
  random_bits(seed, begin, count, bits.data());
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t r = bits[std::size_t(i)];
    out[i] = float(std::int32_t((r & 0x7fff) < threshold) * (1 - (r >> 14 & 2)));
  }
}

void small_values(std::uint64_t seed, std::int64_t begin, std::int64_t count, bool positive,
                  bool halves, float* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t r = mix(seed, std::uint64_t(begin + i)) >> 32;
    if (!positive) {
      out[i] = float(int(r % 7) - 3);
    } else {
      out[i] = halves ? std::ldexp(1.0f, int(r % 3) - 1) : std::ldexp(1.0f, int(r % 2));
    }
  }
}

}  // namespace

double integer_density(const GemmProblem& problem) {
  double limit = 0x1p24;
  const std::vector<OperandSpec> specs = operands(problem);
  for (const OperandSpec& spec : specs) {
    if (spec.name == "d") limit = double(numeric::max_exact_integer(spec.type));
  }
  // The scales of a block are 1 or 2, so terms are integers up to 4.
  if (problem.scales == ScaleMode::block) limit /= 16;
  for (const EpilogueNode& node : problem.epilogue.nodes) {
    switch (node.op) {
      case EpilogueOp::exp:
      case EpilogueOp::log:
      case EpilogueOp::sqrt:
      case EpilogueOp::rsqrt:
      case EpilogueOp::tanh:
      case EpilogueOp::erf:
      case EpilogueOp::sigmoid:
      case EpilogueOp::gelu:
      case EpilogueOp::gelu_tanh:
      case EpilogueOp::silu:
      case EpilogueOp::softplus:
      case EpilogueOp::dgelu:
      case EpilogueOp::dgelu_tanh:
      case EpilogueOp::dsilu:
        limit = std::min(limit, 14.0);
        break;
      default:
        break;
    }
  }
  const double k = std::max<double>(1.0, double(problem.k));
  double products = limit * limit / (49 * k);
  const auto magnitudes_within = [&](double most) {
    products = std::min(products, 0.6 * most / k);
  };
  if (problem.numerics.f16_acc) magnitudes_within(2048);
  if (problem.numerics.fast_fp8) magnitudes_within(4096);
  return std::min(std::sqrt(products), 0.7);
}

struct Arena::State {
  GemmProblem problem;
  std::vector<OperandSpec> specs;
  std::vector<Buffer> buffers;
  std::vector<void*> pointers;
  double density = 0;
  std::optional<Mapping> memory;

  /// Calls work(buffer, piece) for the pieces of the chosen buffers, in parallel.
  template <class Choose, class Work>
  void each_piece(const Choose& choose, const Work& work) const {
    struct Task {
      const Buffer* buffer;
      Range range;
    };
    std::vector<Task> tasks;
    for (const Buffer& buffer : buffers) {
      if (!choose(buffer)) continue;
      for (const Range& range : buffer.pieces) tasks.push_back({&buffer, range});
    }
    // Many short rows are one task, one long row is several.
    const std::int64_t total = std::int64_t(tasks.size());
    const std::int64_t grain = std::max<std::int64_t>(1, total / (8 * shared_pool().threads()));
    shared_pool().each(total, std::min<std::int64_t>(grain, 64),
                       [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t i = begin; i < end; ++i)
                           work(*tasks[std::size_t(i)].buffer, tasks[std::size_t(i)].range, i);
                       });
  }

  template <class Choose>
  std::uint64_t hash(const Choose& choose) const {
    std::size_t count = 0;
    for (const Buffer& buffer : buffers) count += choose(buffer) ? buffer.pieces.size() : 0;
    std::vector<std::uint64_t> hashes(count);
    each_piece(choose, [&](const Buffer& buffer, Range range, std::int64_t i) {
      const auto bytes =
          std::size_t(range.end - range.begin) * std::size_t(size_bytes(buffer.spec.type));
      hashes[std::size_t(i)] = hash64(std::span<const std::byte>(buffer.at(range.begin), bytes));
    });
    return hash64(std::as_bytes(std::span<const std::uint64_t>(hashes)));
  }

  void set(int operand, std::uint32_t bits) {
    const Buffer* chosen = &buffers[std::size_t(operand)];
    each_piece([&](const Buffer& buffer) { return &buffer == chosen; },
               [&](const Buffer& buffer, Range range, std::int64_t) {
                 const std::int64_t count = range.end - range.begin;
                 std::byte* at = buffer.at(range.begin);
                 switch (size_bytes(buffer.spec.type)) {
                   case 1:
                     std::fill_n(reinterpret_cast<std::uint8_t*>(at), count, std::uint8_t(bits));
                     break;
                   case 2:
                     std::fill_n(reinterpret_cast<std::uint16_t*>(at), count, std::uint16_t(bits));
                     break;
                   default:
                     std::fill_n(reinterpret_cast<std::uint32_t*>(at), count, bits);
                     break;
                 }
               });
  }
};

Arena::Arena(std::unique_ptr<State> state) : state_(std::move(state)) {}
Arena::Arena(Arena&&) noexcept = default;
Arena& Arena::operator=(Arena&&) noexcept = default;
Arena::~Arena() = default;

Result<Arena> Arena::make(const GemmProblem& problem) {
  auto state = std::make_unique<State>();
  state->problem = problem;
  state->specs = operands(problem);
  state->density = integer_density(problem);
  const std::vector<bool> divides = divisors(problem.epilogue);

  std::int64_t total = 0;
  std::vector<std::int64_t> bases;
  for (const OperandSpec& spec : state->specs) {
    bases.push_back(total + kGuardBytes);
    // Sizes may be up to 2^62: stop before the sum overflows.
    if (spec.bytes() > (std::int64_t(1) << 61) - total) {
      return fail(ErrorCode::resource_limit,
                  "arena: the operands of the problem need more than 2^61 bytes of memory; make it "
                  "smaller");
    }
    total += round_up(2 * kGuardBytes + spec.bytes(), kAlign);
  }
  LAPIDARY_TRY(Mapping memory, Mapping::make("the operands of the problem", total));
  state->memory.emplace(std::move(memory));

  for (std::size_t i = 0; i < state->specs.size(); ++i) {
    const OperandSpec& spec = state->specs[i];
    Buffer buffer;
    buffer.spec = spec;
    buffer.kind = kind_of(problem, spec, divides);
    buffer.ranges = element_ranges(spec);
    for (const Range& range : buffer.ranges) {
      for (std::int64_t at = range.begin; at < range.end; at += kPiece) {
        buffer.pieces.push_back({at, std::min(at + kPiece, range.end)});
      }
    }
    buffer.pattern = guard_pattern(spec.type);
    buffer.base = state->memory->data() + bases[i];
    buffer.begin = buffer.base - kGuardBytes;
    buffer.first = buffer.base + spec.offset_bytes;
    buffer.end = buffer.begin + round_up(2 * kGuardBytes + spec.bytes(), kAlign);
    buffer.restore_gaps();
    state->pointers.push_back(buffer.first);
    state->buffers.push_back(std::move(buffer));
  }
  return Arena(std::move(state));
}

const std::vector<OperandSpec>& Arena::specs() const { return state_->specs; }
std::span<void* const> Arena::pointers() const { return state_->pointers; }
std::int64_t Arena::bytes() const { return state_->memory->bytes(); }

int Arena::index(std::string_view operand) const {
  const auto found = std::ranges::find(state_->specs, operand, &OperandSpec::name);
  return found == state_->specs.end() ? -1 : int(found - state_->specs.begin());
}

void Arena::fill_inputs(Fill fill, std::uint64_t seed) {
  State& state = *state_;
  for (const Buffer& buffer : state.buffers) {
    if (!buffer.spec.output) buffer.restore_gaps();
  }
  const bool block = state.problem.scales == ScaleMode::block;
  state.each_piece([](const Buffer& buffer) { return !buffer.spec.output; },
                   [&](const Buffer& buffer, Range range, std::int64_t) {
                     const auto place = std::uint64_t(&buffer - state.buffers.data());
                     const std::uint64_t own = mix(mix(seed, std::uint64_t(fill)), place);
                     const bool block_scale =
                         block && (buffer.spec.name == "scale_a" || buffer.spec.name == "scale_b");
                     std::array<float, kStep> values;
                     for (std::int64_t at = range.begin; at < range.end; at += kStep) {
                       const std::int64_t count = std::min(kStep, range.end - at);
                       if (fill == Fill::uniform) {
                         uniform_values(own, at, count, buffer.spec.type == DType::f32,
                                        buffer.kind == Kind::positive, values.data());
                       } else if (buffer.kind == Kind::matrix) {
                         ternary_values(own, at, count, state.density, values.data());
                       } else {
                         small_values(own, at, count, buffer.kind == Kind::positive, !block_scale,
                                      values.data());
                       }
                       numeric::narrow(buffer.spec.type, values.data(), count, buffer.at(at));
                     }
                   });
}

void Arena::fill_outputs() {
  for (std::size_t i = 0; i < state_->buffers.size(); ++i) {
    if (state_->specs[i].output) fill_nan(int(i));
  }
}

void Arena::fill_nan(int operand) {
  const Buffer& buffer = state_->buffers[std::size_t(operand)];
  buffer.restore_gaps();
  state_->set(operand, numeric::nan_pattern(buffer.spec.type));
}

void Arena::fill_zero(int operand) {
  state_->buffers[std::size_t(operand)].restore_gaps();
  state_->set(operand, 0);
}

std::optional<std::string> Arena::damage() const {
  for (const Buffer& buffer : state_->buffers) {
    std::optional<std::string> found;
    buffer.each_gap([&](std::byte* from, std::byte* to) {
      if (found) return;
      const Change change = changed(buffer.pattern, buffer.base, from, to);
      if (change.first == nullptr) return;
      const std::string& name = buffer.spec.name;
      if (change.first >= buffer.past()) {
        found =
            fmt::format("write {} bytes past the end of {}", change.last + 1 - buffer.past(), name);
      } else if (change.last < buffer.first) {
        found = fmt::format("write {} bytes before the beginning of {}",
                            buffer.first - change.first, name);
      } else {
        const std::int64_t element = (change.first - buffer.first) / size_bytes(buffer.spec.type);
        found = fmt::format(
            "write between the rows of {}, {} elements after its first (row pitch {}, {} columns)",
            name, element, buffer.spec.pitch, buffer.spec.cols);
      }
    });
    if (found) return found;
  }
  return std::nullopt;
}

std::uint64_t Arena::hash(int operand) const {
  const Buffer* chosen = &state_->buffers[std::size_t(operand)];
  return state_->hash([&](const Buffer& buffer) { return &buffer == chosen; });
}

std::uint64_t Arena::hash_inputs() const {
  return state_->hash([](const Buffer& buffer) { return !buffer.spec.output; });
}

std::uint64_t Arena::hash_outputs() const {
  return state_->hash([](const Buffer& buffer) { return buffer.spec.output; });
}

struct GuardedBuffer::State {
  std::string name;
  std::int64_t bytes = 0;
  Pattern pattern = guard_pattern(DType::f32);
  std::optional<Mapping> memory;
  std::byte* first() const { return memory->data() + kGuardBytes + 64; }
};

GuardedBuffer::GuardedBuffer(std::unique_ptr<State> state) : state_(std::move(state)) {}
GuardedBuffer::GuardedBuffer(GuardedBuffer&&) noexcept = default;
GuardedBuffer& GuardedBuffer::operator=(GuardedBuffer&&) noexcept = default;
GuardedBuffer::~GuardedBuffer() = default;

Result<GuardedBuffer> GuardedBuffer::make(std::string name, std::int64_t bytes) {
  auto state = std::make_unique<State>();
  if (bytes < 0 || bytes > std::int64_t(1) << 61) {
    return fail(ErrorCode::resource_limit, "arena: the {} of {} bytes does not fit into memory",
                name, bytes);
  }
  LAPIDARY_TRY(Mapping memory,
               Mapping::make("the " + name, round_up(bytes + 2 * kGuardBytes + 64, kAlign)));
  state->memory.emplace(std::move(memory));
  state->name = std::move(name);
  state->bytes = bytes;
  std::byte* begin = state->memory->data();
  put_pattern(state->pattern, begin, begin, state->first());
  put_pattern(state->pattern, begin, state->first() + bytes, begin + state->memory->bytes());
  return GuardedBuffer(std::move(state));
}

void* GuardedBuffer::data() const { return state_->bytes == 0 ? nullptr : state_->first(); }
std::int64_t GuardedBuffer::bytes() const { return state_->bytes; }

void GuardedBuffer::fill_garbage(std::uint64_t seed) {
  std::byte* first = state_->first();
  const std::int64_t words = (state_->bytes + 7) / 8;
  shared_pool().each(words, kPiece, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::uint64_t word = mix(seed, std::uint64_t(i));
      // A run of ones in every other word: a NaN whatever the type and wherever it begins.
      if ((i & 1) != 0) word = ~std::uint64_t(0);
      std::memcpy(first + 8 * i, &word,
                  std::size_t(std::min<std::int64_t>(8, state_->bytes - 8 * i)));
    }
  });
}

std::optional<std::string> GuardedBuffer::damage() const {
  std::byte* begin = state_->memory->data();
  std::byte* end = state_->first() + state_->bytes;
  const Change before = changed(state_->pattern, begin, begin, state_->first());
  if (before.first != nullptr) {
    return fmt::format("write {} bytes before the beginning of the {}",
                       state_->first() - before.first, state_->name);
  }
  const Change after = changed(state_->pattern, begin, end, begin + state_->memory->bytes());
  if (after.first != nullptr)
    return fmt::format("write {} bytes past the end of the {}", after.last + 1 - end, state_->name);
  return std::nullopt;
}

}  // namespace lapidary::worker
