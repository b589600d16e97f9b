// The table of a request's outputs. Validation accepts them, replies carry them, and metadata lists
// them.
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
  kOutputBytes,
  kTopIds,
  kTopLogprobs,
  kTopBytes,
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
  kTokenIds,
  kTokenEmbeddings,
  kSparseIds,
  kSparseWeights,
  kVectors,
  kVectorCount,
  kMaxSim,
  kSpanEmbeddings,
  kSpanCount,
  kExtractedSpans,
  kExtractedLabels,
  kExtractedScores,
  kExtractedCount,
};

// The properties that a model needs to provide an output.
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
  kTokenizer,        // a tokenizer
  kEmbedding,        // one embedding per row, not per token
  kSparse,           // logits of a model with bidirectional attention, or weights of tokens
  kVectors,          // a vector for each token or most of them
  kExtraction,       // a head that finds labelled parts of texts
  kAnyModel,
};

// A model, or a model with an adapter. The adapter may have a classifier in place of the model's
// outputs.
struct NamedModel {
  NamedModel(const Model& own)  // NOLINT(google-explicit-constructor)
      : model(own), classifier(own.config.serving.classifier) {}
  NamedModel(const Model& own, const ClassifierConfig* head)
      : model(own),
        classifier(head != nullptr ? *head : own.config.serving.classifier),
        has_head(head != nullptr) {}
  // Returns whether a next token can be drawn.
  bool generates() const { return !has_head && model.generates(); }

  const Model& model;
  const ClassifierConfig& classifier;
  bool has_head = false;  // whether the classifier is an adapter's own
};

struct OutputInfo {
  Output output;
  std::string_view name;
  std::string_view datatype;
  std::string_view shape;  // as documented
  uint32_t mask;           // the results needed from the engine; see OutputMask
  Provider provider;
};

// Returns the table, in the order in which outputs are returned. Outputs that are the default of
// some model come first.
std::span<const OutputInfo> Outputs();

const OutputInfo& InfoOf(Output output);

bool Has(const NamedModel& named, const OutputInfo& info);

// Returns the output of this name, or nullptr if there is none or the model does not provide it.
const OutputInfo* FindOutput(std::string_view name, const NamedModel& named);

// Returns whether the output is a default, for requests that name no outputs. The defaults are:
// - for a classifier of texts, the scores, and the label if labels have names;
// - for a classifier of tokens, the scores and counts of tokens, their labels if labels have names,
//   and their offsets if the model has a tokenizer;
// - for a model that generates, the generated tokens;
// - for a multi-vector model, the vectors and their counts, or MaxSim if there are documents;
// - for a model that extracts, the labelled parts and their counts;
// - for a model whose files define a sparse embedding, that embedding;
// - for any other model, the embedding.
bool IsDefaultOf(const OutputInfo& info, const NamedModel& named);

// Returns the shape of a default output, without the row dimension; -1 means a variable size.
std::vector<int64_t> ShapeOf(const OutputInfo& info, const NamedModel& named);

}  // namespace sluice
