// The table of a request's outputs: what validation accepts, replies carry and metadata lists.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/model/model.h"

namespace sluice {

enum class Output {
  kOutputIds,
  kSequenceLength,
  kLogprobs,
  kFinishReason,
  kTextOutput,
  kTopIds,
  kTopLogprobs,
  kLogits,
  kPromptLogprobs,
  kXsaCosSim,
  kXsaProjFrac,
  kEmbedding,
  kScores,
  kCandidateScores,
  kTopScores,
};

// What a model needs for an output.
enum class Provider {
  kTokens,    // it generates
  kText,      // and has a tokenizer
  kTokenIds,  // it generates, and its prompts may be token ids
  kHead,      // logits
  kXsa,
  kClassifier,
  kAnyModel,
};

struct OutputInfo {
  Output output;
  std::string_view name;
  std::string_view datatype;
  std::string_view shape;  // as documented
  uint32_t mask;           // what the engine must be asked for; see OutputMask
  Provider provider;
};

// The outputs in the order in which they are returned; defaults of some model come first.
std::span<const OutputInfo> Outputs();

const OutputInfo& InfoOf(Output output);

bool Has(const Model& model, const OutputInfo& info);

// Returns nullptr if there is no such output, or the model has not got it.
const OutputInfo* FindOutput(std::string_view name, const Model& model);

// Returns the outputs of a request that names none: the scores of a model with a classifier, the
// generated tokens of a model that generates, the embedding of any other.
bool IsDefaultOf(const OutputInfo& info, const Model& model);

// Of a default output [n, columns]; -1: any number.
int64_t ColumnsOf(const OutputInfo& info, const Model& model);

}  // namespace sluice
