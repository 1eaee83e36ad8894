#include "driver/cpu.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <sstream>

#include "support/files.h"
#include "support/text.h"

namespace lapidary::driver {
namespace {

/// Bytes of a sysfs cache size such as "32768K"; 0 when it is none.
std::int64_t cache_size(std::string_view text) {
  text = trim(text);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return 0;
  const std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  return unit == "K" ? value << 10 : unit == "M" ? value << 20 : value;
}

}  // namespace

std::string_view name(Isa isa) {
  switch (isa) {
    case Isa::base:
      return "base";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
  }
  return "base";
}

Isa cpu_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    return Isa::avx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::avx2;
#endif
  return Isa::base;
}

CpuFacts cpu_facts() {
  CpuFacts facts{
      .model = "unknown CPU", .features = "", .cache_bytes = 32 << 20, .memory_bytes = 0};
  if (const auto cpuinfo = read_file("/proc/cpuinfo")) {
    std::set<std::string> flags;
    for (const std::string_view line : split(*cpuinfo, '\n')) {
      const std::size_t colon = line.find(':');
      if (colon == std::string_view::npos) continue;
      const std::string_view key = trim(line.substr(0, colon)),
                             value = trim(line.substr(colon + 1));
      if (key == "model name") facts.model = value;
      if (key == "flags" && flags.empty()) {
        std::istringstream words{std::string(value)};
        for (std::string word; words >> word;) flags.insert(word);
      }
    }
    for (const char* feature :
         {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_bf16", "avx512_fp16", "amx_bf16"}) {
      if (flags.contains(feature))
        facts.features += (facts.features.empty() ? "" : " ") + std::string(feature);
    }
  }
  for (int level = 0; level < 8; ++level) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(level);
    if (const auto size = read_file(folder + "/size")) {
      if (const std::int64_t bytes = cache_size(*size); bytes > 0) facts.cache_bytes = bytes;
    }
  }
  const long pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0) facts.memory_bytes = static_cast<std::int64_t>(pages) * page;
  return facts;
}

}  // namespace lapidary::driver
