#include <algorithm>
#include <charconv>
#include <functional>
#include <limits>
#include <set>

#include "lapidary/problem.h"
#include "problem/json.h"
#include "problem/keys.h"
#include "support/text.h"

// JSON keys to problems and suites. A problem's own checks are in problem.cc; here it is what can
// be wrong with the text: unknown keys, wrong kinds of values, names that are no types.
namespace lapidary {
namespace {

using problem::key_error;

using problem::JsonValue;
using problem::shown;
using Kind = JsonValue::Kind;

/// The same error with the place before it.
Error within_place(const std::string& place, const Error& error) {
  return fail(error.code, "{}: {}", place, error.message);
}

/// The program's words: 'h', "'f32', 'bf16' or 'f16'".
template <class Range, class Name>
std::string choices(const Range& range, Name name_of) {
  std::vector<std::string> words;
  for (const auto& one : range) words.push_back("'" + std::string(name_of(one)) + "'");
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  }
  return text;
}

Result<std::int64_t> integer(std::string_view key, const JsonValue& value) {
  if (!value.is(Kind::integer)) {
    return key_error(key, "{} is no whole number; write it in digits alone, like 4096",
                     shown(value));
  }
  return value.integer;
}

Result<std::string> word(std::string_view key, const JsonValue& value, std::string_view example) {
  if (!value.is(Kind::string))
    return key_error(key, "{} is no string; write it as \"{}\"", shown(value), example);
  return value.string;
}

Result<std::vector<std::string>> words(std::string_view key, const JsonValue& value,
                                       std::string_view example) {
  std::vector<std::string> out;
  if (!value.is(Kind::array))
    return key_error(key, "{} is no list; write it as [\"{}\"]", shown(value), example);
  for (const JsonValue& item : value.items) {
    if (!item.is(Kind::string))
      return key_error(key, "{} is no string; the list holds names like \"{}\"", shown(item),
                       example);
    out.push_back(item.string);
  }
  return out;
}

/// A name out of a list of choices; a near miss is pointed at.
template <class Range, class Name>
auto choice(std::string_view key, const JsonValue& value, const Range& range, Name name_of)
    -> Result<std::decay_t<decltype(*std::begin(range))>> {
  if (value.is(Kind::string)) {
    for (const auto& one : range) {
      if (name_of(one) == value.string) return one;
    }
  }
  return key_error(key, "{} is none of {}", shown(value), choices(range, name_of));
}

std::string_view type_name(DType type) { return name(type); }

constexpr GemmLayout kLayouts[] = {GemmLayout::nt, GemmLayout::nn, GemmLayout::tn, GemmLayout::tt};
constexpr ScaleMode kScaleModes[] = {ScaleMode::none, ScaleMode::tensor, ScaleMode::row,
                                     ScaleMode::block};

constexpr std::size_t kMaxExtents = 65536;

Result<std::vector<std::int64_t>> extents_from_json(std::string_view key, const JsonValue& value) {
  if (value.is(Kind::string)) return extents_from_text(key, value.string);
  std::vector<std::int64_t> out;
  if (!value.is(Kind::array)) {
    if (!value.is(Kind::integer)) {
      return key_error(key, "{} is no extent; write 16, [1, 16] or \"8:4096:8\"", shown(value));
    }
    return std::vector<std::int64_t>{value.integer};
  }
  if (value.items.empty()) return key_error(key, "the list is empty; name at least one extent");
  if (value.items.size() > kMaxExtents)
    return key_error(key, "the list has {} extents; at most {} are allowed", value.items.size(),
                     kMaxExtents);
  for (const JsonValue& item : value.items) {
    LAPIDARY_TRY(out.emplace_back(), integer(key, item));
  }
  return out;
}

/// What reading the keys of one problem gathers before it is put together: some keys depend on
/// others.
struct Draft {
  GemmProblem problem{};
  std::optional<DType> a{}, b{};
  std::optional<std::string> epilogue{};
  std::set<std::string, std::less<>> seen{};
  bool many_m = false;  // m may be a list or a range, as in suites; then it is in `extents`
  std::vector<std::int64_t> extents{};
};

using Reader = std::function<Status(Draft&, std::string_view key, const JsonValue&)>;

Reader extent(std::int64_t GemmProblem::* member) {
  return [member](Draft& draft, std::string_view key, const JsonValue& value) -> Status {
    LAPIDARY_TRY(draft.problem.*member, integer(key, value));
    return {};
  };
}

/// A pitch: kDense is our own sign for "not given" and cannot be written.
Reader pitch(std::int64_t GemmProblem::* member) {
  return [member](Draft& draft, std::string_view key, const JsonValue& value) -> Status {
    LAPIDARY_TRY(draft.problem.*member, integer(key, value));
    if (draft.problem.*member < 0) {
      return key_error(key, "{} is negative; it must be the elements from row to row",
                       shown(value));
    }
    return {};
  };
}

Status read_numerics(Draft& draft, std::string_view key, const JsonValue& value) {
  LAPIDARY_TRY(const auto names, words(key, value, "tf32"));
  for (const std::string& name : names) {
    const auto member =
        std::ranges::find(problem::kNumericsMembers, name, &problem::NumericsMember::name);
    if (member == std::end(problem::kNumericsMembers)) {
      return key_error(
          key, "'{}' is none of {}", name,
          choices(problem::kNumericsMembers, [](const auto& one) { return one.name; }));
    }
    draft.problem.numerics.*(member->member) = true;
  }
  return {};
}

Status read_types(Draft& draft, std::string_view key, const JsonValue& value) {
  if (!value.is(Kind::object))
    return key_error(key, "{} is no object; write it as {{\"bias\": \"f32\"}}", shown(value));
  for (const auto& [name, type] : value.members) {
    LAPIDARY_TRY(draft.problem.types[name],
                 choice(fmt::format("types.{}", name), type, kDTypes, type_name));
  }
  return {};
}

struct Key {
  std::string_view name;
  Reader read;
};

const std::vector<Key>& keys() {
  static const std::vector<Key> table = {
      {"m",
       [](Draft& draft, std::string_view key, const JsonValue& value) -> Status {
         if (draft.many_m) {
           LAPIDARY_TRY(draft.extents, extents_from_json(key, value));
         } else {
           LAPIDARY_TRY(draft.problem.m, integer(key, value));
         }
         return {};
       }},
      {"n", extent(&GemmProblem::n)},
      {"k", extent(&GemmProblem::k)},
      {"batch", extent(&GemmProblem::batch)},
      {"layout",
       [](Draft& draft, std::string_view key, const JsonValue& value) -> Status {
         LAPIDARY_TRY(draft.problem.layout,
                      choice(key, value, kLayouts, [](GemmLayout l) { return name(l); }));
         return {};
       }},
      {"a",
       [](Draft& draft, std::string_view key, const JsonValue& value) -> Status {
         LAPIDARY_TRY(draft.a, choice(key, value, kDTypes, type_name));
         return {};
       }},
      {"b",
       [](Draft& draft, std::string_view key, const JsonValue& value) -> Status {
         LAPIDARY_TRY(draft.b, choice(key, value, kDTypes, type_name));
         return {};
       }},
      {"c",
       [](Draft& draft, std::string_view key, const JsonValue& value) -> Status {
         LAPIDARY_TRY(draft.problem.c, choice(key, value, kDTypes, type_name));
         return {};
       }},
      {"d",
       [](Draft& draft, std::string_view key, const JsonValue& value) -> Status {
         LAPIDARY_TRY(draft.problem.d, choice(key, value, kDTypes, type_name));
         return {};
       }},
      {"types", read_types},
      {"lda", pitch(&GemmProblem::lda)},
      {"ldb", pitch(&GemmProblem::ldb)},
      {"ldc", pitch(&GemmProblem::ldc)},
      {"ldd", pitch(&GemmProblem::ldd)},
      {"scales",
       [](Draft& draft, std::string_view key, const JsonValue& value) -> Status {
         LAPIDARY_TRY(draft.problem.scales,
                      choice(key, value, kScaleModes, [](ScaleMode m) { return name(m); }));
         return {};
       }},
      {"numerics", read_numerics},
      {"epilogue",
       [](Draft& draft, std::string_view key, const JsonValue& value) -> Status {
         LAPIDARY_TRY(draft.epilogue, word(key, value, "d = acc"));
         return {};
       }},
      {"constant",
       [](Draft& draft, std::string_view key, const JsonValue& value) -> Status {
         LAPIDARY_TRY(draft.problem.constant, words(key, value, "b"));
         return {};
       }},
      {"alias",
       [](Draft& draft, std::string_view key, const JsonValue& value) -> Status {
         LAPIDARY_TRY(draft.problem.alias, words(key, value, "c=d"));
         return {};
       }},
      {"workspace", extent(&GemmProblem::workspace)},
      {"sms",
       [](Draft& draft, std::string_view key, const JsonValue& value) -> Status {
         LAPIDARY_TRY(const std::int64_t sms, integer(key, value));
         if (sms < 1 || sms > std::numeric_limits<int>::max()) {
           return key_error(key, "{} is out of range; it must be within 1 to 2147483647", sms);
         }
         draft.problem.sms = static_cast<int>(sms);
         return {};
       }},
  };
  return table;
}

constexpr std::string_view kStride = "stride_", kOffset = "offset_";

Status read_key(Draft& draft, std::string_view key, const JsonValue& value) {
  draft.seen.emplace(key);
  if (const auto found = std::ranges::find(keys(), key, &Key::name); found != keys().end())
    return found->read(draft, key, value);
  for (const auto& [prefix, map] :
       {std::pair{kStride, &draft.problem.strides}, std::pair{kOffset, &draft.problem.offsets}}) {
    if (!key.starts_with(prefix) || key.size() == prefix.size()) continue;
    LAPIDARY_TRY(const std::int64_t number, integer(key, value));
    if (number < 0) return key_error(key, "{} is negative; it must be 0 or more", number);
    map->emplace(key.substr(prefix.size()), number);
    return {};
  }
  std::vector<std::string_view> known;
  for (const Key& one : keys()) known.push_back(one.name);
  for (const std::string_view one : {"stride_a", "stride_b", "stride_c", "stride_d", "offset_a",
                                     "offset_b", "offset_c", "offset_d"}) {
    known.push_back(one);
  }
  const std::string hint = did_you_mean(key, known);
  return key_error(key, "there is no such key{}",
                   hint.empty() ? "; docs/problems.md lists them" : hint);
}

/// Does the program have an operand or output of that name? For suites, whose defaults may speak of
/// operands that only some lines have.
bool has_operand(const GemmProblem& p, std::string_view name) {
  if (name == "a" || name == "b" || name == "d") return true;
  if (p.scales != ScaleMode::none && (name == "scale_a" || name == "scale_b")) return true;
  const auto is = [&](const auto& one) { return one.name == name; };
  return std::ranges::any_of(p.epilogue.inputs, is) ||
         std::ranges::any_of(p.epilogue.assignments,
                             [&](const auto& made) { return made.output && is(made); });
}

/// Takes out what defaults say of operands that this line has not. `own` are the keys that the line
/// itself has.
void forget_absent(GemmProblem& p, const std::set<std::string, std::less<>>& own) {
  const auto absent = [&](std::string_view key, std::string_view name) {
    return !own.contains(key) && !has_operand(p, name);
  };
  if (absent("c", "c")) p.c.reset();
  if (absent("ldc", "c")) p.ldc = kDense;
  if (!own.contains("types"))
    std::erase_if(p.types, [&](const auto& one) { return !has_operand(p, one.first); });
  std::erase_if(p.strides, [&](const auto& one) {
    return absent(std::string(kStride) + one.first, one.first);
  });
  std::erase_if(p.offsets, [&](const auto& one) {
    return absent(std::string(kOffset) + one.first, one.first);
  });
  if (!own.contains("constant"))
    std::erase_if(p.constant, [&](const auto& name) { return !has_operand(p, name); });
  if (!own.contains("alias")) {
    std::erase_if(p.alias, [&](const auto& pair) {
      return std::ranges::any_of(
          split(pair, '='), [&](std::string_view side) { return !has_operand(p, trim(side)); });
    });
  }
}

/// Everything that depends on several keys, but not yet the checks that need m.
Status settle(Draft& draft) {
  for (const std::string_view key : {"m", "n", "k"}) {
    if (!draft.seen.contains(key))
      return key_error(key, "is missing; every problem has m, n and k");
  }
  GemmProblem& p = draft.problem;
  // a and b may stand in types, too; given nowhere, a is f32 and b what a is.
  const auto type_of = [&](const char* name, std::optional<DType> own, DType otherwise) {
    const auto given = p.types.find(name);
    return own ? *own : given != p.types.end() ? given->second : otherwise;
  };
  p.a = type_of("a", draft.a, DType::f32);
  p.b = type_of("b", draft.b, p.a);
  if (draft.epilogue) {
    LAPIDARY_TRY(p.epilogue, parse_epilogue(*draft.epilogue, p.scales != ScaleMode::none));
  }
  return {};
}

}  // namespace

Result<std::vector<std::int64_t>> extents_from_text(std::string_view key, std::string_view text) {
  const auto number = [&](std::string_view piece) -> Result<std::int64_t> {
    const std::string_view digits = trim(piece);
    std::int64_t value = 0;
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (code != std::errc() || end != digits.data() + digits.size() || value < 0) {
      return key_error(
          key,
          "'{}' in '{}' is no extent; write 16, \"1,16,2048\" or \"8:4096:8\" (start:stop:step)",
          digits, text);
    }
    return value;
  };
  std::vector<std::int64_t> out;
  for (const std::string_view piece : split(text, ',')) {
    const auto parts = split(piece, ':');
    if (parts.size() == 1) {
      LAPIDARY_TRY(out.emplace_back(), number(piece));
    } else if (parts.size() == 3) {
      LAPIDARY_TRY(const std::int64_t start, number(parts[0]));
      LAPIDARY_TRY(const std::int64_t stop, number(parts[1]));
      LAPIDARY_TRY(const std::int64_t step, number(parts[2]));
      if (step == 0) return key_error(key, "'{}' has step 0; it must be at least 1", trim(piece));
      if (stop < start)
        return key_error(key, "'{}' stops before it starts; write start:stop:step", trim(piece));
      const auto steps =
          static_cast<std::uint64_t>(stop - start) / static_cast<std::uint64_t>(step);
      if (steps >= kMaxExtents) {
        return key_error(key, "'{}' has more than {} extents; take a larger step", trim(piece),
                         kMaxExtents);
      }
      for (std::uint64_t i = 0; i <= steps; ++i)
        out.push_back(start + static_cast<std::int64_t>(i) * step);
    } else {
      return key_error(key, "'{}' has {} parts; a range is start:stop:step, like 8:4096:8",
                       trim(piece), parts.size());
    }
    if (out.size() > kMaxExtents)
      return key_error(key, "'{}' has more than {} extents; shorten it", text, kMaxExtents);
  }
  return out;
}

Result<GemmProblem> problem_from_json(std::string_view json) {
  const auto parsed = [&]() -> Result<GemmProblem> {
    LAPIDARY_TRY(const JsonValue value, problem::read_json(json));
    if (!value.is(Kind::object))
      return fail(ErrorCode::invalid_argument, "{} is no object of keys", shown(value));
    Draft draft;
    for (const auto& [key, member] : value.members)
      LAPIDARY_TRY_STATUS(read_key(draft, key, member));
    LAPIDARY_TRY_STATUS(settle(draft));
    return problem::check_keys(std::move(draft.problem));
  }();
  if (!parsed) return within_place("problem", parsed.error());
  return parsed;
}

namespace {

using Names = std::set<std::string, std::less<>>;

/// The problems of one line, one per m. Keys that the line has itself stand for those of the
/// defaults.
Result<std::vector<GemmProblem>> problems_of(const JsonValue& line, const JsonValue* defaults) {
  Draft draft{.many_m = true};
  if (defaults != nullptr) {
    for (const auto& [key, value] : defaults->members) {
      if (line.find(key) == nullptr) LAPIDARY_TRY_STATUS(read_key(draft, key, value));
    }
  }
  Names own;
  for (const auto& [key, value] : line.members) {
    if (key == "name") continue;
    own.insert(key);
    LAPIDARY_TRY_STATUS(read_key(draft, key, value));
  }
  LAPIDARY_TRY_STATUS(settle(draft));
  forget_absent(draft.problem, own);
  std::vector<GemmProblem> problems;
  for (const std::int64_t m : draft.extents) {
    GemmProblem problem = draft.problem;
    problem.m = m;
    LAPIDARY_TRY(problems.emplace_back(), problem::check_keys(std::move(problem)));
  }
  return problems;
}

/// The name of line `i`, which no earlier one has.
Result<std::string> name_of(const JsonValue& line, const Names& earlier) {
  if (!line.is(Kind::object))
    return fail(ErrorCode::invalid_argument, "{} is no object of keys", shown(line));
  const JsonValue* name = line.find("name");
  if (name == nullptr) return key_error("name", "is missing; every line has one of its own");
  if (!name->is(Kind::string) || name->string.empty()) {
    return key_error("name", "{} is no name; every line has one of its own", shown(*name));
  }
  if (earlier.contains(name->string)) {
    return key_error("name", "{} is the name of an earlier line, too; names are unique",
                     shown(*name));
  }
  return name->string;
}

/// Everything of a suite but its lines.
Result<Suite> suite_header(const JsonValue& value) {
  if (!value.is(Kind::object)) {
    return fail(ErrorCode::invalid_argument,
                "{} is no object; a suite is {{\"name\": ..., \"gemms\": [...]}}", shown(value));
  }
  static const std::vector<std::string_view> kKeys = {"name", "about", "defaults", "gemms"};
  for (const auto& [key, member] : value.members) {
    if (std::ranges::find(kKeys, key) != kKeys.end()) continue;
    const std::string hint = did_you_mean(key, kKeys);
    return key_error(key, "there is no such key{}",
                     hint.empty() ? "; a suite has name, about, defaults and gemms" : hint);
  }
  Suite suite;
  if (const JsonValue* name = value.find("name")) {
    LAPIDARY_TRY(suite.name, word("name", *name, "llama3-8b"));
  }
  if (suite.name.empty()) return key_error("name", "is missing or empty; a suite has a name");
  if (const JsonValue* about = value.find("about")) {
    LAPIDARY_TRY(suite.about, word("about", *about, "What it holds."));
  }
  if (const JsonValue* defaults = value.find("defaults")) {
    if (!defaults->is(Kind::object))
      return key_error("defaults", "{} is no object of keys", shown(*defaults));
    Draft draft{.many_m = true};
    for (const auto& [key, member] : defaults->members) {
      if (const auto read = read_key(draft, key, member); !read)
        return within_place("defaults", read.error());
    }
  }
  const JsonValue* gemms = value.find("gemms");
  if (gemms == nullptr) return key_error("gemms", "is missing; it is the list of problems");
  if (!gemms->is(Kind::array))
    return key_error("gemms", "{} is no list of problems", shown(*gemms));
  return suite;
}

}  // namespace

Result<Suite> suite_from_json(std::string_view json, std::string_view source) {
  const std::string place = fmt::format("suite {}", source);
  const auto value = problem::read_json(json);
  if (!value) return within_place(place, value.error());
  auto suite = suite_header(*value);
  if (!suite) return within_place(place, suite.error());
  const JsonValue* defaults = value->find("defaults");
  Names names;
  for (const JsonValue& line : value->find("gemms")->items) {
    std::string here = fmt::format("{}: gemms[{}]", place, names.size());
    const auto name = name_of(line, names);
    if (!name) return within_place(here, name.error());
    here += problem::printable(" (" + *name + ")");
    names.insert(*name);
    auto problems = problems_of(line, defaults);
    if (!problems) return within_place(here, problems.error());
    for (GemmProblem& problem : *problems) suite->lines.push_back({*name, std::move(problem)});
  }
  return suite;
}

}  // namespace lapidary
