// Whether one model can draft tokens for another.
#pragma once

#include "absl/status/status.h"
#include "engine/model/model.h"

namespace sluice {

// Returns InvalidArgument, with a remedy, unless `draft` can draft tokens for `model`: both
// generate from token ids, and each id stands for the same text in both. Texts are compared only if
// both models have a tokenizer.
absl::Status CheckDraft(const Model& model, const Model& draft);

}  // namespace sluice
