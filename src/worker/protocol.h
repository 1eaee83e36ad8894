#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "driver/device.h"
#include "lapidary/candidate.h"
#include "lapidary/result.h"
#include "support/subprocess.h"

// What parent and worker say to each other: frames of [u32 magic+version][u32 bytes] and that much
// JSON, over the worker's stdin and stdout. The parent asks, the worker sends any number of beats
// and one answer.
namespace lapidary::worker {

inline constexpr int kProtocolVersion = 2;

enum class Ask : std::uint8_t {
  hello,    ///< -> device, backends
  offers,   ///< problem -> offers
  open,     ///< problem, seed, rotate_bytes: take the device's lock, make and fill the buffers that
            ///< replays rotate through
  prepare,  ///< candidate: compile, pack, run once -> time_us, workspace_bytes, packed_bytes
  replay,   ///< candidate, repeats: so many runs over rotating buffers -> time_us of one
  verify,   ///< candidate, seed -> passed, check, reason
  release,  ///< candidate: out of the race, its buffers go
  sustain,  ///< candidate, repeats, seconds: replays without a rest -> effort
};

struct Request {
  Ask ask = Ask::hello;
  std::string problem;  ///< canonical JSON, of offers and open
  Candidate candidate;
  std::int64_t repeats = 1, rotate_bytes = 0;
  std::uint64_t seed = 1;
  std::uint32_t checks = ~0u;
  double seconds = 0;
  bool operator==(const Request&) const = default;
};

/// A backend as the worker found it.
struct BackendState {
  std::string name;
  std::string version;  ///< empty when it cannot be used
  std::string missing;  ///< why not, and what to do
  bool operator==(const BackendState&) const = default;
};

struct Reply {
  std::optional<std::string> beat;  ///< a step has begun; more will follow
  std::optional<Error> error;
  DeviceInfo device;
  std::vector<BackendState> backends;
  std::vector<Offer> offers;
  double time_us = 0;
  driver::Effort effort;
  std::int64_t workspace_bytes = 0, packed_bytes = 0;
  bool passed = false;
  std::string check, reason;
  bool operator==(const Reply&) const = default;
};

std::string encode(const Request& request);
std::string encode(const Reply& reply);
Result<Request> decode_request(std::string_view json);
Result<Reply> decode_reply(std::string_view json);

/// One frame. `io` when the peer is gone or speaks another version; an empty optional at a clean
/// end.
Status send_frame(int fd, std::string_view json, Deadline deadline = kNoDeadline);
Result<std::optional<std::string>> receive_frame(int fd, Deadline deadline = kNoDeadline);

}  // namespace lapidary::worker
