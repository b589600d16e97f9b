#include "config/option.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace sluice {
namespace {

template <typename Field, typename Kind>
Option MakeOption(std::string path, Field field, Kind kind, std::string help) {
  return {std::move(path),
          std::move(help),
          kind.Expected(),
          Kind::kShape,
          [=](absl::string_view text, Config* config) { return kind.Parse(text, &field(*config)); },
          [=](const Config& config) { return kind.Format(field(config)); }};
}

// The path in YAML and the member it fills are one token, so they cannot drift apart.
#define OPTION(member, kind, help) \
  MakeOption(                      \
      #member, [](auto& config) -> auto& { return config.member; }, kind, help)

constexpr int64_t kMaxSize = int64_t{16} << 40;

Integer Count(int64_t min, int64_t max) { return {min, max, Unit::kNone}; }
Integer Duration(int64_t max_us) { return {0, max_us, Unit::kMicroseconds}; }
Integer Size(int64_t min, int64_t max) { return {min, max, Unit::kBytes}; }

Choice<std::string> OneOf(std::initializer_list<std::string> names) {
  Choice<std::string> choice;
  for (const std::string& name : names) choice.choices.emplace_back(name, name);
  return choice;
}

Choice<StrategyKind> Strategies() {
  return {{{"fixed", StrategyKind::kFixed},
           {"geometric", StrategyKind::kGeometric},
           {"hardware_aware", StrategyKind::kHardwareAware},
           {"memory_optimal", StrategyKind::kMemoryOptimal}}};
}

Choice<LogOptions::Format> LogFormats() {
  return {{{"text", LogOptions::Format::kText}, {"json", LogOptions::Format::kJson}}};
}

std::vector<Option> EngineOptionTable() {
  return {
      OPTION(
          engine.ladder.strategy, Strategies(),
          "How the bucket capacities are chosen. fixed: those of fixed_tokens; geometric: each is "
          "ratio times the one before; hardware_aware: multiples of the processor's tiles; "
          "memory_optimal: ratio 1.5. The exact maximum is always a bucket."),
      OPTION(engine.ladder.fixed_tokens, (IntegerList{Count(1, 1 << 20)}),
             "Capacities in tokens for the fixed strategy, ascending, none above "
             "engine.batch.max_batch_tokens. Other strategies ignore it."),
      OPTION(
          engine.ladder.ratio, (Real{1.0, 16.0, /*above_min=*/true}),
          "Growth from one capacity to the next under the geometric strategy. Smaller means less "
          "padding and more plans to prepare and keep."),
      OPTION(engine.ladder.min_tokens, Count(1, 1 << 20),
             "Smallest capacity in tokens; at most engine.batch.max_batch_tokens."),
      OPTION(engine.ladder.max_buckets, Count(1, 1024),
             "Most buckets kept. A denser ladder is thinned evenly, its ends are kept."),
      OPTION(engine.ladder.memory_limit_bytes, Size(0, kMaxSize),
             "Drop the buckets that need the most memory, never the maximum, while their plans "
             "would need more than this. 0: no limit."),
      OPTION(
          engine.batch.max_batch_tokens, Count(0, 1 << 20),
          "Most tokens in a step batch, and so the largest bucket; a sequence must fit. 0: 4096, "
          "or the model's longest sequence if that is larger."),
      OPTION(engine.batch.max_batch_sequences, Count(1, 65536), "Most sequences in a step batch."),
      OPTION(engine.batch.max_queue_delay_us, Duration(10'000'000),
             "How long the oldest waiting request may be held back for company while the device is "
             "free. 0: never."),
      OPTION(engine.queue.max_requests, Count(1, 1'000'000),
             "Requests waiting or running; one more is RESOURCE_EXHAUSTED."),
      OPTION(
          engine.queue.max_tokens, Count(1, int64_t{1} << 40),
          "Tokens of the waiting and running requests, with the max_tokens of each row; a request "
          "that would exceed it is RESOURCE_EXHAUSTED."),
  };
}

std::vector<Option> CpuOptionTable() {
  return {
      OPTION(cpu.threads, Count(0, 1024),
             "Compute threads. 0: as many as the cgroup's limit and the affinity mask allow."),
      OPTION(
          cpu.profile, Name{64},
          "Numerics profile by name (instruction set, types and algorithms); auto: the best that "
          "this processor runs. Outputs are bitwise stable within a profile."),
      OPTION(
          cpu.poison, Boolean{},
          "Fill everything that a batch must not read with NaN before it runs. For tests; slow."),
  };
}

std::vector<Option> ServerOptionTable() {
  return {
      OPTION(server.grpc.address, Address{},
             "Address of the gRPC service; port 0 picks a free one. The port is never shared."),
      OPTION(server.grpc.max_message_bytes, Size(1 << 10, (int64_t{1} << 31) - 1),
             "Largest message in and out; larger ones are RESOURCE_EXHAUSTED."),
      OPTION(
          server.grpc.memory_quota_bytes, Size(0, kMaxSize),
          "Memory that gRPC may use for all calls together. At the limit calls are refused or "
          "slowed down, the daemon keeps its size. 0: a quarter of the cgroup's or the machine's "
          "memory."),
      OPTION(server.grpc.max_rows, Count(1, 65536),
             "Rows (sequences) of one request; more are INVALID_ARGUMENT."),
      OPTION(server.grpc.reflection, Boolean{}, "Offer gRPC server reflection."),
      OPTION(server.metrics.address, Address{.may_be_empty = true},
             "Address of /metrics, /livez and /readyz; port 0 picks a free one; empty: no HTTP "
             "server."),
      OPTION(server.log.level, OneOf({"trace", "debug", "info", "warn", "error"}),
             "Least severity that is logged."),
      OPTION(server.log.format, LogFormats(), "One line per record: text, or JSON for collectors."),
      OPTION(server.log.access_sample, (Real{0.0, 1.0}),
             "Share of requests written to the access log, chosen by hashing the request id."),
      OPTION(server.log.queue_records, Count(64, 1 << 20),
             "Records that may wait for the writer; when full the oldest is dropped and counted."),
      OPTION(server.lifecycle.drain_delay_us, Duration(3'600'000'000),
             "After SIGTERM: time between NOT_SERVING and the end of admission, for load balancers "
             "to notice."),
      OPTION(
          server.lifecycle.drain_timeout_us, Duration(3'600'000'000),
          "After drain_delay_us: time for accepted requests to finish before they are ended with "
          "UNAVAILABLE."),
  };
}

#undef OPTION

std::vector<Option> BuildTable() {
  std::vector<Option> table;
  for (auto part : {EngineOptionTable(), CpuOptionTable(), ServerOptionTable()}) {
    std::move(part.begin(), part.end(), std::back_inserter(table));
  }
  return table;
}

// Keeps messages readable when a value is a whole paragraph.
std::string Excerpt(absl::string_view text) {
  constexpr size_t kLongest = 80;
  if (text.size() <= kLongest) return Quote(text);
  return absl::StrCat(Quote(text.substr(0, kLongest)), " and ", text.size() - kLongest,
                      " more bytes");
}

}  // namespace

std::string Option::Flag() const {
  return absl::StrCat("--", absl::StrReplaceAll(path, {{"_", "-"}}));
}

std::string Option::Environment() const {
  return absl::StrCat("SLUICE_", absl::AsciiStrToUpper(absl::StrReplaceAll(path, {{".", "_"}})));
}

const std::vector<Option>& Options() {
  static const auto& table = *new std::vector<Option>(BuildTable());
  return table;
}

const Option* FindOption(absl::string_view path) {
  const auto& table = Options();
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const Option& option) { return option.path == path; });
  return found == table.end() ? nullptr : &*found;
}

std::vector<std::string> KeysUnder(absl::string_view section) {
  const std::string prefix = section.empty() ? "" : absl::StrCat(section, ".");
  std::vector<std::string> keys;
  if (section.empty()) keys.emplace_back("models");
  for (const Option& option : Options()) {
    absl::string_view rest = option.path;
    if (!absl::ConsumePrefix(&rest, prefix)) continue;
    const absl::string_view key = rest.substr(0, rest.find('.'));
    if (keys.empty() || keys.back() != key) keys.emplace_back(key);
  }
  return keys;
}

std::string OriginOf(const Origins& origins, absl::string_view path) {
  const auto found = origins.find(path);
  return found == origins.end() ? "default" : found->second;
}

absl::Status ConfigError(absl::string_view origin, absl::string_view path,
                         absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(origin, ": ", path, ": ", problem));
}

absl::Status SetOption(const Option& option, absl::string_view text, const std::string& origin,
                       Config* config, Origins* origins) {
  if (!option.parse(text, config)) {
    return ConfigError(origin, option.path,
                       absl::StrCat("expected ", option.expected, ", got ", Excerpt(text)));
  }
  (*origins)[option.path] = origin;
  return absl::OkStatus();
}

}  // namespace sluice
