#include "client/analysis/plan_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "nlohmann/json.hpp"

namespace sluice::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A report of one kind of attention and no other op.
nlohmann::json Report(bool variants_complete) {
  return nlohmann::json::parse(R"({
    "model": "m", "architecture": "a", "device": {"name": "test"},
    "step": {"sequences": 1, "tokens": 1, "context": 8}, "ops": [],
    "einsums": 0, "kernels": 0, "raised_ceilings": [],
    "attention": [{"xsa": false, "ops": 2, "definition_passes": 3, "variants_found": 512,
                   "variants_complete": )" +
                               std::string(variants_complete ? "true" : "false") +
                               R"(, "variants": [], "chosen": "one_pass", "reason": "."}]})");
}

TEST(PlanText, ReportsWhetherAllVariantsWereFound) {
  EXPECT_THAT(PlanText(Report(false)), HasSubstr("3 passes as defined, at least 512 equal"));
  EXPECT_THAT(PlanText(Report(true)), HasSubstr("3 passes as defined, 512 equal"));
  EXPECT_THAT(PlanText(Report(true)), Not(HasSubstr("at least")));
}

// A report of one op with this measured time and this time of its roofline.
nlohmann::json Profile(double measured, double roofline) {
  nlohmann::json report = Report(true);
  report["attention"] = nlohmann::json::array();
  report["einsums"] = 12;
  report["kernels"] = 3;
  report["ops"] = nlohmann::json::parse(R"([{
    "kind": "linear", "matrix": "4 x 8", "ops": 2, "estimated_seconds": 1, "einsums": 6,
    "kernels": 1, "analysis": {"passes": 1, "flops": 10, "exponentials": 0, "bytes": {
      "weight": {"loads": 1, "stores": 0}, "kv": {"loads": 0, "stores": 0},
      "arena": {"loads": 0, "stores": 0}}},
    "roofline": {"bytes": 100, "flops": 10, "bound": "L3"}}])");
  report["ops"][0]["measured_seconds"] = measured;
  report["ops"][0]["roofline"]["seconds"] = roofline;
  return report;
}

TEST(PlanText, ShowsEinsumsAndKernels) {
  const std::string text = PlanText(Profile(2, 1));
  EXPECT_THAT(text, HasSubstr("6 -> 1\n"));
  EXPECT_THAT(text, HasSubstr("The step has 12 einsums. Its plan runs 3 kernels"));
}

TEST(PlanText, ShowsSharesOfTheRooflineAndRaisedCeilings) {
  EXPECT_THAT(PlanText(Profile(2, 1)), HasSubstr("50.0 % of the roofline"));
  EXPECT_THAT(PlanText(Profile(2, 1)), Not(HasSubstr("raised")));
  nlohmann::json report = Profile(1, 1);
  report["raised_ceilings"] = {{{"name", "L3"}, {"factor", 1.25}, {"op", "linear 4 x 8"}}};
  EXPECT_THAT(PlanText(report), HasSubstr("100.0 % of the roofline"));
  EXPECT_THAT(PlanText(report), HasSubstr("L3 1.25 times (linear 4 x 8)"));
}

TEST(PlanText, AnOpThatIsTooShortForTheClockHasNoShare) {
  const std::string text = PlanText(Profile(0, 1));
  EXPECT_THAT(text, HasSubstr("Measured: 0 us for the ops of a step, - of the roofline"));
  EXPECT_THAT(text, Not(HasSubstr("inf")));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace sluice::client
