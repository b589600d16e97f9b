#include "engine/rows/row_states.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/size_of.h"
#include "engine/model/output_heads.h"
#include "engine/rows/sparse_terms.h"

namespace sluice {
namespace {

constexpr uint32_t kOfStates = kOutputEmbedding | kOutputScores | kOutputCandidates |
                               kOutputTokenScores | kOutputTokenStates | kOutputVectors |
                               kOutputMaxSim | kOutputSpans | kOutputExtraction;

// The number of candidates that a thread scores at a time.
constexpr int64_t kScoredTogether = 32;
// The number of tokens whose results a thread computes together.
constexpr int64_t kTokensTogether = 8;

// The default of PyTorch's normalize.
constexpr double kMinLength = 1e-12;

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

void Round(std::span<const double> values, float* out) {
  for (const double value : values) *out++ = static_cast<float>(value);
}

void Normalize(std::span<double> values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  const double length = std::max(std::sqrt(squares), kMinLength);
  for (double& value : values) value /= length;
}

void WriteTokenScores(const Classifier& classifier, ScoreScale scale, std::span<const double> state,
                      float* out) {
  std::vector<double> scores;
  classifier.Score(state, &scores);
  Rescale(scale, scores);
  Round(scores, out);
}

// Applies the layers to states, and writes the results, of `size` values each. Normalises them if
// the request's spec states it.
void WriteLayers(const RequestSpec& spec, const OutputLayers& layers,
                 std::span<const double> states, int64_t size, float* out) {
  std::vector<double> vectors(states.begin(), states.end());
  layers.Apply(&vectors);
  for (int64_t begin = 0; begin < std::ssize(vectors); begin += size) {
    const std::span<double> vector = std::span(vectors).subspan(begin, size);
    if (spec.states.normalize) Normalize(vector);
    Round(vector, out + begin);
  }
}

void WriteTermWeights(const RequestSpec& spec, std::span<const double> states, float* out) {
  std::vector<double> weights(states.begin(), states.end());
  spec.model->term_weights.Apply(&weights);
  Round(weights, out);
}

}  // namespace

StatePool::StatePool(Pooling pooling, int32_t first, int32_t length, int64_t width)
    : pooling_(pooling),
      sums_(pooling != Pooling::kWeightedMean),
      first_(pooling == Pooling::kLast ? length - 1 : first),
      count_(pooling == Pooling::kLast || pooling == Pooling::kCls ? 1 : length - first),
      value_(width) {}

void StatePool::Add(std::span<const double> sum, int32_t count) {
  SLUICE_CHECK(count == 1 || added_ == 0);
  const bool weighted = pooling_ == Pooling::kWeightedMean && count_ > 1;
  const double weight = weighted ? first_ + added_ + 1.0 : count;
  const bool first = added_ == 0;
  for (size_t i = 0; i < value_.size(); ++i) {
    if (pooling_ == Pooling::kMax) {
      value_[i] = first ? sum[i] : std::max(value_[i], sum[i]);
    } else if (weighted) {
      value_[i] += weight * sum[i];
    } else {
      value_[i] += sum[i];
    }
  }
  weight_ += weight;
  added_ += count;
}

std::span<const double> StatePool::Result() {
  SLUICE_CHECK(complete());
  double divisor = pooling_ == Pooling::kMax ? 1 : weight_;
  if (pooling_ == Pooling::kMeanSqrtLen) divisor = std::sqrt(weight_);
  if (count_ > 1) {
    for (double& value : value_) value /= divisor;
  }
  return value_;
}

bool RowStates::Wanted(const Request& request) {
  return (request.outputs & kOfStates) != 0 || WeighsTokens(request);
}

int64_t RowStates::Bytes(const Request& request) {
  const RequestSpec& spec = *request.spec;
  const ModelConfig& config = spec.model->config;
  const int64_t pools = std::ssize(spec.states.pooling.all) + 2;
  return kSizeOf<RowStates> + pools *
                                  (kSizeOf<StatePool> + config.hidden_size * kSizeOf<double>)+(
                                      EmbeddingSize(spec) + ServedClassifier(spec).labels) *
                                  kSizeOf<float>;
}

RowStates::RowStates(const Request& request, int32_t length, int32_t row)
    : request_(request), length_(length), vector_positions_(request.vectors.Of(row)) {
  const ModelConfig& config = request.spec->model->config;
  const std::optional<Classifier>& own = request.spec->model->classifier;
  if (own && request.spec->head == nullptr) classifier_ = &*own;
  const auto want = [&](OutputMask output, Pooling pooling, int32_t first) {
    if ((request.outputs & output) == 0) return;
    pools_.emplace_back(pooling, first, length, config.hidden_size);
    only_last_ &= pooling == Pooling::kLast;
  };
  if ((request.outputs & kOutputSpans) != 0) {
    const std::span<const int32_t> ends = request.spans.Of(row);
    for (size_t i = 0; i + 1 < ends.size(); i += 2) {
      pools_.emplace_back(Pooling::kMean, ends[i], ends[i + 1], config.hidden_size);
    }
    spans_ = pools_.size();
    only_last_ = false;
  }
  for (const Pooling pooling : request.spec->states.pooling.all) {
    want(kOutputEmbedding, pooling, request.spec->states.first_pooled);
  }
  embeddings_ = pools_.size() - spans_;
  want(kOutputScores, ServedClassifier(*request.spec).pooling, 0);
  want(kOutputCandidates, Pooling::kLast, 0);
  if (WantsTokens()) {
    const auto reserve = [&](OutputMask output, int64_t width, std::vector<float>* values) {
      if ((request.outputs & output) != 0) values->reserve(length * width);
    };
    reserve(kOutputTokenScores, ServedClassifier(*request.spec).labels, &token_scores_);
    reserve(kOutputTokenStates, config.token_embedding_size(), &token_states_);
    if ((request.outputs & (kOutputVectors | kOutputMaxSim | kOutputExtraction)) != 0) {
      vectors_.resize(vector_positions_.size() * VectorSize());
    }
    if (WeighsTokens(request)) term_weights_.resize(length);
    only_last_ = false;
  }
}

void RowStates::AppendWanted(int32_t begin, int32_t end, std::vector<Positions>* wanted) const {
  const auto each = [](const StatePool& pool) { return pool.WantsEach(); };
  const bool whole =
      begin == 0 && end == length_ && !WantsTokens() && std::ranges::none_of(pools_, each);
  if (whole && AppendPooled(wanted)) return;
  for (int32_t position = begin; position < end; ++position) {
    const auto wants = [=](const StatePool& pool) { return pool.Wants(position); };
    if (WantsToken(position) || std::ranges::any_of(pools_, wants))
      wanted->push_back({position, 1});
  }
}

bool RowStates::AppendPooled(std::vector<Positions>* wanted) const {
  const size_t first = wanted->size();
  const auto want = [&](const Positions& positions) {
    const auto begin_of_row = wanted->begin() + static_cast<int64_t>(first);
    if (std::find(begin_of_row, wanted->end(), positions) == wanted->end()) {
      wanted->push_back(positions);
    }
  };
  for (const StatePool& pool : pools_) {
    if (pool.WantsSum()) want({pool.first(), pool.count(), pool.largest()});
  }
  for (const StatePool& pool : pools_) {
    if (pool.count() == 1 && !pool.complete()) want({pool.first(), 1});
  }
  if (wanted->size() - first <= static_cast<size_t>(length_) + 1) return true;
  wanted->resize(first);
  return false;
}

// A sum of finite floats does not overflow a double, and other sums are not finite.
bool RowStates::Take(std::span<const Positions> wanted, std::span<const double> sums,
                     Divide divide) {
  if (!std::all_of(sums.begin(), sums.end(), [](double x) { return std::isfinite(x); })) {
    return false;
  }
  const int64_t width = request_.spec->model->config.hidden_size;
  int64_t tokens = 0;  // single positions; they come last, one sum each
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto [first, count, largest] = wanted[i];
    const std::span<const double> sum = sums.subspan(i * width, width);
    if (count == 1 && WantsToken(first)) ++tokens;
    for (StatePool& pool : pools_) {
      const bool all =
          pool.WantsSum() && wanted[i] == Positions{pool.first(), pool.count(), pool.largest()};
      if (all || (count == 1 && pool.Wants(first))) pool.Add(sum, count);
    }
  }
  if (tokens > 0) TakeTokens(sums.last(tokens * width), divide);
  return true;
}

// Each token is taken once, in the order of positions.
bool RowStates::WantsToken(int32_t position) const { return WantsTokens() && position >= tokens_; }

int64_t RowStates::VectorSize() const {
  const ModelConfig& config = request_.spec->model->config;
  return (request_.outputs & kOutputExtraction) != 0 ? config.hidden_size : config.vector_size();
}

void RowStates::TakeTokens(std::span<const double> states, Divide divide) {
  const Model& model = *request_.spec->model;
  const int64_t width = model.config.hidden_size;
  const int64_t count = std::ssize(states) / width;
  // Returns the place of the first new token.
  const auto extend = [&](OutputMask output, int64_t numbers, std::vector<float>* values) {
    if ((request_.outputs & output) == 0) return static_cast<float*>(nullptr);
    values->resize(values->size() + count * numbers);
    return values->data() + values->size() - count * numbers;
  };
  const int64_t labels = ServedClassifier(*request_.spec).labels;
  const int64_t size = model.config.token_embedding_size();
  float* const of_scores = extend(kOutputTokenScores, labels, &token_scores_);
  float* const of_states = extend(kOutputTokenStates, size, &token_states_);
  const OutputLayers none;
  const OutputLayers& layers = model.config.serving.multi_vector ? model.vectors : none;
  const auto take = [&](int64_t begin, int64_t end) {
    const auto some = states.subspan(begin * width, (end - begin) * width);
    for (int64_t i = begin; of_scores != nullptr && i < end; ++i) {
      WriteTokenScores(*classifier_, request_.spec->states.scores, states.subspan(i * width, width),
                       of_scores + i * labels);
    }
    if (of_states != nullptr) {
      WriteLayers(*request_.spec, layers, some, size, of_states + begin * size);
    }
    if (!vectors_.empty()) AddVectors(static_cast<int32_t>(tokens_ + begin), some);
    if (!term_weights_.empty()) {
      WriteTermWeights(*request_.spec, some, term_weights_.data() + tokens_ + begin);
    }
  };
  divide(count, kTokensTogether, [&](int64_t begin, int64_t end) {
    for (; begin < end; begin += kTokensTogether) {
      take(begin, std::min(begin + kTokensTogether, end));
    }
  });
  tokens_ += static_cast<int32_t>(count);
}

void RowStates::AddVectors(int32_t first, std::span<const double> states) {
  const int64_t width = request_.spec->model->config.hidden_size;
  const auto end = static_cast<int32_t>(first + std::ssize(states) / width);
  auto place = std::ranges::lower_bound(vector_positions_, first);
  float* const out = vectors_.data() + (place - vector_positions_.begin()) * VectorSize();
  std::vector<double> chosen;
  for (; place != vector_positions_.end() && *place < end; ++place) {
    const auto state = states.subspan((*place - first) * width, width);
    chosen.insert(chosen.end(), state.begin(), state.end());
  }
  if (chosen.empty()) return;
  if ((request_.outputs & kOutputExtraction) != 0) return Round(chosen, out);
  WriteLayers(*request_.spec, request_.spec->model->vectors, chosen, VectorSize(), out);
}

bool RowStates::WriteVectors(int32_t row, Reply* reply) const {
  if ((request_.outputs & kOutputVectors) != 0) {
    std::ranges::copy(vectors_,
                      reply->vectors.begin() + request_.vectors.begin[row] * VectorSize());
  }
  return std::ranges::all_of(vectors_, [](float x) { return std::isfinite(x); });
}

// Each id has the largest weight of its tokens.
bool RowStates::WriteTerms(int32_t row, Reply* reply) const {
  const std::vector<int32_t>& lengths = request_.spec->lengths;
  const int64_t before = std::accumulate(lengths.begin(), lengths.begin() + row, int64_t{0});
  const int64_t most = request_.spec->states.max_active_dims;
  reply->sparse_counts[row] =
      TakeHeaviestTokens(std::span(request_.tokens).subspan(before, length_), term_weights_,
                         request_.spec->model->tasks.without_weight,
                         std::span(reply->sparse_ids).subspan(row * most, most),
                         std::span(reply->sparse_weights).subspan(row * most, most));
  return std::ranges::all_of(term_weights_, [](float x) { return std::isfinite(x); });
}

bool RowStates::WriteTokens(int32_t row, Reply* reply) {
  const std::vector<int32_t>& lengths = request_.spec->lengths;
  const int64_t before = std::accumulate(lengths.begin(), lengths.begin() + row, int64_t{0});
  const ModelConfig& config = request_.spec->model->config;
  SLUICE_CHECK(tokens_ == length_);
  const auto write = [&](const std::vector<float>& values, int64_t width, std::vector<float>* out) {
    if (values.empty()) return true;  // it was not requested
    std::copy(values.begin(), values.end(), out->begin() + before * width);
    return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
  };
  if (!WriteVectors(row, reply) || (WeighsTokens(request_) && !WriteTerms(row, reply))) {
    return false;
  }
  return write(token_scores_, ServedClassifier(*request_.spec).labels, &reply->token_scores) &&
         write(token_states_, config.token_embedding_size(), &reply->token_states);
}

bool RowStates::Finish(int32_t row, Reply* reply, Divide divide) {
  if (finished_) return true;
  finished_ = true;
  const auto wants = [this](OutputMask output) { return (request_.outputs & output) != 0; };
  if (wants(kOutputCandidates)) unscored_ = std::ssize(request_.candidates.Of(row));
  return (!wants(kOutputSpans) || WriteSpans(row, reply, divide)) &&
         (!wants(kOutputEmbedding) || WriteEmbedding(row, reply, divide)) &&
         (!wants(kOutputScores) || WriteScores(row, reply, divide)) &&
         (!WantsTokens() || WriteTokens(row, reply));
}

bool RowStates::WriteEmbedding(int32_t row, Reply* reply, Divide divide) {
  std::vector<double> state;
  for (size_t i = 0; i < embeddings_; ++i) {
    const std::span<const double> pooled = pools_[spans_ + i].Result();
    state.insert(state.end(), pooled.begin(), pooled.end());
  }
  request_.spec->model->embedding.Apply(&state, divide);
  state.resize(EmbeddingSize(*request_.spec));
  if (request_.spec->states.normalize) Normalize(state);
  return Write(state, reply->embedding.data() + row * state.size());
}

bool RowStates::WriteSpans(int32_t row, Reply* reply, Divide divide) {
  const int64_t size = EmbeddingSize(*request_.spec);
  float* out = spans_ == 0 ? nullptr : reply->spans.data() + request_.spans.begin[row] / 2 * size;
  for (size_t i = 0; i < spans_; ++i, out += size) {
    const std::span<const double> pooled = pools_[i].Result();
    std::vector<double> state(pooled.begin(), pooled.end());
    request_.spec->model->embedding.Apply(&state, divide);
    state.resize(size);
    if (request_.spec->states.normalize) Normalize(state);
    if (!Write(state, out)) return false;
  }
  return true;
}

bool RowStates::WriteScores(int32_t row, Reply* reply, Divide divide) {
  std::vector<double> scores;
  classifier_->Score(pools_[spans_ + embeddings_].Result(), &scores, divide);
  Rescale(request_.spec->states.scores, scores);
  return Write(scores, reply->scores.data() + row * scores.size());
}

bool RowStates::ScoreCandidates(int32_t row, int64_t count, const ExecutableModel& executable,
                                Reply* reply) {
  SLUICE_CHECK(count <= unscored_);
  if (order_) {
    ChooseCandidates(row, count, reply);
    return true;
  }
  const std::span<const int32_t> ids = request_.candidates.Of(row);
  const int64_t first = std::ssize(candidate_scores_);
  candidate_scores_.resize(first + count, -std::numeric_limits<double>::infinity());
  const std::span<const double> state = pools_.back().Result();
  const ItemHead& items = *request_.spec->model->items;
  executable.ParallelFor(count, kScoredTogether, [&](int64_t begin, int64_t end) {
    for (int64_t i = first + begin; i < first + end; ++i) {
      if (ids[i] >= 0) candidate_scores_[i] = items.Score(ids[i], state);
    }
  });
  unscored_ -= count;
  if (unscored_ > 0) return true;
  Rescale(request_.spec->states.candidates, candidate_scores_);
  float* const scores = reply->candidate_scores.data() + request_.candidates.begin[row];
  if (!Write(candidate_scores_, scores)) return false;
  if ((request_.outputs & kOutputCandidateOrder) != 0) {
    order_.emplace(ids, std::span<const float>(scores, ids.size()), request_.spec->diversity);
    ChooseCandidates(row, 0, reply);
  }
  return true;
}

void RowStates::ChooseCandidates(int32_t row, int64_t count, Reply* reply) {
  const auto candidates = std::ssize(request_.candidates.Of(row));
  for (; count > 0; count -= candidates) order_->ChooseNext(*request_.spec->model->items);
  unscored_ = order_->left() * candidates;
  if (unscored_ == 0) {
    order_->Write(reply->candidate_order.data() + request_.candidates.begin[row]);
  }
}

}  // namespace sluice
