#include "client/bucket_flags.h"

#include "client/flag_values.h"

namespace sluice::client {
namespace {

constexpr char kWatch[] = "--watch";
constexpr int64_t kDefaultWatchUs = 2'000'000;

// Plain numbers are seconds.
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
                  Help("The largest bucket. Default 4096."));
  fit->add_option("--max-batch-sequences", flags->max_batch_sequences,
                  Help("Most sequences in a batch. Default 256."));
  fit->add_option("--max-buckets", flags->max_buckets, "Default 16.");
  fit->add_option("--min-tokens", flags->min_tokens, Help("The smallest bucket. Default 16."));
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

absl::Status ReadFit(const BucketFlags& flags, FitArguments* fit) {
  constexpr Integer kTokens{1, 1 << 20};
  constexpr Integer kSequences{1, 65536};
  constexpr Integer kBuckets{1, 1024};
  constexpr Real kMicroseconds{0.0, 1e6};
  constexpr Real kLoad{0.0, 1.0, /*above_min=*/true, /*below_max=*/true};
  fit->lengths = flags.lengths;
  fit->column = flags.column;
  fit->clip = flags.clip;
  fit->out = flags.out;
  for (const absl::Status& status :
       {ReadFlag("--max-batch-tokens", kTokens, flags.max_batch_tokens, &fit->max_batch_tokens),
        ReadFlag("--max-batch-sequences", kSequences, flags.max_batch_sequences,
                 &fit->max_batch_sequences),
        ReadFlag("--max-buckets", kBuckets, flags.max_buckets, &fit->max_buckets),
        ReadFlag("--min-tokens", kTokens, flags.min_tokens, &fit->min_tokens),
        ReadFlag("--step-us", kMicroseconds, flags.step_us, &fit->step_us),
        ReadFlag("--token-us", kMicroseconds, flags.token_us, &fit->token_us),
        ReadFlag("--load", kLoad, flags.load, &fit->load)}) {
    if (!status.ok()) return status;
  }
  if (fit->min_tokens > fit->max_batch_tokens) {
    return FlagError("--min-tokens", absl::StrCat(fit->min_tokens, " is above --max-batch-tokens, ",
                                                  fit->max_batch_tokens));
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
    arguments->explain = {flags.request_id, flags.json};
  } else if (name == "fit") {
    arguments->command = Arguments::Command::kFit;
    return ReadFit(flags, &arguments->fit);
  }
  return absl::OkStatus();
}

}  // namespace sluice::client
