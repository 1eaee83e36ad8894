#pragma once

#include <cstdint>
#include <string>

#include "store/store.h"

// How an entry is written down, and when a written one is believed.
namespace lapidary::store {

/// Version of what the digest covers and how. A row of another version is left alone.
inline constexpr std::int64_t kRowVersion = 1;

/// One row as it lies in a file, sound or not.
struct Row {
  std::int64_t kind = 0;
  std::string key_digest, key, value;
  std::int64_t created = 0, version = 0;
  std::string digest;
  bool typed = true;  ///< every column had the type that we write
};

enum class RowState { sound, damaged, unknown_version };

/// SHA-256 over version, kind, key, value and created, each with its length before it, so that no
/// two entries have the same bytes.
std::string digest(const Entry& entry);

Row to_row(const Entry& entry);
Entry to_entry(Row row);

/// Sound: types, both digests and the kind are right. One of a newer version or kind cannot be
/// judged.
RowState state(const Row& row);

/// What `put` asks of an entry.
Status check(const Entry& entry);

/// Whether `a` takes the place of `b`, of the same kind and key, on a merge: a strict total order.
bool wins(const Entry& a, const Entry& b);

}  // namespace lapidary::store
