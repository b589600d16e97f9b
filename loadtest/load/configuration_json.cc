#include <filesystem>
#include <string>

#include "loadtest/load/session.h"

namespace sluice::load {
namespace {

using nlohmann::json;

// Returns the name of a file without its folders, which mean nothing on another machine.
std::string FileName(const std::string& path) { return std::filesystem::path(path).filename(); }

std::string LengthsName(const std::string& lengths) {
  const std::string file = "file:";
  if (!lengths.starts_with(file)) return lengths;
  return file + FileName(lengths.substr(file.size()));
}

json ArrivalsJson(const SessionOptions& options) {
  const WorkloadOptions& workload = options.workload;
  // With rates as well, the closed loops follow the open ones; each phase states its loop.
  if (options.rates.empty() && !options.concurrencies.empty()) return {{"kind", "closed loop"}};
  json arrivals = {{"kind", NameOf(workload.arrivals)}};
  if (workload.arrivals == ArrivalKind::kBursty) {
    arrivals["burst_factor"] = workload.burst_factor;
    arrivals["burst_mean_s"] = workload.burst_mean_s;
  }
  return arrivals;
}

json RequestJson(const SessionOptions& options) {
  const PayloadOptions& payload = options.payload;
  json request = {{"model", payload.model},
                  {"adapters", payload.adapters},
                  {"version", payload.version},
                  {"input", payload.input},
                  {"datatype", payload.int64 ? "INT64" : "INT32"},
                  {"contents", payload.typed ? "typed" : "raw"},
                  {"vocab", payload.vocab},
                  {"variants", payload.variants},
                  {"outputs", payload.outputs},
                  {"parameters", payload.parameters}};
  if (options.workload.max_tokens_from_trace) {
    request["max_tokens"] = "trace";
  } else if (options.workload.max_tokens >= 0) {
    request["max_tokens"] = options.workload.max_tokens;
  }
  return request;
}

}  // namespace

json ConfigurationJson(const SessionOptions& options) {
  return {{"arrivals", ArrivalsJson(options)},
          {"lengths", LengthsName(options.workload.lengths)},
          {"cap", options.workload.cap},
          {"trace", FileName(options.trace_path)},
          {"request", RequestJson(options)},
          {"method", options.run.streaming ? "ModelStreamInfer" : "ModelInfer"},
          {"channels", options.channels},
          {"streams_per_channel", options.run.streaming ? options.run.streams : 0},
          {"senders", options.run.senders},
          {"deadline_ms", 1e3 * Seconds(options.run.deadline)},
          {"drain_s", Seconds(options.run.drain)},
          {"max_in_flight", options.run.max_in_flight},
          {"warm_up_s", Seconds(options.warm_up)},
          {"duration_s", Seconds(options.duration)}};
}

}  // namespace sluice::load
