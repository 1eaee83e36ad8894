#include <cstdio>
#include <exception>

#include "cli/cli.h"

int main(int argc, char** argv) {
  try {
    return lapidary::cli::run(argc, argv);
  } catch (const std::exception& e) {  // out of memory, or a library's
    std::fprintf(stderr, "lapidary: %s\n", e.what());
    return lapidary::cli::kFailed;
  }
}
