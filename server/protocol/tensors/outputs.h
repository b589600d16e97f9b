// The table of the outputs of a request: validation accepts them, replies carry them, and metadata
// lists them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

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
  kCandidateOrder,
  kTopScores,
  kLabel,
  kTokenScores,
  kTokenLabels,
  kTokenOffsets,
  kTokenCount,
  kTokenEmbeddings,
  kSparseIds,
  kSparseWeights,
};

// What a model must have to provide an output.
enum class Provider {
  kTokens,    // the model generates
  kText,      // it generates and has a tokenizer
  kTokenIds,  // it generates, and its prompts may be token ids
  kHead,      // logits
  kXsa,
  kClassifier,
  kLabelNames,  // a classifier whose labels have names, and more than one
  kTokenClassifier,
  kTokenLabelNames,  // a classifier of tokens whose labels have names
  kTokenOffsets,     // a classifier of tokens, and a tokenizer
  kEmbedding,        // no embeddings of tokens in place of one of the row
  kMaskedHead,       // logits of a model whose attention runs in both directions
  kAnyModel,
};

struct OutputInfo {
  Output output;
  std::string_view name;
  std::string_view datatype;
  std::string_view shape;  // as documented
  uint32_t mask;           // the results needed from the engine; see OutputMask
  Provider provider;
};

// Returns the table, in the order in which outputs are returned. Outputs that are a default of some
// model come first.
std::span<const OutputInfo> Outputs();

const OutputInfo& InfoOf(Output output);

bool Has(const Model& model, const OutputInfo& info);

// Returns the output of this name, or nullptr if there is none or the model does not provide it.
const OutputInfo* FindOutput(std::string_view name, const Model& model);

// Whether the output is returned for a request that names none. The default outputs are the scores
// of a model with a classifier, and the label if labels have names, with the offsets of tokens if
// these are classified; the generated tokens of a model that generates; the embeddings of tokens of
// a multi-vector model; the sparse embedding of a model whose files make one; and the embedding of
// any other model.
bool IsDefaultOf(const OutputInfo& info, const Model& model);

// Returns the shape of a default output behind the rows; -1 stands for a size that varies.
std::vector<int64_t> ShapeOf(const OutputInfo& info, const Model& model);

}  // namespace sluice
