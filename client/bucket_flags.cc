#include "client/bucket_flags.h"

#include <optional>

#include "base/status_macros.h"
#include "client/flag_values.h"
#include "engine/option_specs.h"

namespace sluice::client {
namespace {

constexpr char kWatch[] = "--watch";
constexpr int64_t kDefaultWatchUs = 2'000'000;
constexpr double kDefaultLoad = 0.85;

// Reads an interval. A plain number is in seconds.
struct WatchInterval {
  static constexpr Real kSeconds{0.1, 3600.0};

  std::string Expected() const { return absl::StrCat(kSeconds.Expected(), ", in seconds"); }
  bool Parse(absl::string_view text, int64_t* microseconds) const {
    double seconds;
    if (!kSeconds.Parse(text, &seconds)) return false;
    *microseconds = static_cast<int64_t>(1e6 * seconds);
    return true;
  }
};

void AddModel(BucketFlags* flags, const char* help, CLI::App* command) {
  command->add_option("--model", flags->model, Help(help));
  command->add_option("--model-version", flags->model_version, "Default: the highest.");
  command->add_flag("--json", flags->json, "Print the whole answer as JSON.");
}

// Adds a flag that stands for an option of the daemon.
template <typename S>
void AddOptionFlag(const char* path, const S& defaults, CLI::App* command,
                   std::optional<std::string>* text) {
  const OptionSpec<S>& spec = OptionSpecOf<S>(path);
  command->add_option(spec.Flag(), *text,
                      Help(absl::StrCat(spec.help, " Default ", spec.format(defaults), ".")));
}

void AddFit(BucketFlags* flags, CLI::App* app) {
  CLI::App* fit = AddCommand(
      "fit", "Fit a ladder to lengths or recorded traffic; needs no server. Prints configuration.",
      app);
  fit->add_option("--lengths", flags->lengths,
                  Help("File of sequence lengths in order of arrival, one a line; - for standard "
                       "input. They arrive at random."));
  fit->add_option("--trace", flags->trace,
                  Help("File of arrivals at their times: CSV with columns arrival_s and "
                       "input_tokens, or Mooncake's JSON lines with timestamp and input_length."));
  fit->add_option("--journal", flags->journal,
                  Help("File that a daemon recorded (engine.history.journal), with its measured "
                       "costs and the most sequences of its steps, unless others are given."));
  fit->add_option("--strategy", flags->strategy,
                  Help("The strategy whose ladder is printed, unless another is better on this "
                       "traffic; all: every strategy side by side, and the best one. Default "
                       "adaptive."));
  fit->add_option("--column", flags->column,
                  Help("The lines are comma-separated: the column's number from 1, or its name in "
                       "the first line."));
  fit->add_flag("--clip", flags->clip,
                Help("Take a length above --max-batch-tokens for that; otherwise it is an error."));
  fit->add_option("--max-batch-tokens", flags->max_batch_tokens,
                  Help(absl::StrCat("The largest bucket. Default ",
                                    FitArguments().batch.max_batch_tokens, ".")));
  AddOptionFlag<BatchOptions>("max_batch_sequences", FitArguments().batch, fit,
                              &flags->max_batch_sequences);
  AddOptionFlag<LadderOptions>("max_buckets", FitArguments().ladder, fit, &flags->max_buckets);
  AddOptionFlag<LadderOptions>("min_tokens", FitArguments().ladder, fit, &flags->min_tokens);
  fit->add_option("--step-us", flags->step_us,
                  Help("What a step costs whatever its size, in microseconds. Default 60. sluice "
                       "buckets shows what was measured, as step cost."));
  fit->add_option("--token-us", flags->token_us,
                  Help("What each token of its bucket adds, as where a captured graph computes its "
                       "whole bucket. Default 0.04, or 0 with --computed-token-us."));
  fit->add_option("--computed-token-us", flags->computed_token_us,
                  Help("What each token that it computes adds, as on a CPU. Default 0."));
  fit->add_option("--capture-ms", flags->capture_ms,
                  Help("What it takes to prepare a plan, in milliseconds, for the table. Default "
                       "0."));
  fit->add_option("--tile-tokens", flags->tile_tokens,
                  Help("The rows that the device computes together, to multiples of which some "
                       "ladders keep. Default 64, as on a GPU, or 12 with --computed-token-us."));
  fit->add_option("--load", flags->load,
                  Help("Share of the device's capacity at full batches that arrives. Default: the "
                       "recorded times, or 0.85 for lengths without times."));
  fit->add_option("--out", flags->out, Help("Write the configuration to this file as well."));
}

absl::Status ReadWatch(const BucketFlags& flags, const CLI::App& command, int64_t* watch_us) {
  if (command.get_option(kWatch)->count() == 0) return absl::OkStatus();
  *watch_us = kDefaultWatchUs;
  if (flags.watch.empty() || flags.watch[0].empty()) return absl::OkStatus();
  return ReadFlag(kWatch, WatchInterval{}, flags.watch[0], watch_us);
}

template <typename S>
absl::Status ReadOption(const char* path, const std::optional<std::string>& text, S* options) {
  const OptionSpec<S>& spec = OptionSpecOf<S>(path);
  if (!text.has_value() || spec.parse(*text, options)) return absl::OkStatus();
  return ValueError(spec.Flag(), spec.expected, *text);
}

// Reads --max-batch-tokens. 0 is an error here: without a model it does not give a number.
absl::Status ReadMaxBatchTokens(const BucketFlags& flags, FitArguments* fit) {
  if (!flags.max_batch_tokens.has_value()) return absl::OkStatus();
  const OptionSpec<BatchOptions>& spec = OptionSpecOf<BatchOptions>("max_batch_tokens");
  return ReadFlag(spec.Flag(), Integer{1, spec.integer->max}, *flags.max_batch_tokens,
                  &fit->batch.max_batch_tokens);
}

absl::Status ReadFit(const BucketFlags& flags, FitArguments* fit) {
  constexpr Real kMicroseconds{0.0, 1e6};
  constexpr Real kLoad{0.0, 1.0, /*above_min=*/true, /*below_max=*/true};
  if ((flags.lengths.empty() ? 0 : 1) + (flags.trace.empty() ? 0 : 1) +
          (flags.journal.empty() ? 0 : 1) !=
      1) {
    return FlagError("--lengths", "give one of --lengths, --trace and --journal");
  }
  std::vector<std::string> strategies = Choice<StrategyKind>().Words();
  strategies.push_back("all");
  // A journal has costs of its own.
  const bool own_costs = !flags.journal.empty() && !flags.step_us.has_value() &&
                         !flags.token_us.has_value() && !flags.computed_token_us.has_value();
  fit->lengths = flags.lengths;
  fit->trace = flags.trace;
  fit->journal = flags.journal;
  fit->column = flags.column;
  fit->clip = flags.clip;
  fit->out = flags.out;
  for (const absl::Status& status :
       {ReadMaxBatchTokens(flags, fit),
        ReadOption("max_batch_sequences", flags.max_batch_sequences, &fit->batch),
        ReadOption("max_buckets", flags.max_buckets, &fit->ladder),
        ReadOption("min_tokens", flags.min_tokens, &fit->ladder),
        ReadFlag("--step-us", kMicroseconds, flags.step_us.value_or(own_costs ? "0" : "60"),
                 &fit->step_us),
        ReadFlag("--token-us", kMicroseconds,
                 flags.token_us.value_or(own_costs || flags.computed_token_us.has_value() ? "0"
                                                                                          : "0.04"),
                 &fit->token_us),
        ReadFlag("--computed-token-us", kMicroseconds, flags.computed_token_us.value_or("0"),
                 &fit->computed_token_us),
        ReadFlag("--capture-ms", kMicroseconds, flags.capture_ms, &fit->capture_ms),
        ReadFlag("--tile-tokens", Integer{1, 1024},
                 flags.tile_tokens.value_or(flags.computed_token_us.has_value() ? "12" : "64"),
                 &fit->tile_tokens),
        ReadFlag("--strategy", OneOf{strategies}, flags.strategy, &fit->strategy)}) {
    SLUICE_RETURN_IF_ERROR(status);
  }
  const int32_t min_tokens = fit->ladder.min_tokens, max_tokens = fit->batch.max_batch_tokens;
  if (min_tokens > max_tokens) {
    return FlagError("--min-tokens",
                     absl::StrCat(min_tokens, " is above --max-batch-tokens, ", max_tokens));
  }
  if (flags.load.has_value()) {
    SLUICE_RETURN_IF_ERROR(ReadFlag("--load", kLoad, *flags.load, &fit->load));
  } else if (!flags.lengths.empty()) {
    fit->load = kDefaultLoad;
  }
  if (!own_costs && fit->step_us + fit->token_us + fit->computed_token_us == 0) {
    return FlagError("--step-us",
                     "a step that costs nothing can have any bucket; give --step-us "
                     "or --token-us");
  }
  return absl::OkStatus();
}

}  // namespace

void AddBucketCommands(BucketFlags* flags, CLI::App* app) {
  CLI::App* buckets = AddCommand("buckets", "Show the shape buckets and how well they fit.", app);
  AddModel(flags, "Only this model.", buckets);
  buckets->add_flag("--advise", flags->advise, "Say what to change, and why.");
  buckets->add_flag("--history", flags->history,
                    Help("Also the last hours: efficiency, lengths, changes of the ladder."));
  buckets->add_option(kWatch, flags->watch, Help("Follow live; redrawn after SECONDS, default 2."))
      ->expected(0, 1);
  CLI::App* optimize =
      AddCommand("optimize", "Review a model's ladder now, and wait for the changed one.", app);
  AddModel(flags, "The model; may be left out when the server has only one.", optimize);
  optimize->add_flag("--force", flags->force,
                     Help("Adopt any gain, not only one above engine.ladder.review.min_gain."));
  CLI::App* explain =
      AddCommand("explain", "Say how one of the last requests was scheduled, and why.", app);
  explain->add_option("request_id", flags->request_id, "The id that the request was sent with.")
      ->required();
  explain->add_option("--model", flags->model,
                      Help("Only requests to this model. Default: the latest of any."));
  explain->add_flag("--json", flags->json, "Print the whole answer as JSON.");
  AddFit(flags, app);
}

absl::Status ReadBucketCommand(const BucketFlags& flags, const CLI::App& command,
                               Arguments* arguments) {
  const std::string& name = command.get_name();
  if (name == "buckets") {
    arguments->command = Arguments::Command::kBuckets;
    arguments->buckets = {flags.model, flags.model_version, flags.advise, flags.json,
                          flags.history};
    return ReadWatch(flags, command, &arguments->buckets.watch_us);
  }
  if (name == "optimize") {
    arguments->command = Arguments::Command::kOptimize;
    arguments->optimize = {flags.model, flags.model_version, flags.force, flags.json};
  } else if (name == "explain") {
    arguments->command = Arguments::Command::kExplain;
    arguments->explain = {flags.request_id, flags.model, flags.json};
  } else if (name == "fit") {
    arguments->command = Arguments::Command::kFit;
    return ReadFit(flags, &arguments->fit);
  }
  return absl::OkStatus();
}

}  // namespace sluice::client
