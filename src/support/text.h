#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lapidary {

/// Pieces between separators; "a,,b" gives three.
std::vector<std::string_view> split(std::string_view text, char separator);

/// Without white space at both ends.
std::string_view trim(std::string_view text);

/// The known word nearest to a misspelt one within two edits, else "". For "did you mean" in
/// messages.
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& known);

/// "; did you mean 'x'?" or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& known);

}  // namespace lapidary
