#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "assembler/ptxas_log.h"
#include "support/result.h"

// Any bytes: no number is negative, each function comes once, and a message that was read is read
// again from its text.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lapidary;
  using namespace lapidary::assembler;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const PtxasLog log = parse_log(text);
  LAPIDARY_CHECK(log.global_bytes >= 0 && log.constant_bytes >= 0);
  for (const FunctionFacts& f : log.functions) {
    LAPIDARY_CHECK(f.registers >= 0 && f.barriers >= 0 && f.smem_bytes >= 0);
    LAPIDARY_CHECK(f.spill_store_bytes >= 0 && f.spill_load_bytes >= 0 && f.stack_bytes >= 0);
    LAPIDARY_CHECK(f.constant_bytes >= 0);
    int same = 0;
    for (const FunctionFacts& other : log.functions) same += other.name == f.name;
    LAPIDARY_CHECK(same == 1);
  }
  for (const Message& message : log.messages) {
    LAPIDARY_CHECK(message.line >= 0);
    const bool failed = message.severity == Severity::error || message.severity == Severity::fatal;
    LAPIDARY_CHECK(failed == (message.meaning == Meaning::error));
    LAPIDARY_CHECK(!describe(message, text).empty() || message.text.empty());
    // The same words after another severity and code mean the same.
    if (failed || message.text.empty()) continue;
    const PtxasLog again = parse_log("ptxas warning : (C1) " + message.text);
    LAPIDARY_CHECK(again.messages.size() == 1 && again.messages[0].meaning == message.meaning);
  }
  return 0;
}
