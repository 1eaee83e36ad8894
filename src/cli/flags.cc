#include "cli/flags.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "support/files.h"
#include "support/text.h"

namespace lapidary::cli {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

Result<std::int64_t> whole_number(const std::string& key, const std::string& value) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size()) {
    return fail(ErrorCode::invalid_argument, "--{}: '{}' is no whole number that fits 64 bits", key,
                value);
  }
  return number;
}

/// An error of the suite reader in the words of flags: without the place in a file, and "--a: " for
/// "key 'a': ", "--type: bias: " for "key 'types.bias': ".
Error of_flags(Error error) {
  constexpr std::string_view kPlace = "gemms[0] (gemm): ", kKey = "key '", kTypes = "types";
  std::string& message = error.message;
  if (const std::size_t at = message.find(kPlace); at != std::string::npos)
    message.erase(0, at + kPlace.size());
  const std::size_t end = message.find("': ");
  if (!message.starts_with(kKey) || end == std::string::npos) return error;
  std::string name = message.substr(kKey.size(), end - kKey.size());
  if (name == kTypes) {
    name = "type";
  } else if (name.starts_with("types.")) {
    name = "type: " + name.substr(kTypes.size() + 1);
  }
  message.replace(0, end + 1, "--" + name);
  return error;
}

bool is_text(const std::string& key) {
  for (const char* name : {"layout", "a", "b", "c", "d", "scales", "epilogue"}) {
    if (key == name) return true;
  }
  return false;
}

}  // namespace

Result<std::vector<SuiteLine>> lines_from_flags(const std::vector<Flag>& flags) {
  Json gemm = {{"name", "gemm"}};
  for (const auto& [key, value] : flags) {
    const bool repeatable =
        key == "type" || key == "numerics" || key == "constant" || key == "alias";
    if (!repeatable && gemm.contains(key)) {
      return fail(ErrorCode::invalid_argument,
                  "--{} is given more than once, again with '{}'; give it once", key, value);
    }
    if (key == "m") {
      const auto extents = extents_from_text("m", value);
      if (!extents) return of_flags(extents.error());
      gemm["m"] = *extents;
    } else if (key == "type") {
      for (const std::string_view piece : split(value, ',')) {
        const std::size_t equals = piece.find('=');
        if (equals == std::string_view::npos) {
          return fail(ErrorCode::invalid_argument,
                      "--type: '{}' is no NAME=TYPE; for example --type bias=f32", piece);
        }
        const std::string name(piece.substr(0, equals)), type(piece.substr(equals + 1));
        if (gemm["types"].contains(name)) {
          return fail(ErrorCode::invalid_argument,
                      "--type: '{}' has a type already, {}, and gets another, {}; give one", name,
                      gemm["types"][name].get<std::string>(), type);
        }
        gemm["types"][name] = type;
      }
    } else if (key == "numerics" || key == "constant" || key == "alias") {
      for (const std::string_view piece : split(value, ','))
        gemm[key].push_back(std::string(piece));
    } else if (is_text(key)) {
      gemm[key] = value;
    } else {
      LAPIDARY_TRY(const std::int64_t number, whole_number(key, value));
      gemm[key] = number;
    }
  }
  for (const char* needed : {"m", "n", "k"}) {
    if (!gemm.contains(needed)) {
      return fail(ErrorCode::invalid_argument,
                  "--{} is missing; give a suite, or --m, --n and --k (for example --m 1,16 --n "
                  "6144 --k 4096)",
                  needed);
    }
  }
  const Json suite = {{"name", "flags"}, {"about", ""}, {"gemms", Json::array({gemm})}};
  Result<Suite> parsed =
      suite_from_json(suite.dump(-1, ' ', false, Json::error_handler_t::replace), "");
  if (!parsed) return of_flags(parsed.error());
  return std::move(parsed->lines);
}

Result<std::vector<SuiteLine>> lines_from_suite(const std::string& name) {
  const std::string file = name.ends_with(".json") ? name : name + ".json";
  std::vector<fs::path> places = {name, file};
  std::vector<std::string> known;
  std::error_code ignored;
  const fs::path bin = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  // In a bundle, in an installation, in a build folder of the sources.
  for (const char* folder : {"../suites", "../share/lapidary/suites", "../../../suites"}) {
    if (name.find('/') == std::string::npos) places.push_back(bin / folder / file);
    for (const auto& entry : fs::directory_iterator(bin / folder, ignored)) {
      if (entry.path().extension() == ".json") known.push_back(entry.path().stem());
    }
  }
  for (const fs::path& place : places) {
    if (!fs::is_regular_file(place, ignored)) continue;
    LAPIDARY_TRY(const std::string json, read_file(place));
    LAPIDARY_TRY(Suite suite, suite_from_json(json, place.filename().string()));
    return std::move(suite.lines);
  }
  std::ranges::sort(known);
  std::string hint = did_you_mean(name, {known.begin(), known.end()});
  if (hint.empty() && !known.empty()) hint = fmt::format("; those are {}", fmt::join(known, ", "));
  return fail(ErrorCode::invalid_argument,
              "suite '{}' is no file, and no suite of that name comes with lapidary{}", name, hint);
}

}  // namespace lapidary::cli
