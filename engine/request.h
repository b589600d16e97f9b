// A validated request, its reply, and the record of its processing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/enum_names.h"
#include "engine/model/model.h"
#include "engine/schedule_values.h"
#include "kernels/sampling.h"

namespace sluice {

// The requested outputs; a bit mask.
enum OutputMask : uint32_t {
  kOutputTokens = 1u << 0,           // sampled tokens with their log-probabilities
  kOutputTopCandidates = 1u << 1,    // num_top candidates per generated token
  kOutputLogits = 1u << 2,           // logits at the last prompt position
  kOutputPromptLogprobs = 1u << 3,   // log-probability of each prompt token, given earlier tokens
  kOutputDiagnostics = 1u << 4,      // XSA cos_sim and proj_frac of the computed positions
  kOutputEmbedding = 1u << 5,        // a pooled state of the prompt
  kOutputScores = 1u << 6,           // scores of the model's classifier
  kOutputCandidates = 1u << 7,       // scores of given tokens as the next token
  kOutputTopScores = 1u << 8,        // logits of the num_top candidates
  kOutputTokenScores = 1u << 9,      // scores of the model's token classifier
  kOutputCandidateOrder = 1u << 10,  // the indexes of the candidates, the best first
  kOutputTokenStates = 1u << 11,     // an embedding of each token of the prompt
  kOutputSparse = 1u << 12,          // the heaviest terms of the prompt (SPLADE)
  kOutputVectors = 1u << 13,         // the vectors of a multi-vector model
  kOutputMaxSim = 1u << 14,          // the similarity of each document's vectors and a query's
  kOutputSpans = 1u << 15,           // an embedding of each given span
  kOutputExtraction = 1u << 16,      // the labelled parts of a text
};

inline constexpr int32_t kMostSparseTerms = 1024;  // of a row

// W3C traceparent, passed through; all zero when the caller sent none.
struct TraceContext {
  uint8_t trace_id[16] = {};
  uint8_t parent_id[8] = {};
  uint8_t flags = 0;
};

// The rules that end a row before max_tokens. A token that ends a row is not returned. A stop text
// is not part of the returned text, but its tokens are returned.
struct StopRules {
  std::vector<int32_t> ids;        // in addition to the model's eos; ascending
  std::vector<std::string> texts;  // UTF-8, not empty; only if the model has a tokenizer
  bool ignore_eos = false;
  // Until the row has this many tokens, no token that ends it is drawn and stop texts are ignored.
  int32_t min_tokens = 0;
};

// Changes to the logits before a token is drawn; see kernels::LogitEdits. Defaults change nothing.
struct EditRules {
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::vector<kernels::TokenBias> bias;  // distinct tokens
  std::vector<int32_t> allowed;          // ascending, distinct; empty: all
};

// A part of a text or a row: the units from `begin` to before `end`.
struct TextSpan {
  int32_t begin = 0;
  int32_t end = 0;

  bool operator==(const TextSpan&) const = default;
};

inline constexpr int32_t kMostSpans = 1024;  // of a row

enum class SpanUnit { kCharacters, kBytes, kTokens };
constexpr auto EnumNamesOf(SpanUnit) {
  using enum SpanUnit;
  return EnumNameTable<SpanUnit>(
      {{kCharacters, "characters"}, {kBytes, "bytes"}, {kTokens, "tokens"}});
}
inline constexpr std::span<const std::string_view> kSpanUnitNames = kNamesOf<SpanUnit>;

// Which parts of a text may be returned together: only parts without a common word, or also a part
// within another one.
enum class SpanOverlap { kFlat, kNested };
constexpr auto EnumNamesOf(SpanOverlap) {
  using enum SpanOverlap;
  return EnumNameTable<SpanOverlap>({{kFlat, "flat"}, {kNested, "nested"}});
}
inline constexpr std::span<const std::string_view> kSpanOverlapNames = kNamesOf<SpanOverlap>;

inline constexpr int32_t kMostExtracted = 1024;  // parts of a row
// The most tokens of a label that is not part of a row, with its template.
inline constexpr int32_t kMostLabelTokens = 256;

// The rules of kOutputExtraction.
struct ExtractionRules {
  std::vector<std::string> labels;  // distinct
  float threshold = 0.5f;           // parts have higher scores
  SpanOverlap overlap = SpanOverlap::kFlat;
  bool multi_label = false;  // whether the same part may have several labels
};

// A labelled part of a text: the words from `begin` to before `end`.
struct ExtractedSpan {
  int32_t begin = 0;
  int32_t end = 0;
  int32_t label = 0;  // an index into ExtractionRules::labels
  float score = 0;

  bool operator==(const ExtractedSpan&) const = default;
};

// The rules that turn states after the last norm into outputs.
struct StateRules {
  Poolings pooling;          // for the embedding
  int32_t first_pooled = 0;  // the first pooled position; below the rows' lengths
  int32_t dimensions = 0;    // the embedding keeps this many first dimensions; 0: all
  bool normalize = false;    // scale the embedding to length 1, after the cut
  TextTask task = TextTask::kDocument;
  int32_t max_active_dims = kMostSparseTerms;  // a sparse embedding keeps its heaviest terms
  std::vector<std::vector<TextSpan>> spans;  // of each row, in `span_unit`; as the request has them
  SpanUnit span_unit = SpanUnit::kCharacters;
  ScoreScale scores = ScoreScale::kRaw;
  ScoreScale candidates = ScoreScale::kRaw;  // kRaw or kLogSoftmax
};

// A list of numbers for each row, one after another.
struct RowLists {
  std::vector<int32_t> values;
  std::vector<int32_t> begin;  // [rows + 1], into `values`; empty: no row has any

  // Requires that `row` is a row of the request.
  std::span<const int32_t> Of(int32_t row) const {
    if (begin.empty()) return {};
    SLUICE_CHECK(row >= 0 && row + 1 < static_cast<int64_t>(begin.size()));
    return std::span(values).subspan(begin[row], begin[row + 1] - begin[row]);
  }
};

// The constant part of a request: its identity, the lengths of its rows and its parameters. The
// engine and the reply share one instance, which does not change after admission. All rows have the
// same parameters; engine/parameter_table.h has their names and ranges.
struct RequestSpec {
  std::string id;
  std::shared_ptr<const Model> model;
  std::string adapter;  // of the model; empty: none
  // The adapter's own classifier, from Engine::Find; nullptr if it has none.
  std::shared_ptr<const ClassifierConfig> head;
  std::vector<int32_t> lengths;  // tokens of each row's prompt, >= 1

  int32_t max_tokens = 1;  // per row; 0 only scores. length + max_tokens <= max_positions + 1
  int32_t num_top = 0;
  // The weight of diversity in the choice of the num_top candidates, and in the order of given
  // candidates; 0 ranks by score only. See kernels/diversity.h.
  float diversity = 0;
  kernels::SampleParams sampling;  // token_index and sample are set by the engine
  EditRules edits;
  StopRules stop;
  StateRules states;
  ExtractionRules extraction;
  std::string prompt_name;         // name of the prompt put before its texts; empty: none
  bool add_special_tokens = true;  // whether rows have the tokens of the tokenizer's template
  std::string instruction;         // of a framed pair, instead of the prompt; empty: none
  Truncation truncate = Truncation::kError;
  // The number of tokens that neighbouring windows of a text share. The rows of the request are
  // then the windows. 0: texts are not read in windows.
  int32_t window_overlap = 0;
  // Whether a request of a stream ends with an extra response without outputs.
  bool empty_final_response = false;
  bool speculation = true;         // whether tokens may be drafted; changes no result
  std::string prediction;          // a text that the answer probably has in common; empty: none
  std::vector<int32_t> predicted;  // its tokens
  int priority = kDefaultPriority;
  int64_t timeout_us = 0;  // from arrival, part of Request::deadline; 0 means none
};

// Separates the name of a model from the name of its adapter. Neither name contains it.
inline constexpr char kAdapterSeparator = ':';

// Returns the adapter in MODEL:ADAPTER, or an empty name.
inline std::string_view AdapterOf(std::string_view name) {
  const size_t separator = name.find(kAdapterSeparator);
  return separator == name.npos ? std::string_view() : name.substr(separator + 1);
}

// Returns MODEL, or MODEL:ADAPTER.
inline std::string ServedNameOf(const RequestSpec& spec) {
  return spec.adapter.empty() ? spec.model->name
                              : spec.model->name + kAdapterSeparator + spec.adapter;
}

// Returns the classifier of the adapter, or else of the model.
inline const ClassifierConfig& ServedClassifier(const RequestSpec& spec) {
  return spec.head != nullptr ? *spec.head : spec.model->config.serving.classifier;
}

// Returns the number of values of each embedding of the request.
inline int64_t EmbeddingSize(const RequestSpec& spec) {
  return spec.states.dimensions > 0 ? spec.states.dimensions : spec.model->config.embedding_size();
}

// A request with its prompts. Rows are independent sequences. The server has validated every field
// against the model, so the engine only checks invariants.
struct Request {
  std::shared_ptr<const RequestSpec> spec;  // not null when the request is submitted
  std::string caller;                       // empty if callers are not identified
  // A finer name than the caller's for taking turns, such as the address of an unknown caller;
  // empty if the caller's name is fine enough.
  std::string owner;
  bool anonymous = false;  // whether `caller` stands for all unknown callers

  std::vector<int32_t> tokens;  // of all rows, one after another: [sum of lengths]
  // Vectors instead of tokens: [tokens.size(), input_width], finite. The tokens are then 0.
  std::vector<float> inputs;
  // The type (BERT's segment) of each token, [tokens.size()]; empty if all are of type 0.
  std::vector<int32_t> types;

  uint32_t outputs = kOutputTokens;
  RowLists candidates;  // for kOutputCandidates; the score of token -1 is -inf
  // Tokens that a row neither draws nor reports. Ascending, distinct.
  RowLists excluded;
  // The positions of a row that have vectors. Ascending, distinct. For kOutputExtraction: the
  // positions of the gate, if the model has one, of each label and then of each word.
  RowLists vectors;
  // For kOutputMaxSim: the first `queries` rows are queries, the others are documents. There is one
  // query for all documents, or one for each.
  int32_t queries = 0;
  // The spans of a row, not empty: their first positions and the positions after them, in turns.
  RowLists spans;
  // The number of last positions of each row that no position attends to, less than its length;
  // empty if there are none. Requires attention in both directions.
  std::vector<int32_t> hidden;

  MonoTime deadline = MonoTime::max();
  TraceContext trace;

  int32_t rows() const { return std::ssize(spec->lengths); }
  const std::string& turn_owner() const { return owner.empty() ? caller : owner; }
};

// Returns whether the sparse embedding is made of the weights of the prompt's own tokens, which a
// head computes from their states, instead of logits.
inline bool WeighsTokens(const Request& request) {
  return (request.outputs & kOutputSparse) != 0 &&
         request.spec->model->config.serving.term_weights.has_value();
}

// Returns whether the sparse embedding is looked up by the ids of the prompt.
inline bool LooksUpTerms(const Request& request) {
  return (request.outputs & kOutputSparse) != 0 &&
         !request.spec->model->tasks.Of(request.spec->states.task).term_weights.empty();
}

// Returns whether no output needs a step of the model.
inline bool NeedsNoStep(const Request& request) {
  const uint32_t looked_up = LooksUpTerms(request) ? uint32_t{kOutputSparse} : 0;
  return request.spec->max_tokens == 0 && (request.outputs & ~looked_up) == 0;
}

// Returns the number of candidates to score.
inline int64_t WantedCandidates(const Request& request) {
  return (request.outputs & kOutputCandidates) != 0 ? std::ssize(request.candidates.values) : 0;
}

// Returns the cost of scoring the request's candidates, in tokens. Drawing one token computes the
// whole head (vocab_size scores), so a row's candidates count as count / vocab_size tokens, rounded
// up.
inline int64_t ScoringTokens(const Request& request) {
  if (WantedCandidates(request) == 0) return 0;
  const int64_t vocab = request.spec->model->config.vocab_size;
  int64_t tokens = 0;
  for (int32_t row = 0; row < request.rows(); ++row) {
    tokens += (std::ssize(request.candidates.Of(row)) + vocab - 1) / vocab;
  }
  return tokens;
}

struct GeneratedToken {
  int32_t row;
  int32_t index;  // of the generated token within its row, from 0
  int32_t token;
  float logprob;  // full distribution at temperature 1, before edits
  // The candidates at its position and their values, [num_top] each; valid during the call. nullptr
  // if they were not requested.
  const int32_t* top_ids = nullptr;
  const float* top_logprobs = nullptr;
  const float* top_scores = nullptr;
};

enum class FinishReason { kNone, kLength, kStop };  // kStop: see StopRules
constexpr auto EnumNamesOf(FinishReason) {
  using enum FinishReason;
  return EnumNameTable<FinishReason>({{kNone, ""}, {kLength, "length"}, {kStop, "stop"}});
}

// The outputs other than tokens. A vector is empty unless its output was requested.
struct Reply {
  std::vector<FinishReason> finish;    // [rows]
  std::vector<float> logits;           // [rows, vocab]
  std::vector<float> prompt_logprobs;  // [sum of lengths]; 0 at each first position
  std::vector<float> xsa_cos_sim;      // [layers, xsa_positions, heads] of each row, row by row
  std::vector<float> xsa_proj_frac;    // like xsa_cos_sim
  std::vector<int32_t> xsa_positions;  // [rows], computed positions of prompt and answer
  std::vector<float> embedding;        // [rows, EmbeddingSize]
  std::vector<float> scores;           // [rows, labels]
  std::vector<float> token_scores;     // [sum of lengths, labels]
  std::vector<float> token_states;     // [sum of lengths, token_embedding_size]
  std::vector<float> vectors;          // [all of Request::vectors, vector_size]
  std::vector<float> max_sim;          // [rows - Request::queries]
  std::vector<float> spans;            // [all of Request::spans, EmbeddingSize]
  // Of each row, by their first words, and those with the same first word by descending scores.
  std::vector<std::vector<ExtractedSpan>> extracted;
  std::vector<int32_t> sparse_counts;   // [rows], the number of terms of each row
  std::vector<int32_t> sparse_ids;      // [rows, max_active_dims], the heaviest first
  std::vector<float> sparse_weights;    // like sparse_ids
  std::vector<float> candidate_scores;  // in the order of Request::candidates
  // Same size as candidate_scores. Each row has indexes into its candidates in the order of choice,
  // followed by -1 for each candidate that was not chosen.
  std::vector<int32_t> candidate_order;
};

// Timestamps are written once. Metrics, statistics and logs of a request read them from here.
struct RequestTrace {
  MonoTime received{};  // arrival of the first byte at the server
  MonoTime queued{};    // when the engine accepted it
  // Start of the first batch with one of its rows: `queued` if the request needs no batch, and zero
  // if it never ran.
  MonoTime first_run{};
  MonoTime first_token{};  // zero if there was no token
  MonoTime done{};
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t drafted_tokens = 0;                // drafted tokens that its steps computed
  int64_t accepted_tokens = 0;               // the drafted tokens that are part of the answer
  DraftKind draft_kind = DraftKind::kNgram;  // the source of the drafted tokens
  int64_t steps = 0;                         // step batches with at least one of its rows
  int64_t reused_tokens = 0;                 // prompt tokens found in the cache and not computed
  int64_t preemptions = 0;                   // number of times that one of its rows lost its pages
  int32_t bucket_tokens = 0;                 // capacity of the last bucket
  nanoseconds compute{0};                    // sum of those steps' replay times
  int64_t ended_together = 1;                // requests whose OnDone is called in the same round
};

// Receives a request's results. One engine thread makes all calls in order. If that thread hangs in
// a step, another thread calls OnDone instead. Calls must return quickly, because they delay every
// request of the model. After OnDone the engine drops the sink.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void OnTokens(const GeneratedToken* tokens, int count) = 0;
  // Called exactly once, also after an error, a cancellation or an expiry. `reply` is complete only
  // if `status` is OK.
  virtual void OnDone(const absl::Status& status, Reply reply, const RequestTrace& trace) = 0;
};

}  // namespace sluice
