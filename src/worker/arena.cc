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

/// Host memory that a device's copies go to and come from.
class Pinned {
 public:
  Pinned(Mapping mapping, driver::Device& device) : mapping_(std::move(mapping)), device_(device) {
    // Not pinned it works as well, at a seventh of the speed.
    pinned_ = !device.is_host() && device.pin(mapping_.data(), mapping_.bytes()).has_value();
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned() {
    if (pinned_) device_.unpin(mapping_.data());
  }
  std::byte* data() const { return mapping_.data(); }
  std::int64_t bytes() const { return mapping_.bytes(); }

 private:
  Mapping mapping_;
  driver::Device& device_;
  bool pinned_ = false;
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

  bool disjoint = true;        // no two entries share an element
  std::uint64_t gap_hash = 0;  // of the bytes that hold no element, on a device

  std::int64_t all_bytes() const { return end - begin; }
  driver::Region elements() const {
    const std::int64_t size = size_bytes(spec.type);
    return {.row_bytes = spec.cols * size,
            .rows = spec.rows,
            .pitch_bytes = spec.pitch * size,
            .entries = spec.batch,
            .entry_bytes = spec.batch_stride * size};
  }

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
  explicit State(driver::Device& d) : device(d) {}

  driver::Device& device;
  GemmProblem problem;
  std::vector<OperandSpec> specs;
  std::vector<Buffer> buffers;  // their addresses are this process's
  std::vector<void*> host_pointers, pointers;
  double density = 0;
  std::shared_ptr<Pinned> memory;
  std::optional<driver::Memory> block;  // on a device that is not this process's memory

  bool is_host() const { return device.is_host(); }
  /// Where the device has what lies at `at` here.
  std::byte* there(const std::byte* at) const {
    return (block ? static_cast<std::byte*>(block->data()) : memory->data()) +
           (at - memory->data());
  }
  void place_pointers() {
    pointers.clear();
    host_pointers.clear();
    for (const Buffer& buffer : buffers) {
      host_pointers.push_back(buffer.first);
      pointers.push_back(there(buffer.first));
    }
  }
  Status send(const Buffer& buffer) const {
    if (is_host()) return {};
    return device.upload(there(buffer.begin), buffer.begin, buffer.all_bytes());
  }
  Status fetch(const Buffer& buffer) const {
    if (is_host()) return {};
    return device.download(buffer.begin, there(buffer.begin), buffer.all_bytes());
  }

  Result<std::uint64_t> hash_of(bool outputs) const;

  // Hashes on a device depend on where a buffer lies in the arena, not on where the arena lies.
  Result<std::uint64_t> element_hash(const Buffer& buffer) const {
    return device.hash(there(buffer.first), buffer.elements(), buffer.first - memory->data());
  }
  Result<std::uint64_t> gap_hash(const Buffer& buffer) const {
    LAPIDARY_TRY(const std::uint64_t all,
                 device.hash(there(buffer.begin), {.row_bytes = buffer.all_bytes()},
                             buffer.begin - memory->data()));
    LAPIDARY_TRY(const std::uint64_t elements, element_hash(buffer));
    return all - elements;
  }

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

  Status set(int operand, std::uint32_t bits) {
    const Buffer* chosen = &buffers[std::size_t(operand)];
    if (!is_host()) {
      LAPIDARY_TRY_STATUS(device.fill(there(chosen->first), chosen->elements(), bits,
                                      size_bytes(chosen->spec.type)));
      // The reference reads inputs here; outputs are fetched after the run that overwrites them.
      if (chosen->spec.output) return {};
    }
    chosen->restore_gaps();
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
    return {};
  }
};

Arena::Arena(std::unique_ptr<State> state) : state_(std::move(state)) {}
Arena::Arena(Arena&&) noexcept = default;
Arena& Arena::operator=(Arena&&) noexcept = default;
Arena::~Arena() = default;

Result<Arena> Arena::make(const GemmProblem& problem, driver::Device& device) {
  auto state = std::make_unique<State>(device);
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
  state->memory = std::make_shared<Pinned>(std::move(memory), device);
  if (!device.is_host()) {
    LAPIDARY_TRY(driver::Memory block, driver::Memory::make(device, total));
    state->block.emplace(std::move(block));
  }

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
    std::int64_t elements = 0;
    for (const Range& range : buffer.ranges) elements += range.end - range.begin;
    buffer.disjoint = elements == spec.rows * spec.cols * spec.batch;
    buffer.restore_gaps();
    if (!device.is_host()) {
      LAPIDARY_TRY_STATUS(state->send(buffer));
      if (buffer.disjoint) {
        LAPIDARY_TRY(buffer.gap_hash, state->gap_hash(buffer));
      }
    }
    state->buffers.push_back(std::move(buffer));
  }
  state->place_pointers();
  return Arena(std::move(state));
}

Result<Arena> Arena::clone() const {
  const State& from = *state_;
  if (from.is_host()) {
    LAPIDARY_TRY(Arena arena, make(from.problem, from.device));
    std::memcpy(arena.state_->memory->data(), from.memory->data(),
                std::size_t(from.memory->bytes()));
    return arena;
  }
  auto state = std::make_unique<State>(from.device);
  state->problem = from.problem;
  state->specs = from.specs;
  state->buffers = from.buffers;
  state->density = from.density;
  state->memory = from.memory;
  LAPIDARY_TRY(driver::Memory block, driver::Memory::make(from.device, from.memory->bytes()));
  state->block.emplace(std::move(block));
  LAPIDARY_TRY_STATUS(
      from.device.copy(state->block->data(), from.block->data(), from.memory->bytes()));
  state->place_pointers();
  return Arena(std::move(state));
}

const std::vector<OperandSpec>& Arena::specs() const { return state_->specs; }
std::span<void* const> Arena::pointers() const { return state_->pointers; }
std::span<void* const> Arena::host() const { return state_->host_pointers; }
std::int64_t Arena::bytes() const { return state_->memory->bytes(); }

int Arena::index(std::string_view operand) const {
  const auto found = std::ranges::find(state_->specs, operand, &OperandSpec::name);
  return found == state_->specs.end() ? -1 : int(found - state_->specs.begin());
}

Status Arena::fill_inputs(Fill fill, std::uint64_t seed) {
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
  for (const Buffer& buffer : state.buffers) {
    if (!buffer.spec.output) LAPIDARY_TRY_STATUS(state.send(buffer));
  }
  return {};
}

Status Arena::fill_outputs() {
  for (std::size_t i = 0; i < state_->buffers.size(); ++i) {
    if (state_->specs[i].output) LAPIDARY_TRY_STATUS(fill_nan(int(i)));
  }
  return {};
}

Status Arena::fill_nan(int operand) {
  return state_->set(operand, numeric::nan_pattern(state_->specs[std::size_t(operand)].type));
}

Status Arena::fill_zero(int operand) { return state_->set(operand, 0); }

Status Arena::poke(int operand, std::int64_t element, std::uint32_t bits) {
  const Buffer& buffer = state_->buffers[std::size_t(operand)];
  const int size = size_bytes(buffer.spec.type);
  std::memcpy(buffer.at(element), &bits, std::size_t(size));
  if (state_->is_host()) return {};
  return state_->device.upload(state_->there(buffer.at(element)), buffer.at(element), size);
}

Status Arena::copy_operand(int from, int to) {
  const OperandSpec& spec = state_->specs[std::size_t(from)];
  return state_->device.copy(state_->pointers[std::size_t(to)], state_->pointers[std::size_t(from)],
                             spec.span_elems() * size_bytes(spec.type));
}

Status Arena::fetch_outputs() {
  for (const Buffer& buffer : state_->buffers) {
    if (buffer.spec.output) LAPIDARY_TRY_STATUS(state_->fetch(buffer));
  }
  return {};
}

namespace {

/// What a guard or a gap of a buffer shows, in this process's copy.
std::optional<std::string> damage_of(const Buffer& buffer) {
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
      found = fmt::format("write {} bytes before the beginning of {}", buffer.first - change.first,
                          name);
    } else {
      const std::int64_t element = (change.first - buffer.first) / size_bytes(buffer.spec.type);
      found = fmt::format(
          "write between the rows of {}, {} elements after its first (row pitch {}, {} columns)",
          name, element, buffer.spec.pitch, buffer.spec.cols);
    }
  });
  return found;
}

}  // namespace

Status Arena::mend_outputs() {
  for (const Buffer& buffer : state_->buffers) {
    if (!buffer.spec.output) continue;
    buffer.restore_gaps();
    LAPIDARY_TRY_STATUS(state_->send(buffer));
  }
  return {};
}

Result<std::optional<std::string>> Arena::damage() {
  const State& state = *state_;
  std::optional<std::string> first;
  for (const Buffer& buffer : state.buffers) {
    if (!state.is_host()) {
      if (buffer.disjoint) {
        LAPIDARY_TRY(const std::uint64_t hash, state.gap_hash(buffer));
        if (hash == buffer.gap_hash) continue;
      }
      LAPIDARY_TRY_STATUS(state.fetch(buffer));
    }
    std::optional<std::string> found = damage_of(buffer);
    if (!found) continue;
    if (!first) first = std::move(found);
    if (state.is_host()) break;
    buffer.restore_gaps();
    LAPIDARY_TRY_STATUS(state.send(buffer));
  }
  return first;
}

Result<std::uint64_t> Arena::hash(int operand) const {
  const Buffer* chosen = &state_->buffers[std::size_t(operand)];
  if (!state_->is_host()) return state_->element_hash(*chosen);
  return state_->hash([&](const Buffer& buffer) { return &buffer == chosen; });
}

Result<std::uint64_t> Arena::State::hash_of(bool outputs) const {
  if (is_host())
    return hash([outputs](const Buffer& buffer) { return buffer.spec.output == outputs; });
  std::uint64_t sum = 0;
  for (const Buffer& buffer : buffers) {
    if (buffer.spec.output != outputs) continue;
    LAPIDARY_TRY(const std::uint64_t one, element_hash(buffer));
    sum += one;
  }
  return sum;
}

Result<std::uint64_t> Arena::hash_inputs() const { return state_->hash_of(false); }
Result<std::uint64_t> Arena::hash_outputs() const { return state_->hash_of(true); }

struct GuardedBuffer::State {
  explicit State(driver::Device& d) : device(d) {}

  driver::Device& device;
  std::string name;
  std::int64_t bytes = 0;
  Pattern pattern = guard_pattern(DType::f32);
  std::optional<Mapping> memory;
  std::optional<driver::Memory> block;
  std::uint64_t gap_hash = 0;

  std::byte* first() const { return memory->data() + first_at(); }
  std::byte* there(const std::byte* at) const {
    return (block ? static_cast<std::byte*>(block->data()) : memory->data()) +
           (at - memory->data());
  }
  Result<std::uint64_t> contents_hash() const {
    return device.hash(there(first()), {.row_bytes = bytes}, first_at());
  }
  Result<std::uint64_t> hash_of_gaps() const {
    LAPIDARY_TRY(const std::uint64_t all,
                 device.hash(there(memory->data()), {.row_bytes = memory->bytes()}, 0));
    LAPIDARY_TRY(const std::uint64_t contents, contents_hash());
    return all - contents;
  }
  std::optional<std::string> damage_here() const {
    std::byte* begin = memory->data();
    std::byte* end = first() + bytes;
    const Change before = changed(pattern, begin, begin, first());
    if (before.first != nullptr) {
      return fmt::format("write {} bytes before the beginning of the {}", first() - before.first,
                         name);
    }
    const Change after = changed(pattern, begin, end, begin + memory->bytes());
    if (after.first != nullptr)
      return fmt::format("write {} bytes past the end of the {}", after.last + 1 - end, name);
    return std::nullopt;
  }

  // Aligned as kernels are promised and no better: to 64 bytes on a CPU, to 256 on a GPU.
  std::int64_t first_at() const { return kGuardBytes + (device.is_host() ? 64 : 256); }
};

GuardedBuffer::GuardedBuffer(std::unique_ptr<State> state) : state_(std::move(state)) {}
GuardedBuffer::GuardedBuffer(GuardedBuffer&&) noexcept = default;
GuardedBuffer& GuardedBuffer::operator=(GuardedBuffer&&) noexcept = default;
GuardedBuffer::~GuardedBuffer() = default;

Result<GuardedBuffer> GuardedBuffer::make(std::string name, std::int64_t bytes,
                                          driver::Device& device) {
  auto state = std::make_unique<State>(device);
  if (bytes < 0 || bytes > std::int64_t(1) << 61) {
    return fail(ErrorCode::resource_limit, "arena: the {} of {} bytes does not fit into memory",
                name, bytes);
  }
  LAPIDARY_TRY(Mapping memory,
               Mapping::make("the " + name, round_up(bytes + 2 * state->first_at(), kAlign)));
  state->memory.emplace(std::move(memory));
  state->name = std::move(name);
  state->bytes = bytes;
  std::byte* begin = state->memory->data();
  std::byte* past = state->first() + bytes;
  std::byte* end = begin + state->memory->bytes();
  put_pattern(state->pattern, begin, begin, state->first());
  put_pattern(state->pattern, begin, past, end);
  if (!device.is_host()) {
    LAPIDARY_TRY(driver::Memory block, driver::Memory::make(device, state->memory->bytes()));
    state->block.emplace(std::move(block));
    LAPIDARY_TRY_STATUS(device.upload(state->there(begin), begin, state->first() - begin));
    LAPIDARY_TRY_STATUS(device.upload(state->there(past), past, end - past));
    LAPIDARY_TRY(state->gap_hash, state->hash_of_gaps());
  }
  return GuardedBuffer(std::move(state));
}

void* GuardedBuffer::data() const {
  return state_->bytes == 0 ? nullptr : state_->there(state_->first());
}
std::int64_t GuardedBuffer::bytes() const { return state_->bytes; }

Status GuardedBuffer::fill_garbage(std::uint64_t seed) {
  if (state_->block)
    return state_->device.fill_garbage(state_->there(state_->first()), state_->bytes, seed);
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
  return {};
}

Result<std::optional<std::string>> GuardedBuffer::damage() {
  if (state_->block) {
    LAPIDARY_TRY(const std::uint64_t hash, state_->hash_of_gaps());
    if (hash == state_->gap_hash) return std::optional<std::string>();
    LAPIDARY_TRY_STATUS(state_->device.download(state_->memory->data(), state_->block->data(),
                                                state_->memory->bytes()));
  }
  return state_->damage_here();
}

Result<std::uint64_t> GuardedBuffer::hash() const {
  if (state_->block) return state_->contents_hash();
  return hash64({state_->first(), std::size_t(state_->bytes)});
}

}  // namespace lapidary::worker
