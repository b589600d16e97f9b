#include "client/plan_view.h"

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
    "kernels": {"unfused": 0, "static": 0, "dynamic": 0},
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

}  // namespace
}  // namespace sluice::client
