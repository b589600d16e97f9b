#include "client/fit.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/text_wrap.h"
#include "base/write_file.h"
#include "client/commands.h"
#include "client/exit_code.h"
#include "client/lengths.h"
#include "client/response.h"
#include "client/table.h"
#include "client/trials.h"
#include "engine/backend.h"
#include "engine/journal/recorded.h"
#include "engine/option_specs.h"
#include "engine/review/ladder_benchmark.h"
#include "engine/review/strategies.h"

namespace sluice::client {
namespace {

constexpr size_t kMaxSamples = 50'000;
constexpr size_t kMinSamples = 1000;
constexpr uint64_t kSeed = 1;
constexpr size_t kWidth = 98;  // without "# "
// Plan bytes per bucket token. The value is arbitrary, because only ratios between ladders are
// shown.
constexpr int64_t kPlanBytesPerToken = 1;

// Returns the most sequences of a step: the given number, else the recorded one, else a GPU's.
int32_t MaxSequences(const FitArguments& arguments,
                     int32_t recorded = BackendInfo().max_batch_sequences) {
  const int32_t given = arguments.batch.max_batch_sequences;
  return given > 0 ? given : recorded;
}

ComputedRows RowsOf(DeviceRows rows) {
  switch (rows) {
    case DeviceRows::kLibrary:
      return ComputedRows::OfLibrary();
    case DeviceRows::kBucket:
      return ComputedRows::OfBucket();
    case DeviceRows::kBatch:
      break;
  }
  return ComputedRows::OfBatch();
}

CostModel Law(const FitArguments& arguments) {
  CostState state{.rows = RowsOf(arguments.rows.value_or(DeviceRows::kLibrary))};
  state.law[0] = arguments.step_us * 1e-6;
  state.law[1] = arguments.token_us * 1e-6;
  state.law[2] = arguments.computed_token_us * 1e-6;
  CostModel costs;
  costs.Restore(state);
  return costs;
}

bool HasCosts(const FitArguments& arguments) {
  return arguments.step_us + arguments.token_us + arguments.computed_token_us > 0;
}

// Returns the arriving tokens per second: the share `load` of the throughput at full batches.
double TokensPerSecond(const FitArguments& arguments, const FitInput& input) {
  const int32_t tokens = arguments.batch.max_batch_tokens;
  const Bucket largest{.tokens = tokens, .sequences = input.max_sequences};
  return arguments.load * tokens / input.law.EstimateDrain(tokens, largest);
}

// Scales the times evenly, so that the tokens arrive at the load of the arguments.
void StretchToLoad(const FitArguments& arguments, FitInput* input) {
  double tokens = 0;
  for (const Arrival& arrival : input->arrivals) tokens += arrival.tokens;
  const MonoTime first = input->arrivals.front().at;
  const double span = std::chrono::duration<double>(input->arrivals.back().at - first).count();
  if (span <= 0) return;
  const double factor = tokens / TokensPerSecond(arguments, *input) / span;
  for (Arrival& arrival : input->arrivals) {
    arrival.at =
        first +
        nanoseconds(std::llround(static_cast<double>((arrival.at - first).count()) * factor));
  }
}

// Drops all but the latest arrivals. A sample over all of them would have a lower rate.
void KeepLatest(std::vector<Arrival>* arrivals) {
  if (arrivals->size() <= kMaxSamples) return;
  arrivals->erase(arrivals->begin(), arrivals->end() - kMaxSamples);
}

std::string AssumedText(const FitInput& input, const FitArguments& arguments) {
  const CostState costs = input.law.state();
  const ComputedRows& rows = input.law.rows();
  const bool any = std::ranges::all_of(
      rows.layers(), [](const ComputedRows::BucketLayers& layers) { return layers.slice == 0; });
  const bool recorded = !arguments.journal.empty() && !HasCosts(arguments);
  std::string text =
      absl::StrCat(recorded ? "Recorded by the journal: " : "Assumed: ", "a device that computes ",
                   rows.batch_only() ? "only the tokens of a batch"
                   : any             ? "all rows of a bucket"
                         : "all rows of a bucket, rounded up to a number of rows of its library",
                   absl::StrFormat("; a step takes %.4g us", 1e6 * costs.law[0]));
  if (!rows.batch_only()) absl::StrAppendFormat(&text, ", %.4g us per row", 1e6 * costs.law[1]);
  absl::StrAppendFormat(&text, ", %.4g us per token of the batch", 1e6 * costs.law[2]);
  if (recorded) absl::StrAppend(&text, " and more for context, positions and samples");
  if (!arguments.journal.empty()) {
    absl::StrAppend(&text, "; the journal has no refused requests");
  }
  return absl::StrFormat("%s; a plan is prepared in %.4g ms.", text, arguments.capture_ms);
}

std::string Comment(absl::string_view text) {
  std::string lines;
  for (const std::string& line : Wrap(text, kWidth)) absl::StrAppend(&lines, "# ", line, "\n");
  return lines;
}

std::string CommentLines(const std::string& text) {
  std::string lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    absl::StrAppend(&lines, "# ", line, "\n");
  }
  return lines;
}

const StrategyTrial& Named(const StrategyTrials& trials, const std::string& name) {
  return *std::ranges::find(trials.trials, name, &StrategyTrial::name);
}

// Returns the name of the trial for a strategy with its configured options.
std::string TrialOf(const std::string& strategy, const StrategyTrials& trials) {
  for (const StrategyTrial& trial : trials.trials) {
    const auto chosen = trial.choice.find("strategy");
    if (chosen->second == strategy && strategy != "fixed") return trial.name;
  }
  return trials.trials.front().name;  // fixed: one bucket
}

// Returns the options that produce the ladder of a trial.
LadderOptions LadderOf(const StrategyTrial& trial, const FitArguments& arguments) {
  LadderOptions ladder = arguments.ladder;
  ladder.strategy = StrategyKind::kFixed;
  ladder.fixed_tokens.clear();
  for (const Bucket& bucket : trial.buckets) ladder.fixed_tokens.push_back(bucket.tokens);
  ladder.max_buckets = static_cast<int32_t>(trial.buckets.size());
  return ladder;
}

// Returns what to do with the printed options.
std::string ToDoText(const FitReport& report, const FitArguments& arguments) {
  const StrategyTrials& trials = report.trials;
  if (trials.ladder_is_free) return "To do: nothing. The lines below have only the assumed batch.";
  const StrategyTrial& taken = Named(trials, report.taken);
  const StrategyTrial& one = trials.trials.front();
  if (taken.gain - one.gain <= trials.margin) {
    return absl::StrFormat(
        "To do: nothing. This ladder gains %s over a single bucket, and up to %s may be chance.",
        Percent(taken.gain), Percent(trials.margin));
  }
  const StrategyTrial& usual = Named(trials, TrialOf("geometric", trials));
  const double over_usual = 1 - (1 - taken.gain) / (1 - usual.gain);
  if (over_usual <= trials.margin) {
    return absl::StrFormat(
        "To do: nothing if sluiced has its default strategy, which begins with \"%s\". This ladder "
        "gains %s over that, and up to %s may be chance.",
        usual.name, Percent(over_usual), Percent(trials.margin));
  }
  return absl::StrFormat(
      "To do: add the lines below to the file of sluiced --config and restart sluiced. Without a "
      "restart, if the daemon has engine.batch.max_batch_tokens %d and an engine.ladder.file: "
      "sluice ladder set MODEL --strategy fixed --fixed-tokens %s --keep. Expect to gain %s over a "
      "single bucket and %s over \"%s\", the ladder of a daemon that has seen no traffic, of which "
      "%s may be chance.",
      arguments.batch.max_batch_tokens, absl::StrJoin(LadderOf(taken, arguments).fixed_tokens, ","),
      Percent(taken.gain), Percent(over_usual), usual.name, Percent(trials.margin));
}

nlohmann::json TrialJson(const StrategyTrial& trial) {
  nlohmann::json buckets = nlohmann::json::array();
  for (const Bucket& bucket : trial.buckets) buckets.push_back(bucket.tokens);
  return {{"name", trial.name},
          {"options", trial.choice},
          {"buckets", buckets},
          {"bucket_fill", trial.bucket_fill},
          {"device_seconds", trial.device_seconds},
          {"mean_latency_seconds", trial.mean_latency_seconds},
          {"p50_latency_seconds", trial.p50_latency_seconds},
          {"p99_latency_seconds", trial.p99_latency_seconds},
          {"batches", trial.batches},
          {"captures", trial.captures},
          {"gain", trial.gain},
          {"wasted_share", trial.wasted_share}};
}

}  // namespace

FitInput InputOf(std::span<const int32_t> lengths, const FitArguments& arguments) {
  FitInput input{.arrivals = {}, .law = Law(arguments), .max_sequences = MaxSequences(arguments)};
  const size_t count = std::clamp(lengths.size(), kMinSamples, kMaxSamples);
  std::vector<int32_t> sample(count);
  for (size_t i = 0; i < count; ++i) {
    sample[i] =
        lengths.size() < count ? lengths[i % lengths.size()] : lengths[i * lengths.size() / count];
  }
  double tokens = 0;
  for (const int32_t length : sample) tokens += length;
  std::mt19937_64 random(kSeed);
  std::exponential_distribution<double> gap(TokensPerSecond(arguments, input) *
                                            static_cast<double>(count) / tokens);
  double seconds = 0;
  for (const int32_t length : sample) {
    seconds += gap(random);
    input.arrivals.push_back(
        {.at = MonoTime(nanoseconds(std::llround(1e9 * seconds))), .tokens = length});
  }
  return input;
}

absl::StatusOr<FitInput> ReadInput(const FitArguments& arguments) {
  const int32_t most = arguments.batch.max_batch_tokens;
  FitInput input{.arrivals = {}, .law = Law(arguments), .max_sequences = MaxSequences(arguments)};
  if (!arguments.trace.empty()) {
    SLUICE_ASSIGN_OR_RETURN(input.arrivals,
                            ReadTraceArrivals(arguments.trace, most, /*generate=*/false));
  } else {
    SLUICE_ASSIGN_OR_RETURN(RecordedRun run, ReadJournalRun(arguments.journal));
    input.arrivals = std::move(run.arrivals);
    for (Arrival& arrival : input.arrivals) {
      arrival.tokens = std::min(arrival.tokens, most);
      arrival.deadline = MonoTime::max();
    }
    input.max_sequences = MaxSequences(arguments, run.batch.max_batch_sequences);
    if (!HasCosts(arguments)) {
      CostState recorded = run.costs.state();
      if (arguments.rows.has_value()) recorded.rows = RowsOf(*arguments.rows);
      input.law.Restore(recorded);
    }
  }
  KeepLatest(&input.arrivals);
  if (arguments.load > 0) StretchToLoad(arguments, &input);
  return input;
}

absl::StatusOr<FitReport> Fit(const FitInput& input, const FitArguments& arguments) {
  StrategyContest contest{
      .ladder = arguments.ladder,
      .batch = arguments.batch,
      .limits = {.max_tokens = arguments.batch.max_batch_tokens,
                 .max_sequences = input.max_sequences,
                 .rows = input.law.rows()},
      .costs = input.law,
      .plan_cost = {
          .capture_seconds = [&](const Bucket&) { return arguments.capture_ms * 1e-3; },
          .memory_bytes = [](const Bucket& bucket) { return kPlanBytesPerToken * bucket.tokens; }}};
  // Recorded arrivals do not decay.
  contest.ladder.review.half_life_us = OptionSpecOf<LadderOptions>("review.half_life").integer->max;
  FitReport report;
  report.assumed = AssumedText(input, arguments);
  SLUICE_ASSIGN_OR_RETURN(report.trials,
                          TryStrategies(contest, input.arrivals, /*present=*/nullptr));
  report.taken = report.trials.best;
  if (arguments.strategy == "all" || report.trials.ladder_is_free) return report;
  const std::string wanted = TrialOf(arguments.strategy, report.trials);
  const double lead = Named(report.trials, report.taken).gain - Named(report.trials, wanted).gain;
  if (lead <= report.trials.margin) report.taken = wanted;
  return report;
}

std::string FitText(const FitReport& report, const FitArguments& arguments) {
  const StrategyTrials& trials = report.trials;
  const StrategyTrial& taken = Named(trials, report.taken);
  std::string text = Comment(
      trials.ladder_is_free
          ? absl::StrCat("Leave the ladder as it is: ", kLadderIsFree, ".")
          : absl::StrFormat(
                "A ladder by sluice fit, \"%s\". In simulation its batches use %s of their "
                "buckets' "
                "tokens, on the second half of the arrivals, %d; it was fitted to the first.",
                taken.name, Percent(taken.bucket_fill), trials.arrivals));
  text += Comment(report.assumed);
  if (arguments.strategy == "all") {
    text += CommentLines(TrialsTable(trials));
    text += Comment(
        "MIB is one byte for each bucket token, so only its ratios matter: they compare the memory "
        "of plans. GAIN is 1 - sqrt(device time ratio x mean latency ratio) over the first line.");
    if (!trials.ladder_is_free) text += Comment(VerdictText(trials));
  } else if (!trials.ladder_is_free && report.taken != TrialOf(arguments.strategy, trials)) {
    const StrategyTrial& wanted = Named(trials, TrialOf(arguments.strategy, trials));
    text += Comment(absl::StrFormat(
        "\"%s\" would gain %s over one bucket; this ladder gains %s, so it is printed instead.",
        wanted.name, Percent(wanted.gain), Percent(taken.gain)));
  }
  text += Comment(ToDoText(report, arguments));
  absl::StrAppend(&text, "engine:\n");
  if (!trials.ladder_is_free) {
    absl::StrAppend(&text, "  ladder:\n",
                    FormatOptions(LadderOf(taken, arguments),
                                  {"strategy", "fixed_tokens", "max_buckets"}, /*indent=*/4));
  }
  absl::StrAppend(
      &text, "  batch:\n",
      FormatOptions(arguments.batch, {"max_batch_tokens", "max_batch_sequences"}, /*indent=*/4));
  return text;
}

nlohmann::json FitJson(const FitReport& report, const FitArguments& arguments) {
  const StrategyTrials& trials = report.trials;
  const LadderOptions ladder = LadderOf(Named(trials, report.taken), arguments);
  nlohmann::json tried = nlohmann::json::array();
  for (const StrategyTrial& trial : trials.trials) tried.push_back(TrialJson(trial));
  nlohmann::json engine = {{"batch",
                            {{"max_batch_tokens", arguments.batch.max_batch_tokens},
                             {"max_batch_sequences", arguments.batch.max_batch_sequences}}}};
  if (!trials.ladder_is_free) {
    engine["ladder"] = {{"strategy", NameOf(ladder.strategy)},
                        {"fixed_tokens", ladder.fixed_tokens},
                        {"max_buckets", ladder.max_buckets}};
  }
  return {{"assumed", report.assumed},
          {"arrivals", trials.arrivals},
          {"margin", trials.margin},
          {"ladder_is_free", trials.ladder_is_free},
          {"best", trials.best},
          {"taken", report.taken},
          {"trials", tried},
          {"engine", engine},
          {"todo", ToDoText(report, arguments)}};
}

namespace {

absl::StatusOr<FitInput> ReadAll(const FitArguments& own, const Console& console) {
  if (own.lengths.empty()) return ReadInput(own);
  std::ifstream file;
  const bool standard_input = own.lengths == "-";
  if (!standard_input) file.open(own.lengths);
  std::istream* const in = standard_input ? console.in : &file;
  if (!in->good()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read ", own.lengths, ": ", strerror(errno)));
  }
  SLUICE_ASSIGN_OR_RETURN(
      const std::vector<int32_t> lengths,
      ReadLengths(in, own.lengths,
                  {.column = own.column, .maximum = own.batch.max_batch_tokens, .clip = own.clip}));
  return InputOf(lengths, own);
}

}  // namespace

int RunFit(const Arguments& arguments, const Console& console) {
  const FitArguments& own = arguments.fit;
  const absl::StatusOr<FitInput> input = ReadAll(own, console);
  const absl::StatusOr<FitReport> report =
      input.ok() ? Fit(*input, own) : absl::StatusOr<FitReport>(input.status());
  if (!report.ok()) return UsageError(report.status(), console);
  const std::string text = FitText(*report, own);
  *console.out << (own.json ? JsonLine(FitJson(*report, own)) : text);
  if (own.out.empty()) return kExitOk;
  const absl::Status written = WriteFile(own.out, text);
  if (written.ok()) return kExitOk;
  *console.error << "sluice: --out: " << written.message() << "\n";
  return kExitFailed;
}

}  // namespace sluice::client
