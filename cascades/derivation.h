// The way from the definition of attention to its one-pass kernel, rule by rule.
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
  std::string condition;  // under which the rule holds
  einsum::Cascade cascade;
  int passes;  // over the keys
};

// Returns the definition and the fewest rewrites that make it a term of one pass over chunks of
// `chunk` keys. Returns ResourceExhausted if the search meets more than `most_terms` before.
absl::StatusOr<std::vector<DerivationStep>> DeriveOnePass(const einsum::AttentionShape& shape,
                                                          int64_t chunk,
                                                          int64_t most_terms = 20000);

}  // namespace sluice
