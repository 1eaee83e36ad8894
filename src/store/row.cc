#include "store/row.h"

#include <utility>

#include "support/hash.h"

namespace lapidary::store {
namespace {

void append(std::string& bytes, std::uint64_t number) {
  for (int shift = 0; shift < 64; shift += 8) {
    bytes.push_back(static_cast<char>((number >> shift) & 0xff));
  }
}

void append(std::string& bytes, std::string_view text) {
  append(bytes, static_cast<std::uint64_t>(text.size()));
  bytes.append(text);
}

/// Length of the well-formed UTF-8 character that `text` begins with, 0 when there is none
/// (Unicode 15.0, table 3-7: no surrogates, no overlong forms). NUL is not taken: C strings end
/// there.
std::size_t utf8_character(std::string_view text) {
  const auto at = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto tail = [&](std::size_t i) { return at(i) >= 0x80 && at(i) <= 0xbf; };
  const unsigned lead = at(0), second = at(1);
  if (lead >= 0x01 && lead <= 0x7f) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return tail(1) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef) {
    const unsigned low = lead == 0xe0 ? 0xa0 : 0x80, high = lead == 0xed ? 0x9f : 0xbf;
    return second >= low && second <= high && tail(2) ? 3 : 0;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    const unsigned low = lead == 0xf0 ? 0x90 : 0x80, high = lead == 0xf4 ? 0x8f : 0xbf;
    return second >= low && second <= high && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

bool is_text(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_character(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace

std::string_view name(Kind kind) { return kind == Kind::result ? "result" : "quarantine"; }

std::optional<Kind> kind_from_name(std::string_view name_) {
  for (const Kind kind : {Kind::result, Kind::quarantine}) {
    if (name(kind) == name_) return kind;
  }
  return std::nullopt;
}

std::string digest(const Entry& entry) {
  std::string bytes;
  bytes.reserve(entry.key.size() + entry.value.size() + 48);
  append(bytes, static_cast<std::uint64_t>(kRowVersion));
  append(bytes, static_cast<std::uint64_t>(entry.kind));
  append(bytes, entry.key);
  append(bytes, entry.value);
  append(bytes, static_cast<std::uint64_t>(entry.created_s));
  return sha256_hex(bytes);
}

Row to_row(const Entry& entry) {
  return {.kind = static_cast<std::int64_t>(entry.kind),
          .key_digest = sha256_hex(entry.key),
          .key = entry.key,
          .value = entry.value,
          .created = entry.created_s,
          .version = kRowVersion,
          .digest = digest(entry)};
}

Entry to_entry(Row row) {
  return {.kind = static_cast<Kind>(row.kind),
          .key = std::move(row.key),
          .value = std::move(row.value),
          .created_s = row.created};
}

RowState state(const Row& row) {
  if (!row.typed) return RowState::damaged;
  if (row.version != kRowVersion) return RowState::unknown_version;
  if (row.key_digest != sha256_hex(row.key)) return RowState::damaged;
  if (row.digest != digest(to_entry(row))) return RowState::damaged;
  const bool known =
      row.kind == static_cast<int>(Kind::result) || row.kind == static_cast<int>(Kind::quarantine);
  return known ? RowState::sound : RowState::unknown_version;
}

Status check(const Entry& entry) {
  if (entry.kind != Kind::result && entry.kind != Kind::quarantine) {
    return fail(ErrorCode::invalid_argument,
                "store: kind {} is not one of ours; use result or quarantine",
                static_cast<int>(entry.kind));
  }
  if (entry.key.size() + entry.value.size() > kMaxEntryBytes) {
    return fail(ErrorCode::invalid_argument,
                "store: an entry of {} bytes; at most {} can be stored",
                entry.key.size() + entry.value.size(), kMaxEntryBytes);
  }
  if (entry.key.empty() || !is_text(entry.key) || !is_text(entry.value)) {
    return fail(ErrorCode::invalid_argument,
                "store: key or value is not UTF-8 text, holds a NUL, or the key is empty");
  }
  return {};
}

bool wins(const Entry& a, const Entry& b) {
  if (a.created_s != b.created_s) return a.created_s > b.created_s;
  return digest(a) > digest(b);
}

}  // namespace lapidary::store
