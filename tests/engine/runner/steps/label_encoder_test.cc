// The encoder of labels computes each label once, alone or with others, and the engine computes the
// labels of requests with it.
#include "engine/runner/steps/label_encoder.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/reason.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runner/harness.h"

namespace sluice {
namespace {

constexpr int64_t kWidth = 4;
constexpr int32_t kPageTokens = 4;

// A model that embeds texts by their bytes, as the mean of the fake model's states.
std::shared_ptr<Model> LabelModel() {
  auto model = std::make_shared<Model>();
  model->name = "labels";
  model->config = FakeConfig();
  model->config.vocab_size = 256;
  model->config.causal = false;
  model->config.xsa = {};
  model->config.hidden_size = kWidth;
  model->config.serving.pooling = Pooling::kMean;
  model->tokenizer = MakeByteTokenizer(-1);
  return model;
}

std::vector<int32_t> TokensOf(const std::string& label) { return {label.begin(), label.end()}; }

std::vector<float> VectorOf(const std::string& label) {
  const std::vector<int32_t> tokens = TokensOf(label);
  std::vector<float> vector;
  for (int64_t i = 0; i < kWidth; ++i) {
    double sum = 0;
    for (size_t n = 1; n <= tokens.size(); ++n) sum += fake::State(std::span(tokens).first(n), i);
    vector.push_back(static_cast<float>(sum / static_cast<double>(tokens.size())));
  }
  return vector;
}

class LabelEncoderTest : public testing::Test {
 protected:
  LabelEncoderTest() {
    const std::shared_ptr<const Model> model = LabelModel();
    auto created = LabelEncoder::Create(model, backend_.Load(model).value(), kPageTokens, &clock_);
    EXPECT_TRUE(created.ok()) << created.status();
    encoder_ = *std::move(created);
  }

  // Returns the vectors of the labels, and expects at most `most` steps.
  std::vector<float> Encode(const std::vector<std::string>& labels, int most = 1000) {
    std::vector<float> vectors;
    while (!encoder_->Find(labels, &vectors)) {
      EXPECT_GT(most--, 0) << "too many steps";
      const absl::Status status = encoder_->ComputeSome(labels);
      EXPECT_TRUE(status.ok()) << status;
      if (!status.ok() || most < 0) break;
    }
    return vectors;
  }

  FakeBackend backend_;
  FakeClock clock_;
  std::unique_ptr<LabelEncoder> encoder_;
};

TEST_F(LabelEncoderTest, EachLabelIsComputedOnceAndHasItsVectorNextToAnyOthers) {
  const auto seed = static_cast<uint32_t>(testing::UnitTest::GetInstance()->random_seed());
  std::mt19937 random(seed);
  std::map<std::string, std::vector<float>> seen;
  for (int request = 0; request < 60; ++request) {
    std::vector<std::string> labels;
    for (size_t i = 0, count = 1 + random() % 12; i < count; ++i) {
      std::string label(1 + random() % 40, static_cast<char>('a' + random() % 4));
      if (std::ranges::find(labels, label) == labels.end()) labels.push_back(std::move(label));
    }
    const std::vector<float> vectors = Encode(labels);
    ASSERT_EQ(vectors.size(), labels.size() * kWidth);
    for (size_t i = 0; i < labels.size(); ++i) {
      const auto begin = vectors.begin() + static_cast<int64_t>(i) * kWidth;
      seen[labels[i]] = {begin, begin + kWidth};
    }
  }
  EXPECT_EQ(encoder_->computed(), std::ssize(seen)) << "seed " << seed;
  for (const auto& [label, vector] : seen) EXPECT_EQ(vector, VectorOf(label)) << label;
}

TEST_F(LabelEncoderTest, ManyLabelsTakeSeveralSteps) {
  std::vector<std::string> labels;
  for (int i = 0; i < 128; ++i) labels.push_back(absl::StrCat(i, std::string(50, 'x')));
  const std::vector<float> vectors = Encode(labels, 128);
  for (int64_t i = 0; i < 128; ++i) {
    const auto begin = vectors.begin() + i * kWidth;
    EXPECT_EQ(std::vector<float>(begin, begin + kWidth), VectorOf(labels[i]));
  }
  EXPECT_EQ(encoder_->computed(), 128);
}

TEST_F(LabelEncoderTest, KeepsTheLabelsThatWereUsedLast) {
  constexpr int kMany = 3000;
  Encode({"first", "second"});
  for (int i = 0; i < kMany; ++i) Encode({"second", absl::StrCat(i)});
  EXPECT_EQ(encoder_->computed(), 2 + kMany);
  const int64_t room = encoder_->memory().activation_room;
  Encode({"second"});
  EXPECT_EQ(encoder_->computed(), 2 + kMany);
  EXPECT_EQ(Encode({"first"}), VectorOf("first"));
  EXPECT_EQ(encoder_->computed(), 3 + kMany);
  EXPECT_EQ(encoder_->memory().activation_room, room);
}

TEST_F(LabelEncoderTest, ReturnsTheErrorOfTheDeviceAndComputesTheLabelLater) {
  backend_.OnReplay([](const RecordedBatch&) { return absl::InternalError("no device"); });
  EXPECT_EQ(encoder_->ComputeSome({"a"}), absl::InternalError("no device"));
  std::vector<float> vectors;
  EXPECT_FALSE(encoder_->Find({"a"}, &vectors));
  EXPECT_TRUE(vectors.empty());
  backend_.OnReplay(nullptr);
  EXPECT_EQ(Encode({"a"}), VectorOf("a"));
}

// Returns a model whose rows have no labels. All weights of its head are 0, so each part has the
// score 0.5.
std::shared_ptr<const Model> PartsModel(std::shared_ptr<const Model> labels) {
  auto model = std::make_shared<Model>();
  model->name = "parts";
  model->config = FakeConfig();
  model->config.causal = false;
  model->config.xsa = {};
  model->config.hidden_size = kWidth;
  model->config.serving.extraction = {.width = kWidth, .max_width = 1, .max_words = 60};
  const auto zeros = [](int64_t rows, int64_t columns) {
    static const std::vector<float> all(16 * kWidth * kWidth);
    const auto tensor = [](std::vector<int64_t> shape) {
      return Tensor{.dtype = kernels::DType::kF32, .shape = std::move(shape), .data = all.data()};
    };
    return SpanWeights::Linear{.weight = tensor({rows, columns}), .bias = tensor({rows})};
  };
  const auto projection = [&](int64_t in) {
    return SpanWeights::Projection{.in = zeros(4 * kWidth, in), .out = zeros(kWidth, 4 * kWidth)};
  };
  SpanWeights& weights = model->spans.emplace();
  weights.start = weights.end = weights.label.projection = projection(kWidth);
  weights.span = projection(2 * kWidth);
  model->labels = std::move(labels);
  return model;
}

// An engine that serves a model whose rows have no labels.
class EncodedLabelsTest : public testing::Test {
 protected:
  EncodedLabelsTest() {
    engine_ = Engine::Create(SmallOptions(), &backend_, &clock_, &observer_);
    const absl::Status served = engine_->Serve(model_);
    EXPECT_TRUE(served.ok()) << served;
    backend_.ForgetBatches();
  }

  // Submits a request for the labels of texts of `words` words.
  std::shared_ptr<RecordingSink> Submit(const std::vector<std::string>& labels,
                                        const std::vector<int32_t>& words) {
    std::vector<std::vector<int32_t>> rows;
    for (const int32_t count : words) rows.emplace_back(count + 2, 300 % 97);
    Request request = RequestOf(model_, rows, /*max_tokens=*/0);
    request.outputs = kOutputExtraction;
    Mutable(request.spec).extraction = {.labels = labels, .threshold = 0.4f};
    request.vectors.begin.push_back(0);
    for (const int32_t count : words) {
      for (int32_t i = 1; i <= count; ++i) request.vectors.values.push_back(i);
      request.vectors.begin.push_back(static_cast<int32_t>(request.vectors.values.size()));
    }
    auto sink = std::make_shared<RecordingSink>();
    const auto id = engine_->Submit(std::move(request), sink, clock_.Now());
    EXPECT_TRUE(id.ok()) << id.status();
    return sink;
  }

  // Returns how often the label was computed.
  int64_t Computed(const std::string& label) const {
    int64_t count = 0;
    for (const RecordedBatch& batch : backend_.batches()) {
      count += std::ranges::count(batch.sequences, TokensOf(label));
    }
    return count;
  }

  FakeClock clock_;
  RecordingObserver observer_;
  FakeBackend backend_;
  const std::shared_ptr<const Model> model_ = PartsModel(LabelModel());
  std::unique_ptr<Engine> engine_;
};

TEST_F(EncodedLabelsTest, LabelsThatTextsShareAreComputedOnce) {
  const std::vector<std::vector<std::string>> requests = {
      {"city", "person"}, {"person", "date"}, {"date"}, {"city", "date", "person"}};
  for (const std::vector<std::string>& labels : requests) {
    const auto sink = Submit(labels, {3, 5, 0});
    sink->AwaitDone();
    ASSERT_TRUE(sink->status().ok()) << sink->status();
    const Reply reply = sink->reply();
    ASSERT_EQ(reply.extracted.size(), 3u);
    EXPECT_EQ(reply.extracted[0].size(), 3u);
    EXPECT_EQ(reply.extracted[1].size(), 5u);
    EXPECT_TRUE(reply.extracted[2].empty());
  }
  for (const char* const label : {"city", "person", "date"}) EXPECT_EQ(Computed(label), 1) << label;
}

TEST_F(EncodedLabelsTest, AFailureOfTheEncoderEndsTheRequestAndNoLaterOne) {
  backend_.OnReplay([](const RecordedBatch& batch) {
    const bool label = std::ranges::count(batch.sequences, TokensOf("city")) > 0;
    return label ? absl::InternalError("no device") : absl::OkStatus();
  });
  const auto failed = Submit({"city"}, {2});
  failed->AwaitDone();
  EXPECT_EQ(failed->status(), absl::InternalError("no device"));
  const auto other = Submit({"person"}, {2});
  other->AwaitDone();
  EXPECT_TRUE(other->status().ok()) << other->status();
  backend_.OnReplay(nullptr);
  const auto again = Submit({"city"}, {2});
  again->AwaitDone();
  EXPECT_TRUE(again->status().ok()) << again->status();
}

TEST_F(EncodedLabelsTest, AFailureOfTheEncoderIsCountedAndHasAReason) {
  const auto fail = [this](const absl::Status& error) {
    backend_.OnReplay([error](const RecordedBatch&) { return error; });
    const auto failed = Submit({"city"}, {2});
    failed->AwaitDone();
    return ReasonOf(failed->status());
  };
  EXPECT_EQ(fail(absl::UnavailableError("an illegal access")), Reason::kDeviceLost);
  EXPECT_EQ(fail(absl::ResourceExhaustedError("out of memory")), Reason::kDeviceMemory);
  EXPECT_THAT(observer_.step_failures(), testing::ElementsAre(1, 2));
  backend_.OnReplay(nullptr);
  Submit({"city"}, {2})->AwaitDone();
  EXPECT_EQ(observer_.recoveries(), 1);
}

// The first model would otherwise take the memory of the second one's encoder.
TEST_F(EncodedLabelsTest, ModelsThatStartTogetherLeaveRoomForTheWeightsOfTheEncoder) {
  const auto room_of_first = [&](int64_t rows) {
    const std::shared_ptr<Model> labels = LabelModel();
    EmbedOp table{};
    table.table.shape = {rows, kWidth};
    labels->graph.ops.emplace_back(table);
    FakeBackend backend({.activation_bytes_per_token = 200, .free_memory = 1 << 20});
    EngineOptions options = SmallOptions();
    options.batch.max_batch_tokens = 0;
    const auto engine = Engine::Create(options, &backend, &clock_, &observer_);
    const absl::Status status = engine->Exchange(
        {.serve = {FakeModel(FakeConfig(), "first"), PartsModel(labels)}, .withdraw = {}});
    EXPECT_TRUE(status.ok()) << status;
    const std::vector<ModelStats> stats = engine->Stats();
    return stats.front().slot_memory.activation_room + stats.front().slot_memory.kv;
  };
  const int64_t weights = int64_t{30'000} * kWidth * 4;  // of the table
  EXPECT_LE(room_of_first(30'000), ((1 << 20) - weights) / 2);
  EXPECT_GT(room_of_first(256), ((1 << 20) - weights) / 2);
}

TEST_F(EncodedLabelsTest, TheStatisticsCountTheEncoder) {
  const std::vector<ModelStats> stats = engine_->Stats();
  ASSERT_EQ(stats.size(), 1u);
  EXPECT_EQ(stats.front().weight_bytes, 2 * 1000);  // the fake's weights, for each model
}

}  // namespace
}  // namespace sluice
