#include "cli/report.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "candidate/json.h"
#include "support/env.h"
#include "support/files.h"
#include "support/result.h"

namespace lapidary::cli {
namespace {

using Json = nlohmann::ordered_json;

double gigabytes_per_second(const GemmProblem& problem, double us) {
  double bytes = 0;
  for (const OperandSpec& spec : operands(problem)) {
    bytes += static_cast<double>(spec.rows) * static_cast<double>(spec.cols) *
             static_cast<double>(spec.batch) * size_bytes(spec.type);
  }
  return bytes / us * 1e-3;
}

double tflops(const GemmProblem& problem, double us) { return flops(problem) / us * 1e-6; }

Json contender(const GemmProblem& problem, const std::optional<Measurement>& row) {
  if (!row) return nullptr;
  Json json = {{"backend", row->candidate.backend},
               {"config", Json::parse(text(row->candidate.config))}};
  json["time_us"] = row->time_us ? Json(*row->time_us) : Json(nullptr);
  json["tflops"] = row->time_us ? Json(tflops(problem, *row->time_us)) : Json(nullptr);
  json["gbps"] = row->time_us ? Json(gigabytes_per_second(problem, *row->time_us)) : Json(nullptr);
  json["workspace_bytes"] = row->workspace_bytes;
  return json;
}

Json device_json(const DeviceInfo& device) {
  Json json = {{"id", device.id},
               {"name", device.name},
               {"threads", device.threads},
               {"cache_bytes", device.cache_bytes},
               {"memory_bytes", device.memory_bytes}};
  if (device.sm == 0) return json;
  json["uuid"] = device.uuid;
  json["driver"] = device.driver;
  json["sm"] = device.sm;
  json["max_clock_mhz"] = device.max_clock_mhz;
  json["power_limit_w"] = device.power_limit_w;
  return json;
}

Json effort_json(const driver::Effort& e) {
  return {
      {"time_us", e.time_us}, {"clock_mhz", e.clock_mhz}, {"watts", e.watts}, {"joules", e.joules}};
}

std::string dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string csv_field(const std::string& field) {
  if (field.find_first_of(",\"\n") == std::string::npos) return field;
  std::string quoted = "\"";
  for (const char c : field) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

/// Its extents, for people who sort, and the whole of it.
std::string csv_problem(const GemmProblem& p) {
  return fmt::format("{},{},{},{},{}", p.m, p.n, p.k, p.batch, csv_field(text(p)));
}

std::string time_text(double us) {
  if (us < 1000) return fmt::format("{:.1f} us", us);
  if (us < 1e6) return fmt::format("{:.2f} ms", us * 1e-3);
  return fmt::format("{:.2f} s", us * 1e-6);
}

/// One line of text, whatever a library put into a reason.
std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return text;
}

/// The geometric mean of the ratios that matches have; 0 of none.
template <class Ratio>
double geomean_of(const std::vector<BenchedLine>& lines, const Ratio& ratio) {
  double sum = 0;
  int counted = 0;
  for (const BenchedLine& line : lines) {
    const std::optional<double> one = line.match ? ratio(*line.match) : std::nullopt;
    if (!one) continue;
    sum += std::log(*one);
    ++counted;
  }
  return counted == 0 ? 0 : std::exp(sum / counted);
}

}  // namespace

double BenchSummary::geomean() const {
  return geomean_of(lines, [](const tuner::Rematch& match) { return std::optional(match.ratio); });
}

double BenchSummary::geomean_steady() const {
  return geomean_of(lines, [](const tuner::Rematch& match) {
    return match.steady ? std::optional(match.steady->ratio()) : std::nullopt;
  });
}

std::size_t BenchSummary::count() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(lines, [](const BenchedLine& line) { return line.match.has_value(); }));
}

std::string tune_json(const DeviceInfo& device, std::span<const TunedLine> lines) {
  Json problems = Json::array();
  for (const auto& [name, result, error] : lines) {
    Json candidates = Json::array();
    for (const Measurement& row : result.candidates) {
      Json json = {{"backend", row.candidate.backend},
                   {"config", Json::parse(text(row.candidate.config))},
                   {"status", lapidary::name(row.status)},
                   {"reason", row.reason}};
      json["time_us"] = row.time_us ? Json(*row.time_us) : Json(nullptr);
      json["spread"] = row.spread;
      json["registers"] = row.registers ? Json(*row.registers) : Json(nullptr);
      json["smem_bytes"] = row.smem_bytes ? Json(*row.smem_bytes) : Json(nullptr);
      candidates.push_back(std::move(json));
    }
    problems.push_back({{"name", name},
                        {"problem", Json::parse(text(result.problem))},
                        {"winner", contender(result.problem, result.winner)},
                        {"default", contender(result.problem, result.fallback)},
                        {"candidates", std::move(candidates)},
                        {"tune_seconds", result.tune_seconds},
                        {"first_tune_seconds", result.first_seconds}});
    if (!error.empty()) problems.back()["error"] = error;
  }
  Json refused = Json::array();
  for (const auto& [reason, count] : refusals(lines))
    refused.push_back({{"reason", reason}, {"problems", count}});
  return dump({{"version", 1},
               {"device", device_json(device)},
               {"problems", std::move(problems)},
               {"refusals", std::move(refused)}});
}

std::vector<std::pair<std::string, int>> refusals(std::span<const TunedLine> lines) {
  std::map<std::string, int> counts;
  for (const TunedLine& line : lines) {
    std::set<std::string> reasons;  // several candidates of a problem may share one
    for (const Measurement& row : line.result.candidates) {
      if (row.status == CandidateStatus::refused && !row.reason.starts_with("quarantined"))
        reasons.insert(row.candidate.backend + ": " + one_line(row.reason));
    }
    for (const std::string& reason : reasons) ++counts[reason];
  }
  std::vector<std::pair<std::string, int>> sorted(counts.begin(), counts.end());
  std::ranges::sort(sorted, {}, [](const auto& entry) {
    return std::pair(-entry.second, std::string_view(entry.first));
  });
  return sorted;
}

std::string bench_json(const DeviceInfo& device, const BenchSummary& summary) {
  Json rows = Json::array();
  for (const BenchedLine& line : summary.lines) {
    Json row = {{"name", line.name}, {"problem", Json::parse(text(line.problem))}};
    row["ours"] = line.match ? Json(text(line.match->ours)) : Json(nullptr);
    row["theirs"] = line.match ? Json(text(line.match->theirs)) : Json(nullptr);
    const bool timed = line.match && line.match->ours_us > 0;
    row["ours_us"] = timed ? Json(line.match->ours_us) : Json(nullptr);
    row["theirs_us"] = timed ? Json(line.match->theirs_us) : Json(nullptr);
    row["ratio"] = line.match ? Json(line.match->ratio) : Json(nullptr);
    const auto steady = line.match ? line.match->steady : std::nullopt;
    row["ratio_steady"] = steady ? Json(steady->ratio()) : Json(nullptr);
    if (steady) {
      row["ours_steady"] = effort_json(steady->ours);
      row["theirs_steady"] = effort_json(steady->theirs);
    }
    row["same"] = line.match && line.match->same;
    row["repeated"] = line.match && line.match->repeated;
    if (!line.skipped.empty()) row["skipped"] = line.skipped;
    rows.push_back(std::move(row));
  }
  Json json = {{"version", 1},
               {"device", device_json(device)},
               {"against", summary.against},
               {"rows", std::move(rows)}};
  json["geomean"] = summary.count() > 0 ? Json(summary.geomean()) : Json(nullptr);
  const double steady = summary.geomean_steady();
  json["geomean_steady"] = steady > 0 ? Json(steady) : Json(nullptr);
  json["count"] = summary.count();
  json["seconds"] = summary.seconds;
  json["peak_bytes"] = summary.peak_bytes;
  return dump(json);
}

std::string tune_csv(std::span<const TunedLine> lines) {
  std::string csv = "name,m,n,k,batch,problem,backend,config,status,time_us,spread,winner,reason\n";
  for (const auto& [name, result, error] : lines) {
    if (!error.empty()) {
      csv += fmt::format("{},{},,,error,,,0,{}\n", csv_field(name), csv_problem(result.problem),
                         csv_field(one_line(error)));
    }
    for (const Measurement& row : result.candidates) {
      const bool winner = result.winner && result.winner->candidate == row.candidate;
      csv += fmt::format("{},{},{},{},{},{},{},{},{}\n", csv_field(name),
                         csv_problem(result.problem), csv_field(row.candidate.backend),
                         csv_field(text(row.candidate.config)), lapidary::name(row.status),
                         row.time_us ? fmt::format("{}", *row.time_us) : "", row.spread,
                         winner ? 1 : 0, csv_field(one_line(row.reason)));
    }
  }
  return csv;
}

std::string bench_csv(const BenchSummary& summary) {
  std::string csv =
      "name,m,n,k,batch,problem,ours,theirs,ours_us,theirs_us,ratio,ratio_steady,skipped\n";
  for (const BenchedLine& line : summary.lines) {
    csv += fmt::format(
        "{},{},{},{},{},{},{},{},{}\n", csv_field(line.name), csv_problem(line.problem),
        line.match ? csv_field(text(line.match->ours)) : "",
        line.match ? csv_field(text(line.match->theirs)) : "",
        line.match && line.match->ours_us > 0 ? fmt::format("{}", line.match->ours_us) : "",
        line.match && line.match->ours_us > 0 ? fmt::format("{}", line.match->theirs_us) : "",
        line.match ? fmt::format("{}", line.match->ratio) : "",
        line.match && line.match->steady ? fmt::format("{}", line.match->steady->ratio()) : "",
        csv_field(one_line(line.skipped)));
  }
  return csv;
}

std::string tune_table(const TunedLine& line, bool all, bool colour) {
  const TuneResult& r = line.result;
  const auto paint = [&](const char* code, const std::string& text) {
    return colour ? fmt::format("\033[{}m{}\033[0m", code, text) : text;
  };
  std::string table = paint("1", fmt::format("{}  {}", line.name, summary(r.problem))) + "\n";
  if (tuner::is_empty(r.problem)) return table + "  nothing to compute\n";
  std::size_t backend_width = 8, config_width = 10;
  const auto shown = [&](const Measurement& row) {
    return all || row.time_us || row.status == CandidateStatus::wrong ||
           row.status == CandidateStatus::failed || row.reason.starts_with("quarantined") ||
           row.reason.starts_with("dropped") || !r.winner;
  };
  for (const Measurement& row : r.candidates) {
    if (!shown(row)) continue;
    backend_width = std::max(backend_width, row.candidate.backend.size());
    config_width = std::max(config_width, summary(row.candidate.config).size());
  }
  std::size_t hidden = 0;
  // Percent are of the fastest; the winner may stand a little behind it, within the noise.
  double best = 0;
  for (const Measurement& row : r.candidates) {
    const bool valid = row.status == CandidateStatus::ok || row.status == CandidateStatus::slow;
    if (valid && row.time_us && (best == 0 || *row.time_us < best)) best = *row.time_us;
  }
  for (const Measurement& row : r.candidates) {
    if (!shown(row)) {
      ++hidden;
      continue;
    }
    const bool winner = r.winner && r.winner->candidate == row.candidate;
    const bool fallback = r.fallback && r.fallback->candidate == row.candidate;
    std::string text = fmt::format(
        "  {:<{}}  {:>10}  {:>7}  {:<{}}", row.candidate.backend, backend_width,
        row.time_us ? time_text(*row.time_us) : "-",
        row.time_us && best > 0 ? fmt::format("{:.1f} %", 100 * best / *row.time_us) : "",
        summary(row.candidate.config), config_width);
    if (winner)
      text += fmt::format("  winner, verified, {:.3f} TFLOP/s", tflops(r.problem, *row.time_us));
    if (fallback) text += winner ? ", default" : "  default";
    if (row.status == CandidateStatus::wrong || row.status == CandidateStatus::failed ||
        row.status == CandidateStatus::refused) {
      text += fmt::format("  {}: {}", lapidary::name(row.status), one_line(row.reason));
    } else if (!row.reason.empty() && (all || !row.time_us)) {
      text += "  " + one_line(row.reason);
    }
    while (text.ends_with(' ')) text.pop_back();
    table += (winner                                 ? paint("32", text)
              : row.status == CandidateStatus::wrong ? paint("31", text)
                                                     : text) +
             "\n";
  }
  if (!r.winner) table += paint("31", "  no valid candidate") + "\n";
  table += fmt::format(
      "  {}{}\n",
      r.from_store ? "from the store, nothing tuned"
                   : fmt::format("tuned in {:.2f} s", r.tune_seconds),
      hidden > 0 ? fmt::format("; {} more not measured or refused (--all shows them)", hidden)
                 : "");
  return table;
}

std::string bench_table(const BenchSummary& summary) {
  std::size_t name_width = 4;
  for (const BenchedLine& line : summary.lines) name_width = std::max(name_width, line.name.size());
  std::string table = fmt::format("{:<{}}  {:>7}  {:>11}  {:>11}  {:>6}  {}\n", "name", name_width,
                                  "m", "ours", "theirs", "ratio", "winner vs rival");
  for (const BenchedLine& line : summary.lines) {
    if (!line.match) {
      table += fmt::format("{:<{}}  {:>7}  {:>11}  {:>11}  {:>6}  {}\n", line.name, name_width,
                           line.problem.m, "-", "-", "-", one_line(line.skipped));
      continue;
    }
    const tuner::Rematch& match = *line.match;
    table += fmt::format("{:<{}}  {:>7}  {:>11}  {:>11}  {:>6.3f}  {}\n", line.name, name_width,
                         line.problem.m, match.ours_us > 0 ? time_text(match.ours_us) : "-",
                         match.ours_us > 0 ? time_text(match.theirs_us) : "-", match.ratio,
                         match.same ? text(match.ours) + " is both"
                                    : text(match.ours) + " vs " + text(match.theirs) +
                                          (match.repeated ? " (measured again)" : ""));
    if (match.steady) {
      const auto& [ours, theirs] = *match.steady;
      table += fmt::format(
          "{:<{}}  {:>7}  {:>11}  {:>11}  {:>6.3f}  at {:.0f} and {:.0f} MHz, "
          "{:.0f} and {:.0f} W\n",
          "", name_width, "steady", time_text(ours.time_us), time_text(theirs.time_us),
          match.steady->ratio(), ours.clock_mhz, theirs.clock_mhz, ours.watts, theirs.watts);
    }
  }
  if (summary.count() == 0) return table + "nothing was measured\n";
  double slowest = 0;
  for (const BenchedLine& line : summary.lines) {
    if (line.match && (slowest == 0 || line.match->ratio < slowest)) slowest = line.match->ratio;
  }
  table += fmt::format(
      "geometric mean of {}: {:.3f} against {} (over 1: ours is faster), the lowest {:.3f}; {:.1f} "
      "s, at most "
      "{:.2f} GiB in the worker\n",
      summary.count(), summary.geomean(), summary.against, slowest, summary.seconds,
      static_cast<double>(summary.peak_bytes) / (1 << 30));
  if (const double steady = summary.geomean_steady(); steady > 0)
    table += fmt::format("geometric mean under the power limit: {:.3f}\n", steady);
  return table;
}

Status write_report(const std::string& file, const std::string& text) {
  if (file != "-") return write_file(file, text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    return fail(ErrorCode::io, "stdout: cannot write the report");
  }
  return {};
}

bool colour_wanted() { return ::isatty(STDOUT_FILENO) == 1 && !system_env("NO_COLOR"); }

}  // namespace lapidary::cli
