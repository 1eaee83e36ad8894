#include "worker/verify.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>

#include "numeric/numeric.h"
#include "reference/integer.h"
#include "support/hash.h"
#include "support/parallel.h"
#include "support/random.h"
#include "support/text.h"
#include "worker/arena.h"
#include "worker/verify_data.h"
#include "worker/verify_expect.h"
#include "worker/verify_memory.h"

namespace lapidary::worker {
namespace {

constexpr std::int64_t kSampledLines = 64;

/// Runs at least that the watch for leaks sees, of a quick kernel and of any; and for how long it
/// may ask for more.
constexpr int kQuickRuns = 12, kRuns = 4;
constexpr double kQuickSeconds = 0.01, kLeakSeconds = 3;

/// NaN, infinity or neither, of an element, hashed over the columns of a row that are not left out.
std::uint64_t class_hash(const OperandSpec& spec, const std::byte* row,
                         const std::vector<bool>& left_out) {
  std::array<float, 256> values;
  std::uint64_t hash = 0;
  for (std::int64_t from = 0; from < spec.cols; from += 256) {
    const std::int64_t count = std::min<std::int64_t>(256, spec.cols - from);
    numeric::widen(spec.type, row + from * size_bytes(spec.type), count, values.data());
    for (std::int64_t i = 0; i < count; ++i) {
      const float x = values[std::size_t(i)];
      if (std::isfinite(x) || left_out[std::size_t(from + i)]) continue;
      hash += mix(std::isnan(x) ? 1 : x > 0 ? 2 : 3, std::uint64_t(from + i));
    }
  }
  return hash;
}

}  // namespace

std::string_view name(Check check) {
  switch (check) {
    case Check::guards:
      return "guards";
    case Check::fill:
      return "fill";
    case Check::inputs:
      return "inputs";
    case Check::exact:
      return "exact";
    case Check::whole:
      return "whole";
    case Check::numeric:
      return "numeric";
    case Check::position:
      return "position";
    case Check::repeat:
      return "repeat";
    case Check::zero_factor:
      return "zero_factor";
    case Check::leak:
      return "leak";
  }
  return "?";
}

std::string reproduction(const GemmProblem& problem, std::uint64_t seed) {
  // The canonical text is compact JSON whose keys are the flags' names: "key":value, value a
  // number, a string, a list of strings or, for types, an object of strings. None of the strings
  // holds a quote or a backslash.
  const std::string json = text(problem);
  std::string command = "lapidary tune";
  std::size_t at = 1;
  const auto quoted = [&] {
    const std::size_t end = json.find('"', at + 1);
    std::string word = json.substr(at + 1, end - at - 1);
    at = end + 1;
    return word;
  };
  const auto shell = [](const std::string& word) {
    const bool plain = std::ranges::all_of(word, [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_=,.:-", c) != nullptr;
    });
    return plain && !word.empty() ? word : "'" + word + "'";
  };
  while (at < json.size() && json[at] == '"') {
    const std::string key = quoted();
    ++at;  // the colon
    std::string value;
    if (json[at] == '"') {
      value = quoted();
    } else if (json[at] == '[' || json[at] == '{') {
      const char close = json[at] == '[' ? ']' : '}';
      ++at;
      while (at < json.size() && json[at] != close) {
        if (json[at] == '"')
          value += quoted();
        else
          value += json[at++] == ':' ? '=' : ',';
      }
      ++at;
    } else {
      const std::size_t end = json.find_first_of(",}", at);
      value = json.substr(at, end - at);
      at = end;
    }
    command += fmt::format(" --{} {}", key == "types" ? "type" : key, shell(value));
    ++at;  // the comma
  }
  return fmt::format("{} --retune --verify-seed {}", command, seed);
}

struct Verifier::State {
  driver::Device& device;
  GemmProblem problem;
  VerifyOptions options;
  Arena arena;
  std::vector<OperandSpec> specs, outputs;
  std::vector<PositionRound> rounds;
  std::vector<ZeroFactor> factors;
  bool overlapping = false;  // batch entries of an input share elements

  // What is known of the problem's data, made when first needed.
  std::int64_t budget = 0;
  std::optional<Expectation> exact, whole, numeric;
  std::vector<std::optional<Expectation>> positions, zeros;
  KnownLines exact_lines;
  std::map<std::int64_t, reference::Freivalds> freivalds;  // by batch entry
  std::map<std::int64_t, reference::TernaryProduct> products;
  std::vector<std::vector<std::uint64_t>> proof;  // of the products of `whole`, by entry
  std::vector<std::uint64_t> input_hashes;
  std::string contents;  // what the arena's inputs hold

  // Of the candidate at hand.
  const backends::Executable* executable = nullptr;
  std::optional<GuardedBuffer> workspace, packed;
  std::uint64_t packed_hash = 0, runs = 0;
  double run_seconds = 0;
  LeakWatch leaks;
  std::optional<Verdict> failed;

  State(driver::Device& d, GemmProblem p, VerifyOptions o, Arena a)
      : device(d), problem(std::move(p)), options(std::move(o)), arena(std::move(a)) {}

  bool on(Check check) const { return (options.checks & std::uint32_t(check)) != 0; }
  void beat(std::string_view step) const {
    if (options.beat) options.beat(step);
  }
  std::function<void()> progress(std::string step) const {
    return [this, words = std::move(step)] { beat(words); };
  }

  void fail_check(Check check, std::string_view pass, std::string_view what) {
    failed = Verdict{false, std::string(name(check)),
                     fmt::format("{}, with {}; seed {}; {}", what, pass, options.seed,
                                 reproduction(problem, options.seed))};
  }
  void judge(Check check, std::string_view pass, const Findings& findings) {
    if (findings.first()) fail_check(check, pass, findings.text(outputs));
  }

  // -- data and runs

  /// Fills the inputs unless they hold these contents already. `seed` tells fills of one kind
  /// apart.
  Status fill(const std::string& what, Fill kind, std::uint64_t seed) {
    if (contents == what) return {};
    beat("filling inputs");
    LAPIDARY_TRY_STATUS(arena.fill_inputs(kind, mix(options.seed, seed)));
    contents = what;
    return note_inputs();
  }
  Status note_inputs() {
    if (!on(Check::inputs)) return {};
    input_hashes.assign(specs.size(), 0);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].output) continue;
      LAPIDARY_TRY(input_hashes[i], arena.hash(int(i)));
    }
    return {};
  }
  /// Puts a value into an input's element and returns the one before.
  Result<float> exchange(const Plant& plant, float value) {
    const OperandSpec& spec = specs[std::size_t(plant.operand)];
    const void* base = arena.host()[std::size_t(plant.operand)];
    const std::int64_t element = element_of(spec, plant.entry, plant.row, plant.col);
    const float before = numeric::load(spec.type, base, element);
    // Not a store of an epilogue, which would saturate: an e5m2 infinity is meant.
    LAPIDARY_TRY_STATUS(arena.poke(
        plant.operand, element, numeric::from_f32(spec.type, value, numeric::Overflow::infinity)));
    return before;
  }

  backends::Arguments arguments(std::span<void* const> operands) const {
    return {.operands = operands,
            .workspace = workspace->data(),
            .packed = packed->data(),
            .stream = device.stream()};
  }

  /// Constant operands must be packed again whenever the data change.
  Status pack() {
    LAPIDARY_TRY_STATUS(packed->fill_garbage(mix(options.seed, 1000 + runs)));
    beat("pack");
    LAPIDARY_TRY_STATUS(executable->pack(arguments(arena.pointers())));
    LAPIDARY_TRY_STATUS(device.synchronize());
    LAPIDARY_TRY(packed_hash, packed->hash());
    return {};
  }

  Status clear_outputs() {
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (!specs[i].output) continue;
      LAPIDARY_TRY_STATUS(on(Check::fill) ? arena.fill_nan(int(i)) : arena.fill_zero(int(i)));
    }
    return {};
  }

  /// One run on cleared outputs, and what must hold after every run.
  Status run(std::string_view pass) {
    LAPIDARY_TRY_STATUS(clear_outputs());
    return run_on(pass, arena.pointers());
  }
  Status run_on(std::string_view pass, std::span<void* const> operands) {
    LAPIDARY_TRY_STATUS(workspace->fill_garbage(mix(options.seed, 2000 + runs++)));
    beat(fmt::format("run with {}", pass));
    LAPIDARY_TRY(const Holdings before, holdings());
    const auto start = std::chrono::steady_clock::now();
    LAPIDARY_TRY_STATUS(executable->run(arguments(operands)));
    LAPIDARY_TRY_STATUS(device.synchronize());
    run_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    LAPIDARY_TRY(const Holdings after, holdings());
    if (on(Check::leak)) leaks.note(before, after);
    beat(fmt::format("checking after a run with {}", pass));
    if (on(Check::guards)) {
      LAPIDARY_TRY(std::optional<std::string> damage, arena.damage());
      for (GuardedBuffer* buffer : {&*workspace, &*packed}) {
        if (damage) break;
        LAPIDARY_TRY(damage, buffer->damage());
      }
      if (damage) {
        fail_check(Check::guards, pass, *damage);
        return {};
      }
    }
    if (on(Check::inputs)) {
      for (std::size_t i = 0; i < specs.size(); ++i) {
        if (specs[i].output) continue;
        LAPIDARY_TRY(const std::uint64_t hash, arena.hash(int(i)));
        if (hash == input_hashes[i]) continue;
        fail_check(Check::inputs, pass, fmt::format("operand {} has changed", specs[i].name));
        return {};
      }
      LAPIDARY_TRY(const std::uint64_t hash, packed->hash());
      if (hash != packed_hash) fail_check(Check::inputs, pass, "the packed operands have changed");
    }
    return {};
  }
  Result<Holdings> holdings() {
    if (!on(Check::leak)) return Holdings{};
    return Holdings::now(device);
  }

  // -- the passes, in order

  Status small_integers() {
    const bool wants_classes =
        on(Check::position) && !overlapping && !problem.numerics.nondeterministic &&
        std::ranges::any_of(
            rounds, [this](const PositionRound& round) { return !is_everything(round.samples); });
    if (!on(Check::exact) && !on(Check::whole) && !wants_classes) return {};
    LAPIDARY_TRY_STATUS(fill("integers", Fill::integers, 1));
    LAPIDARY_TRY_STATUS(pack());
    LAPIDARY_TRY_STATUS(run("small integers"));
    if (failed) return {};
    LAPIDARY_TRY_STATUS(compare_integers("small integers"));
    if (!failed && wants_classes) note_classes();
    return {};
  }

  /// Leaves the outputs in arena.host().
  Status compare_integers(const std::string& pass) {
    LAPIDARY_TRY_STATUS(arena.fetch_outputs());
    if (on(Check::exact)) {
      Findings findings;
      exact->compare(arena.host(), arena.host(), progress(pass + ": reference rows"), findings);
      judge(Check::exact, pass, findings);
    }
    if (!failed && on(Check::whole)) LAPIDARY_TRY_STATUS(compare_whole(pass));
    return {};
  }

  /// Operands that may share memory do: D's memory holds C at first.
  Status shared_memory() {
    if (problem.alias.empty() || (!on(Check::exact) && !on(Check::whole))) return {};
    std::vector<void*> operands(arena.pointers().begin(), arena.pointers().end());
    std::string pass = "small integers and";
    LAPIDARY_TRY_STATUS(clear_outputs());
    for (const std::string& pair : problem.alias) {
      const auto sides = split(pair, '=');
      const int input = arena.index(sides[0]), output = arena.index(sides[1]);
      LAPIDARY_TRY_STATUS(arena.copy_operand(input, output));
      operands[std::size_t(input)] = operands[std::size_t(output)];
      pass += fmt::format(" {} in the memory of {}", sides[0], sides[1]);
    }
    LAPIDARY_TRY_STATUS(run_on(pass, operands));
    if (!failed) LAPIDARY_TRY_STATUS(compare_integers(pass));
    return {};
  }

  Status compare_whole(const std::string& pass) {
    if (is_identity(problem.epilogue)) return compare_by_freivalds(pass);
    // The unfused pair: exact sums, proved, and the program element by element.
    bool proving = proof.empty();
    if (proving) proof.resize(std::size_t(problem.batch));
    Findings findings;
    // An Expectation asks for a source when it evaluates an entry; the products live until the next
    // entry's.
    Status made;
    product_error = {};
    whole->compare(arena.host(), arena.host(), progress(pass + ": whole result"), findings,
                   &exact_lines);
    if (!product_error) return product_error;
    for (std::size_t entry = 0; proving && entry < proof.size(); ++entry) {
      if (proof[entry].empty()) continue;  // kept from before, or the program does not read acc
      const auto found = freivalds.find(std::int64_t(entry));
      if (found != freivalds.end() && !found->second.wrong_rows(proof[entry]).empty()) {
        return fail(ErrorCode::internal,
                    "verify: our own product of small integers fails its check in row {}",
                    found->second.wrong_rows(proof[entry]).front());
      }
    }
    judge(Check::whole, pass, findings);
    return {};
  }
  Status product_error;

  /// Exact accumulators of an entry, by bit planes, every tile of which goes into the entry's
  /// proof.
  decltype(reference::Request::exact_sums) exact_sums(std::int64_t entry) {
    if (!products.contains(entry)) {
      products.clear();  // one entry's planes at a time
      auto product = reference::TernaryProduct::make(problem, arena.host(), entry,
                                                     progress("small integers: bit planes"));
      if (!product) {
        product_error = product.error();
        return {};
      }
      products.emplace(entry, std::move(*product));
    }
    if (const Status made = make_freivalds(entry); !made) {
      product_error = made;
      return {};
    }
    std::vector<std::uint64_t>& sums = proof[std::size_t(entry)];
    sums.assign(std::size_t(problem.m), 0);
    const reference::TernaryProduct* product = &products.at(entry);
    const reference::Freivalds* check = &freivalds.at(entry);
    return [product, check, &sums](std::span<const std::int64_t> rows,
                                   std::span<const std::int64_t> cols, double* out) {
      product->tile(rows, cols, out);
      check->add_tile(rows, cols, out, sums);
    };
  }

  Status make_freivalds(std::int64_t entry) {
    if (freivalds.contains(entry)) return {};
    LAPIDARY_TRY(auto check,
                 reference::Freivalds::make(problem, arena.host(), entry,
                                            mix(options.seed, 50 + std::uint64_t(entry)),
                                            progress("small integers: sums for Freivalds' check")));
    freivalds.emplace(entry, std::move(check));
    return {};
  }

  Status compare_by_freivalds(const std::string& pass) {
    const OperandSpec& d = outputs[0];
    if (d.rows == 0 || d.cols == 0) return {};
    const auto* base = static_cast<const std::byte*>(arena.host()[specs.size() - outputs.size()]);
    for (std::int64_t entry = 0; entry < problem.batch && !failed; ++entry) {
      if (entry % 64 == 0) beat(pass + ": Freivalds' check");
      LAPIDARY_TRY_STATUS(make_freivalds(entry));
      const std::byte* matrix = base + element_of(d, entry, 0, 0) * size_bytes(d.type);
      const std::vector<std::int64_t> rows =
          freivalds.at(entry).wrong_rows(d.type, matrix, d.pitch);
      // A sum beyond the integers that D's type holds is rounded, rightly: the reference decides, a
      // few rows at a time.
      for (std::size_t from = 0; from < rows.size() && !failed; from += 64) {
        const auto to = std::min(rows.size(), from + 64);
        std::vector<Sample> some{
            {entry,
             {rows.begin() + std::ptrdiff_t(from), rows.begin() + std::ptrdiff_t(to)},
             reference::all(d.cols)}};
        std::int64_t nothing = 0;
        Expectation decided(problem, std::move(some), {.integers = true, .exact_sums = {}},
                            &nothing);
        Findings findings;
        decided.compare(arena.host(), arena.host(),
                        progress(pass + ": rows that Freivalds' check doubts"), findings);
        judge(Check::whole, pass, findings);
      }
    }
    return {};
  }

  // -- position

  bool is_everything(const std::vector<Sample>& samples) const {
    return std::int64_t(samples.size()) == problem.batch &&
           std::ranges::all_of(samples, [this](const Sample& sample) {
             return std::int64_t(sample.rows.size()) == problem.m &&
                    std::int64_t(sample.cols.size()) == columns(problem);
           });
  }

  /// Hashes of where outputs are not finite, per round, output, entry and row, without the round's
  /// columns.
  std::vector<std::vector<std::uint64_t>> classes;
  std::vector<std::uint64_t> classes_of(const PositionRound& round) const {
    std::vector<bool> left_out(std::size_t(columns(problem)));
    for (const std::int64_t col : round.cols) left_out[std::size_t(col)] = true;
    std::vector<std::uint64_t> hashes;
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      const OperandSpec& spec = outputs[o];
      if (spec.axes != Axes::mn) continue;
      const auto* base =
          static_cast<const std::byte*>(arena.host()[specs.size() - outputs.size() + o]);
      const std::size_t at = hashes.size();
      hashes.resize(at + std::size_t(problem.batch * problem.m));
      shared_pool().each(problem.batch * problem.m, 16, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t entry = i / problem.m, row = i % problem.m;
          if (std::ranges::binary_search(round.rows, row)) continue;
          hashes[at + std::size_t(i)] = class_hash(
              spec, base + element_of(spec, entry, row, 0) * size_bytes(spec.type), left_out);
        }
      });
    }
    return hashes;
  }
  void note_classes() {
    classes.clear();
    for (const PositionRound& round : rounds) classes.push_back(classes_of(round));
  }

  Status position() {
    if (!on(Check::position)) return {};
    for (std::size_t r = 0; r < rounds.size() && !failed; ++r) {
      const PositionRound& round = rounds[r];
      LAPIDARY_TRY_STATUS(fill("integers", Fill::integers, 1));
      const std::vector<std::uint64_t> kept_hashes = input_hashes;
      std::vector<float> kept;
      for (const Plant& plant : round.plants) {
        LAPIDARY_TRY(const float before, exchange(plant, plant.value));
        kept.push_back(before);
      }
      contents = round.name;
      LAPIDARY_TRY_STATUS(note_inputs());
      LAPIDARY_TRY_STATUS(pack());
      LAPIDARY_TRY_STATUS(run(round.name));
      if (failed) return {};
      Findings findings;
      LAPIDARY_TRY_STATUS(arena.fetch_outputs());
      positions[r]->compare(arena.host(), arena.host(), progress("position: reference rows"),
                            findings);
      judge(Check::position, round.name, findings);
      // Backwards, since two plants may share a place.
      for (std::size_t i = kept.size(); i-- > 0;) {
        LAPIDARY_TRY(const float planted, exchange(round.plants[i], kept[i]));
        (void)planted;
      }
      contents = "integers";
      input_hashes = kept_hashes;
      if (failed || classes.size() != rounds.size()) continue;
      const std::vector<std::uint64_t> now = classes_of(round);
      const auto [was, is] = std::ranges::mismatch(classes[r], now);
      if (is == now.end()) continue;
      const auto i =
          std::int64_t(is - now.begin()) % std::max<std::int64_t>(1, problem.batch * problem.m);
      fail_check(Check::position, round.name,
                 fmt::format("row {} of batch entry {} gained or lost a NaN or an infinity, and "
                             "nothing planted reaches it",
                             i % problem.m, i / problem.m));
    }
    return {};
  }

  // -- zero factors

  Status zero_factors_pass() {
    if (!on(Check::zero_factor)) return {};
    for (std::size_t f = 0; f < factors.size() && !failed; ++f) {
      const ZeroFactor& factor = factors[f];
      LAPIDARY_TRY_STATUS(fill("integers", Fill::integers, 1));
      const std::string pass = factor.name + " = 0 and NaN in what only its products read";
      LAPIDARY_TRY_STATUS(arena.fill_zero(factor.operand));
      for (const int operand : factor.unread) LAPIDARY_TRY_STATUS(arena.fill_nan(operand));
      contents = pass;
      LAPIDARY_TRY_STATUS(note_inputs());
      LAPIDARY_TRY_STATUS(pack());
      LAPIDARY_TRY_STATUS(run(pass));
      if (failed) return {};
      Findings findings;
      LAPIDARY_TRY_STATUS(arena.fetch_outputs());
      zeros[f]->compare(arena.host(), arena.host(), progress("zero factor: reference rows"),
                        findings);
      judge(Check::zero_factor, pass, findings);
    }
    return {};
  }

  // -- random numbers

  Status random_numbers() {
    if (!on(Check::numeric) && !on(Check::repeat) && !on(Check::leak)) return {};
    const std::string pass = "random numbers";
    LAPIDARY_TRY_STATUS(fill(pass, Fill::uniform, 2));
    LAPIDARY_TRY_STATUS(pack());
    LAPIDARY_TRY_STATUS(run(pass));
    if (failed) return {};
    if (on(Check::numeric)) {
      Findings findings;
      LAPIDARY_TRY_STATUS(arena.fetch_outputs());
      numeric->compare(arena.host(), arena.host(), progress(pass + ": reference rows"), findings);
      judge(Check::numeric, pass, findings);
      if (failed) return {};
    }
    if (on(Check::repeat) && !problem.numerics.nondeterministic) {
      LAPIDARY_TRY(const std::uint64_t once, arena.hash_outputs());
      for (int again = 2; again <= 3; ++again) {
        LAPIDARY_TRY_STATUS(run(pass));
        if (failed) return {};
        LAPIDARY_TRY(const std::uint64_t now, arena.hash_outputs());
        if (now == once) continue;
        fail_check(Check::repeat, pass,
                   fmt::format("run {} of the same inputs gives other bits than the first", again));
        return {};
      }
    }
    return {};
  }

  /// What is free on a GPU moves in steps of megabytes: many runs show what one does not.
  Status device_leak() {
    constexpr int kTurns = 3;
    const int runs_a_turn = int(std::clamp(0.05 / std::max(run_seconds, 1e-6), 16.0, 256.0));
    std::int64_t grown = 0;
    for (int turn = 0; turn < kTurns; ++turn) {
      beat("many runs: does one keep device memory?");
      LAPIDARY_TRY(const std::int64_t before, device.free_bytes());
      for (int i = 0; i < runs_a_turn; ++i)
        LAPIDARY_TRY_STATUS(executable->run(arguments(arena.pointers())));
      LAPIDARY_TRY_STATUS(device.synchronize());
      LAPIDARY_TRY(const std::int64_t after, device.free_bytes());
      grown = before - after;
      if (grown <= 0) return {};
    }
    fail_check(Check::leak, "random numbers",
               fmt::format("{} times {} runs kept device memory: {} bytes the last time", kTurns,
                           runs_a_turn, grown));
    return {};
  }

  /// More runs, until growth has stopped once or is certain to go on.
  Status leak() {
    if (!on(Check::leak)) return {};
    if (!device.is_host()) {
      LAPIDARY_TRY_STATUS(device_leak());
      if (failed) return {};
    }
    const auto start = std::chrono::steady_clock::now();
    while (leaks.runs() < (run_seconds < kQuickSeconds ? kQuickRuns : kRuns) ||
           leaks.suspicious(kRuns)) {
      if (leaks.certain()) {
        fail_check(Check::leak, "random numbers", leaks.text());
        return {};
      }
      if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() >
          kLeakSeconds)
        return {};
      LAPIDARY_TRY_STATUS(run("random numbers"));
      if (failed) return {};
    }
    return {};
  }
};

Verifier::Verifier(std::unique_ptr<State> state) : state_(std::move(state)) {}
Verifier::Verifier(Verifier&&) noexcept = default;
Verifier::~Verifier() = default;

Result<Verifier> Verifier::make(const GemmProblem& problem, driver::Device& device,
                                VerifyOptions options) {
  LAPIDARY_TRY(Arena arena, Arena::make(problem, device));
  auto state = std::make_unique<State>(device, problem, std::move(options), std::move(arena));
  State& s = *state;
  s.specs = s.arena.specs();
  for (const OperandSpec& spec : s.specs) {
    if (spec.output) {
      s.outputs.push_back(spec);
    } else if (spec.batch > 1 && spec.batch_stride < (spec.rows - 1) * spec.pitch + spec.cols) {
      s.overlapping = true;
    }
  }
  const std::uint64_t seed = s.options.seed;
  // Expected results are kept for later candidates up to half of what the operands take.
  s.budget = std::max<std::int64_t>(std::int64_t(64) << 20, s.arena.bytes() / 2);
  const GemmProblem& p = s.problem;
  s.exact.emplace(p, samples_of(p, kSampledLines, mix(seed, 3)),
                  Expectation::Source{.integers = true, .exact_sums = {}}, &s.budget);
  s.numeric.emplace(p, samples_of(p, kSampledLines, mix(seed, 4)), Expectation::Source{},
                    &s.budget);
  s.exact_lines = s.exact->lines();
  s.rounds = position_rounds(p, s.specs, mix(seed, 5));
  for (const PositionRound& round : s.rounds) {
    // Where numbers are finite their bounds do: bits are the business of `exact`.
    s.positions.emplace_back(std::in_place, p, round.samples, Expectation::Source{}, &s.budget);
  }
  s.factors = zero_factors(p, s.specs);
  for (std::size_t f = 0; f < s.factors.size(); ++f) {
    s.zeros.emplace_back(std::in_place, p, samples_of(p, kSampledLines / 8, mix(seed, 6)),
                         Expectation::Source{.integers = true, .exact_sums = {}}, &s.budget);
  }
  std::vector<Sample> everything;
  for (std::int64_t entry = 0; entry < p.batch; ++entry)
    everything.push_back({entry, reference::all(p.m), reference::all(columns(p))});
  Expectation::Source pair{.integers = true, .exact_sums = {}};
  if (reads_acc(p.epilogue))
    pair.exact_sums = [&s](std::int64_t entry) { return s.exact_sums(entry); };
  s.whole.emplace(p, std::move(everything), std::move(pair), &s.budget);
  return Verifier(std::move(state));
}

Result<Verdict> Verifier::verify(const backends::Executable& executable) {
  State& s = *state_;
  LAPIDARY_TRY(GuardedBuffer workspace,
               GuardedBuffer::make("workspace", executable.workspace_bytes(), s.device));
  LAPIDARY_TRY(GuardedBuffer packed,
               GuardedBuffer::make("packed operands", executable.packed_bytes(), s.device));
  s.workspace.emplace(std::move(workspace));
  s.packed.emplace(std::move(packed));
  s.executable = &executable;
  s.leaks = {};
  s.failed.reset();
  s.runs = 0;
  // A candidate before this one may have left anything in inputs.
  s.contents.clear();
  LAPIDARY_TRY_STATUS(s.arena.mend_outputs());
  const auto passes = {&State::small_integers,    &State::shared_memory,  &State::position,
                       &State::zero_factors_pass, &State::random_numbers, &State::leak};
  for (const auto pass : passes) {
    LAPIDARY_TRY_STATUS((s.*pass)());
    if (s.failed) return *s.failed;
  }
  return Verdict{.passed = true};
}

}  // namespace lapidary::worker
