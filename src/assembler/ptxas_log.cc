#include "assembler/ptxas_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "support/text.h"

namespace lapidary::assembler {
namespace {

/// A message has this meaning when it has all the words, whatever stands between. The first row
/// that fits holds; case does not count.
struct Words {
  Meaning meaning;
  std::string_view first, second;
};
constexpr Words kWords[] = {
    {Meaning::serialised, "wgmma", "serialized"},
    {Meaning::setmaxnreg_ignored, "setmaxnreg", "ignored"},
    {Meaning::injected, "warpgroup.", "is injected"},
    {Meaning::performance_loss, "performance loss", ""},
    // What another architecture may make of the text; a cubin is for one.
    {Meaning::harmless, "advisory:", "some future architectures"},
};

constexpr std::pair<std::string_view, Severity> kSeverities[] = {
    {"info", Severity::info},
    {"warning", Severity::warning},
    {"error", Severity::error},
    {"fatal", Severity::fatal},
};

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

Meaning meaning_of(Severity severity, std::string_view text) {
  if (severity == Severity::error || severity == Severity::fatal) return Meaning::error;
  const std::string words = lower(text);
  for (const Words& row : kWords) {
    if (words.find(row.first) != std::string::npos && words.find(row.second) != std::string::npos)
      return row.meaning;
  }
  return Meaning::unknown;
}

/// Takes `prefix` off the front.
bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// Takes a number without sign off the front; one beyond an int64 is none.
std::optional<std::int64_t> take_number(std::string_view& text) {
  std::int64_t value = 0;
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

int to_int(std::int64_t value) {
  return static_cast<int>(std::min<std::int64_t>(value, 2147483647));
}

/// "info    : ": severities are padded to one width.
std::optional<Severity> take_severity(std::string_view& text) {
  for (const auto& [word, severity] : kSeverities) {
    std::string_view rest = text;
    if (!take(rest, word)) continue;
    while (take(rest, " ")) {
    }
    if (!take(rest, ":")) continue;
    take(rest, " ");
    text = rest;
    return severity;
  }
  return std::nullopt;
}

/// The number after the last `word` in the text.
int number_after(std::string_view text, std::string_view word) {
  const std::size_t at = text.rfind(word);
  if (at == std::string_view::npos) return 0;
  std::string_view rest = text.substr(at + word.size());
  return to_int(take_number(rest).value_or(0));
}

/// A line of the log, split: `ptxas k.ptx, line 12; fatal   : (C7406) words`.
Message message_of(std::string_view line) {
  Message message;
  std::string_view rest = line;
  if (take(rest, "ptxas ")) {
    std::optional<Severity> severity = take_severity(rest);
    if (const std::size_t at = rest.find(", line "); !severity && at != std::string_view::npos) {
      std::string_view after = rest.substr(at + 7);
      const std::optional<std::int64_t> number = take_number(after);
      if (number && take(after, "; ") && (severity = take_severity(after))) {
        message.line = to_int(*number);
        rest = after;
      }
    }
    if (severity) {
      message.severity = *severity;
      const std::size_t close = rest.find(") ");
      if (rest.starts_with("(C") && close != std::string_view::npos) {
        message.code = rest.substr(1, close - 1);
        rest.remove_prefix(close + 2);
      }
    } else {
      rest = line;
    }
  }
  message.text = trim(rest);
  // "at line 146 in function", "in around line 20 by compiler"
  if (message.severity != Severity::none && message.line == 0)
    message.line = number_after(message.text, " line ");
  message.meaning = meaning_of(message.severity, message.text);
  return message;
}

/// Reads lines one after another. Facts of a function come on several: its name, then its frame,
/// then, for a kernel, "Used ...".
class Reader {
 public:
  explicit Reader(PtxasLog& log) : log_(log) {}

  void line(std::string_view text) {
    std::string_view frame = trim(text);
    if (properties_ != kNone && frame_facts(frame)) return;
    if (frame.empty()) return;
    Message message = message_of(text);
    if (message.severity == Severity::info && message.code.empty() && facts(message.text)) return;
    log_.messages.push_back(std::move(message));
  }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};

  std::size_t function(std::string_view name) {
    const auto known = std::ranges::find(log_.functions, name, &FunctionFacts::name);
    if (known != log_.functions.end())
      return static_cast<std::size_t>(known - log_.functions.begin());
    log_.functions.push_back({.name = std::string(name)});
    return log_.functions.size() - 1;
  }

  /// "N bytes stack frame, N bytes spill stores, N bytes spill loads"
  bool frame_facts(std::string_view text) {
    FunctionFacts& facts = log_.functions[properties_];
    const auto stack = take_number(text);
    if (!stack || !take(text, " bytes stack frame, ")) return false;
    const auto stores = take_number(text);
    if (!stores || !take(text, " bytes spill stores, ")) return false;
    const auto loads = take_number(text);
    if (!loads || text != " bytes spill loads") return false;
    facts.stack_bytes = std::max(facts.stack_bytes, *stack);
    facts.spill_store_bytes = *stores;
    facts.spill_load_bytes = *loads;
    properties_ = kNone;
    return true;
  }

  /// Whether the words of an info are facts, and were read.
  bool facts(std::string_view text) {
    if (std::string_view rest = text; take(rest, "Compiling entry function '")) {
      const std::size_t end = rest.rfind("' for '");
      if (end == std::string_view::npos) return false;
      entry_ = function(rest.substr(0, end));
      log_.functions[entry_].entry = true;
      return true;
    }
    if (std::string_view rest = text; take(rest, "Function properties for ")) {
      properties_ = function(rest);
      return true;
    }
    if (std::string_view rest = text; take(rest, "Used ")) return used(text);
    if (text.starts_with("Compile time = ")) return true;
    return module_facts(text);
  }

  /// "Used 12 registers, used 1 barriers, 2048 bytes smem, 372 bytes cmem[0]"
  bool used(std::string_view text) {
    if (entry_ == kNone) return false;
    FunctionFacts facts = log_.functions[entry_];
    facts.constant_bytes = 0;
    for (std::string_view part : split(text, ',')) {
      part = trim(part);
      if (!take(part, "Used ")) take(part, "used ");
      const std::optional<std::int64_t> value = take_number(part);
      if (!value) return false;
      if (part == " registers") {
        facts.registers = to_int(*value);
      } else if (part == " barriers") {
        facts.barriers = to_int(*value);
      } else if (part == " bytes smem") {
        facts.smem_bytes = *value;
      } else if (part == " bytes cumulative stack size") {
        facts.stack_bytes = std::max(facts.stack_bytes, *value);
      } else if (part.starts_with(" bytes cmem[")) {
        add(facts.constant_bytes, *value);
      } else if (part != " bytes lmem" && part != " textures" && part != " surfaces" &&
                 part != " samplers") {
        return false;
      }
    }
    log_.functions[std::exchange(entry_, kNone)] = std::move(facts);
    return true;
  }

  /// "0 bytes gmem, 4 bytes cmem[3]"
  bool module_facts(std::string_view text) {
    std::int64_t global = 0, constant = 0;
    for (std::string_view part : split(text, ',')) {
      part = trim(part);
      const std::optional<std::int64_t> value = take_number(part);
      if (!value) return false;
      if (part == " bytes gmem") {
        add(global, *value);
      } else if (part.starts_with(" bytes cmem[")) {
        add(constant, *value);
      } else {
        return false;
      }
    }
    log_.global_bytes = global;
    log_.constant_bytes = constant;
    return true;
  }

  static void add(std::int64_t& sum, std::int64_t value) {
    if (__builtin_add_overflow(sum, value, &sum)) sum = INT64_MAX;
  }

  PtxasLog& log_;
  std::size_t entry_ = kNone;       // whose "Used" is to come
  std::size_t properties_ = kNone;  // whose frame is to come
};

/// A line of the PTX, from 1, without white space around it.
std::string_view line_of(std::string_view ptx, int number) {
  for (int i = 1; i < number; ++i) {
    const std::size_t end = ptx.find('\n');
    if (end == std::string_view::npos) return {};
    ptx.remove_prefix(end + 1);
  }
  return trim(ptx.substr(0, ptx.find('\n')));
}

}  // namespace

const char* name(Meaning meaning) {
  switch (meaning) {
    case Meaning::error:
      return "error";
    case Meaning::serialised:
      return "serialised";
    case Meaning::setmaxnreg_ignored:
      return "setmaxnreg_ignored";
    case Meaning::injected:
      return "injected";
    case Meaning::performance_loss:
      return "performance_loss";
    case Meaning::harmless:
      return "harmless";
    case Meaning::unknown:
      return "unknown";
  }
  return "unknown";
}

PtxasLog parse_log(std::string_view text) {
  PtxasLog log;
  Reader reader(log);
  for (const std::string_view line : split(text, '\n')) reader.line(line);
  return log;
}

const Message* first_error(const PtxasLog& log) {
  const auto error = std::ranges::find(log.messages, Meaning::error, &Message::meaning);
  return error == log.messages.end() ? nullptr : &*error;
}

std::string describe(const Message& message, std::string_view ptx) {
  constexpr std::size_t kMostText = 160;  // an instruction with 128 registers is longer
  std::string text = message.text;
  // Some name their line in their words.
  if (message.line > 0 && number_after(text, " line ") != message.line)
    text = fmt::format("line {}: {}", message.line, text);
  std::string_view line = message.line > 0 ? line_of(ptx, message.line) : std::string_view();
  if (line.empty()) return text;
  const bool cut = line.size() > kMostText;
  return fmt::format("{} in \"{}{}\"", text, line.substr(0, kMostText), cut ? "..." : "");
}

}  // namespace lapidary::assembler
