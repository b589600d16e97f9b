#include "engine/runner/steps/label_encoder.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/size_of.h"
#include "base/status_macros.h"
#include "engine/ladder/strategy.h"
#include "engine/parameter_table.h"
#include "engine/runner/requests/active_request.h"

namespace sluice {
namespace {

// The most labels of a step, and the labels whose vectors are kept.
constexpr int32_t kTogether = 32;
constexpr int64_t kMostKept = 1024;
static_assert(kMostKept >= kMaxExtractionLabels);
// About the bytes of an entry of a map beside its contents.
constexpr int64_t kEntryBytes = 128;

int32_t MostTokens(const Model& model) {
  return static_cast<int32_t>(std::min<int64_t>(model.config.max_positions, kMostLabelTokens));
}

// Returns a ladder of one bucket.
Ladder OneBucket(const Model& model) {
  const int32_t tokens = MostTokens(model);
  return MakePackedLadder({}, {.max_tokens = tokens,
                               .max_sequences = std::min(tokens, kTogether),
                               .max_positions = tokens});
}

int64_t KeptBytes(const Model& model) {
  return kMostKept * (model.config.embedding_size() * kSizeOf<float> +
                      static_cast<int64_t>(kMaxStopTextBytes) + kEntryBytes);
}

}  // namespace

int64_t LabelEncoder::Bytes(const Model& model, const ExecutableModel& executable,
                            int32_t page_tokens) {
  const Bucket bucket = OneBucket(model).largest();
  return executable.activation_bytes(bucket) +
         MaxPages(bucket, page_tokens) * executable.page_bytes() + KeptBytes(model);
}

absl::StatusOr<std::unique_ptr<LabelEncoder>> LabelEncoder::Create(
    std::shared_ptr<const Model> model, std::shared_ptr<const ExecutableModel> executable,
    int32_t page_tokens, Clock* clock) {
  const Ladder ladder = OneBucket(*model);
  SLUICE_ASSIGN_OR_RETURN(
      std::unique_ptr<ExecutionSlot> slot,
      ExecutionSlot::Create(
          executable.get(), model.get(), ladder,
          {.page_tokens = page_tokens, .pages = MaxPages(ladder.largest(), page_tokens)}));
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Plan> plan, executable->Prepare(ladder.largest()));
  std::unique_ptr<LabelEncoder> encoder(new LabelEncoder(std::move(model), std::move(executable),
                                                         clock, std::move(plan), std::move(slot)));
  TypedTokens longest;
  longest.ids.resize(MostTokens(*encoder->model_));
  longest.types.resize(longest.ids.size());
  SLUICE_RETURN_IF_ERROR(encoder->Compute({longest}).status());
  encoder->computed_ = 0;  // the step was only measured
  return encoder;
}

LabelEncoder::LabelEncoder(std::shared_ptr<const Model> model,
                           std::shared_ptr<const ExecutableModel> executable, Clock* clock,
                           std::unique_ptr<Plan> plan, std::unique_ptr<ExecutionSlot> slot)
    : model_(std::move(model)),
      executable_(std::move(executable)),
      clock_(clock),
      slot_(std::move(slot)),
      plan_(std::move(plan)) {}

SlotMemory LabelEncoder::memory() const {
  SlotMemory memory = slot_->memory();
  memory.activation_room += KeptBytes(*model_);
  return memory;
}

absl::StatusOr<TypedTokens> LabelEncoder::TokensOf(const std::string& label) const {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens,
                          model_->tokenizer->EncodeBare(label, MostTokens(*model_)));
  const std::span<const int32_t> text = tokens;
  TypedTokens row;
  model_->tokenizer->templates().single.Append(std::span(&text, 1), &row);
  row.types.resize(row.ids.size());
  SLUICE_CHECK(!row.ids.empty() && std::ssize(row.ids) <= MostTokens(*model_));
  return row;
}

absl::StatusOr<std::vector<float>> LabelEncoder::Compute(const std::vector<TypedTokens>& labels) {
  const ServingConfig& serving = model_->config.serving;
  const auto spec = std::make_shared<RequestSpec>();
  spec->model = model_;
  spec->max_tokens = 0;
  spec->states.pooling = serving.pooling;
  spec->states.normalize = serving.normalize;
  Request request;
  request.outputs = kOutputEmbedding;
  for (const TypedTokens& label : labels) {
    spec->lengths.push_back(static_cast<int32_t>(std::ssize(label.ids)));
    request.tokens.insert(request.tokens.end(), label.ids.begin(), label.ids.end());
    request.types.insert(request.types.end(), label.types.begin(), label.types.end());
  }
  if (std::ranges::count(request.types, 0) == std::ssize(request.types)) request.types.clear();
  request.spec = spec;
  const MonoTime begin = clock_->Now();
  ActiveRequest active(std::move(request), nullptr, begin, begin);
  active.AllocateReply();
  std::vector<RequestRow*> rows;
  for (RequestRow& row : active.rows) {
    row.tokens = row.prompt.length;
    rows.push_back(&row);
  }
  slot_->Assign(rows, plan_->bucket());
  SLUICE_RETURN_IF_ERROR(slot_->Replay(*plan_));
  const int64_t width = model_->config.embedding_size();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (slot_->Collect(i).finite) continue;
    // Its requests fail, because a score is not finite.
    std::fill_n(active.reply.embedding.begin() + i * width, width,
                std::numeric_limits<float>::quiet_NaN());
  }
  computed_ += std::ssize(rows);
  step_seconds_ = std::max(step_seconds_, Seconds(clock_->Now() - begin));
  return std::move(active.reply.embedding);
}

void LabelEncoder::Keep(const std::string& label, std::vector<float> vector) {
  if (std::ssize(kept_) == kMostKept) {
    kept_.erase(
        std::ranges::min_element(kept_, {}, [](const auto& entry) { return entry.second.used; }));
  }
  kept_[label] = {.vector = std::move(vector), .used = ++uses_};
}

bool LabelEncoder::Find(const std::vector<std::string>& labels, std::vector<float>* vectors) {
  bool all = true;
  for (const std::string& label : labels) {
    const auto kept = kept_.find(label);
    all = all && kept != kept_.end();
    if (kept != kept_.end()) kept->second.used = ++uses_;  // it stays until Find returns true
  }
  if (!all) return false;
  for (const std::string& label : labels) {
    const std::vector<float>& vector = kept_.find(label)->second.vector;
    vectors->insert(vectors->end(), vector.begin(), vector.end());
  }
  return true;
}

absl::Status LabelEncoder::ComputeSome(const std::vector<std::string>& labels) {
  const Bucket bucket = plan_->bucket();
  std::vector<const std::string*> chosen;
  std::vector<TypedTokens> rows;
  int64_t tokens = 0;
  for (const std::string& label : labels) {
    if (kept_.contains(label)) continue;
    SLUICE_ASSIGN_OR_RETURN(TypedTokens row, TokensOf(label));
    tokens += std::ssize(row.ids);
    if (tokens > bucket.tokens || std::ssize(rows) == bucket.sequences) break;
    chosen.push_back(&label);
    rows.push_back(std::move(row));
  }
  if (rows.empty()) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const std::vector<float> vectors, Compute(rows));
  const int64_t width = model_->config.embedding_size();
  for (size_t i = 0; i < chosen.size(); ++i) {
    const auto begin = vectors.begin() + i * width;
    Keep(*chosen[i], std::vector<float>(begin, begin + width));
  }
  return absl::OkStatus();
}

}  // namespace sluice
