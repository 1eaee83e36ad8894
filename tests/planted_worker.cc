// A worker that offers, beside the portable kernels, the planted wrong ones of
// worker/testing_planted.h that LAPIDARY_PLANTED lists.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

#include "worker/server.h"
#include "worker/testing_planted.h"

int main() {
  const int out = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (out < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return 1;
  const lapidary::worker::PlantedBackend planted;
  std::vector<const lapidary::backends::Backend*> backends = {lapidary::backends::all().front(),
                                                              &planted};
  const lapidary::Status status = lapidary::worker::serve(STDIN_FILENO, out, "cpu", backends);
  if (!status) std::fprintf(stderr, "planted-worker: %s\n", status.error().message.c_str());
  return status ? 0 : 1;
}
