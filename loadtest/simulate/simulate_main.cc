// sluice-simulate runs the daemon's scheduler on virtual time.
#include <chrono>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/error_at.h"
#include "base/version.h"
#include "base/write_file.h"
#include "engine/journal/journal_replay.h"
#include "engine/journal/recorded.h"
#include "loadtest/parse_flags.h"
#include "loadtest/simulate/comparison.h"
#include "loadtest/simulate/cost_flags.h"
#include "loadtest/simulate/drift.h"
#include "loadtest/simulate/option_flags.h"
#include "loadtest/simulate/patience.h"
#include "loadtest/simulate/prediction.h"

namespace sluice::loadtest {
namespace {

void AddWorkload(CLI::App* app, ComparisonOptions* o) {
  app->add_option("--trace", o->trace, "CSV: arrival_s,input_tokens,output_tokens");
  app->add_option("--cap", o->cap, "most tokens of a sequence")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app->add_option("--generate", o->generate,
                  "without a trace: lognormal, drifting or recommendation")
      ->capture_default_str();
  app->add_option("--count", o->count, "generated sequences")
      ->check(CLI::Range(2, 10'000'000))
      ->capture_default_str();
  app->add_option("--process", o->process, "arrivals: poisson or bursty")->capture_default_str();
  app->add_option("--order", o->orders, "trace, shuffled or both")
      ->delimiter(',')
      ->capture_default_str();
  app->add_option("--load", o->loads, "useful work / capacity")
      ->delimiter(',')
      ->check(CLI::Range(0.001, 100.0))
      ->capture_default_str();
  app->add_flag("--load-of-halves", o->load_of_halves,
                "each half has the load by itself, instead of both together");
  app->add_option("--adapters", o->adapters,
                  "number of adapters that sequences are drawn for; see --cost-per-adapter-us")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app->add_option("--seed", o->first_seed, "the first seed")->capture_default_str();
  app->add_option("--seeds", o->seeds, "number of seeds; medians over them are reported")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app->add_option("--deadline-s", o->deadline_seconds, "for each sequence; 0: none")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
}

void AddContenders(CLI::App* app, ComparisonOptions* o) {
  app->add_option("--policy", o->policies, Choice<PolicyKind>().Expected())
      ->delimiter(',')
      ->capture_default_str();
  app->add_option("--ladder", o->ladders, kLadders)->delimiter(',')->capture_default_str();
  app->add_option(
         "--fixed-sets", o->fixed_sets,
         "sets of other servers: vllm, tensorrt_llm, tensorrt_llm_64, sglang, tei; each is "
         "compared with packed with the same number of adaptive buckets. The table shows plans")
      ->delimiter(',');
  LadderOptions* const ladder = &o->experiment.ladder;
  AddOptionFlag(app, "max_buckets", ladder);
  AddOptionFlag(app, "min_tokens", ladder);
  AddOptionFlag(app, "min_gain", &ladder->review);
  // This flag is not made from its spec, because in virtual time the value may be below the
  // daemon's minimum.
  app->add_option("--half-life-us", ladder->review.half_life_us, "of the traffic, in virtual time")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 50))
      ->capture_default_str();
  BatchOptions* const batch = &o->experiment.batch;
  AddOptionFlag(app, "max_batch_tokens", batch, /*least=*/1);
  AddOptionFlag(app, "max_batch_sequences", batch, /*least=*/1);
  for (const char* path : {"max_queue_delay", "prefill_tokens", "max_overtakes"}) {
    AddOptionFlag(app, path, batch);
  }
}

int Fail(std::string_view message) {
  std::cerr << "sluice-simulate: " << message << "\n";
  return 1;
}

int FailWith(const absl::Status& status) {
  return Fail({status.message().data(), status.message().size()});
}

int Replay(const std::string& path) {
  absl::StatusOr<JournalReader> journal = JournalReader::Open(path);
  if (!journal.ok()) return FailWith(journal.status());
  const absl::StatusOr<JournalReplay> replay = ReplayJournal(&*journal);
  if (!replay.ok()) return FailWith(ErrorAt(path, replay.status()));
  std::cout << "identical: " << replay->decisions << " decisions, " << replay->batches
            << " batches, " << replay->arrivals << " arrivals in " << replay->runs << " runs\n";
  return 0;
}

struct Output {
  std::string json, table;
};

int Write(const nlohmann::json& rows, const std::string& markdown, const Output& output) {
  std::cout << markdown;
  absl::Status written;
  if (!output.table.empty()) written.Update(WriteFile(output.table, markdown));
  if (!output.json.empty()) written.Update(WriteFile(output.json, rows.dump(1) + "\n"));
  return written.ok() ? 0 : FailWith(written);
}

int PredictJournal(const std::string& path, const StepCosts* costs, const Output& output) {
  const absl::StatusOr<RecordedRun> run = ReadJournalRun(path);
  if (!run.ok()) return FailWith(run.status());
  const absl::StatusOr<Prediction> prediction = Predict(*run, costs);
  if (!prediction.ok()) return FailWith(prediction.status());
  return Write(PredictionToJson(*prediction), PredictionToMarkdown(*prediction), output);
}

int Drift(const ComparisonOptions& options, const Output& output) {
  const absl::StatusOr<nlohmann::json> rows = RunDrift({.count = options.count,
                                                        .cap = options.cap,
                                                        .load = options.loads.front(),
                                                        .first_seed = options.first_seed,
                                                        .seeds = options.seeds,
                                                        .experiment = options.experiment});
  return rows.ok() ? Write(*rows, DriftToMarkdown(*rows), output) : FailWith(rows.status());
}

int Patience(const ComparisonOptions& options, bool greedy, const Output& output) {
  const absl::StatusOr<nlohmann::json> rows = RunPatience({.trace = options.trace,
                                                           .processes = {options.process},
                                                           .loads = options.loads,
                                                           .cap = options.cap,
                                                           .first_seed = options.first_seed,
                                                           .seeds = options.seeds,
                                                           .greedy = greedy,
                                                           .experiment = options.experiment});
  return rows.ok() ? Write(*rows, PatienceToMarkdown(*rows), output) : FailWith(rows.status());
}

int Simulate(const ComparisonOptions& options, const Output& output) {
  const auto begin = std::chrono::steady_clock::now();
  const absl::StatusOr<nlohmann::json> rows = Compare(options);
  if (!rows.ok()) return FailWith(rows.status());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const std::string table = options.fixed_sets.empty() ? ToMarkdown(*rows) : PlansToMarkdown(*rows);
  const int status = Write(*rows, table, output);
  std::cerr << rows->size() << " rows of " << options.seeds << " runs took " << took.count()
            << " s\n";
  return status;
}

int Main(int argc, char** argv) {
  CLI::App app{
      "Runs the daemon's scheduler on virtual time and compares policies and ladders. Adaptive "
      "ladders settle in the first half of the arrivals, and the second half is measured. Reports "
      "medians over the seeds. Deterministic."};
  app.set_version_flag("--version", absl::StrCat("sluice-simulate ", Version()));
  ComparisonOptions options;
  options.experiment.batch.max_batch_tokens = 16384;
  options.experiment.ladder.review.half_life_us = 200'000;
  CostFlags costs;
  int64_t review_us = 50'000;
  Output output;
  std::string journal, assumed;
  bool drift = false;
  bool predict = false, patience = false, greedy = false;
  AddWorkload(&app, &options);
  AddContenders(&app, &options);
  AddCostFlags(&app, &costs);
  app.add_option("--review-interval-us", review_us, "for adaptive ladders, in virtual time")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 50))
      ->capture_default_str();
  app.add_option(
         "--capture-us", options.experiment.capture_seconds,
         "time to prepare a plan, for the cost of a ladder change; an H200 takes 490 to 640")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  app.add_option("--assume", assumed,
                 "the rows that ladders and their reviews assume the device to compute, as "
                 "--cost-of; default: the same")
      ->check(CLI::IsMember({"bucket", "library", "computed"}));
  app.add_option("--journal", journal,
                 "only repeat the daemon's recorded decisions and report differences");
  app.add_flag("--predict", predict,
               "with --journal: also run its arrivals on virtual time, with its last ladder, its "
               "host's times and its steps' costs (or --costs), and compare throughput and "
               "latency");
  app.add_flag(
      "--drift", drift,
      "only run the adaptive ladder through three phases of generated lengths, and compare "
      "it with the best ladder of each");
  app.add_flag("--patience", patience,
               "only compare the admission of calls with and without the backlog: half of the "
               "callers have deadlines of 1 s, half of 60 s");
  app.add_flag("--greedy", greedy,
               "with --patience: one caller of each kind sends ten times as much as the others");
  app.add_option("--out", output.json, "write the rows as JSON");
  app.add_option("--table", output.table, "write the table as Markdown");
  if (const std::optional<int> status = ParseFlags(app, argc, argv)) return *status;
  if (predict && journal.empty()) return Fail("--predict needs --journal");
  if (!journal.empty() && !predict) return Replay(journal);

  options.experiment.capture_seconds *= 1e-6;
  options.experiment.review_interval = std::chrono::microseconds(review_us);
  options.experiment.max_positions = options.cap;
  if (options.cap > options.experiment.batch.max_batch_tokens) {
    return Fail("--cap is above --max-batch-tokens: a sequence must fit a batch");
  }
  const absl::Status set = SetCosts(costs, &options.experiment.costs);
  if (!set.ok()) return FailWith(set);
  options.experiment.assumed_rows =
      assumed.empty() ? options.experiment.costs.rows : RowsNamed(assumed);
  if (predict) {
    return PredictJournal(journal, costs.file.empty() ? nullptr : &options.experiment.costs,
                          output);
  }
  if (patience) return Patience(options, greedy, output);
  return drift ? Drift(options, output) : Simulate(options, output);
}

}  // namespace
}  // namespace sluice::loadtest

int main(int argc, char** argv) { return sluice::loadtest::Main(argc, argv); }
