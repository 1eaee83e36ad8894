#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// What `ptxas -v` writes, as values. Its messages are known by their words; the numbers before some
// of them ("C7510") change from release to release.
namespace lapidary::assembler {

enum class Severity {
  info,
  warning,
  error,
  fatal,
  none
};  ///< none: a line that is not ptxas's own

/// What a message means for us. All but the last two cost speed or the cubin.
enum class Meaning {
  error,               ///< there is no cubin
  serialised,          ///< wgmma runs one at a time
  setmaxnreg_ignored,  ///< registers stay as they were at the start
  injected,            ///< a missing fence or wait of wgmma was put in, at the cost of the overlap
  performance_loss,    ///< another "Potential Performance Loss"
  harmless,
  unknown,  ///< to be shown: nobody has seen it yet
};

/// "serialised".
const char* name(Meaning meaning);

struct Message {
  Meaning meaning = Meaning::unknown;
  Severity severity = Severity::none;
  int line = 0;      ///< of the PTX, from 1; 0 when the message names none
  std::string code;  ///< "C7510", or ""
  std::string text;  ///< without file, line and code
  bool operator==(const Message&) const = default;
};

/// What a function of the text takes. Bytes of spills and stack are a thread's.
struct FunctionFacts {
  std::string name;
  bool entry = false;  ///< a kernel; else a function that was not inlined, with its frame alone
  int registers = 0;   ///< a thread's at the start, of a kernel
  int barriers = 0;
  std::int64_t spill_store_bytes = 0, spill_load_bytes = 0;
  std::int64_t stack_bytes = 0;     ///< a kernel's with those of all that it calls
  std::int64_t smem_bytes = 0;      ///< static: what a launch asks for comes on top
  std::int64_t constant_bytes = 0;  ///< of all its banks, arguments among them
  bool operator==(const FunctionFacts&) const = default;
};

struct PtxasLog {
  std::vector<FunctionFacts> functions;  ///< in the order of the log, each once
  std::vector<Message> messages;         ///< all lines that are no facts
  std::int64_t global_bytes = 0;         ///< of the module
  std::int64_t constant_bytes = 0;       ///< of the module
  bool operator==(const PtxasLog&) const = default;
};

/// Reads any text; what it does not know it keeps as a message.
PtxasLog parse_log(std::string_view text);

/// The first error, else null.
const Message* first_error(const PtxasLog& log);

/// A message as one line for people: `line 33: Not a name of any known instruction: 'mull'
/// in "mull.f32 %f2, %f2, %f3;"`. The line's text comes from `ptx`.
std::string describe(const Message& message, std::string_view ptx);

}  // namespace lapidary::assembler
