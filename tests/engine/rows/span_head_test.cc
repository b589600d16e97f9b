// Compares the head for labelled parts of texts with its formula in double, part by part, and the
// choice of parts with a search over all pairs.
#include "engine/rows/span_head.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <list>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tests/support/fake_backend.h"

namespace sluice {
namespace {

using Numbers = std::vector<double>;

// The smallest difference of scores that decide about a result.
constexpr double kClear = 1e-4;

struct Sizes {
  int64_t hidden, width, lstm_layers, max_width;
  LabelHeadKind labels = LabelHeadKind::kProjection;
  bool gate = false;
};

// A model with random weights.
class DrawnHead {
 public:
  DrawnHead(const Sizes& sizes, std::mt19937* random) : random_(*random) {
    model_.config = FakeConfig();
    model_.config.hidden_size = sizes.hidden;
    model_.config.serving.extraction = {.width = sizes.width,
                                        .lstm_layers = sizes.lstm_layers,
                                        .max_width = sizes.max_width,
                                        .max_words = 1000,
                                        .label_marker = "[M]",
                                        .gate = sizes.gate ? "[G]" : "",
                                        .label_head = sizes.labels};
    SpanWeights& weights = model_.spans.emplace();
    const int64_t d = sizes.width;
    if (sizes.hidden != d) weights.projection = Draw(d, sizes.hidden);
    for (int64_t layer = 0; layer < sizes.lstm_layers; ++layer) {
      for (SpanWeights::Lstm& lstm : weights.lstm.emplace_back()) {
        lstm = {.input = Draw(2 * d, d), .state = Draw(2 * d, d / 2)};
      }
    }
    weights.start = {.in = Draw(4 * d, d), .out = Draw(d, 4 * d)};
    weights.end = {.in = Draw(4 * d, d), .out = Draw(d, 4 * d)};
    weights.label = DrawLabels(sizes.labels, d);
    if (sizes.gate) weights.gate = {.in = Draw(2 * d, d), .out = Draw(kGateClasses, 2 * d)};
    weights.span = {.in = Draw(4 * d, 2 * d), .out = Draw(d, 4 * d)};
  }

  const Model& model() const { return model_; }
  void TakeLabelsOutOfRows() { model_.config.serving.extraction->label_marker.clear(); }

  std::vector<float> DrawValues(int64_t count, double scale = 1) {
    std::normal_distribution<double> normal(0, scale);
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(normal(random_));
    return values;
  }

  // Returns all parts with their scores, in the order of words and labels.
  std::vector<ExtractedSpan> AllParts(const std::vector<float>& states, int64_t labels) const {
    const SpanWeights& weights = *model_.spans;
    std::vector<Numbers> words, of_labels;
    int64_t gates = weights.gate ? 1 : 0;
    const int64_t hidden = model_.config.hidden_size;
    for (int64_t row = 0; row < std::ssize(states) / hidden; ++row) {
      const auto begin = states.begin() + row * hidden;
      Numbers state(begin, begin + hidden);
      if (weights.projection) state = Times(*weights.projection, state);
      if (row < gates) {
        const Numbers classes = Project(*weights.gate, state);
        if (std::ranges::max_element(classes) == classes.begin()) return {};
        continue;
      }
      (row < gates + labels ? of_labels : words).push_back(state);
    }
    for (const auto& directions : weights.lstm) {
      const std::vector<Numbers> forwards = Recur(directions[0], words);
      std::ranges::reverse(words);
      std::vector<Numbers> backwards = Recur(directions[1], words);
      std::ranges::reverse(backwards);
      for (size_t i = 0; i < words.size(); ++i) words[i] = Joined(forwards[i], backwards[i]);
    }
    MapLabels(&of_labels);
    std::vector<ExtractedSpan> parts;
    const int64_t max_width = model_.config.serving.extraction->max_width;
    for (int32_t begin = 0; begin < std::ssize(words); ++begin) {
      for (int32_t last = begin; last < std::min<int64_t>(std::ssize(words), begin + max_width);
           ++last) {
        Numbers both =
            Joined(Project(weights.start, words[begin]), Project(weights.end, words[last]));
        for (double& value : both) value = std::max(value, 0.0);
        const Numbers part = Project(weights.span, both);
        for (int32_t label = 0; label < labels; ++label) {
          double sum = 0;
          for (size_t i = 0; i < part.size(); ++i) sum += part[i] * of_labels[label][i];
          parts.push_back({begin, last + 1, label, static_cast<float>(1 / (1 + std::exp(-sum)))});
        }
      }
    }
    return parts;
  }

 private:
  SpanWeights::Labels DrawLabels(LabelHeadKind kind, int64_t d) {
    SpanWeights::Labels labels;
    if (kind == LabelHeadKind::kProjection) {
      labels.projection = {.in = Draw(4 * d, d), .out = Draw(d, 4 * d)};
      return labels;
    }
    labels.input = DrawTensor({3 * d}, 1);
    labels.state = Draw(3 * d, d);
    if (kind == LabelHeadKind::kRecurrent) {
      labels.projection = {.in = Draw(4 * d, 2 * d), .out = Draw(d, 4 * d)};
      return labels;
    }
    constexpr int64_t kWidth = kLabelAttentionWidth;
    labels.narrow = Draw(kWidth, d);
    for (int64_t layer = 0; layer < kLabelAttentionLayers; ++layer) {
      labels.layers.push_back({.qkv = Draw(3 * kWidth, kWidth),
                               .o = Draw(kWidth, kWidth),
                               .up = Draw(2 * kWidth, kWidth),
                               .down = Draw(kWidth, 2 * kWidth),
                               .attention_norm = DrawNorm(),
                               .mlp_norm = DrawNorm()});
    }
    labels.dense = {Draw(d, kWidth + d), Draw(d, d), Draw(d, d)};
    return labels;
  }

  SpanWeights::Linear DrawNorm() {
    return {.weight = DrawTensor({kLabelAttentionWidth}, 1),
            .bias = DrawTensor({kLabelAttentionWidth}, 0.2)};
  }

  // Returns one step of torch.nn.GRU from the state of a label.
  static Numbers Step(const SpanWeights::Labels& labels, const Numbers& x) {
    const auto* const input = static_cast<const float*>(labels.input.data);
    const auto sigmoid = [](double value) { return 1 / (1 + std::exp(-value)); };
    const Numbers of_state = Times(labels.state, x);
    const size_t d = x.size();
    Numbers next;
    for (size_t i = 0; i < d; ++i) {
      const double reset = sigmoid(input[i] + of_state[i]);
      const double update = sigmoid(input[d + i] + of_state[d + i]);
      const double fresh = std::tanh(input[2 * d + i] + reset * of_state[2 * d + i]);
      next.push_back((1 - update) * fresh + update * x[i]);
    }
    return next;
  }

  static Numbers NormOfSum(const SpanWeights::Linear& norm, Numbers x, const Numbers& more) {
    const auto *weight = static_cast<const float*>(norm.weight.data),
               *bias = static_cast<const float*>(norm.bias.data);
    double mean = 0, variance = 0;
    const auto count = static_cast<double>(x.size());
    for (size_t i = 0; i < x.size(); ++i) mean += (x[i] += more[i]) / count;
    for (const double value : x) variance += (value - mean) * (value - mean) / count;
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = (x[i] - mean) / std::sqrt(variance + 1e-5) * weight[i] + bias[i];
    }
    return x;
  }

  static void Attend(const SpanWeights::AttentionLayer& layer, std::vector<Numbers>* rows) {
    constexpr size_t kWidth = kLabelAttentionWidth, kHead = kWidth / kLabelAttentionHeads;
    std::vector<Numbers> qkv;
    for (const Numbers& row : *rows) qkv.push_back(Times(layer.qkv, row));
    for (size_t a = 0; a < rows->size(); ++a) {
      Numbers mixed(kWidth);
      for (size_t head = 0; head < kWidth; head += kHead) {
        Numbers weights;
        double sum = 0;
        for (const Numbers& other : qkv) {
          double score = 0;
          for (size_t i = head; i < head + kHead; ++i) score += qkv[a][i] * other[kWidth + i];
          sum += weights.emplace_back(std::exp(score / std::sqrt(static_cast<double>(kHead))));
        }
        for (size_t i = head; i < head + kHead; ++i) {
          for (size_t b = 0; b < qkv.size(); ++b) {
            mixed[i] += weights[b] / sum * qkv[b][2 * kWidth + i];
          }
        }
      }
      Numbers& row = (*rows)[a];
      row = NormOfSum(layer.attention_norm, row, Times(layer.o, mixed));
      row = NormOfSum(layer.mlp_norm, row, Project({.in = layer.up, .out = layer.down}, row));
    }
  }

  void MapLabels(std::vector<Numbers>* labels) const {
    const SpanWeights::Labels& weights = model_.spans->label;
    const LabelHeadKind kind = model_.config.serving.extraction->label_head;
    std::vector<Numbers> narrow;
    for (Numbers& label : *labels) {
      if (kind == LabelHeadKind::kProjection) {
        label = Project(weights.projection, label);
        continue;
      }
      const Numbers next = Step(weights, label);
      if (kind == LabelHeadKind::kRecurrent) {
        label = Project(weights.projection, Joined(next, label));
        continue;
      }
      for (size_t i = 0; i < label.size(); ++i) label[i] += next[i];
      narrow.push_back(Times(weights.narrow, label));
    }
    if (kind != LabelHeadKind::kAttention) return;
    for (const auto& layer : weights.layers) Attend(layer, &narrow);
    for (size_t i = 0; i < labels->size(); ++i) {
      Numbers& label = (*labels)[i];
      label = Project({.in = weights.dense[0], .out = weights.dense[1]}, Joined(narrow[i], label));
      for (double& value : label) value = std::max(value, 0.0);
      label = Times(weights.dense[2], label);
    }
  }

  SpanWeights::Linear Draw(int64_t rows, int64_t columns) {
    return {.weight = DrawTensor({rows, columns}, 1 / std::sqrt(static_cast<double>(columns))),
            .bias = DrawTensor({rows}, 0.2)};
  }

  Tensor DrawTensor(const std::vector<int64_t>& shape, double scale) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    return {.dtype = kernels::DType::kF32,
            .shape = shape,
            .data = values_.emplace_back(DrawValues(count, scale)).data()};
  }

  static Numbers Joined(Numbers first, const Numbers& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }

  static Numbers Times(const SpanWeights::Linear& linear, const Numbers& x) {
    const auto* const weight = static_cast<const float*>(linear.weight.data);
    const auto* const bias = static_cast<const float*>(linear.bias.data);
    Numbers out;
    for (int64_t row = 0; row < linear.weight.shape[0]; ++row) {
      double sum = bias[row];
      for (size_t i = 0; i < x.size(); ++i) sum += double{weight[row * x.size() + i]} * x[i];
      out.push_back(sum);
    }
    return out;
  }

  static Numbers Project(const SpanWeights::Projection& projection, const Numbers& x) {
    Numbers inner = Times(projection.in, x);
    for (double& value : inner) value = std::max(value, 0.0);
    return Times(projection.out, inner);
  }

  static std::vector<Numbers> Recur(const SpanWeights::Lstm& lstm,
                                    const std::vector<Numbers>& words) {
    const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
    const int64_t size = lstm.state.weight.shape[1];
    Numbers state(size), cell(size);
    std::vector<Numbers> states;
    for (const Numbers& word : words) {
      const Numbers a = Times(lstm.input, word), b = Times(lstm.state, state);
      const auto gate = [&](int64_t which, int64_t i) {
        return a[which * size + i] + b[which * size + i];
      };
      for (int64_t i = 0; i < size; ++i) {
        cell[i] = sigmoid(gate(1, i)) * cell[i] + sigmoid(gate(0, i)) * std::tanh(gate(2, i));
        state[i] = sigmoid(gate(3, i)) * std::tanh(cell[i]);
      }
      states.push_back(state);
    }
    return states;
  }

  std::mt19937& random_;
  Model model_;
  std::list<std::vector<float>> values_;
};

// Takes the best part that may be returned with all parts taken before, until none is left.
std::vector<ExtractedSpan> ChosenPairByPair(std::vector<ExtractedSpan> candidates,
                                            const ExtractionRules& rules, bool by_label = false) {
  std::ranges::stable_sort(candidates, std::greater<>(), &ExtractedSpan::score);
  std::vector<ExtractedSpan> chosen;
  for (const ExtractedSpan& a : candidates) {
    const bool free = std::ranges::none_of(chosen, [&](const ExtractedSpan& b) {
      if (by_label && a.label != b.label) return false;
      if (a.begin == b.begin && a.end == b.end) return !rules.multi_label;
      const bool apart = a.end <= b.begin || b.end <= a.begin;
      const bool nested =
          (a.begin <= b.begin && b.end <= a.end) || (b.begin <= a.begin && a.end <= b.end);
      return !apart && (rules.overlap == SpanOverlap::kFlat || !nested);
    });
    if (free && std::ssize(chosen) < kMostExtracted) chosen.push_back(a);
  }
  std::ranges::stable_sort(chosen, {}, &ExtractedSpan::begin);
  return chosen;
}

ExtractionRules DrawRules(int64_t labels, std::mt19937* random) {
  ExtractionRules rules;
  for (int64_t i = 0; i < labels; ++i) rules.labels.push_back(std::to_string(i));
  rules.overlap = (*random)() % 2 == 0 ? SpanOverlap::kFlat : SpanOverlap::kNested;
  rules.multi_label = (*random)() % 2 == 0;
  return rules;
}

// Returns a threshold below a few parts that no score is near to, and below scores that differ
// clearly; or -1 if there is none.
double ThresholdFor(std::vector<ExtractedSpan> parts, std::mt19937* random) {
  std::ranges::sort(parts, std::greater<>(), &ExtractedSpan::score);
  const size_t kept = std::min<size_t>(parts.size() - 1, 1 + (*random)() % 8);
  for (size_t i = 0; i < kept; ++i) {
    if (parts[i].score - parts[i + 1].score < 2 * kClear) return -1;
  }
  return parts[kept].score + kClear;
}

constexpr LabelHeadKind kLabelHeads[] = {LabelHeadKind::kProjection, LabelHeadKind::kRecurrent,
                                         LabelHeadKind::kAttention};

// The portable profile rounds each product and each sum; the others fuse them.
TEST(HostLayersTest, AForcedProfileDecidesTheBits) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> value(-1, 1);
  constexpr int64_t kIn = 100, kOut = 30;
  std::vector<float> weights(kOut * kIn), row(kIn);
  for (float& x : weights) x = value(random);
  for (float& x : row) x = value(random);
  const HostLayers layers(kernels::Profile::kPortableF32);
  const Floats found = layers.Apply(layers.Pack(weights.data(), kOut, kIn, {}), row);
  for (int64_t i = 0; i < kOut; ++i) {
    volatile float sum = 0, product = 0;
    for (int64_t j = 0; j < kIn; ++j) {
      product = row[j] * weights[i * kIn + j];
      sum = sum + product;
    }
    EXPECT_EQ(found[i], sum) << i;
  }
}

TEST(SpanHeadTest, PartsAndScoresEqualTheFormula) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  int compared = 0, closed = 0;
  for (int draw = 0; draw < 180; ++draw) {
    const int64_t width = 2 + 2 * static_cast<int64_t>(random() % 6);
    DrawnHead head({.hidden = random() % 2 == 0 ? width : width + 3,
                    .width = width,
                    .lstm_layers = static_cast<int64_t>(random() % 3),
                    .max_width = 1 + static_cast<int64_t>(random() % 6),
                    .labels = kLabelHeads[draw % 3],
                    .gate = random() % 2 == 0},
                   &random);
    const int64_t labels = 1 + static_cast<int64_t>(random() % 4);
    // Some texts are longer than the words that are computed together.
    const int64_t words = 2 + static_cast<int64_t>(random() % (draw % 8 == 0 ? 300 : 12));
    ExtractionRules rules = DrawRules(labels, &random);
    const int64_t gates = head.model().spans->gate ? 1 : 0;
    const std::vector<float> states =
        head.DrawValues((gates + labels + words) * head.model().config.hidden_size);
    std::vector<ExtractedSpan> expected = head.AllParts(states, labels);
    if (expected.empty()) {
      std::vector<ExtractedSpan> found;
      ASSERT_TRUE(
          SpanHead(head.model(), std::nullopt).Extract(rules, {}, states, Undivided, &found));
      EXPECT_TRUE(found.empty());
      ++closed;
      continue;
    }
    const double threshold = ThresholdFor(expected, &random);
    if (threshold < 0) continue;
    rules.threshold = static_cast<float>(threshold);
    std::erase_if(expected, [&](const auto& part) { return part.score <= rules.threshold; });
    expected = ChosenPairByPair(std::move(expected), rules);
    std::vector<ExtractedSpan> found;
    ASSERT_TRUE(SpanHead(head.model(), std::nullopt).Extract(rules, {}, states, Undivided, &found));
    ASSERT_EQ(found.size(), expected.size()) << "draw " << draw;
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i].score, expected[i].score, 1e-5) << "draw " << draw << ", part " << i;
      found[i].score = expected[i].score;
      EXPECT_EQ(found[i], expected[i]) << "draw " << draw << ", part " << i;
    }
    ++compared;
  }
  EXPECT_GT(compared, 60);
  EXPECT_LT(closed, 40);
}

TEST(SpanHeadTest, StatesThatAreNotFiniteAreReported) {
  std::mt19937 random(1);
  DrawnHead head({.hidden = 4, .width = 4, .lstm_layers = 0, .max_width = 2}, &random);
  std::vector<float> states = head.DrawValues(3 * 4);
  states[5] = NAN;
  std::vector<ExtractedSpan> found;
  const ExtractionRules rules{.labels = {"a"}};
  EXPECT_FALSE(SpanHead(head.model(), std::nullopt).Extract(rules, {}, states, Undivided, &found));
}

TEST(SpanHeadTest, LabelsOutsideOfARowGiveTheSameParts) {
  const auto seed = static_cast<uint32_t>(testing::UnitTest::GetInstance()->random_seed());
  std::mt19937 random(seed);
  for (int draw = 0; draw < 20; ++draw) {
    DrawnHead head({.hidden = 6, .width = 6, .lstm_layers = 0, .max_width = 3}, &random);
    const int64_t labels = 1 + static_cast<int64_t>(random() % 4);
    ExtractionRules rules = DrawRules(labels, &random);
    rules.threshold = 0;
    const std::vector<float> states = head.DrawValues((labels + 9) * 6);
    std::vector<ExtractedSpan> in_row, outside;
    ASSERT_TRUE(
        SpanHead(head.model(), std::nullopt).Extract(rules, {}, states, Undivided, &in_row));
    head.TakeLabelsOutOfRows();
    const std::span<const float> all = states;
    ASSERT_TRUE(
        SpanHead(head.model(), std::nullopt)
            .Extract(rules, all.first(labels * 6), all.subspan(labels * 6), Undivided, &outside));
    EXPECT_FALSE(in_row.empty());
    EXPECT_EQ(in_row, outside) << "seed " << seed << ", draw " << draw;
  }
}

TEST(SpanHeadTest, AGateOpensUnlessItsFirstClassIsLargest) {
  std::mt19937 random(1);
  DrawnHead head({.hidden = 4, .width = 4, .lstm_layers = 0, .max_width = 2, .gate = true},
                 &random);
  const ExtractionRules rules{.labels = {"a"}, .threshold = 0};
  bool open = false, closed = false;
  for (int draw = 0; draw < 2000 && !(open && closed); ++draw) {
    const std::vector<float> states = head.DrawValues(3 * 4, 4);
    std::vector<ExtractedSpan> found;
    ASSERT_TRUE(SpanHead(head.model(), std::nullopt).Extract(rules, {}, states, Undivided, &found));
    EXPECT_EQ(found.empty(), head.AllParts(states, 1).empty());
    (found.empty() ? closed : open) = true;
  }
  EXPECT_TRUE(open && closed);
}

TEST(SpanHeadTest, ATextWithoutWordsHasNoParts) {
  std::mt19937 random(1);
  DrawnHead head({.hidden = 4, .width = 4, .lstm_layers = 1, .max_width = 2}, &random);
  std::vector<ExtractedSpan> found;
  const ExtractionRules rules{.labels = {"a"}, .threshold = 0};
  EXPECT_TRUE(SpanHead(head.model(), std::nullopt)
                  .Extract(rules, {}, head.DrawValues(4), Undivided, &found));
  EXPECT_TRUE(found.empty());
}

TEST(SpanHeadTest, ChosenPartsAreThoseOfASearchOverAllPairs) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int draw = 0; draw < 500; ++draw) {
    const int32_t words = 1 + static_cast<int32_t>(random() % 12);
    std::vector<ExtractedSpan> candidates;
    for (int32_t begin = 0; begin < words; ++begin) {
      for (int32_t end = begin + 1; end <= std::min(words, begin + 5); ++end) {
        for (int32_t label = 0; label < 2; ++label) {
          // Some scores are equal.
          const float score = static_cast<float>(random() % 20) / 20;
          if (random() % 3 != 0) candidates.push_back({begin, end, label, score});
        }
      }
    }
    const ExtractionRules rules = DrawRules(2, &random);
    const bool by_label = random() % 2 == 0;
    EXPECT_EQ(ChooseSpans(candidates, words, rules, by_label),
              ChosenPairByPair(candidates, rules, by_label));
  }
}

TEST(SpanHeadTest, TheBestPartsAreReturnedIfThereAreTooMany) {
  std::vector<ExtractedSpan> candidates;
  for (int32_t word = 0; word < kMostExtracted + 10; ++word) {
    candidates.push_back({word, word + 1, 0, word < 10 ? 0.1f : 0.9f});
  }
  const auto chosen = ChooseSpans(candidates, kMostExtracted + 10, {.labels = {"a"}}, false);
  ASSERT_EQ(std::ssize(chosen), kMostExtracted);
  EXPECT_EQ(chosen.front().begin, 10);
}

}  // namespace
}  // namespace sluice
