#include "loadtest/simulate/cost_flags.h"

#include <utility>

#include "base/status_macros.h"
#include "loadtest/simulate/cost_file.h"

namespace sluice::loadtest {

ComputedRows RowsNamed(std::string_view name) {
  return name == "computed"  ? ComputedRows::OfBatch()
         : name == "library" ? ComputedRows::OfLibrary()
                             : ComputedRows::OfBucket();
}

void AddCostFlags(CLI::App* app, CostFlags* flags) {
  app->add_option("--cost-base-us", flags->base_us, "fixed cost of a step")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  app->add_option("--cost-per-token-us", flags->per_token_us, "cost of a step per token")
      ->check(CLI::Range(1e-9, 1e9))
      ->capture_default_str();
  app->add_option("--cost-per-adapter-us", flags->per_adapter_us,
                  "cost of a step per distinct adapter of its sequences")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  app->add_option("--cost-of", flags->of,
                  "the rows that cost: all of the bucket, the same rounded up to a number of rows "
                  "of cuBLASLt (library), or only the tokens of the batch (computed)")
      ->check(CLI::IsMember({"bucket", "library", "computed"}))
      ->capture_default_str();
  app->add_option("--costs", flags->file, "JSON with measured costs, such as a ladder file");
}

absl::Status SetCosts(const CostFlags& flags, StepCosts* costs) {
  if (!flags.file.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const CostModel measured, ReadCosts(flags.file));
    *costs = StepCosts::Measured(measured);
    return absl::OkStatus();
  }
  costs->base_seconds = flags.base_us * 1e-6;
  const double per_token = flags.per_token_us * 1e-6;
  const bool computed = flags.of == "computed";
  costs->rows = RowsNamed(flags.of);
  costs->seconds_per_bucket_token = computed ? 0 : per_token;
  costs->seconds_per_computed_token = computed ? per_token : 0;
  costs->seconds_per_adapter = flags.per_adapter_us * 1e-6;
  return absl::OkStatus();
}

}  // namespace sluice::loadtest
