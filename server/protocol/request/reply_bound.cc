#include "server/protocol/request/reply_bound.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/common/status.h"

namespace sluice {
namespace {

// The numbers that determine the size of a reply, in floating point because their products may
// overflow integers.
struct ReplyExtents {
  const ModelConfig& config;
  const ClassifierConfig& classifier;
  double text;  // the most bytes that a token adds to a text
  double rows;
  double longest;  // the longest prompt or, with windows, the longest text
  double generated;
  double top;
  double candidates;
  double embedding;  // values per embedding
  double terms;      // the most terms of a row's sparse embedding
  double spans;      // the most spans of a row
  double extracted;  // the most extracted parts of a row
};

size_t MostSpans(const RequestSpec& spec) {
  size_t most = 0;
  for (const std::vector<TextSpan>& row : spec.states.spans) most = std::max(most, row.size());
  return most;
}

int32_t MostExtracted(const Model& model, const ExtractionRules& rules, int32_t words) {
  const auto& extraction = model.config.serving.extraction;
  const bool one = rules.overlap == SpanOverlap::kFlat && !rules.multi_label &&
                   !(extraction && extraction->label_by_label);
  return one ? std::min(words, kMostExtracted) : kMostExtracted;
}

ReplyExtents ExtentsOf(const RequestSpec& spec, const Request& request, int64_t rows,
                       int32_t longest_row) {
  const Model& model = *spec.model;
  // Bytes that are not UTF-8 become U+FFFD, of 3 bytes, and some decoders put spaces before tokens.
  const int64_t longest = model.tokenizer == nullptr ? 0 : model.tokenizer->longest_decoded_bytes();
  return {.config = model.config,
          .classifier = ServedClassifier(spec),
          .text = static_cast<double>(std::max<int64_t>(longest, 3) + 1),
          .rows = static_cast<double>(rows),
          .longest = static_cast<double>(longest_row),
          .generated = static_cast<double>(spec.max_tokens),
          .top = static_cast<double>(spec.num_top),
          .candidates = static_cast<double>(request.candidates.values.size()),
          .embedding = static_cast<double>(EmbeddingSize(spec)),
          .terms = static_cast<double>(spec.states.max_active_dims),
          .spans = static_cast<double>(MostSpans(spec)),
          .extracted = static_cast<double>(MostExtracted(model, spec.extraction, longest_row))};
}

double LongestName(const ClassifierConfig& classifier) {
  size_t longest = 0;
  for (const std::string& name : classifier.names) longest = std::max(longest, name.size());
  return static_cast<double>(longest);
}

// Returns an upper bound on an output's bytes.
double OutputBytes(Output output, const ReplyExtents& of) {
  switch (output) {
    case Output::kOutputIds:
    case Output::kLogprobs:
      return 4 * of.rows * of.generated;
    case Output::kSequenceLength:
      return 4 * of.rows;
    case Output::kFinishReason:
      return 16 * of.rows;
    case Output::kTextOutput:
      return of.rows * (4 + of.text * of.generated);
    case Output::kOutputBytes:
      return of.rows * of.generated * (4 + of.text);
    case Output::kTopBytes:
      return of.rows * of.generated * of.top * (4 + of.text);
    case Output::kTopIds:
    case Output::kTopLogprobs:
    case Output::kTopScores:
      return 4 * of.rows * of.generated * of.top;
    case Output::kLogits:
      return 4 * of.rows * static_cast<double>(of.config.vocab_size);
    case Output::kPromptLogprobs:
      return 4 * of.rows * of.longest;
    case Output::kEmbedding:
      return 4 * of.rows * of.embedding;
    case Output::kScores:
      return 4 * of.rows * static_cast<double>(of.classifier.labels);
    case Output::kLabel:
      return of.rows * (4 + LongestName(of.classifier));
    case Output::kTokenCount:
      return 4 * of.rows;
    case Output::kTokenScores:
      return 4 * of.rows * of.longest * static_cast<double>(of.classifier.labels);
    case Output::kTokenLabels:
      return of.rows * of.longest * (4 + LongestName(of.classifier));
    case Output::kTokenEmbeddings:
      return 4 * of.rows * of.longest * static_cast<double>(of.config.token_embedding_size());
    case Output::kTokenOffsets:
      return 8 * of.rows * of.longest;
    case Output::kTokenIds:
      return 4 * of.rows * of.longest;
    case Output::kSparseIds:
    case Output::kSparseWeights:
      return 4 * of.rows * of.terms;
    case Output::kVectors:
      return 4 * of.rows * of.longest * static_cast<double>(of.config.vector_size());
    case Output::kVectorCount:
    case Output::kMaxSim:
    case Output::kSpanCount:
    case Output::kExtractedCount:
      return 4 * of.rows;
    case Output::kExtractedSpans:
      return 8 * of.rows * of.extracted;
    case Output::kExtractedLabels:
    case Output::kExtractedScores:
      return 4 * of.rows * of.extracted;
    case Output::kSpanEmbeddings:
      return 4 * of.rows * of.spans * of.embedding;
    case Output::kCandidateScores:
    case Output::kCandidateOrder:
      return 4 * of.candidates;
    case Output::kXsaCosSim:
    case Output::kXsaProjFrac:
      return 4 * of.rows * (of.longest + of.generated) * static_cast<double>(of.config.layers) *
             static_cast<double>(of.config.heads);
  }
  return 0;
}

}  // namespace

absl::StatusOr<int64_t> BoundReply(const RequestSpec& spec, const Request& request,
                                   const std::vector<Output>& outputs, int64_t rows,
                                   int32_t longest, int64_t limit) {
  const ReplyExtents extents = ExtentsOf(spec, request, rows, longest);
  // The bytes in addition to the tensors: the model name, the id and the parameters, and the name,
  // type and shape of each output.
  constexpr double kHead = 1024, kOutputHead = 256;
  double bytes = kHead;
  for (Output output : outputs) bytes += kOutputHead + OutputBytes(output, extents);
  if (bytes <= static_cast<double>(limit)) return static_cast<int64_t>(bytes);
  return ReasonError(
      Reason::kRequest,
      absl::StrCat("the reply may need ", static_cast<int64_t>(std::min(bytes, 9e18)),
                   " bytes; the limit is ", limit,
                   " (server.grpc.max_message_bytes). Request fewer rows, tokens or outputs"));
}

}  // namespace sluice
