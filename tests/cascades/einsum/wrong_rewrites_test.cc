// Rewrites with one error each, to show that the check of the right rewrites detects errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "cascades/einsum/attention_terms.h"
#include "cascades/einsum/rewrites.h"
#include "tests/cascades/einsum/rule_check.h"
#include "tests/cascades/einsum/wrong_rewrites.h"
#include "tests/support/table.h"

namespace sluice::einsum {
namespace {

class WrongRewrites : public TableTest<WrongRow> {};

TEST_P(WrongRewrites, AreCaught) {
  const uint32_t seed = std::random_device{}();
  RecordProperty("seed", static_cast<int>(seed));
  TermPool pool;
  AttentionTerm(pool, {});
  const TermId term = row().term(pool);
  // A size of 1 hides some faults, so several draws are checked.
  std::string caught;
  for (uint32_t draw = 0; draw < 20 && caught.empty(); ++draw) {
    caught =
        CheckRule(pool, {row().name, "none", row().apply}, term, seed + 100 * draw).counterexample;
  }
  EXPECT_NE(caught, "") << "seed " << seed;
  EXPECT_EQ(caught.find("other ranks") != std::string::npos, row().changes_ranks) << caught;
}

// Terms that a rule without its side condition changes wrongly.
TEST_P(WrongRewrites, HaveTermsThatTheRightRulesRewriteCorrectly) {
  const uint32_t seed = std::random_device{}();
  TermPool pool;
  AttentionTerm(pool, {});
  const TermId term = row().term(pool);
  int applications = 0;  // of the right rule
  for (const Rule& rule :
       AllRules({.partitions = {{"m", "c", "j", 3}}, .own_value = OwnValueOfAttention()})) {
    for (uint32_t draw = 0; draw < 5; ++draw) {
      const RuleFinding finding = CheckRule(pool, rule, term, seed + 100 * draw);
      EXPECT_EQ(finding.counterexample, "") << rule.name << ", seed " << seed;
      if (rule.name.starts_with(row().rule)) applications += finding.applications;
    }
  }
  EXPECT_EQ(applications > 0, row().right_rule_applies);
}

std::vector<WrongRow> AllWrongRewrites() {
  std::vector<WrongRow> all = WrongRewritesOfProducts();
  for (WrongRow& row : WrongRewritesOfSoftmax()) all.push_back(std::move(row));
  return all;
}
SLUICE_TABLE(WrongRewrites, AllWrongRewrites());

TEST(Rewrites, EachHasAWrongVersionThatValuesShow) {
  const std::vector<WrongRow> wrong = AllWrongRewrites();
  for (const Rule& rule :
       AllRules({.partitions = {{"m", "c", "j", 3}}, .own_value = OwnValueOfAttention()})) {
    EXPECT_TRUE(std::ranges::any_of(wrong, [&](const WrongRow& row) {
      return rule.name.starts_with(row.rule) && !row.changes_ranks;
    })) << rule.name;
  }
}

}  // namespace
}  // namespace sluice::einsum
