#include "store/key_text.h"
#include "store/store.h"

namespace lapidary::store {

std::string result_key(const DeviceInfo& device, const GemmProblem& problem) {
  return key_text({.device = device.key, .problem = text(problem), .candidate = ""});
}

std::string quarantine_key(const DeviceInfo& device, const GemmProblem& problem,
                           const Candidate& candidate) {
  return key_text({.device = device.key, .problem = text(problem), .candidate = text(candidate)});
}

}  // namespace lapidary::store
