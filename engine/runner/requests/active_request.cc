#include "engine/runner/requests/active_request.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/reason.h"
#include "base/size_of.h"
#include "base/stable_hash.h"
#include "base/status_macros.h"
#include "engine/rows/candidate_order.h"
#include "engine/rows/ngram_drafts.h"
#include "engine/rows/span_head.h"
#include "engine/rows/sparse_terms.h"
#include "kernels/choose_diverse.h"
#include "kernels/diversity.h"

namespace sluice {
namespace {

// A prefix that is computed first costs one more step. A step that reads all weights takes about as
// long as computing this many tokens.
constexpr int64_t kTokensOfAStep = 256;

template <typename T>
int64_t BytesOf(const std::vector<T>& vector) {
  return std::ssize(vector) * kSizeOf<T>;
}

// The weight of the latest drafted token in the estimated acceptance of a row.
constexpr double kAcceptanceWeight = 1.0 / 8;
// The estimated acceptance of a draft model before any of its tokens was compared. While the model
// is not used, the estimate returns towards it by a share for each token, so that the model is
// tried again from time to time.
constexpr double kModelAcceptance = 0.6;
constexpr double kReturningShare = 1.0 / 512;

// Returns the most drafted tokens of a row in a step. No token is drafted before the first drawn
// token, and a step also draws one token that is not drafted.
int32_t MaxDrafted(const Request& request) {
  const RequestSpec& spec = *request.spec;
  const SpeculationOptions& options = spec.model->speculation;
  const bool diagnostics = (request.outputs & kOutputDiagnostics) != 0;
  if (options.kind == Speculation::kNone || !spec.speculation || diagnostics) return 0;
  return std::clamp(spec.max_tokens - 2, 0, options.tokens);
}

// Drafts the only token that may be drawn.
class ForcedDrafts final : public DraftSource {
 public:
  explicit ForcedDrafts(int32_t token) : token_(token) {}

  DraftKind kind() const override { return DraftKind::kForced; }
  int32_t Propose(std::span<const int32_t> history, std::span<int32_t> drafts) override {
    std::ranges::fill(drafts, token_);
    return static_cast<int32_t>(drafts.size());
  }
  double FirstAcceptance() const override { return 1; }

 private:
  const int32_t token_;
};

// Returns nullptr if the draft model drafts, which only reads tokens.
std::unique_ptr<DraftSource> MakeDrafts(const Request& request, int64_t max_length) {
  const RequestSpec& spec = *request.spec;
  const std::vector<int32_t>& allowed = spec.edits.allowed;
  if (allowed.size() == 1) return std::make_unique<ForcedDrafts>(allowed.front());
  if (!spec.predicted.empty()) {
    return std::make_unique<PredictedDrafts>(spec.predicted, max_length);
  }
  const bool only_tokens = request.inputs.empty() && request.types.empty();
  if (spec.model->draft != nullptr && only_tokens) return nullptr;
  return std::make_unique<NgramDrafts>(max_length);
}

bool Generates(const Request& request) { return request.spec->max_tokens > 1; }

// Returns the bytes of a span's pool and embedding.
int64_t SpanBytes(const RequestSpec& spec) {
  return kSizeOf<StatePool> + spec.model->config.hidden_size * kSizeOf<double> +
         EmbeddingSize(spec) * kSizeOf<float>;
}

int64_t FixedBytes(const Request& request) {
  int64_t bytes = sizeof(ActiveRequest) + sizeof(RequestSpec);
  const RequestSpec& spec = *request.spec;
  bytes += BytesOf(spec.edits.bias) + BytesOf(spec.edits.allowed) + BytesOf(spec.stop.ids);
  for (const std::string& text : spec.stop.texts) bytes += std::ssize(text);
  for (const std::string& label : spec.extraction.labels) bytes += std::ssize(label);
  if (spec.model->labels != nullptr) {
    bytes += std::ssize(spec.extraction.labels) * spec.model->config.serving.extraction->width *
             kSizeOf<float>;
  }
  bytes += std::ssize(spec.instruction) + std::ssize(spec.prediction) + BytesOf(spec.predicted);
  bytes += BytesOf(request.inputs) + BytesOf(request.types);
  for (const RowLists* lists :
       {&request.candidates, &request.excluded, &request.vectors, &request.spans}) {
    bytes += BytesOf(lists->values) + BytesOf(lists->begin);
  }
  bytes += BytesOf(request.hidden) + std::ssize(request.spans.values) / 2 * SpanBytes(spec);
  bytes += request.queries * kernels::MaxSimQuery::ExtraBytes(spec.model->config.vector_size());
  // The scores in double, and the scores in the reply.
  bytes += WantedCandidates(request) * (kSizeOf<double> + kSizeOf<float>);
  if ((request.outputs & kOutputCandidateOrder) != 0) {
    bytes += BytesOf(request.candidates.values);
    for (int32_t row = 0; row < request.rows(); ++row) {
      bytes += CandidateOrder::Bytes(std::ssize(request.candidates.Of(row)), spec.diversity);
    }
  }
  return bytes + RequestHistory::kSteps * kSizeOf<ExplainedStep> +
         RequestHistory::kWaits * kSizeOf<ExplainedWait>;
}

// Returns the bytes of one candidate.
int64_t TopBytes(const Request& request) {
  const bool scores = (request.outputs & kOutputTopScores) != 0 || request.spec->diversity > 0;
  return kSizeOf<int32_t> + (scores ? 2 : 1) * kSizeOf<float>;
}

// Returns the size of the pool of best tokens for choosing the candidates.
int32_t PoolOf(const RequestSpec& spec) {
  const auto vocab = static_cast<int32_t>(spec.model->config.vocab_size);
  return spec.diversity > 0 ? kernels::DiversePool(spec.num_top, vocab) : spec.num_top;
}

int64_t DiverseBytes(const RequestSpec& spec) {
  if (spec.diversity == 0) return 0;
  return kernels::DiverseScratch(PoolOf(spec), spec.num_top) * kSizeOf<double>;
}

// Returns the bytes of the diagnostics of one position.
int64_t DiagnosticBytes(const Request& request) {
  const ModelConfig& config = request.spec->model->config;
  if ((request.outputs & kOutputDiagnostics) == 0 || !config.xsa.Any()) return 0;
  return 2 * config.layers * config.heads * kSizeOf<float>;
}

int64_t RowBytes(const Request& request) {
  int64_t bytes = sizeof(RequestRow) + sizeof(int32_t);
  if (RowEdits::Wanted(*request.spec)) bytes += kSizeOf<RowEdits>;
  if (!request.spec->stop.texts.empty()) bytes += kSizeOf<TextStream>;
  const int64_t drafted = MaxDrafted(request);
  bytes +=
      (1 + drafted) * (PoolOf(*request.spec) * TopBytes(request) + DiverseBytes(*request.spec));
  if (RowEdits::Wanted(*request.spec)) {
    bytes += drafted * (RowEdits::DrawBytes() + drafted * kSizeOf<kernels::SeenToken>);
  }
  if (RowStates::Wanted(request)) bytes += RowStates::Bytes(request);
  if (drafted > 0) {
    const int64_t longest = std::ranges::max(request.spec->lengths);
    bytes += PredictedDrafts::Bytes(std::ssize(request.spec->predicted),
                                    longest + request.spec->max_tokens);
  }
  const int64_t vocab = request.spec->model->config.vocab_size;
  if ((request.outputs & kOutputLogits) != 0) bytes += vocab * kSizeOf<float>;
  if ((request.outputs & kOutputSparse) != 0) {
    // The peaks, later their order.
    if (!WeighsTokens(request) && !LooksUpTerms(request))
      bytes += vocab * (kSizeOf<float> + kSizeOf<int32_t>);
    bytes += request.spec->states.max_active_dims * (kSizeOf<int32_t> + kSizeOf<float>);
  }
  return bytes;
}

// Returns the bytes of the entries of a penalised token and its index.
int64_t SeenBytes(const Request& request) {
  return (1 + MaxDrafted(request)) * kSizeOf<kernels::SeenToken> + 2 * kSizeOf<int32_t>;
}

int64_t PromptTokenBytes(const Request& request) {
  int64_t bytes = sizeof(int32_t);
  if (Generates(request)) bytes += sizeof(int32_t);
  if (request.spec->edits.repetition_penalty != 1.0f) bytes += SeenBytes(request);
  if ((request.outputs & kOutputPromptLogprobs) != 0) bytes += sizeof(float);
  const ModelConfig& config = request.spec->model->config;
  if ((request.outputs & kOutputTokenScores) != 0) {
    bytes +=
        2 * ServedClassifier(*request.spec).labels * kSizeOf<float>;  // until the row has ended
  }
  if ((request.outputs & kOutputTokenStates) != 0) {
    bytes += 2 * config.token_embedding_size() * kSizeOf<float>;
  }
  if ((request.outputs & (kOutputVectors | kOutputMaxSim)) != 0) {
    bytes += 2 * config.vector_size() * kSizeOf<float>;
  }
  if ((request.outputs & kOutputExtraction) != 0) {
    bytes += SpanHead::WordBytes(config, request.spec->extraction);
  }
  if (WeighsTokens(request)) bytes += 3 * kSizeOf<float> + kSizeOf<int32_t>;  // also their order
  return bytes + DiagnosticBytes(request);
}

// Counts the data kept by the row, and the sink's data until the answer is written.
int64_t GeneratedTokenBytes(const Request& request) {
  int64_t bytes = sizeof(GeneratedToken);
  if (Generates(request)) bytes += sizeof(int32_t);
  if (RowEdits::Wanted(*request.spec)) bytes += SeenBytes(request);
  return bytes + request.spec->num_top * TopBytes(request) + DiagnosticBytes(request);
}

std::shared_ptr<const RequestName> NameOfRequest(const Request& request) {
  if (request.spec->id.empty()) return nullptr;
  return std::make_shared<const RequestName>(RequestName{request.spec->id, request.caller});
}

// Makes rows share pages only if their offsets are equal, because a page's content depends on
// positions.
void AlignRow(const ModelConfig& config, RequestRow* row) {
  if (config.serving.alignment == PositionAlignment::kStart) return;
  row->position_offset = config.max_positions - row->prompt.length;
  row->kv.root = row->position_offset;
}

// Every row must fit the model's positions, and therefore the largest bucket. If `only_length` is
// not 0, every row must have exactly this length.
absl::Status CheckLengths(const Request& request, int64_t max_positions, int64_t only_length) {
  for (int32_t row = 0; row < request.rows(); ++row) {
    const int32_t length = request.spec->lengths[row];
    if (length > max_positions) {
      return ReasonError(Reason::kInput,
                         absl::StrCat("row ", row, " has ", length, " tokens; expected 1 to ",
                                      max_positions, " (the model's max_positions)"));
    }
    if (only_length > 0 && length != only_length) {
      return ReasonError(Reason::kInput,
                         absl::StrCat("row ", row, " has ", length, " tokens; expected exactly ",
                                      only_length, ", as in every row of this model"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

AttentionReach ReachOf(const ModelConfig& config) {
  const int64_t windowed = config.windowed_layers();
  if (windowed == 0) return {};
  return {.window = static_cast<int32_t>(config.window),
          .windowed = static_cast<double>(windowed) / static_cast<double>(config.layers)};
}

bool RequestRow::Keep(int32_t token) {
  ++generation.count;
  scored = false;
  if (generation.edits != nullptr) generation.edits->Keep(token);
  if (generation.count >= generation.limit) return false;
  const size_t length = history.size();
  if (length == generation.tokens.size()) {
    generation.tokens.push_back(token);
  } else {
    generation.tokens[length] = token;
  }
  history = std::span(generation.tokens).first(length + 1);
  return true;
}

void RequestRow::LearnDraft(bool accepted) {
  acceptance += kAcceptanceWeight * ((accepted ? 1 : 0) - acceptance);
}

void RequestRow::Draft() {
  const bool by_model = draft_kind == DraftKind::kModel;
  if (by_model && drafted == 0) acceptance += kReturningShare * (kModelAcceptance - acceptance);
  drafts = 0;
  const int32_t most = std::min(drafting.most, generation.limit - generation.count - 1);
  if (most <= 0) return;
  generation.tokens.resize(history.size() + most);
  const auto room = std::span(generation.tokens).subspan(history.size(), most);
  drafts = by_model ? most : drafting.source->Propose(history, room);
}

SampledRow RequestRow::DrawAfter(int32_t after) {
  const Request& request = owner->request;
  SampledRow draw;
  draw.params = request.spec->sampling;
  draw.params.token_index = drawn() + after;
  draw.params.sample = index;
  if (generation.edits != nullptr) {
    draw.edits = generation.edits->At(drawn() + after, drafted_tokens().first(after));
  }
  draw.excluded = request.excluded.Of(index);
  return draw;
}

ActiveRequest::ActiveRequest(Request accepted, std::shared_ptr<Sink> receiver, MonoTime received,
                             MonoTime queued)
    : request(std::move(accepted)),
      load(LoadOf(request)),
      sink(std::move(receiver)),
      parts_left(request.rows()),
      rows(request.rows()),
      name(NameOfRequest(request)) {
  trace.received = received;
  trace.queued = queued;
  trace.prompt_tokens = std::ssize(request.tokens);
  const int32_t max_positions = request.spec->model->config.max_positions;
  if (!request.spec->stop.texts.empty()) {
    stop_texts_ = std::make_shared<const StopTexts>(request.spec->stop.texts);
  }
  int32_t offset = 0;
  int64_t positions = 0;
  for (int32_t i = 0; i < request.rows(); ++i) {
    RequestRow& row = rows[i];
    row.owner = this;
    row.index = i;
    row.prompt.offset = offset;
    row.prompt.length = request.spec->lengths[i];
    // The last token may be drawn at the last position; it is never computed.
    row.generation.limit =
        std::min(request.spec->max_tokens, max_positions + 1 - row.prompt.length);
    row.priority = request.spec->priority;
    row.caller = OwnerKey(request.turn_owner());
    row.queued = queued;
    row.deadline = request.deadline;
    row.history = std::span(request.tokens).subspan(offset, row.prompt.length);
    AlignRow(request.spec->model->config, &row);
    row.reach = ReachOf(request.spec->model->config);
    row.generates = row.generation.limit > 1;
    const bool peaks = Wants(kOutputSparse) && !WeighsTokens(request) && !LooksUpTerms(request);
    row.scored = Wants(kOutputPromptLogprobs) || peaks;
    row.sampled_end = row.generation.limit > 0 || Wants(kOutputLogits);
    if (RowStates::Wanted(request)) {
      row.outputs.states = std::make_unique<RowStates>(request, row.prompt.length, i);
    }
    // Positions that are reported must be computed, so they cannot be reused. Prompts are looked up
    // by their tokens only, so prompts with vectors or types are not reused.
    row.reuse = !row.scored && !Wants(kOutputDiagnostics) && request.inputs.empty() &&
                request.types.empty() &&
                (row.outputs.states == nullptr || row.outputs.states->OnlyLast());
    PrepareGeneration(&row);
    offset += row.prompt.length;
    row.outputs.diagnostics_begin = positions;
    positions += row.MaxPositions();
  }
  const size_t steps = rows.size() * std::max(request.spec->max_tokens, 1);
  history.steps.reserve(std::min(steps, RequestHistory::kSteps));
}

void ActiveRequest::SeparatePrefixes(uint64_t number, bool reuse) {
  constexpr int kOffsetBits = 24;  // positions need fewer bits
  for (RequestRow& row : rows) {
    SLUICE_CHECK(row.kv.root >> kOffsetBits == 0);
    row.kv.root |= number << kOffsetBits;
    row.reuse &= reuse;
  }
}

void ActiveRequest::PrepareGeneration(RequestRow* row) {
  if (row->generation.limit == 0) return;
  if (row->generates) {
    row->generation.tokens.reserve(row->history.size() + row->generation.limit - 1);
    row->generation.tokens.assign(row->history.begin(), row->history.end());
    row->history = row->generation.tokens;
  }
  // Vectors have no tokens.
  const std::span<const int32_t> prompt =
      request.inputs.empty() ? row->history : std::span<const int32_t>();
  if (RowEdits::Wanted(*request.spec)) {
    row->generation.edits = std::make_unique<RowEdits>(*request.spec, prompt, row->generation.limit,
                                                       MaxDrafted(request));
  }
  if (const int32_t most = MaxDrafted(request); most > 0) {
    row->drafting.most = most;
    row->drafting.source = MakeDrafts(request, row->MaxPositions());
    const DraftSource* const source = row->drafting.source.get();
    row->acceptance = source == nullptr ? kModelAcceptance : source->FirstAcceptance();
    row->draft_kind = source == nullptr ? DraftKind::kModel : source->kind();
  }
  if (stop_texts_ != nullptr) {
    row->generation.text = std::make_unique<TextStream>(
        request.spec->model->tokenizer.get(), stop_texts_, request.spec->stop.min_tokens, prompt);
  }
  if (Wants(kOutputTopCandidates)) {
    const RequestSpec& spec = *request.spec;
    RequestRow::Candidates& candidates = row->outputs.candidates;
    candidates.pool = PoolOf(spec);
    const int64_t draws = 1 + MaxDrafted(request);
    candidates.ids.resize(draws * candidates.pool);
    candidates.logprobs.resize(draws * candidates.pool);
    if (Wants(kOutputTopScores) || spec.diversity > 0) {
      candidates.scores.resize(draws * candidates.pool);
    }
    if (spec.diversity > 0) {
      candidates.scratch.resize(draws * kernels::DiverseScratch(candidates.pool, spec.num_top));
    }
  }
}

int32_t ActiveRequest::SharedTokens(int32_t page_tokens) const {
  const RequestRow& first = rows.front();
  size_t shared = first.history.size() - 1;  // at least one token of each row is computed
  for (const RequestRow& row : rows) {
    if (!row.reuse || row.kv.root != first.kv.root) return 0;
    const std::span<const int32_t> tokens = row.history.first(row.history.size() - 1);
    const auto differs = std::mismatch(tokens.begin(), tokens.end(), first.history.begin(),
                                       first.history.begin() + shared);
    shared = differs.first - tokens.begin();
  }
  if (shared < static_cast<size_t>(page_tokens)) return 0;
  const int64_t saved = static_cast<int64_t>(shared) * (std::ssize(rows) - 1);
  const bool worthwhile = 2 * saved >= std::ssize(request.tokens) || saved >= kTokensOfAStep;
  return worthwhile ? static_cast<int32_t>(shared) : 0;
}

void ActiveRequest::UseAdapter(std::shared_ptr<const ServedAdapter> loaded) {
  adapter = std::move(loaded);
  for (RequestRow& row : rows) {
    row.adapter = adapter->number;
    if (!adapter->classifier || row.outputs.states == nullptr) continue;
    row.outputs.states->UseClassifier(&*adapter->classifier);
  }
}

void ActiveRequest::AllocateReply() {
  if (std::exchange(reply_allocated, true)) return;
  const ModelConfig& config = request.spec->model->config;
  reply.finish.assign(rows.size(), FinishReason::kNone);
  if (Wants(kOutputLogits)) {
    reply.logits.resize(rows.size() * config.vocab_size);
  }
  const auto numbers = [this](OutputMask output, int64_t per_row) {
    return Wants(output) ? rows.size() * per_row : 0;
  };
  reply.embedding.resize(numbers(kOutputEmbedding, EmbeddingSize(*request.spec)));
  const int64_t labels = ServedClassifier(*request.spec).labels;
  reply.scores.resize(numbers(kOutputScores, labels));
  if (Wants(kOutputTokenScores)) {
    reply.token_scores.resize(request.tokens.size() * labels);
  }
  if (Wants(kOutputTokenStates)) {
    reply.token_states.resize(request.tokens.size() * config.token_embedding_size());
  }
  if (Wants(kOutputVectors)) {
    reply.vectors.resize(request.vectors.values.size() * config.vector_size());
  }
  reply.extracted.resize(numbers(kOutputExtraction, 1));
  reply.max_sim.resize(Wants(kOutputMaxSim) ? rows.size() - request.queries : 0);
  if (Wants(kOutputMaxSim)) max_sim.emplace(request);
  reply.spans.resize(request.spans.values.size() / 2 * EmbeddingSize(*request.spec));
  if (Wants(kOutputSparse)) {
    reply.sparse_counts.resize(rows.size());
    reply.sparse_ids.resize(rows.size() * request.spec->states.max_active_dims);
    reply.sparse_weights.resize(reply.sparse_ids.size());
    for (RequestRow& row : rows) {
      if (WeighsTokens(request) || LooksUpTerms(request)) break;
      row.outputs.peaks.assign(config.vocab_size, -std::numeric_limits<float>::infinity());
    }
  }
  if (Wants(kOutputCandidates)) reply.candidate_scores.resize(request.candidates.values.size());
  if (Wants(kOutputCandidateOrder)) reply.candidate_order.resize(request.candidates.values.size());
  if (Wants(kOutputPromptLogprobs)) reply.prompt_logprobs.assign(request.tokens.size(), 0.0f);
  if (Wants(kOutputDiagnostics) && config.xsa.Any()) {
    const RequestRow& last = rows.back();
    const int64_t positions = last.outputs.diagnostics_begin + last.MaxPositions();
    const int64_t per_position = config.layers * config.heads;
    reply.xsa_cos_sim.resize(positions * per_position);
    reply.xsa_proj_frac.resize(positions * per_position);
  }
}

void ActiveRequest::AnswerWithoutStep() {
  trace.first_run = trace.queued;
  AllocateReply();
  if (!Wants(kOutputSparse)) return;
  const StateRules& states = request.spec->states;
  const std::vector<float>& table = request.spec->model->tasks.Of(states.task).term_weights;
  const int64_t most = states.max_active_dims;
  std::vector<float> weights;
  for (const RequestRow& row : rows) {
    const auto tokens = std::span(request.tokens).subspan(row.prompt.offset, row.prompt.length);
    weights.clear();
    for (const int32_t token : tokens) {
      weights.push_back(token < std::ssize(table) ? table[token] : 0.0f);
    }
    reply.sparse_counts[row.index] = TakeHeaviestTokens(
        tokens, weights, {}, std::span(reply.sparse_ids).subspan(row.index * most, most),
        std::span(reply.sparse_weights).subspan(row.index * most, most));
  }
}

void ActiveRequest::CompleteReply() {
  if (reply.xsa_cos_sim.empty()) return;
  const ModelConfig& config = request.spec->model->config;
  reply.xsa_positions.clear();
  for (std::vector<float>* values : {&reply.xsa_cos_sim, &reply.xsa_proj_frac}) {
    float* to = values->data();
    for (const RequestRow& row : rows) {
      const int64_t room = row.MaxPositions();
      for (int64_t layer = 0; layer < config.layers; ++layer) {
        const int64_t from = row.outputs.diagnostics_begin * config.layers + layer * room;
        const int64_t count = row.outputs.diagnosed * config.heads;
        to = std::copy_n(values->data() + from * config.heads, count, to);
      }
    }
    values->resize(to - values->data());
  }
  for (const RequestRow& row : rows) reply.xsa_positions.push_back(row.outputs.diagnosed);
}

absl::Status ExamineRequest(const Request& request, int64_t max_positions, MonoTime now,
                            int64_t only_length) {
  SLUICE_RETURN_IF_ERROR(CheckLengths(request, max_positions, only_length));
  if (request.deadline > now) return absl::OkStatus();
  return ReasonError(Reason::kDeadline, "the deadline passed before the request was queued");
}

uint32_t OwnerKey(std::string_view owner) {
  if (owner.empty()) return 0;
  StableHash hash;
  hash.Add(owner);
  return std::max(static_cast<uint32_t>(hash.value()), 1u);
}

Applicant ApplicantOf(const Request& request) {
  return {.load = LoadOf(request),
          .caller = OwnerKey(request.turn_owner()),
          .deadline = request.deadline,
          .rows = request.rows(),
          .prompt_tokens = std::ssize(request.tokens),
          .max_tokens = request.spec->max_tokens,
          .reach = ReachOf(request.spec->model->config)};
}

RequestLoad LoadOf(const Request& request) {
  const auto tokens = std::ssize(request.tokens);
  const int64_t rows = request.rows();
  const int64_t generated = rows * request.spec->max_tokens;
  return {.tokens = tokens + generated + ScoringTokens(request),
          .bytes = FixedBytes(request) + rows * RowBytes(request) +
                   tokens * PromptTokenBytes(request) + generated * GeneratedTokenBytes(request),
          .candidates = WantedCandidates(request),
          .priority = request.spec->priority,
          .caller = request.caller};
}

}  // namespace sluice
