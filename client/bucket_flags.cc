#include "client/command_flags.h"
#include "client/flag_values.h"
#include "engine/option_specs.h"

namespace sluice::client {
namespace {

using Command = Arguments::Command;

constexpr char kWatch[] = "--watch";
constexpr int64_t kDefaultWatchUs = 2'000'000;
constexpr double kDefaultLoad = 0.85;
// Of an H200, which took 0.49 to 0.64 ms (loadtest/results/gpu/gpu_check.md).
constexpr double kCaptureMs = 0.6;

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

// Adds the flags shared by all commands about a model's buckets.
template <typename Own>
void AddModel(const char* help, CLI::App* command, Own* own) {
  command->add_option("--model", own->model, Help(help));
  command->add_option("--model-version", own->model_version, "Default: the highest.");
  command->add_flag("--json", own->json, "Print the whole answer as JSON.");
}

// Adds a flag that sets an option of the daemon.
template <typename S>
void AddOptionFlag(const char* path, CLI::App* command, S* options) {
  const OptionSpec<S>& spec = OptionSpecOf<S>(path);
  AddFlag(spec.Flag(), absl::StrCat(spec.help, " Default ", spec.format(*options), "."), command,
          [&spec, options](const std::string& text) {
            return spec.parse(text, options) ? absl::OkStatus()
                                             : ValueError(spec.Flag(), spec.expected, text);
          });
}

// Checks which flags were given together, and sets the defaults that depend on the combination.
absl::Status CheckFit(const CLI::App& command, FitArguments* fit) {
  const auto given = [&](const char* flag) { return command.count(flag) > 0; };
  if (given("--lengths") + given("--trace") + given("--journal") != 1) {
    return FlagError("--lengths", "give exactly one of --lengths, --trace and --journal");
  }
  const bool computed = given("--us-per-computed-token");
  // A journal contains costs.
  const bool own_costs =
      given("--journal") && !given("--us-per-step") && !given("--us-per-bucket-token") && !computed;
  if (!own_costs && !given("--us-per-step")) fit->step_us = 60;
  if (!own_costs && !computed && !given("--us-per-bucket-token")) fit->token_us = 0.04;
  const bool recorded = given("--journal") && own_costs;
  if (!fit->rows.has_value() && !recorded) {
    const bool only_computed = computed && !given("--us-per-bucket-token");
    fit->rows = only_computed ? DeviceRows::kBatch : DeviceRows::kLibrary;
  }
  const bool batch_rows = fit->rows == DeviceRows::kBatch;
  if (batch_rows && given("--us-per-bucket-token")) {
    return FlagError("--us-per-bucket-token",
                     "with --rows batch the device computes no rows of the bucket; set "
                     "--us-per-computed-token instead");
  }
  if (batch_rows && !own_costs && !computed) {
    fit->computed_token_us = std::exchange(fit->token_us, 0);
  }
  if (!given("--capture-ms") && !batch_rows) fit->capture_ms = kCaptureMs;
  if (given("--lengths") && !given("--load")) fit->load = kDefaultLoad;
  const int32_t min_tokens = fit->ladder.min_tokens, max_tokens = fit->batch.max_batch_tokens;
  if (min_tokens > max_tokens) {
    return FlagError("--min-tokens",
                     absl::StrCat(min_tokens, " is above --max-batch-tokens, ", max_tokens));
  }
  if (!own_costs && fit->step_us + fit->token_us + fit->computed_token_us == 0) {
    return FlagError("--us-per-step",
                     "the cost of a step is 0, so no bucket would be better than another; set "
                     "--us-per-step or --us-per-bucket-token");
  }
  return absl::OkStatus();
}

void AddFit(Arguments* arguments, CLI::App* app) {
  constexpr Real kMicroseconds{0.0, 1e6};
  constexpr Real kLoad{0.0, 1.0, /*above_min=*/true, /*below_max=*/true};
  FitArguments* const own = &arguments->fit;
  CLI::App* fit = AddCommand(
      "fit", "Fit a ladder to lengths or recorded traffic, without a server. Prints configuration.",
      app);
  fit->add_option("--lengths", own->lengths,
                  Help("File of sequence lengths in order of arrival, one per line; - for standard "
                       "input. The arrival times are random."));
  fit->add_option("--trace", own->trace,
                  Help("File of timed arrivals: CSV with columns arrival_s and input_tokens, or "
                       "Mooncake's JSON lines with timestamp and input_length."));
  fit->add_option("--journal", own->journal,
                  Help("File that a daemon recorded (engine.history.journal). Its measured costs "
                       "and the most sequences of its steps are used unless others are given."));
  std::vector<std::string> strategies = Choice<StrategyKind>().Words();
  strategies.push_back("all");
  AddFlag("--strategy",
          "The strategy whose ladder is printed, unless another is better on this traffic; all: "
          "compare every strategy and print the best. Default adaptive.",
          fit, OneOf{std::move(strategies)}, &own->strategy);
  fit->add_option(
      "--column", own->column,
      Help(
          "For comma-separated lines: the column's number from 1, or its name in the first line."));
  fit->add_flag(
      "--clip", own->clip,
      Help("Reduce values of --lengths above --max-batch-tokens to that value; otherwise they are "
           "errors. The sequences of a trace or a journal are always reduced."));
  // 0 is an error here, because without a model there is no default size.
  AddFlag("--max-batch-tokens",
          absl::StrCat("The largest bucket. Default ", own->batch.max_batch_tokens, "."), fit,
          Integer{1, OptionSpecOf<BatchOptions>("max_batch_tokens").integer->max},
          &own->batch.max_batch_tokens);
  AddOptionFlag("max_batch_sequences", fit, &own->batch);
  AddOptionFlag("max_buckets", fit, &own->ladder);
  AddOptionFlag("min_tokens", fit, &own->ladder);
  AddFlag("--us-per-step",
          "Cost of a step of any size, in microseconds. Default 60. sluice buckets shows the "
          "measured value as step cost.",
          fit, kMicroseconds, &own->step_us);
  AddFlag("--us-per-bucket-token",
          "Added cost of each row that the device computes for the bucket. Default 0.04, or 0 with "
          "--us-per-computed-token.",
          fit, kMicroseconds, &own->token_us);
  AddFlag("--us-per-computed-token", "Added cost of each computed token, as on a CPU. Default 0.",
          fit, kMicroseconds, &own->computed_token_us);
  AddFlag("--capture-ms",
          "Time to prepare a plan, in milliseconds. Default 0.6, as on an H200, or 0 with --rows "
          "batch.",
          fit, kMicroseconds, &own->capture_ms);
  AddFlag(
      "--rows",
      "The rows that the device computes. library: all rows of the bucket, rounded up to a "
      "number of rows of cuBLASLt, as a GPU does with cuda.dense: cublaslt; bucket: all rows of "
      "the bucket; batch: only the tokens of the batch, as a CPU does, or a GPU with cuda.dense: "
      "own. Default: as recorded by the journal, batch with --us-per-computed-token, else "
      "library.",
      fit, [own](const std::string& text) {
        DeviceRows rows{};
        const absl::Status read = ReadFlag("--rows", Choice<DeviceRows>{}, text, &rows);
        if (read.ok()) own->rows = rows;
        return read;
      });
  AddFlag("--load",
          "Arriving load as a share of the device's capacity at full batches. Default: the "
          "recorded times, or 0.85 for lengths without times.",
          fit, kLoad, &own->load);
  fit->add_option("--out", own->out, Help("Also write the configuration to this file."));
  fit->add_flag("--json", own->json,
                Help("Print JSON: every ladder that was tried, and the options of the one taken."));
  fit->callback([=] {
    arguments->command = Command::kFit;
    EndParseOn(CheckFit(*fit, own));
  });
}

}  // namespace

void AddBucketCommands(Arguments* arguments, CLI::App* app) {
  CLI::App* buckets = AddCommand("buckets", "Show the shape buckets and how well they fit.", app);
  BucketsArguments& shown = arguments->buckets;
  AddModel("Only this model.", buckets, &shown);
  buckets->add_flag("--advise", shown.advise, "Advise what to change, and why.");
  buckets->add_flag("--history", shown.history,
                    Help("Also show the last hours: bucket fill, lengths, ladder changes."));
  buckets
      ->add_option_function<std::vector<std::string>>(
          kWatch,
          [&shown](const std::vector<std::string>& interval) {
            shown.watch_us = kDefaultWatchUs;
            if (interval.empty() || interval[0].empty()) return;
            EndParseOn(ReadFlag(kWatch, WatchInterval{}, interval[0], &shown.watch_us));
          },
          Help("Update the output every SECONDS, default 2."))
      ->expected(0, 1);
  buckets->callback([=] { arguments->command = Command::kBuckets; });
  CLI::App* review = AddCommand(
      "review", "Review a model's ladder now, and wait until the new one is in use.", app);
  AddModel("The model; may be left out if the server has only one.", review, &arguments->review);
  review->add_flag("--force", arguments->review.force,
                   Help("Adopt any gain, even below engine.ladder.review.min_gain."));
  review->callback([=] { arguments->command = Command::kReview; });
  CLI::App* explain =
      AddCommand("explain", "Explain how one of the last requests was scheduled, and why.", app);
  ExplainArguments& explained = arguments->explain;
  explain->add_option("request_id", explained.request_id, "The id of the request.")->required();
  explain->add_option(
      "--model", explained.model,
      Help("Only requests to this model. Default: the latest request to any model."));
  explain->add_flag("--json", explained.json, "Print the whole answer as JSON.");
  explain->callback([=] { arguments->command = Command::kExplain; });
  AddFit(arguments, app);
}

}  // namespace sluice::client
