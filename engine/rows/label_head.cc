#include "engine/rows/label_head.h"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

constexpr double kNormEps = 1e-5;  // of torch.nn.LayerNorm

// Returns the rows of `a`, each followed by the row of `b`.
Floats Joined(std::span<const float> a, int64_t width_a, std::span<const float> b,
              int64_t width_b) {
  Floats both;
  both.reserve(a.size() + b.size());
  for (int64_t row = 0; row < std::ssize(a) / width_a; ++row) {
    const auto of_a = a.subspan(row * width_a, width_a), of_b = b.subspan(row * width_b, width_b);
    both.insert(both.end(), of_a.begin(), of_a.end());
    both.insert(both.end(), of_b.begin(), of_b.end());
  }
  return both;
}

}  // namespace

LabelHead::LabelHead(LabelHeadKind kind, const SpanWeights::Labels& weights,
                     const HostLayers& layers)
    : kind_(kind), layers_(layers) {
  if (kind != LabelHeadKind::kAttention) projection_ = layers.Pack(weights.projection);
  if (kind == LabelHeadKind::kProjection) return;
  input_ = FloatsOf(weights.input);
  state_ = layers.Pack(weights.state);
  if (kind == LabelHeadKind::kRecurrent) return;
  narrow_ = layers.Pack(weights.narrow);
  const auto norm = [](const SpanWeights::Linear& vectors) {
    return Norm{.weight = FloatsOf(vectors.weight), .bias = FloatsOf(vectors.bias)};
  };
  for (const SpanWeights::AttentionLayer& layer : weights.layers) {
    attention_.push_back({.qkv = layers.Pack(layer.qkv),
                          .o = layers.Pack(layer.o),
                          .mlp = layers.Pack({.in = layer.up, .out = layer.down}),
                          .attention_norm = norm(layer.attention_norm),
                          .mlp_norm = norm(layer.mlp_norm)});
  }
  for (size_t i = 0; i < dense_.size(); ++i) dense_[i] = layers.Pack(weights.dense[i]);
}

Floats LabelHead::Step(std::span<const float> states) const {
  const int64_t width = state_.weights.k();
  const Floats gates = layers_.Apply(state_, states);
  Floats next(states.size());
  for (int64_t i = 0; i < std::ssize(states); ++i) {
    const int64_t j = i % width;
    const float* const of_state = gates.data() + i / width * 3 * width + j;
    // The gates of torch.nn.GRU: reset, update, new.
    const double reset = Sigmoid(input_[j] + of_state[0]);
    const double update = Sigmoid(input_[width + j] + of_state[width]);
    const double fresh = std::tanh(input_[2 * width + j] + reset * of_state[2 * width]);
    next[i] = static_cast<float>((1 - update) * fresh + update * states[i]);
  }
  return next;
}

Floats LabelHead::Attend(const AttentionLayer& layer, std::span<const float> rows) const {
  constexpr int64_t kWidth = kLabelAttentionWidth, kHead = kWidth / kLabelAttentionHeads;
  const int64_t labels = std::ssize(rows) / kWidth;
  const double scale = 1 / std::sqrt(static_cast<double>(kHead));
  const Floats qkv = layers_.Apply(layer.qkv, rows);
  Floats mixed(rows.size());
  std::vector<double> weights(labels);
  for (int64_t row = 0; row < labels; ++row) {
    for (int64_t head = 0; head < kWidth; head += kHead) {
      const float* const q = qkv.data() + row * 3 * kWidth + head;
      double largest = -HUGE_VAL, sum = 0;
      for (int64_t other = 0; other < labels; ++other) {
        const float* const k = qkv.data() + other * 3 * kWidth + kWidth + head;
        double score = 0;
        for (int64_t i = 0; i < kHead; ++i) score += double{q[i]} * k[i];
        weights[other] = score * scale;
        largest = std::max(largest, weights[other]);
      }
      for (double& weight : weights) {
        weight = std::exp(weight - largest);
        sum += weight;
      }
      for (int64_t i = 0; i < kHead; ++i) {
        double value = 0;
        for (int64_t other = 0; other < labels; ++other) {
          value += weights[other] * qkv[other * 3 * kWidth + 2 * kWidth + head + i];
        }
        mixed[row * kWidth + head + i] = static_cast<float>(value / sum);
      }
    }
  }
  return layers_.Apply(layer.o, mixed);
}

void LabelHead::AddAndNormalize(std::span<const float> more, const Norm& norm, Floats* rows) {
  const int64_t width = std::ssize(norm.weight);
  for (int64_t begin = 0; begin < std::ssize(*rows); begin += width) {
    const std::span<float> row = std::span(*rows).subspan(begin, width);
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < width; ++i) {
      row[i] += more[begin + i];
      mean += row[i];
    }
    mean /= static_cast<double>(width);
    for (const float value : row) variance += (value - mean) * (value - mean);
    const double scale = 1 / std::sqrt(variance / static_cast<double>(width) + kNormEps);
    for (int64_t i = 0; i < width; ++i) {
      row[i] = static_cast<float>((row[i] - mean) * scale * norm.weight[i] + norm.bias[i]);
    }
  }
}

Floats LabelHead::Apply(std::span<const float> states) const {
  if (kind_ == LabelHeadKind::kProjection) return layers_.Apply(projection_, states);
  const int64_t width = state_.weights.k();
  Floats next = Step(states);
  if (kind_ == LabelHeadKind::kRecurrent) {
    return layers_.Apply(projection_, Joined(next, width, states, width));
  }
  for (int64_t i = 0; i < std::ssize(states); ++i) next[i] += states[i];
  Floats narrow = layers_.Apply(narrow_, next);
  for (const AttentionLayer& layer : attention_) {
    AddAndNormalize(Attend(layer, narrow), layer.attention_norm, &narrow);
    AddAndNormalize(layers_.Apply(layer.mlp, narrow), layer.mlp_norm, &narrow);
  }
  Floats out = Joined(narrow, kLabelAttentionWidth, next, width);
  for (const HostLayers::Layer& layer : dense_) {
    if (&layer != &dense_.front()) Relu(out);
    out = layers_.Apply(layer, out);
  }
  return out;
}

}  // namespace sluice
