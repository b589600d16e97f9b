// Rewrites between terms of equal value, in exact arithmetic. Each has a name and a side condition;
// it returns nothing if it does not apply.
//
//   const std::vector<Rule> rules = AllRules({.partitions = {{"m", "c", "j", 256}}});
//   EGraph graph(&pool);
//   graph.Saturate(rules, {});
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cascades/einsum/cascade.h"
#include "cascades/einsum/term.h"
#include "cascades/einsum/term_graph.h"

namespace sluice::einsum {

struct Rule {
  std::string name;
  std::string condition;  // the side condition, in words
  // Returns terms that are equal to `node`.
  std::function<std::vector<TermId>(TermGraph& graph, const Term& node)> apply;
};

// The value of a query's own position, known not to be zero.
struct OwnValue {
  Access values;         // the values of all positions
  Access own;            // the values of the queries' own positions
  Condition until_self;  // a kLessEqual that admits the positions up to the query's own
};

struct RuleOptions {
  std::vector<Partition> partitions = {};
  std::optional<OwnValue> own_value = {};
};

std::vector<Rule> AllRules(const RuleOptions& options);

// The rules by subject, in the order of AllRules. rewrites_split.cc: a split reaches the inputs.
std::vector<Rule> SplitRules();
// rewrites_division.cc: divisions leave products, reductions and differences.
std::vector<Rule> DivisionRules();
// rewrites_division.cc: two divisions become one, or the later one comes first. They are separate,
// because they multiply the variants of a term that divides more than once.
std::vector<Rule> QuotientRules();
// rewrites_scale.cc: factors leave reductions or are folded into an operand.
std::vector<Rule> ScaleRules();
// rewrites_softmax.cc: maxima, chunks, folds and merges.
std::vector<Rule> SoftmaxRules(const std::vector<Partition>& partitions);
// rewrites_xsa.cc: the projection that removes a value's own direction.
std::vector<Rule> XsaRules(const std::optional<OwnValue>& own_value);

// Returns the term without kSplit: its indices and conditions name the outer and inner ranks.
TermId PushSplits(TermGraph& graph, TermId id);

}  // namespace sluice::einsum
