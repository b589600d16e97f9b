#include "server/protocol/tensors/outputs.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/enum_names.h"
#include "engine/request.h"

namespace sluice {
namespace {

// Candidates need the generated tokens to identify the row of each candidate.
constexpr uint32_t kTop = kOutputTopCandidates | kOutputTokens;

constexpr OutputInfo kOutputs[] = {
    {Output::kOutputIds, "output_ids", "INT32", "[n, t]", kOutputTokens, Provider::kTokens},
    {Output::kSequenceLength, "sequence_length", "INT32", "[n, 1]", kOutputTokens,
     Provider::kTokens},
    {Output::kLogprobs, "logprobs", "FP32", "[n, t]", kOutputTokens, Provider::kTokens},
    {Output::kFinishReason, "finish_reason", "BYTES", "[n, 1]", kOutputTokens, Provider::kTokens},
    {Output::kTextOutput, "text_output", "BYTES", "[n, 1]", kOutputTokens, Provider::kText},
    {Output::kOutputBytes, "output_bytes", "BYTES", "[n, t]", kOutputTokens, Provider::kText},
    {Output::kScores, "scores", "FP32", "[n, labels]", kOutputScores, Provider::kClassifier},
    {Output::kLabel, "label", "BYTES", "[n, 1]", kOutputScores, Provider::kLabelNames},
    {Output::kTokenCount, "token_count", "INT32", "[n, 1]", 0, Provider::kAnyModel},
    {Output::kTokenScores, "token_scores", "FP32", "[n, length, labels]", kOutputTokenScores,
     Provider::kTokenClassifier},
    {Output::kTokenLabels, "token_labels", "BYTES", "[n, length]", kOutputTokenScores,
     Provider::kTokenLabelNames},
    {Output::kTokenOffsets, "token_offsets", "INT32", "[n, length, 2]", 0, Provider::kTokenizer},
    {Output::kTokenIds, "token_ids", "INT32", "[n, length]", 0, Provider::kTokenizer},
    {Output::kTokenEmbeddings, "token_embeddings", "FP32", "[n, length, d]", kOutputTokenStates,
     Provider::kAnyModel},
    {Output::kEmbedding, "embedding", "FP32", "[n, d]", kOutputEmbedding, Provider::kEmbedding},
    {Output::kSparseIds, "sparse_ids", "INT32", "[n, k]", kOutputSparse, Provider::kSparse},
    {Output::kSparseWeights, "sparse_weights", "FP32", "[n, k]", kOutputSparse, Provider::kSparse},
    {Output::kVectors, "vectors", "FP32", "[n, v, d]", kOutputVectors, Provider::kVectors},
    {Output::kVectorCount, "vector_count", "INT32", "[n, 1]", kOutputVectors, Provider::kVectors},
    {Output::kMaxSim, "maxsim", "FP32", "[m, 1]", kOutputMaxSim, Provider::kVectors},
    {Output::kSpanEmbeddings, "span_embeddings", "FP32", "[n, s, d]", kOutputSpans,
     Provider::kEmbedding},
    {Output::kSpanCount, "span_count", "INT32", "[n, 1]", kOutputSpans, Provider::kEmbedding},
    {Output::kExtractedSpans, "extracted_spans", "INT32", "[n, e, 2]", kOutputExtraction,
     Provider::kExtraction},
    {Output::kExtractedLabels, "extracted_labels", "INT32", "[n, e]", kOutputExtraction,
     Provider::kExtraction},
    {Output::kExtractedScores, "extracted_scores", "FP32", "[n, e]", kOutputExtraction,
     Provider::kExtraction},
    {Output::kExtractedCount, "extracted_count", "INT32", "[n, 1]", kOutputExtraction,
     Provider::kExtraction},
    {Output::kTopIds, "top_ids", "INT32", "[n, t, k]", kTop, Provider::kTokens},
    {Output::kTopLogprobs, "top_logprobs", "FP32", "[n, t, k]", kTop, Provider::kTokens},
    {Output::kTopBytes, "top_bytes", "BYTES", "[n, t, k]", kTop, Provider::kText},
    {Output::kTopScores, "top_scores", "FP32", "[n, t, k]", kTop | kOutputTopScores,
     Provider::kTokens},
    {Output::kCandidateScores, "candidate_scores", "FP32", "[n, c]", kOutputCandidates,
     Provider::kHead},
    {Output::kCandidateOrder, "candidate_order", "INT32", "[n, c]",
     kOutputCandidates | kOutputCandidateOrder, Provider::kHead},
    {Output::kLogits, "logits", "FP32", "[n, vocab]", kOutputLogits, Provider::kHead},
    {Output::kPromptLogprobs, "prompt_logprobs", "FP32", "[n, length]", kOutputPromptLogprobs,
     Provider::kTokenIds},
    {Output::kXsaCosSim, "xsa_cos_sim", "FP32", "[n, layers, p, heads]", kOutputDiagnostics,
     Provider::kXsa},
    {Output::kXsaProjFrac, "xsa_proj_frac", "FP32", "[n, layers, p, heads]", kOutputDiagnostics,
     Provider::kXsa},
};

// InfoOf finds each output once.
constexpr bool HasEachOutputOnce() {
  std::array<int, CountEnumerators<Output>()> times{};
  for (const OutputInfo& info : kOutputs) ++times[static_cast<size_t>(info.output)];
  return std::ranges::count(times, 1) == std::ssize(times);
}
static_assert(HasEachOutputOnce());

}  // namespace

std::span<const OutputInfo> Outputs() { return kOutputs; }

const OutputInfo& InfoOf(Output output) {
  return *std::find_if(std::begin(kOutputs), std::end(kOutputs),
                       [output](const OutputInfo& info) { return info.output == output; });
}

bool Has(const NamedModel& named, const OutputInfo& info) {
  const Model& model = named.model;
  const ClassifierConfig& classifier = named.classifier;
  const bool has_lm_head = model.config.has_lm_head && !named.has_head;
  switch (info.provider) {
    case Provider::kTokens:
      return named.generates();
    case Provider::kText:
      return named.generates() && model.tokenizer != nullptr;
    case Provider::kTokenIds:
      return named.generates() && model.config.embeds_ids();
    case Provider::kHead:
      return has_lm_head;
    case Provider::kXsa:
      return model.config.xsa.Any();
    case Provider::kClassifier:
      return classifier.labels > 0 && !classifier.of_tokens;
    case Provider::kLabelNames:
      return classifier.names.size() > 1 && !classifier.of_tokens;
    case Provider::kTokenClassifier:
      return classifier.of_tokens;
    case Provider::kTokenLabelNames:
      return classifier.of_tokens && !classifier.names.empty();
    case Provider::kTokenizer:
      return model.tokenizer != nullptr;
    case Provider::kEmbedding:
      return !model.config.serving.multi_vector &&
             (classifier.labels == 0 || (model.config.serving.states_embedding && !named.has_head));
    case Provider::kSparse:
      return model.config.serving.term_weights || (has_lm_head && !model.config.causal);
    case Provider::kVectors:
      return model.config.vector_size() > 0;
    case Provider::kExtraction:
      return model.spans.has_value() && model.tokenizer != nullptr;
    case Provider::kAnyModel:
      return true;
  }
  return false;
}

const OutputInfo* FindOutput(std::string_view name, const NamedModel& named) {
  for (const OutputInfo& info : kOutputs) {
    if (info.name == name) return Has(named, info) ? &info : nullptr;
  }
  return nullptr;
}

bool IsDefaultOf(const OutputInfo& info, const NamedModel& named) {
  const ServingConfig& serving = named.model.config.serving;
  const bool scores = named.classifier.labels > 0, of_tokens = named.classifier.of_tokens;
  if (info.output == Output::kOutputBytes) return false;
  if (info.output == Output::kTokenCount) return of_tokens;
  if (info.output == Output::kTokenOffsets) return of_tokens && Has(named, info);
  if (!named.has_head) {
    if (serving.extraction) return info.mask == kOutputExtraction && Has(named, info);
    if (serving.multi_vector) return info.mask == kOutputVectors;
    if (serving.sparse) return info.mask == kOutputSparse;
  }
  if ((info.mask & (kOutputScores | kOutputTokenScores)) != 0) return Has(named, info);
  if (info.output == Output::kEmbedding) return !scores && !named.generates();
  return !scores && info.mask == kOutputTokens && Has(named, info);
}

std::vector<int64_t> ShapeOf(const OutputInfo& info, const NamedModel& named) {
  const Model& model = named.model;
  const int64_t labels = named.classifier.labels;
  switch (info.output) {
    case Output::kSequenceLength:
    case Output::kFinishReason:
    case Output::kTextOutput:
    case Output::kLabel:
    case Output::kTokenCount:
    case Output::kVectorCount:
    case Output::kExtractedCount:
      return {1};
    case Output::kScores:
      return {labels};
    case Output::kTokenScores:
      return {-1, labels};
    case Output::kTokenEmbeddings:
      return {-1, model.config.token_embedding_size()};
    case Output::kVectors:
      return {-1, model.config.vector_size()};
    case Output::kTokenOffsets:
    case Output::kExtractedSpans:
      return {-1, 2};
    case Output::kEmbedding:
      return {model.config.embedding_size()};
    default:
      return {-1};
  }
}

}  // namespace sluice
