#pragma once

#include <optional>
#include <string>
#include <string_view>

// Keys are texts of a few lines, so that a person can read them and no two facts share one:
//   lapidary 1
//   device cpu avx512_bf16 "Intel(R) Xeon(R) ..." threads=2
//   problem {"m":16,"n":6144,...}
//   candidate onednn {"fused":1}              (of a quarantined candidate)
namespace lapidary::store {

/// Changes with the meaning of keys; older entries are then never found again.
inline constexpr int kKeyVersion = 1;

struct KeyParts {
  int version = kKeyVersion;
  std::string device, problem;
  std::string candidate;  ///< empty for a result
  bool operator==(const KeyParts&) const = default;
};

/// Line ends and backslashes in a part are escaped: the parts can be told from the text.
std::string key_text(const KeyParts& parts);

/// The parts again; empty when it is no such text.
std::optional<KeyParts> key_parts(std::string_view key);

}  // namespace lapidary::store
