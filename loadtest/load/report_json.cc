#include "loadtest/load/report_json.h"

#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace sluice::load {
namespace {

using nlohmann::json;

// The shortest interval, in seconds, between readings whose rates are reported. The last reading
// may follow right after the previous one, and a rate over such a short interval is meaningless.
constexpr double kMinInterval = 0.5;

double Ms(nanoseconds duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

json OutcomesJson(const std::array<int64_t, kOutcomes>& outcomes) {
  json object = json::object();
  for (int i = 0; i < kOutcomes; ++i) {
    object[std::string(NameOf(static_cast<Outcome>(i)))] = outcomes[i];
  }
  return object;
}

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "model name")) {
      const size_t colon = line.find(':');
      return colon + 2 < line.size() ? line.substr(colon + 2) : "";
    }
  }
  return "";
}

json SecondsJson(const std::vector<Second>& seconds) {
  json list = json::array();
  for (const Second& second : seconds) {
    json each = {{"arrivals", second.arrivals},
                 {"answers", second.answers},
                 {"tokens", second.tokens},
                 {"outcomes", OutcomesJson(second.outcomes)}};
    if (second.outcomes[0] > 0) {
      each["p50_ms"] = Ms(second.p50);
      each["p99_ms"] = Ms(second.p99);
    }
    list.push_back(std::move(each));
  }
  return list;
}

// Returns part / whole, or null if nothing was computed.
json Ratio(double part, double whole) { return whole > 0 ? json(part / whole) : json(); }

json BucketsJson(const Reading& first, const Reading& last) {
  json list = json::array();
  for (const auto& [name, bucket] : last.buckets) {
    const auto before = first.buckets.find(name);
    const double batches =
        bucket.batches - (before == first.buckets.end() ? 0 : before->second.batches);
    if (batches <= 0) continue;
    list.push_back({{"bucket", name},
                    {"tokens", bucket.tokens},
                    {"batches", batches},
                    {"bucket_fill_since_start", bucket.bucket_fill}});
  }
  return list;
}

}  // namespace

json HostJson() {
  utsname name{};
  uname(&name);
  struct sysinfo info {};
  sysinfo(&info);
  return {{"name", name.nodename},
          {"kernel", std::string(name.sysname) + " " + name.release},
          {"processor", ProcessorName()},
          {"processors", sysconf(_SC_NPROCESSORS_ONLN)},
          {"memory_bytes", static_cast<uint64_t>(info.totalram) * info.mem_unit}};
}

json DistributionJson(const Distribution& distribution) {
  return {{"count", distribution.count}, {"mean", Ms(distribution.mean)},
          {"min", Ms(distribution.min)}, {"p50", Ms(distribution.p50)},
          {"p90", Ms(distribution.p90)}, {"p95", Ms(distribution.p95)},
          {"p99", Ms(distribution.p99)}, {"p99.9", Ms(distribution.p999)},
          {"max", Ms(distribution.max)}};
}

json PhaseJson(const PhaseStats& stats, const PhaseData& data) {
  json errors = json::array();
  for (const auto& [code, sample] : data.errors) {
    errors.push_back(
        {{"code", code}, {"count", sample.count}, {"first_message", sample.first_message}});
  }
  json cdf = json::array();
  for (const auto& [percent, ms] : stats.cdf) cdf.push_back({percent, ms});
  json phase = {
      {"calls", stats.calls},
      {"offered_per_s", stats.offered_per_s},
      {"answered_per_s", stats.answered_per_s},
      {"goodput_per_s", stats.goodput_per_s},
      {"tokens_per_s", stats.tokens_per_s},
      {"within_objective", stats.within},
      {"meets_objective", stats.meets_objective},
      {"outcomes", OutcomesJson(stats.outcomes)},
      {"latency_ms", DistributionJson(stats.latency)},
      {"service_ms", DistributionJson(stats.service)},
      {"lateness_ms", DistributionJson(stats.lateness)},
      {"errors", std::move(errors)},
      {"client", {{"cores", data.cpu.cores}, {"busiest_thread", data.cpu.busiest_thread}}},
      {"cdf", std::move(cdf)},
      {"seconds", SecondsJson(stats.seconds)}};
  if (stats.rejected.count > 0) phase["rejected_ms"] = DistributionJson(stats.rejected);
  if (stats.first.count > 0) phase["first_part_ms"] = DistributionJson(stats.first);
  return phase;
}

json ServerJson(const std::vector<Reading>& readings, const Reconciliation& counts) {
  json series = json::array();
  size_t previous = 0;
  for (size_t i = 1; i < readings.size(); ++i) {
    const Reading& before = readings[previous];
    const Reading& now = readings[i];
    if (now.at_s - before.at_s < kMinInterval) continue;
    previous = i;
    const double useful = now.useful_tokens - before.useful_tokens;
    const double batches = now.batches - before.batches;
    series.push_back(
        {{"at_s", now.at_s},
         {"waiting", now.waiting},
         {"running", now.running},
         {"queued_tokens", now.queued_tokens},
         {"batches", batches},
         {"batch_tokens", Ratio(useful, batches)},
         {"bucket_fill", Ratio(useful, now.bucket_tokens - before.bucket_tokens)},
         {"executed_efficiency", Ratio(useful, now.computed_tokens - before.computed_tokens)},
         {"rejected", now.rejected - before.rejected}});
  }
  const Reading& first = readings.front();
  const Reading& last = readings.back();
  const double useful = last.useful_tokens - first.useful_tokens;
  return {{"series", std::move(series)},
          {"buckets", BucketsJson(first, last)},
          {"bucket_fill", Ratio(useful, last.bucket_tokens - first.bucket_tokens)},
          {"executed_efficiency", Ratio(useful, last.computed_tokens - first.computed_tokens)},
          {"captures", last.captures - first.captures},
          {"reused_share", Ratio(last.reused_tokens - first.reused_tokens,
                                 last.prompt_tokens - first.prompt_tokens)},
          {"reconciled", counts.Agrees()},
          {"counts",
           {{"client_ok", counts.client_ok},
            {"client_other", counts.client_other},
            {"server_ok", counts.server_ok},
            {"server_other", counts.server_other},
            {"server_rejected", counts.server_rejected}}}};
}

}  // namespace sluice::load
