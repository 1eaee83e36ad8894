// lapidary-worker: everything that touches a device while tuning. Started by the library and the
// command line, never by a person; speaks the frames of worker/protocol.h on stdin and stdout.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "backends/backend.h"
#include "worker/protocol.h"
#include "worker/server.h"

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
    std::printf("lapidary-worker, protocol %d\n", lapidary::worker::kProtocolVersion);
    return 0;
  }
  // Which device: the one argument.
  if (argc != 2 || ::isatty(STDIN_FILENO)) {
    std::fprintf(stderr,
                 "lapidary-worker: started by lapidary, not by hand; use `lapidary tune`\n");
    return 2;
  }
  // A library that prints must not break the frames: they get a descriptor of their own.
  const int out = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (out < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
    std::perror("lapidary-worker: cannot set up its streams");
    return 1;
  }
  const lapidary::Status status =
      lapidary::worker::serve(STDIN_FILENO, out, argv[1], lapidary::backends::all());
  if (!status) {
    std::fprintf(stderr, "lapidary-worker: %s\n", status.error().message.c_str());
    return 1;
  }
  return 0;
}
