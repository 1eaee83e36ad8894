#include "arch/banks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

namespace lapidary::arch {
namespace {
std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0); }
}  // namespace

BankReport bank_conflicts(std::span<const std::int64_t> addresses, int bytes) {
  BankReport report{.bytes_per_thread = bytes};
  const std::size_t group = static_cast<std::size_t>(std::min(32, kBanks * kBankBytes / bytes));
  int most = 0;
  for (std::size_t begin = 0; begin < addresses.size(); begin += group) {
    std::array<std::set<std::int64_t>, kBanks> words;
    std::set<std::int64_t> all;
    for (std::size_t i = begin; i < std::min(begin + group, addresses.size()); ++i) {
      const std::int64_t first = floor_div(addresses[i], kBankBytes);
      const std::int64_t last = floor_div(addresses[i] + bytes - 1, kBankBytes);
      for (std::int64_t word = first; word <= last; ++word) {
        words[static_cast<std::size_t>(word - floor_div(word, kBanks) * kBanks)].insert(word);
        all.insert(word);
      }
    }
    const auto busiest =
        std::ranges::max_element(words, {}, [](const auto& bank) { return bank.size(); });
    const int passes = static_cast<int>(busiest->size());
    if (passes > most) {
      most = passes;
      report.worst_bank = static_cast<int>(busiest - words.begin());
    }
    report.passes_of_phase.push_back(passes);
    report.wavefronts += passes;
    report.ideal += static_cast<int>((all.size() + kBanks - 1) / kBanks);
    ++report.phases;
  }
  return report;
}

std::string summary(const BankReport& report, int threads) {
  const std::string phases =
      report.phases == 1
          ? "1 phase"
          : fmt::format("{} phases of {} threads", report.phases, threads / report.phases);
  const std::string head = fmt::format("{}, {} wavefront{}", phases, report.wavefronts,
                                       report.wavefronts == 1 ? "" : "s");
  if (report.wavefronts <= report.ideal) return head + ": no bank conflicts";
  const int most = std::ranges::max(report.passes_of_phase);
  return fmt::format("{} where {} would do: {}-way bank conflict (bank {})", head, report.ideal,
                     most, report.worst_bank);
}

}  // namespace lapidary::arch
