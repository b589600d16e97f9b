// The derivation of the one-pass kernel of attention from the definition, rule by rule.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cascades/einsum/attention_terms.h"
#include "cascades/einsum/cascade.h"

namespace sluice {

struct DerivationStep {
  std::string rule;       // empty for the definition
  std::string condition;  // of the rule
  einsum::Cascade cascade;
  int passes;  // over the keys
};

// Returns the definition and the fewest rewrites that lead to a term of one pass over chunks of
// `chunk` keys. Returns ResourceExhausted if the search first finds more than `most_terms` terms.
absl::StatusOr<std::vector<DerivationStep>> DeriveOnePass(const einsum::AttentionShape& shape,
                                                          int64_t chunk,
                                                          int64_t most_terms = 20000);

}  // namespace sluice
