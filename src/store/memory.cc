#include <map>
#include <mutex>
#include <utility>

#include "store/row.h"

namespace lapidary::store {
namespace {

class MemoryStore final : public Store {
 public:
  Result<std::optional<Entry>> find(Kind kind, std::string_view key) override {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find({kind, std::string(key)});
    if (found == entries_.end()) return std::optional<Entry>();
    return std::optional(found->second);
  }

  Status put(const Entry& entry) override {
    LAPIDARY_TRY_STATUS(check(entry));
    const std::lock_guard lock(mutex_);
    entries_[{entry.kind, entry.key}] = entry;
    return {};
  }

  Result<Merged> put_newer(const Entry& entry) override {
    LAPIDARY_TRY_STATUS(check(entry));
    const std::lock_guard lock(mutex_);
    const auto [present, added] = entries_.try_emplace({entry.kind, entry.key}, entry);
    if (added) return Merged::added;
    if (!wins(entry, present->second)) return Merged::older;
    present->second = entry;
    return Merged::newer;
  }

  Status erase(Kind kind, std::string_view key) override {
    const std::lock_guard lock(mutex_);
    entries_.erase({kind, std::string(key)});
    return {};
  }

  Status each(const std::function<bool(const Entry&)>& visit) override {
    std::unique_lock lock(mutex_);
    const auto entries = entries_;
    lock.unlock();  // `visit` may use the store
    for (const auto& [key, entry] : entries) {
      if (!visit(entry)) break;
    }
    return {};
  }

  std::string where() const override { return "memory"; }

 private:
  std::mutex mutex_;
  std::map<std::pair<Kind, std::string>, Entry> entries_;
};

}  // namespace

std::unique_ptr<Store> open_memory() { return std::make_unique<MemoryStore>(); }

}  // namespace lapidary::store
