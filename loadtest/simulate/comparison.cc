#include "loadtest/simulate/comparison.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/quantile.h"
#include "base/status_macros.h"
#include "engine/option_specs.h"
#include "loadtest/simulate/fixed_sets.h"

namespace sluice::loadtest {
namespace {

template <typename T>
struct Named {
  const char* name;
  T value;
};

using Foresight = ExperimentOptions::Foresight;
// The settings for an adaptive ladder.
struct Settling {
  bool review_second;
  Foresight foresight;
};
constexpr Named<Settling> kSettlings[] = {{"adaptive", {false, Foresight::kNone}},
                                          {"adaptive_live", {true, Foresight::kNone}},
                                          {"foreseen", {false, Foresight::kFitted}},
                                          {"oracle", {false, Foresight::kSearched}}};
constexpr Named<bool> kOrders[] = {{"trace", false}, {"shuffled", true}};

template <typename T, size_t n>
absl::StatusOr<T> Find(const Named<T> (&table)[n], const std::string& name) {
  for (const Named<T>& entry : table) {
    if (name == entry.name) return entry.value;
  }
  std::string names;
  for (const Named<T>& entry : table) absl::StrAppend(&names, " ", entry.name);
  return absl::InvalidArgumentError(absl::StrCat(name, " is not one of", names));
}

template <typename E>
absl::StatusOr<E> FindEnum(const std::string& name) {
  const std::optional<E> found = EnumOf<E>(name);
  if (found.has_value()) return *found;
  return absl::InvalidArgumentError(absl::StrCat(name, " is not ", Choice<E>().Expected()));
}

// A reported number and its name.
struct Field {
  const char* name;
  double (*value)(const Measurement&);
};
constexpr Field kFields[] = {
    {"bucket_fill", [](const Measurement& m) { return m.bucket_fill; }},
    {"executed_efficiency", [](const Measurement& m) { return m.executed_efficiency; }},
    {"goodput_tokens_per_s", [](const Measurement& m) { return m.tokens_per_second; }},
    {"busy_share", [](const Measurement& m) { return m.busy_share; }},
    {"mean_ms", [](const Measurement& m) { return m.mean_seconds * 1e3; }},
    {"p50_ms", [](const Measurement& m) { return m.p50_seconds * 1e3; }},
    {"p99_ms", [](const Measurement& m) { return m.p99_seconds * 1e3; }},
    {"sequences", [](const Measurement& m) { return static_cast<double>(m.sequences); }},
    {"expired", [](const Measurement& m) { return static_cast<double>(m.expired); }},
    {"late", [](const Measurement& m) { return static_cast<double>(m.late); }},
    {"batches", [](const Measurement& m) { return static_cast<double>(m.batches); }},
    {"captures", [](const Measurement& m) { return static_cast<double>(m.captures); }},
    {"plans", [](const Measurement& m) { return static_cast<double>(m.plans); }},
    {"planned_share", [](const Measurement& m) { return m.planned_share; }},
    {"ladder_changes", [](const Measurement& m) { return static_cast<double>(m.changes); }},
};

absl::Status SetLadder(const std::string& name, ExperimentOptions* experiment) {
  experiment->review_second = false;
  experiment->foresight = Foresight::kNone;
  LadderOptions& ladder = experiment->ladder;
  const std::vector<std::string> parts = absl::StrSplit(name, ':');
  const std::string& kind = parts[0];
  const auto set = [&](const char* path, absl::string_view value) {
    const OptionSpec<LadderOptions>& spec = OptionSpecOf<LadderOptions>(path);
    if (spec.parse(value, &ladder)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("ladder ", name, ": ", path, ": expected ", spec.expected));
  };
  const std::optional<StrategyKind> strategy = EnumOf<StrategyKind>(kind);
  if (strategy == StrategyKind::kGeometric && parts.size() == 2) {
    ladder.strategy = *strategy;
    return set("ratio", parts[1]);
  }
  if (strategy == StrategyKind::kFixed && parts.size() > 1) {
    ladder.strategy = *strategy;
    return set("fixed_tokens", absl::StrJoin(parts.begin() + 1, parts.end(), ","));
  }
  if (strategy == StrategyKind::kAdaptive && parts.size() == 2) {
    ladder.strategy = *strategy;
    return set("max_buckets", parts[1]);
  }
  if (name == kind &&
      (strategy == StrategyKind::kMemoryOptimal || strategy == StrategyKind::kHardwareAware)) {
    ladder.strategy = *strategy;
  } else if (const absl::StatusOr<Settling> settling = Find(kSettlings, name); settling.ok()) {
    ladder.strategy = StrategyKind::kAdaptive;
    experiment->review_second = settling->review_second;
    experiment->foresight = settling->foresight;
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown ladder ", name, ", must be ", kLadders));
  }
  return absl::OkStatus();
}

// The parsed options of the workload.
struct Workload {
  std::vector<int32_t> trace;  // empty if lengths are generated
  Lengths lengths{};
  Process process{};
};

absl::StatusOr<Workload> LoadWorkload(const ComparisonOptions& options) {
  Workload workload;
  SLUICE_ASSIGN_OR_RETURN(workload.lengths, FindEnum<Lengths>(options.generate));
  SLUICE_ASSIGN_OR_RETURN(workload.process, FindEnum<Process>(options.process));
  if (options.trace.empty()) return workload;
  SLUICE_ASSIGN_OR_RETURN(workload.trace, ReadTraceLengths(options.trace, options.cap));
  return workload;
}

std::vector<Arrival> ArrivalsOf(const Workload& workload, const ComparisonOptions& options,
                                bool shuffled, double load, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> lengths = workload.trace;
  if (lengths.empty()) {
    lengths = MakeLengths(workload.lengths, options.count, options.cap, &random);
  }
  if (shuffled) std::shuffle(lengths.begin(), lengths.end(), random);
  // Each phase of a drift has the same load.
  const bool drifts = workload.trace.empty() && workload.lengths == Lengths::kDrifting;
  const size_t parts = drifts ? 3 : options.load_of_halves ? 2 : 1;
  const size_t phase = (lengths.size() + parts - 1) / parts;
  std::vector<Arrival> arrivals;
  for (size_t begin = 0; begin < lengths.size(); begin += phase) {
    const size_t count = std::min(phase, lengths.size() - begin);
    const nanoseconds offset =
        arrivals.empty() ? nanoseconds(0) : arrivals.back().at.time_since_epoch();
    for (Arrival& arrival :
         MakeArrivals(workload.process, std::span<const int32_t>(lengths).subspan(begin, count),
                      load * options.experiment.FullTokensPerSecond(), &random)) {
      arrival.at += offset;
      arrivals.push_back(arrival);
    }
  }
  if (options.adapters > 0) {
    std::uniform_int_distribution<uint64_t> adapter(1, options.adapters);
    for (Arrival& arrival : arrivals) arrival.adapter = adapter(random);
  }
  if (options.deadline_seconds > 0) {
    const nanoseconds slack(static_cast<int64_t>(options.deadline_seconds * 1e9));
    for (Arrival& arrival : arrivals) arrival.deadline = arrival.at + slack;
  }
  return arrivals;
}

// Returns the row of one policy and ladder for one load and order, over all seeds.
absl::StatusOr<nlohmann::json> Row(const ExperimentOptions& experiment,
                                   const std::function<std::vector<Arrival>(uint64_t)>& arrivals_of,
                                   uint64_t first_seed, int seeds) {
  std::vector<Measurement> measurements;
  for (int i = 0; i < seeds; ++i) {
    const std::vector<Arrival> arrivals = arrivals_of(first_seed + i);
    const size_t half = (arrivals.size() + 1) / 2;
    const std::span<const Arrival> all(arrivals);
    SLUICE_ASSIGN_OR_RETURN(Measurement measured,
                            RunExperiment(experiment, all.first(half), all.subspan(half)));
    measurements.push_back(std::move(measured));
  }
  nlohmann::json row;
  for (const Field& field : kFields) {
    std::vector<double> values;
    for (const Measurement& measurement : measurements) values.push_back(field.value(measurement));
    row[field.name] = Median(std::move(values));
  }
  row["buckets_of_first_seed"] = measurements.front().ladder;
  return row;
}

struct Contender {
  std::string policy, ladder;
  ExperimentOptions experiment;
};

absl::StatusOr<std::vector<Contender>> Contenders(const ComparisonOptions& options) {
  std::vector<Contender> contenders;
  for (const std::string& policy : options.policies) {
    SLUICE_ASSIGN_OR_RETURN(const PolicyKind kind, FindEnum<PolicyKind>(policy));
    Contender contender{.policy = policy, .ladder = "own", .experiment = options.experiment};
    contender.experiment.batch.policy = kind;
    if (IsPadded(kind)) {  // columns at powers of two
      contender.experiment.ladder.strategy = StrategyKind::kGeometric;
      contender.experiment.ladder.ratio = 2;
      contender.experiment.ladder.min_tokens = 1;
      contender.experiment.ladder.max_buckets = 1024;
      contenders.push_back(contender);
      continue;
    }
    for (const std::string& ladder : options.ladders) {
      contender.ladder = ladder;
      contender.experiment.ladder = options.experiment.ladder;
      SLUICE_RETURN_IF_ERROR(SetLadder(ladder, &contender.experiment));
      contenders.push_back(contender);
    }
  }
  return contenders;
}

// The most plans of an adaptive ladder that is compared with a fixed set.
constexpr int64_t kMostPlans = 64;

// Adds an arm for each fixed set. After it, adds the packed policy with an adaptive ladder with the
// same number of plans, or with kMostPlans. Graphs of a model take the same memory each, because
// their activations are shared.
absl::Status AddFixedSets(const ComparisonOptions& options, std::vector<Contender>* contenders) {
  const LadderLimits limits{.max_tokens = options.experiment.batch.max_batch_tokens,
                            .max_sequences = options.experiment.batch.max_batch_sequences,
                            .rows = options.experiment.assumed_rows,
                            .max_positions = options.experiment.max_positions};
  for (const std::string& name : options.fixed_sets) {
    const std::optional<FixedSet> set = FixedSetOf(name, limits);
    if (!set.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("unknown fixed set ", name));
    }
    Contender contender{.policy = "fifo_packed", .ladder = name, .experiment = options.experiment};
    contender.experiment.batch.policy = PolicyKind::kFifoPacked;
    contender.experiment.ladder.strategy = StrategyKind::kGeometric;
    contender.experiment.fixed_set = name;
    contenders->push_back(contender);
    if (set->graphs == 0) continue;
    contender = {.policy = "packed",
                 .ladder = absl::StrCat("adaptive:", std::min(set->graphs, kMostPlans)),
                 .experiment = options.experiment};
    SLUICE_RETURN_IF_ERROR(SetLadder(contender.ladder, &contender.experiment));
    contenders->push_back(contender);
  }
  return absl::OkStatus();
}

// Appends the heading of the row's load and order and the `columns` of its table, unless the row
// belongs to the current table.
void BeginTable(const nlohmann::json& row, absl::string_view columns, std::string* heading,
                std::string* text) {
  std::string here = absl::StrFormat("Load %.2f, order %s", row["load"].get<double>(),
                                     row["order"].get<std::string>());
  if (here == *heading) return;
  *heading = std::move(here);
  absl::StrAppend(text, text->empty() ? "" : "\n", *heading, "\n\n", columns);
}

}  // namespace

absl::StatusOr<nlohmann::json> Compare(const ComparisonOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const Workload workload, LoadWorkload(options));
  SLUICE_ASSIGN_OR_RETURN(std::vector<Contender> contenders, Contenders(options));
  SLUICE_RETURN_IF_ERROR(AddFixedSets(options, &contenders));
  nlohmann::json rows = nlohmann::json::array();
  for (const std::string& order : options.orders) {
    SLUICE_ASSIGN_OR_RETURN(const bool shuffled, Find(kOrders, order));
    for (const double load : options.loads) {
      for (const Contender& contender : contenders) {
        SLUICE_ASSIGN_OR_RETURN(
            nlohmann::json row,
            Row(
                contender.experiment,
                [&](uint64_t seed) { return ArrivalsOf(workload, options, shuffled, load, seed); },
                options.first_seed, options.seeds));
        row["policy"] = contender.policy;
        row["ladder"] = contender.ladder;
        row["load"] = load;
        row["order"] = order;
        row["capture_seconds"] = contender.experiment.capture_seconds;
        rows.push_back(std::move(row));
      }
    }
  }
  return rows;
}

std::string PlansToMarkdown(const nlohmann::json& rows) {
  std::string text, heading;
  for (const nlohmann::json& row : rows) {
    BeginTable(
        row,
        "| policy | ladder | padding waste | computed waste | batches in a graph | graphs | "
        "captures | capture ms | p50 ms | p99 ms |\n|---|---|---|---|---|---|---|---|---|---|\n",
        &heading, &text);
    const double captures = row["captures"].get<double>();
    absl::StrAppend(
        &text, absl::StrFormat(
                   "| %s | %s | %.1f%% | %.1f%% | %.1f%% | %.0f | %.0f | %.1f | %.3f | %.3f |\n",
                   row["policy"].get<std::string>(), row["ladder"].get<std::string>(),
                   100 * (1 - row["bucket_fill"].get<double>()),
                   100 * (1 - row["executed_efficiency"].get<double>()),
                   100 * row["planned_share"].get<double>(), row["plans"].get<double>(), captures,
                   1e3 * row["capture_seconds"].get<double>() * captures,
                   row["p50_ms"].get<double>(), row["p99_ms"].get<double>()));
  }
  absl::StrAppend(&text,
                  "\nA batch above the largest graph of a set runs without a graph at no further "
                  "cost. A device would launch its kernels one by one, so compare latencies only "
                  "between sets with all batches in a graph.\n");
  return text;
}

std::string ToMarkdown(const nlohmann::json& rows) {
  std::string text, heading;
  for (const nlohmann::json& row : rows) {
    BeginTable(row,
               "| policy | ladder | bucket fill | executed eff. | Mtok/s in time | p50 ms | "
               "p99 ms | batches | captures |\n|---|---|---|---|---|---|---|---|---|\n",
               &heading, &text);
    absl::StrAppend(
        &text,
        absl::StrFormat("| %s | %s | %.3f | %.3f | %.2f | %.3f | %.3f | %.0f | %.0f |\n",
                        row["policy"].get<std::string>(), row["ladder"].get<std::string>(),
                        row["bucket_fill"].get<double>(), row["executed_efficiency"].get<double>(),
                        row["goodput_tokens_per_s"].get<double>() / 1e6,
                        row["p50_ms"].get<double>(), row["p99_ms"].get<double>(),
                        row["batches"].get<double>(), row["captures"].get<double>()));
  }
  return text;
}

}  // namespace sluice::loadtest
