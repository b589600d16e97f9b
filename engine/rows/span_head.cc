#include "engine/rows/span_head.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "base/size_of.h"

namespace sluice {
namespace {

// The first words of parts whose halves are in memory together, the words that a thread computes at
// a time, and the first words whose parts it scores at a time.
constexpr int64_t kWordsOfBlock = 256;
constexpr int64_t kWordsTogether = 64;
constexpr int64_t kStartsTogether = 8;

// Returns whether two parts may not be returned together.
bool Conflict(const ExtractedSpan& a, const ExtractedSpan& b, const ExtractionRules& rules,
              bool label_by_label) {
  if (label_by_label && a.label != b.label) return false;
  if (a.begin == b.begin && a.end == b.end) return !rules.multi_label;
  if (a.begin >= b.end || b.begin >= a.end) return false;
  if (rules.overlap == SpanOverlap::kFlat) return true;
  const bool within = a.begin >= b.begin && a.end <= b.end;
  const bool around = a.begin <= b.begin && a.end >= b.end;
  return !within && !around;
}

}  // namespace

std::vector<ExtractedSpan> ChooseSpans(std::vector<ExtractedSpan> candidates, int64_t words,
                                       const ExtractionRules& rules, bool label_by_label) {
  const auto key = [](const ExtractedSpan& span) {
    return std::tuple(-span.score, span.begin, span.end, span.label);
  };
  std::ranges::sort(candidates, {}, key);
  int32_t longest = 1;
  for (const ExtractedSpan& span : candidates) longest = std::max(longest, span.end - span.begin);
  std::vector<std::vector<ExtractedSpan>> by_begin(words);  // of the chosen parts, each once
  std::vector<ExtractedSpan> chosen;
  for (const ExtractedSpan& span : candidates) {
    bool free = true, again = false;
    // Parts that begin earlier end before this one begins.
    for (int32_t begin = std::max(span.begin - longest + 1, 0); begin < span.end; ++begin) {
      for (const ExtractedSpan& other : by_begin[begin]) {
        free = free && !Conflict(span, other, rules, label_by_label);
        again = again || (other.begin == span.begin && other.end == span.end && !label_by_label);
      }
    }
    if (!free) continue;
    if (!again) by_begin[span.begin].push_back(span);
    chosen.push_back(span);
    if (std::ssize(chosen) == kMostExtracted) break;
  }
  std::ranges::stable_sort(chosen, {}, &ExtractedSpan::begin);
  return chosen;
}

SpanHead::SpanHead(const Model& model, std::optional<kernels::Profile> profile)
    : width_(model.config.serving.extraction->width),
      max_width_(model.config.serving.extraction->max_width),
      label_by_label_(model.config.serving.extraction->label_by_label),
      labels_in_row_(model.config.serving.extraction->labels_in_row()),
      layers_(profile),
      label_(model.config.serving.extraction->label_head, model.spans->label, layers_) {
  const SpanWeights& weights = *model.spans;
  if (weights.projection) projection_ = layers_.Pack(*weights.projection);
  for (const auto& directions : weights.lstm) {
    std::array<Lstm, 2>& packed = lstm_.emplace_back();
    for (size_t i = 0; i < packed.size(); ++i) {
      packed[i] = {.input = layers_.Pack(directions[i].input),
                   .state = layers_.Pack(directions[i].state)};
      Floats& bias = packed[i].input.bias;
      for (size_t j = 0; j < bias.size(); ++j) bias[j] += packed[i].state.bias[j];
      packed[i].state.bias.clear();
    }
  }
  start_ = layers_.Pack(weights.start);
  end_ = layers_.Pack(weights.end);
  if (weights.gate) gate_ = layers_.Pack(*weights.gate);
  // The columns of the first layer of span() for the starts, and those for the ends.
  const Floats both = FloatsOf(weights.span.in.weight);
  const int64_t rows = 4 * width_;
  Floats half(rows * width_);
  for (Layer* const layer : {&of_start_, &of_end_}) {
    const int64_t column = layer == &of_start_ ? 0 : width_;
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(both.data() + row * 2 * width_ + column, width_, half.data() + row * width_);
    }
    *layer = layers_.Pack(half.data(), rows, width_, {});
  }
  of_start_.bias = FloatsOf(weights.span.in.bias);
  of_label_ = layers_.PackTransposed(FloatsOf(weights.span.out.weight).data(), width_, rows);
  span_bias_ = FloatsOf(weights.span.out.bias);
}

int64_t SpanHead::WordBytes(const ModelConfig& config, const ExtractionRules& rules) {
  const ExtractionConfig& head = *config.serving.extraction;
  const int64_t lstm = head.lstm_layers > 0 ? 6 * head.width : 0;  // its gates and its results
  return (2 * config.hidden_size + 2 * head.width + lstm) * kSizeOf<float> +
         2 * head.max_width * std::ssize(rules.labels) * kSizeOf<ExtractedSpan> +
         kSizeOf<std::vector<ExtractedSpan>>;
}

void SpanHead::RunLstm(const Lstm& lstm, bool backwards, std::span<const float> words,
                       float* out) const {
  Floats gates = layers_.Apply(lstm.input, words);
  const int64_t size = width_ / 2, count = std::ssize(words) / width_;
  Floats state(size);
  std::vector<double> cell(size);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t word = backwards ? count - 1 - i : i;
    float* const of_word = gates.data() + word * 4 * size;
    layers_.AddTo(lstm.state, state, of_word);
    for (int64_t j = 0; j < size; ++j) {  // the gates of torch.nn.LSTM: input, forget, cell, output
      const double kept = double{Sigmoid(of_word[size + j])} * cell[j];
      cell[j] = kept + double{Sigmoid(of_word[j])} * std::tanh(double{of_word[2 * size + j]});
      state[j] = static_cast<float>(double{Sigmoid(of_word[3 * size + j])} * std::tanh(cell[j]));
    }
    std::ranges::copy(state, out + word * width_);
  }
}

std::optional<bool> SpanHead::Opens(std::span<const float> state) const {
  const Floats logits = layers_.Apply(*gate_, state);
  if (!std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); })) return {};
  return std::ranges::max_element(logits) != logits.begin();
}

SpanHead::Layer SpanHead::LabelLayer(std::span<const float> labels) const {
  const Floats projected = label_.Apply(labels);
  const int64_t count = std::ssize(projected) / width_;
  Floats bias;
  for (int64_t label = 0; label < count; ++label) {
    double sum = 0;
    for (int64_t i = 0; i < width_; ++i) {
      sum += double{projected[label * width_ + i]} * span_bias_[i];
    }
    bias.push_back(static_cast<float>(sum));
  }
  const Floats by_label = layers_.Apply(of_label_, projected);
  return layers_.Pack(by_label.data(), count, 4 * width_, bias);
}

Floats SpanHead::Halves(const Projection& projection, const Layer& layer,
                        std::span<const float> words, Divide divide) const {
  const int64_t count = std::ssize(words) / width_;
  Floats all(count * 4 * width_);
  divide(count, kWordsTogether, [&](int64_t begin, int64_t end) {
    Floats rows = layers_.Apply(projection, words.subspan(begin * width_, (end - begin) * width_));
    Relu(rows);
    std::ranges::copy(layers_.Apply(layer, rows), all.begin() + begin * 4 * width_);
  });
  return all;
}

bool SpanHead::Score(const Block& block, int64_t first, int64_t end,
                     std::vector<ExtractedSpan>* found) const {
  const int64_t inner = 4 * width_, ends = std::ssize(block.of_ends) / inner;
  std::vector<TextSpan> parts;
  for (int64_t begin = first; begin < end; ++begin) {
    for (int64_t last = begin; last < std::min(begin + max_width_, ends); ++last) {
      parts.push_back({static_cast<int32_t>(begin), static_cast<int32_t>(last)});
    }
  }
  Floats rows(parts.size() * inner);
  float* out = rows.data();
  for (const auto [begin, last] : parts) {
    const float* const a = block.of_starts.data() + begin * inner;
    const float* const b = block.of_ends.data() + last * inner;
    for (int64_t i = 0; i < inner; ++i) *out++ = std::max(a[i] + b[i], 0.0f);
  }
  const Floats logits = layers_.Apply(block.labels, rows);
  const int64_t labels = block.labels.weights.n();
  for (int64_t i = 0; i < std::ssize(logits); ++i) {
    if (!std::isfinite(logits[i])) return false;
    const float score = Sigmoid(logits[i]);
    if (score <= block.threshold) continue;
    const auto [begin, last] = parts[i / labels];
    found->push_back({.begin = static_cast<int32_t>(block.first + begin),
                      .end = static_cast<int32_t>(block.first + last + 1),
                      .label = static_cast<int32_t>(i % labels),
                      .score = score});
  }
  return true;
}

bool SpanHead::Extract(const ExtractionRules& rules, std::span<const float> labels,
                       std::span<const float> states, Divide divide,
                       std::vector<ExtractedSpan>* found) const {
  if (states.empty()) return true;
  Floats projected;
  if (projection_) states = projected = layers_.Apply(*projection_, states);
  if (gate_) {
    const std::optional<bool> opens = Opens(states.first(width_));
    if (!opens.value_or(false)) return opens.has_value();
    states = states.subspan(width_);
  }
  if (labels_in_row_) {
    labels = states.first(std::ssize(rules.labels) * width_);
    states = states.subspan(std::ssize(labels));
  }
  const Layer label_layer = LabelLayer(labels);
  Floats words(states.begin(), states.end());
  const int64_t count = std::ssize(words) / width_;
  for (const std::array<Lstm, 2>& directions : lstm_) {
    Floats next(words.size());
    divide(2, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        RunLstm(directions[i], i == 1, words, next.data() + i * width_ / 2);
      }
    });
    words = std::move(next);
  }
  std::vector<ExtractedSpan> candidates;
  for (int64_t first = 0; first < count; first += kWordsOfBlock) {
    const int64_t starts = std::min(kWordsOfBlock, count - first);
    const int64_t ends = std::min(starts + max_width_ - 1, count - first);
    const auto rest = std::span<const float>(words).subspan(first * width_);
    const Block block{.first = first,
                      .of_starts = Halves(start_, of_start_, rest.first(starts * width_), divide),
                      .of_ends = Halves(end_, of_end_, rest.first(ends * width_), divide),
                      .labels = label_layer,
                      .threshold = rules.threshold};
    const int64_t groups = CeilDiv(starts, kStartsTogether);
    std::vector<std::vector<ExtractedSpan>> parts(groups);
    std::vector<char> finite(groups);
    divide(groups, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        finite[i] = Score(block, i * kStartsTogether, std::min((i + 1) * kStartsTogether, starts),
                          &parts[i]);
      }
    });
    if (std::ranges::count(finite, 0) != 0) return false;
    for (const std::vector<ExtractedSpan>& part : parts) {
      candidates.insert(candidates.end(), part.begin(), part.end());
    }
  }
  *found = ChooseSpans(std::move(candidates), count, rules, label_by_label_);
  return true;
}

}  // namespace sluice
