// sluice-size computes the number of replicas from recorded arrivals and an objective.
#include <algorithm>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "base/write_file.h"
#include "engine/journal/recorded.h"
#include "loadtest/parse_flags.h"
#include "loadtest/simulate/cost_flags.h"
#include "loadtest/simulate/option_flags.h"
#include "loadtest/size/sizing.h"
#include "loadtest/size/sizing_report.h"

namespace sluice::loadtest {
namespace {

constexpr int kExitNotEnough = 3;  // no number of replicas is enough

struct Flags {
  std::string trace, journal, out;
  int32_t cap = 8192;
  bool generate = false;
  double objective_ms = 100;
  CostFlags costs;
};

void AddFlags(CLI::App* app, Flags* f, SizingOptions* o) {
  auto* source = app->add_option_group("source", "what arrives")->require_option(1);
  source->add_option("--trace", f->trace, "CSV: arrival_s, input_tokens, optionally output_tokens");
  source->add_option("--journal", f->journal,
                     "recording of the daemon (engine.history.journal): its arrivals, batch "
                     "options and, without other costs, its measured costs");
  app->add_option("--cap", f->cap, "most tokens of a sequence of the trace")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app->add_flag("--generate", f->generate, "each output token of the trace is a step");
  app->add_option("--objective-ms", f->objective_ms, "latency objective")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  app->add_option("--share", o->share, "share of the sequences that must meet the objective")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app->add_option("--growth", o->growth, "arrivals come this many times faster")
      ->check(CLI::Range(1e-6, 1e6))
      ->capture_default_str();
  app->add_option("--margin", o->margin,
                  "every step takes this share longer than recorded, in case the machine is slower")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  app->add_option("--max-replicas", o->max_replicas, "give up above this number")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app->add_option("--seed", o->seed, "for the split over the replicas")->capture_default_str();
  AddOptionFlag(app, "max_buckets", &o->ladder);
  auto* batch = app->add_option_group("batch", "for a trace; a journal has its own");
  AddOptionFlag(batch, "max_batch_tokens", &o->batch, /*least=*/1);
  AddOptionFlag(batch, "max_batch_sequences", &o->batch, /*least=*/1);
  AddOptionFlag(batch, "max_queue_delay", &o->batch);
  app->add_option("--out", f->out, "write the result as JSON");
  AddCostFlags(app, &f->costs);
}

int Fail(std::string_view message) {
  std::cerr << "sluice-size: " << message << "\n";
  return 1;
}

int FailWith(const absl::Status& status) {
  return Fail({status.message().data(), status.message().size()});
}

// Returns the arrivals. For a journal, also sets the options that the daemon ran with.
absl::StatusOr<std::vector<Arrival>> Load(const Flags& flags, bool costs_given,
                                          SizingOptions* options) {
  if (flags.journal.empty()) {
    options->recompute = flags.generate;
    options->costs_assumed = !costs_given;
    return ReadTraceArrivals(flags.trace, std::min(flags.cap, options->batch.max_batch_tokens),
                             flags.generate);
  }
  SLUICE_ASSIGN_OR_RETURN(RecordedRun run, ReadJournalRun(flags.journal));
  SetRun(run, !costs_given, options);
  return std::move(run.arrivals);
}

int Main(int argc, char** argv) {
  CLI::App app{
      "Computes the number of replicas that carry the recorded load, their ladder, and the growth "
      "that they can carry. Splits the arrivals at random over one replica, two, and so on, and "
      "runs each scheduler on virtual time until the objective is met."};
  app.set_version_flag("--version", absl::StrCat("sluice-size ", Version()));
  Flags flags;
  SizingOptions options;
  options.batch.max_batch_tokens = 16384;
  AddFlags(&app, &flags, &options);
  if (const std::optional<int> status = ParseFlags(app, argc, argv)) return *status;

  options.objective_seconds = flags.objective_ms * 1e-3;
  const absl::Status set = SetCosts(flags.costs, &options.costs);
  if (!set.ok()) return FailWith(set);
  const bool costs_given = app.count("--costs") + app.count("--cost-base-us") +
                               app.count("--cost-per-token-us") + app.count("--cost-of") >
                           0;
  const absl::StatusOr<std::vector<Arrival>> arrivals = Load(flags, costs_given, &options);
  if (!arrivals.ok()) return FailWith(arrivals.status());
  const absl::StatusOr<Sizing> sizing = SizeReplicas(*arrivals, options);
  if (!sizing.ok()) return FailWith(sizing.status());

  std::cout << SizingTable(*sizing, options);
  if (sizing->replicas > 0 && !options.costs_assumed) {
    std::cout << "\n" << SizingYaml(*sizing, options);
  }
  if (!flags.out.empty()) {
    const absl::Status written =
        WriteFile(flags.out, SizingToJson(*sizing, options).dump(1) + "\n");
    if (!written.ok()) return FailWith(written);
  }
  return sizing->replicas > 0 ? 0 : kExitNotEnough;
}

}  // namespace
}  // namespace sluice::loadtest

int main(int argc, char** argv) { return sluice::loadtest::Main(argc, argv); }
