#include "support/result.h"

namespace lapidary {

const char* name(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::resource_limit:
      return "resource_limit";
    case ErrorCode::compile_failed:
      return "compile_failed";
    case ErrorCode::launch_failed:
      return "launch_failed";
    case ErrorCode::wrong_result:
      return "wrong_result";
    case ErrorCode::io:
      return "io";
    case ErrorCode::internal:
      return "internal";
    case ErrorCode::device_fault:
      return "device_fault";
    case ErrorCode::timeout:
      return "timeout";
    case ErrorCode::cancelled:
      return "cancelled";
  }
  return "internal";
}

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "lapidary: internal: %s does not hold at %s:%d; please report this\n",
               condition, file, line);
  std::abort();
}

}  // namespace lapidary
