#include "worker/protocol.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "candidate/json.h"
#include "support/result.h"

namespace lapidary::worker {
namespace {

using Json = nlohmann::json;

constexpr std::uint32_t kMagic = 0x4c504400u | kProtocolVersion;  // "LPD" and the version
constexpr std::uint32_t kMaxFrame = 64u << 20;

Json candidate_json(const Candidate& c) {
  return {{"backend", c.backend}, {"config", Json::parse(text(c.config))}};
}

Candidate candidate_from(const Json& json) {
  Candidate c{.backend = json.at("backend").get<std::string>(), .config = {}};
  auto config = config_from_json(json.at("config").dump());
  if (!config) throw std::runtime_error(config.error().message);
  c.config = *std::move(config);
  return c;
}

template <class T>
Result<T> decode(std::string_view json, const char* what, T (*convert)(const Json&)) {
  try {
    return convert(Json::parse(json));
  } catch (const std::exception& e) {
    return fail(ErrorCode::internal, "worker: cannot understand a {}: {}", what, e.what());
  }
}

Request request_from(const Json& j) {
  return {.ask = static_cast<Ask>(j.at("ask").get<int>()),
          .problem = j.at("problem").get<std::string>(),
          .candidate = candidate_from(j.at("candidate")),
          .repeats = j.at("repeats").get<std::int64_t>(),
          .rotate_bytes = j.at("rotate_bytes").get<std::int64_t>(),
          .seed = j.at("seed").get<std::uint64_t>(),
          .checks = j.at("checks").get<std::uint32_t>(),
          .seconds = j.at("seconds").get<double>()};
}

Reply reply_from(const Json& j) {
  Reply r;
  if (j.contains("beat")) r.beat = j["beat"].get<std::string>();
  if (j.contains("error")) {
    r.error = Error{static_cast<ErrorCode>(j["error"].at("code").get<int>()),
                    j["error"].at("message").get<std::string>()};
  }
  if (j.contains("device")) {
    const Json& d = j["device"];
    r.device = {.id = d.at("id"),
                .name = d.at("name"),
                .key = d.at("key"),
                .uuid = d.at("uuid"),
                .driver = d.at("driver"),
                .threads = d.at("threads"),
                .sm = d.at("sm"),
                .cache_bytes = d.at("cache_bytes"),
                .memory_bytes = d.at("memory_bytes"),
                .max_clock_mhz = d.at("max_clock_mhz"),
                .power_limit_w = d.at("power_limit_w")};
  }
  if (j.contains("backends")) {
    for (const Json& b : j["backends"])
      r.backends.push_back({b.at("name"), b.at("version"), b.at("missing")});
  }
  if (j.contains("offers")) {
    for (const Json& o : j["offers"]) {
      r.offers.push_back({.candidate = candidate_from(o.at("candidate")),
                          .refused = o.at("refused"),
                          .predicted_us = o.at("predicted_us"),
                          .workspace_bytes = o.at("workspace_bytes"),
                          .packed_bytes = o.at("packed_bytes")});
    }
  }
  r.time_us = j.value("time_us", 0.0);
  if (j.contains("effort")) {
    const Json& e = j["effort"];
    r.effort = {.time_us = e.at("time_us"),
                .clock_mhz = e.at("clock_mhz"),
                .watts = e.at("watts"),
                .joules = e.at("joules")};
  }
  r.workspace_bytes = j.value("workspace_bytes", std::int64_t{0});
  r.packed_bytes = j.value("packed_bytes", std::int64_t{0});
  r.passed = j.value("passed", false);
  r.check = j.value("check", "");
  r.reason = j.value("reason", "");
  return r;
}

}  // namespace

std::string encode(const Request& r) {
  return Json{{"ask", static_cast<int>(r.ask)},
              {"problem", r.problem},
              {"candidate", candidate_json(r.candidate)},
              {"repeats", r.repeats},
              {"rotate_bytes", r.rotate_bytes},
              {"seed", r.seed},
              {"checks", r.checks},
              {"seconds", r.seconds}}
      .dump();
}

std::string encode(const Reply& r) {
  Json j = Json::object();
  // Messages of other people's libraries may hold any bytes: the dump below replaces what is no
  // UTF-8.
  if (r.beat) j["beat"] = *r.beat;
  if (r.error)
    j["error"] = {{"code", static_cast<int>(r.error->code)}, {"message", r.error->message}};
  if (!r.device.id.empty()) {
    j["device"] = {{"id", r.device.id},
                   {"name", r.device.name},
                   {"key", r.device.key},
                   {"uuid", r.device.uuid},
                   {"driver", r.device.driver},
                   {"threads", r.device.threads},
                   {"sm", r.device.sm},
                   {"cache_bytes", r.device.cache_bytes},
                   {"memory_bytes", r.device.memory_bytes},
                   {"max_clock_mhz", r.device.max_clock_mhz},
                   {"power_limit_w", r.device.power_limit_w}};
  }
  for (const BackendState& b : r.backends) {
    j["backends"].push_back({{"name", b.name}, {"version", b.version}, {"missing", b.missing}});
  }
  for (const Offer& o : r.offers) {
    j["offers"].push_back({{"candidate", candidate_json(o.candidate)},
                           {"refused", o.refused},
                           {"predicted_us", o.predicted_us},
                           {"workspace_bytes", o.workspace_bytes},
                           {"packed_bytes", o.packed_bytes}});
  }
  if (r.time_us != 0) j["time_us"] = r.time_us;
  if (r.effort != driver::Effort{}) {
    j["effort"] = {{"time_us", r.effort.time_us},
                   {"clock_mhz", r.effort.clock_mhz},
                   {"watts", r.effort.watts},
                   {"joules", r.effort.joules}};
  }
  if (r.workspace_bytes != 0) j["workspace_bytes"] = r.workspace_bytes;
  if (r.packed_bytes != 0) j["packed_bytes"] = r.packed_bytes;
  if (r.passed) j["passed"] = true;
  if (!r.check.empty()) j["check"] = r.check;
  if (!r.reason.empty()) j["reason"] = r.reason;
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<Request> decode_request(std::string_view json) {
  return decode<Request>(json, "request", request_from);
}
Result<Reply> decode_reply(std::string_view json) {
  return decode<Reply>(json, "reply", reply_from);
}

Status send_frame(int fd, std::string_view json, Deadline deadline) {
  const std::uint32_t head[2] = {kMagic, static_cast<std::uint32_t>(json.size())};
  std::string frame(reinterpret_cast<const char*>(head), sizeof head);
  frame += json;
  return write_all(fd, frame, deadline);
}

Result<std::optional<std::string>> receive_frame(int fd, Deadline deadline) {
  std::uint32_t head[2];
  LAPIDARY_TRY(const bool more, read_exact(fd, std::as_writable_bytes(std::span(head)), deadline));
  if (!more) return std::optional<std::string>();
  if (head[0] != kMagic) {
    return fail(ErrorCode::io,
                "worker: frame starts with {:#x}, not {:#x}: another version of lapidary-worker?",
                head[0], kMagic);
  }
  if (head[1] > kMaxFrame)
    return fail(ErrorCode::io, "worker: a frame of {} bytes; at most {}", head[1], kMaxFrame);
  std::string json(head[1], '\0');
  if (head[1] > 0) {
    LAPIDARY_TRY(
        const bool whole,
        read_exact(fd, std::as_writable_bytes(std::span(json.data(), json.size())), deadline));
    if (!whole) return fail(ErrorCode::io, "worker: the stream ends within a frame");
  }
  return std::optional<std::string>(std::move(json));
}

}  // namespace lapidary::worker
