#include "engine/rows/row_states.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/size_of.h"
#include "engine/model/output_heads.h"

namespace sluice {
namespace {

constexpr uint32_t kOfStates = kOutputEmbedding | kOutputScores | kOutputCandidates;

// The default of PyTorch's normalize.
constexpr double kLeastLength = 1e-12;

void Rescale(ScoreScale scale, std::span<double> scores) {
  switch (scale) {
    case ScoreScale::kRaw:
      return;
    case ScoreScale::kSoftmax:
      return Softmax(scores);
    case ScoreScale::kSigmoid:
      return Sigmoid(scores);
    case ScoreScale::kLogSoftmax:
      return LogSoftmax(scores);
  }
}

// Writes the values rounded to float. Returns false if one is NaN or +inf.
bool Write(std::span<const double> values, float* out) {
  for (const double value : values) {
    *out = static_cast<float>(value);
    if (std::isnan(*out) || *out == std::numeric_limits<float>::infinity()) return false;
    ++out;
  }
  return true;
}

}  // namespace

StatePool::StatePool(Pooling pooling, int32_t length, int64_t width)
    : first_(pooling == Pooling::kLast ? length - 1 : 0),
      count_(pooling == Pooling::kMean ? length : 1),
      sum_(width) {}

bool StatePool::Wants(int32_t position) const {
  return position >= first_ + added_ && position < first_ + count_;
}

void StatePool::Add(std::span<const double> sum, int32_t count) {
  SLUICE_CHECK(count == 1 || added_ == 0);
  for (size_t i = 0; i < sum_.size(); ++i) sum_[i] += sum[i];
  added_ += count;
}

std::span<const double> StatePool::Mean() {
  SLUICE_CHECK(complete());
  if (count_ > 1) {
    for (double& value : sum_) value /= count_;
  }
  return sum_;
}

bool RowStates::Wanted(const Request& request) { return (request.outputs & kOfStates) != 0; }

int64_t RowStates::Bytes(const Request& request) {
  constexpr int64_t kPools = 3;
  const ModelConfig& config = request.spec->model->config;
  return kSizeOf<RowStates> + kPools * config.hidden_size * kSizeOf<double> +
         (config.hidden_size + config.serving.classifier.labels) * kSizeOf<float>;
}

RowStates::RowStates(const Request& request, int32_t length) : request_(request), length_(length) {
  const ModelConfig& config = request.spec->model->config;
  const auto want = [&](std::optional<StatePool>* pool, OutputMask output, Pooling pooling) {
    if ((request.outputs & output) == 0) return;
    pool->emplace(pooling, length, config.hidden_size);
    only_last_ &= pooling == Pooling::kLast;
  };
  want(&embedding_, kOutputEmbedding, request.spec->states.pooling);
  want(&classified_, kOutputScores, config.serving.classifier.pooling);
  want(&last_, kOutputCandidates, Pooling::kLast);
}

// Returns whether a pool wants the state of the position by itself; `all_summed` is whether those
// that want all states have their sum.
bool RowStates::Wants(int32_t position, bool all_summed) const {
  const auto wants = [=](const std::optional<StatePool>& pool) {
    return pool && pool->Wants(position) && !(all_summed && pool->WantsAll());
  };
  return wants(embedding_) || wants(classified_) || wants(last_);
}

void RowStates::AppendWanted(int32_t begin, int32_t end, std::vector<Positions>* wanted) const {
  const auto wants_all = [](const auto& pool) { return pool && pool->WantsAll(); };
  const bool whole = begin == 0 && end == length_;
  const bool sum = whole && (wants_all(embedding_) || wants_all(classified_) || wants_all(last_));
  if (sum) wanted->push_back({0, length_});
  for (int32_t position = begin; position < end; ++position) {
    if (Wants(position, sum)) wanted->push_back({position, 1});
    // What is wanted by itself of a whole prompt is its first and its last state.
    if (sum && position < length_ - 2) position = length_ - 2;
  }
}

// The sum of finite floats does not overflow a double, and that of others is not finite.
bool RowStates::Take(const Positions& positions, std::span<const double> sum) {
  if (!std::all_of(sum.begin(), sum.end(), [](double x) { return std::isfinite(x); })) return false;
  for (std::optional<StatePool>* pool : {&embedding_, &classified_, &last_}) {
    if (!*pool) continue;
    const bool takes = positions.count > 1 ? (*pool)->WantsAll() : (*pool)->Wants(positions.first);
    if (takes) (*pool)->Add(sum, positions.count);
  }
  return true;
}

bool RowStates::Finish(int32_t row, Reply* reply) {
  if (finished_) return true;
  finished_ = true;
  return (!embedding_ || WriteEmbedding(row, reply)) && (!classified_ || WriteScores(row, reply)) &&
         (!last_ || WriteCandidates(row, reply));
}

bool RowStates::WriteEmbedding(int32_t row, Reply* reply) {
  const std::span<const double> mean = embedding_->Mean();
  std::vector<double> state(mean.begin(), mean.end());
  if (request_.spec->states.normalize) {
    double squares = 0;
    for (const double value : state) squares += value * value;
    const double length = std::max(std::sqrt(squares), kLeastLength);
    for (double& value : state) value /= length;
  }
  return Write(state, reply->embedding.data() + row * state.size());
}

bool RowStates::WriteScores(int32_t row, Reply* reply) {
  std::vector<double> scores;
  request_.spec->model->classifier->Score(classified_->Mean(), &scores);
  Rescale(request_.spec->states.scores, scores);
  return Write(scores, reply->scores.data() + row * scores.size());
}

bool RowStates::WriteCandidates(int32_t row, Reply* reply) {
  const std::span<const double> state = last_->Mean();
  std::vector<double> scores;
  for (const int32_t id : request_.candidates.Of(row)) {
    scores.push_back(id < 0 ? -std::numeric_limits<double>::infinity()
                            : request_.spec->model->items->Score(id, state));
  }
  Rescale(request_.spec->states.candidates, scores);
  return Write(scores, reply->candidate_scores.data() + request_.candidates.begin[row]);
}

}  // namespace sluice
