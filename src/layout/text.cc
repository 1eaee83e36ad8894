#include <fmt/format.h>

#include <ostream>

#include "layout/internal.h"

namespace lapidary {

using namespace layout_detail;

namespace layout_detail {

std::string path_text(Path path) {
  std::string text;
  for (int level = levels(path) - 1; level >= 0; --level)
    text += fmt::format("@{}", mode_at(path, level));
  return text;
}

namespace {

constexpr std::size_t kBrief = 100;

std::string cut(std::string text) {
  if (text.size() > kBrief) text.replace(kBrief - 3, std::string::npos, "...");
  return text;
}

/// A profile with its leaves: `leaf(i)` is the text of leaf i.
template <class OnLeaf>
std::string nested(Span profile, const OnLeaf& leaf) {
  std::string text;
  InlineVector<Token, 16> open;  // children still to come, a level each
  std::size_t leaves = 0;
  const auto close = [&] {
    while (!open.empty() && open.back() == 0) {
      text += ')';
      open.pop_back();
      if (!open.empty()) --open.back();
    }
    if (!open.empty() && text.back() != '(') text += ',';
  };
  for (const Token token : profile) {
    if (token == kLeafToken) {
      text += leaf(leaves++);
      if (!open.empty()) --open.back();
    } else {
      text += '(';
      open.push_back(token);
      if (token > 0) continue;
    }
    close();
  }
  return text;
}

std::string leaf_text(std::int64_t value, Path path) {
  return path == kUnderscore ? "_" : fmt::format("{}{}", value, path_text(path));
}

}  // namespace

std::string brief(const Layout& layout) { return cut(text(layout)); }
std::string brief(const IntTuple& tuple) { return cut(text(tuple)); }

}  // namespace layout_detail

std::string text(const IntTuple& tuple) {
  return nested(tuple.profile(), [&](std::size_t i) {
    return leaf_text(tuple.leaves()[i].value, tuple.leaves()[i].path);
  });
}

std::string text(const Swizzle& swizzle) {
  return fmt::format("S<{},{},{}>", swizzle.bits, swizzle.base, swizzle.shift);
}

std::string text(const Layout& layout) {
  std::string all;
  for (const Stage& stage : layout.stages())
    all += fmt::format("{} o {} o ", text(stage.swizzle()), stage.offset);
  all += nested(layout.profile(),
                [&](std::size_t i) { return leaf_text(layout.modes()[i].shape, kPlain); });
  all += ':';
  all += nested(layout.profile(), [&](std::size_t i) {
    return leaf_text(layout.modes()[i].stride, layout.modes()[i].path);
  });
  return all;
}

std::string text(const Tiler& tiler) {
  if (tiler.is_underscore()) return "_";
  if (tiler.is_layout()) return text(tiler.layout());
  std::string all = "<";
  for (const Tiler& part : tiler.parts()) all += (all.size() > 1 ? "," : "") + text(part);
  return all + ">";
}

std::ostream& operator<<(std::ostream& out, const IntTuple& tuple) { return out << text(tuple); }
std::ostream& operator<<(std::ostream& out, const Swizzle& swizzle) { return out << text(swizzle); }
std::ostream& operator<<(std::ostream& out, const Layout& layout) { return out << text(layout); }
std::ostream& operator<<(std::ostream& out, const Tiler& tiler) { return out << text(tiler); }

}  // namespace lapidary
