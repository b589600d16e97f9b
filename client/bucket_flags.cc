#include "client/bucket_flags.h"

#include <optional>

#include "base/status_macros.h"
#include "client/flag_values.h"
#include "engine/option_specs.h"

namespace sluice::client {
namespace {

constexpr char kWatch[] = "--watch";
constexpr int64_t kDefaultWatchUs = 2'000'000;

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
      "fit", "Fit a ladder to sample lengths; needs no server. Prints configuration.", app);
  fit->add_option("--lengths", flags->lengths,
                  Help("File of sequence lengths in order of arrival, one a line; - for standard "
                       "input."))
      ->required();
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
                  Help("What a step costs whatever its size, in microseconds. Default 60."));
  fit->add_option(
      "--token-us", flags->token_us,
      Help("What each token of its bucket adds. Default 0.04. sluice buckets shows what "
           "was measured."));
  fit->add_option("--load", flags->load,
                  Help("Load to fit for: share of the device's capacity at full batches that "
                       "arrives. Default 0.85."));
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
  fit->lengths = flags.lengths;
  fit->column = flags.column;
  fit->clip = flags.clip;
  fit->out = flags.out;
  for (const absl::Status& status :
       {ReadMaxBatchTokens(flags, fit),
        ReadOption("max_batch_sequences", flags.max_batch_sequences, &fit->batch),
        ReadOption("max_buckets", flags.max_buckets, &fit->ladder),
        ReadOption("min_tokens", flags.min_tokens, &fit->ladder),
        ReadFlag("--step-us", kMicroseconds, flags.step_us, &fit->step_us),
        ReadFlag("--token-us", kMicroseconds, flags.token_us, &fit->token_us),
        ReadFlag("--load", kLoad, flags.load, &fit->load)}) {
    SLUICE_RETURN_IF_ERROR(status);
  }
  const int32_t min_tokens = fit->ladder.min_tokens, max_tokens = fit->batch.max_batch_tokens;
  if (min_tokens > max_tokens) {
    return FlagError("--min-tokens",
                     absl::StrCat(min_tokens, " is above --max-batch-tokens, ", max_tokens));
  }
  if (fit->step_us + fit->token_us == 0) {
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
    arguments->buckets = {flags.model, flags.model_version, flags.advise, flags.json};
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
