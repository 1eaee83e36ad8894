#include "store/key_text.h"

#include <fmt/format.h>

#include <charconv>

namespace lapidary::store {
namespace {

std::string escaped(std::string_view text) {
  std::string line;
  for (const char c : text) {
    if (c == '\\') {
      line += "\\\\";
    } else if (c == '\n') {
      line += "\\n";
    } else {
      line += c;
    }
  }
  return line;
}

std::optional<std::string> unescaped(std::string_view line) {
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\') {
      text += line[i];
      continue;
    }
    if (++i == line.size() || (line[i] != '\\' && line[i] != 'n')) return std::nullopt;
    text += line[i] == 'n' ? '\n' : '\\';
  }
  return text;
}

/// Takes "word rest\n" off the front of `key`; the last line has no line end.
std::optional<std::string> take_line(std::string_view& key, std::string_view word) {
  const std::string_view line = key.substr(0, key.find('\n'));
  if (line.substr(0, word.size()) != word || line.size() <= word.size() || line[word.size()] != ' ')
    return std::nullopt;
  key.remove_prefix(line.size());
  if (!key.empty()) key.remove_prefix(1);
  return unescaped(line.substr(word.size() + 1));
}

}  // namespace

std::string key_text(const KeyParts& parts) {
  std::string key = fmt::format("lapidary {}\ndevice {}\nproblem {}", parts.version,
                                escaped(parts.device), escaped(parts.problem));
  if (!parts.candidate.empty()) key += "\ncandidate " + escaped(parts.candidate);
  return key;
}

std::optional<KeyParts> key_parts(std::string_view key) {
  const auto version = take_line(key, "lapidary");
  if (!version) return std::nullopt;
  KeyParts parts;
  const char* const end = version->data() + version->size();
  if (const auto [stop, error] = std::from_chars(version->data(), end, parts.version);
      error != std::errc() || stop != end) {
    return std::nullopt;
  }
  auto device = take_line(key, "device"), problem = take_line(key, "problem");
  if (!device || !problem) return std::nullopt;
  parts.device = *std::move(device);
  parts.problem = *std::move(problem);
  if (!key.empty()) {
    auto candidate = take_line(key, "candidate");
    if (!candidate || candidate->empty() || !key.empty()) return std::nullopt;
    parts.candidate = *std::move(candidate);
  }
  return parts;
}

}  // namespace lapidary::store
