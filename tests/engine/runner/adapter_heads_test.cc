// Runs adapters with classifiers of their own through the engine, and compares their scores with
// PEFT (tests/goldens/adapter_heads).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "engine/engine.h"
#include "tests/engine/cpu/runner.h"
#include "tests/support/golden_file.h"
#include "tests/support/random_requests.h"
#include "tests/support/recording_observer.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;

std::vector<std::string> Goldens() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(testing::GoldenPath("adapter_heads"))) {
    names.push_back(entry.path().filename());
  }
  if (!testing::EffortOfTests().every_kind) {
    std::erase_if(names, [](const std::string& name) { return !name.ends_with("_1"); });
  }
  std::ranges::sort(names);
  return names;
}

bool OfTokens(const std::string& golden) { return golden.find("token") != golden.npos; }

// Returns the folder of the golden's model, as in "families/bert_1".
std::string BaseOf(const std::string& golden) {
  return testing::GoldenPath("families/" + golden.substr(0, golden.find('_')) +
                             golden.substr(golden.rfind('_')));
}

// Serves a golden model as "m" with these goldens as adapters of the same names.
class ServedHeads {
 public:
  ServedHeads(const std::vector<std::string>& goldens, EngineOptions options,
              const std::string& profile = testing::F32Profiles().back(),
              int64_t memory = kAdapterMemory) {
    for (const std::string& golden : goldens) {
      fs::copy(testing::GoldenPath("adapter_heads/" + golden), adapters_.File(golden));
    }
    auto model = LoadModel("m", 1, BaseOf(goldens.front()),
                           {.adapters = adapters_.path(), .adapter_memory_bytes = memory});
    EXPECT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    backend_ = testing::MakeBackendUnderTest({.threads = 2, .profile = profile, .poison = true});
    options.batch.max_batch_tokens = 128;
    options.batch.max_batch_sequences = 16;
    options.ladder.max_buckets = 2;
    options.queue.max_wait_us = 3'600'000'000;  // an emulator's steps may be slow
    engine_ = Engine::Create(options, backend_.get(), Clock::Real(), &observer_);
    const absl::Status status = engine_->Serve(model_);
    EXPECT_TRUE(status.ok()) << status;
  }

  // Returns a request of these rows with the adapter, or with the model if `adapter` is empty.
  Request RequestOf(const std::string& adapter, const std::vector<int32_t>& lengths,
                    std::vector<int32_t> tokens) const {
    auto named = engine_->Find(adapter.empty() ? "m" : "m:" + adapter, "");
    EXPECT_TRUE(named.ok()) << named.status();
    Request request;
    RequestSpec& spec = Mutable(request.spec);
    spec.model = named->model;
    spec.head = named->head;
    spec.adapter = adapter;
    spec.lengths = lengths;
    spec.max_tokens = 0;
    request.tokens = std::move(tokens);
    if (adapter.empty()) {
      request.outputs = kOutputTokenStates;
      if (model_->config.has_lm_head) request.outputs |= kOutputLogits;
    } else {
      request.outputs = OfTokens(adapter) ? kOutputTokenScores : kOutputScores;
    }
    return request;
  }

  // Returns the bytes of the loaded adapters.
  int64_t bytes() const { return engine_->Stats()[0].adapters.bytes; }
  std::string File(const std::string& name) const { return adapters_.File(name); }
  Engine* engine() const { return engine_.get(); }
  const std::shared_ptr<const Model>& model() const { return model_; }
  const RecordingObserver& observer() const { return observer_; }

 private:
  const TemporaryDirectory adapters_;
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Backend> backend_;
  RecordingObserver observer_;
  std::unique_ptr<Engine> engine_;
};

const std::vector<float>& ScoresOf(const std::string& golden, const Reply& reply) {
  return OfTokens(golden) ? reply.token_scores : reply.scores;
}

using Param = std::tuple<std::string, std::string>;  // golden, profile

class AdapterHeadGoldenTest : public ::testing::TestWithParam<Param> {};

TEST_P(AdapterHeadGoldenTest, ScoresEqualPeft) {
  const auto& [golden, profile] = GetParam();
  const testing::GoldenFile file(
      testing::GoldenPath("adapter_heads/" + golden + "/expected.safetensors"));
  const ServedHeads served({golden}, {}, profile);
  const auto head = served.engine()->Find("m:" + golden, "")->head;
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(head->labels, file.Shape("scores")[1]);
  EXPECT_EQ(head->of_tokens, OfTokens(golden));
  if (fs::exists(testing::GoldenPath("adapter_heads/" + golden + "/config.json"))) {
    ASSERT_EQ(std::ssize(head->names), head->labels);
    EXPECT_EQ(head->names.front(), "label 0");
  }
  const auto sink = SubmitTo(
      served.engine(), served.RequestOf(golden, file.Ints("lengths"), file.Ints("input_ids")));
  sink->AwaitDone();
  ASSERT_TRUE(sink->status().ok()) << sink->status();
  const Reply reply = sink->reply();
  const std::vector<float>& got = ScoresOf(golden, reply);
  const std::vector<float> expected = file.Floats("scores");
  ASSERT_EQ(got.size(), expected.size());
  float magnitude = 0;
  for (const float value : expected) magnitude = std::max(magnitude, std::abs(value));
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i], 1e-5 * magnitude) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, AdapterHeadGoldenTest,
                         ::testing::Combine(::testing::ValuesIn(Goldens()),
                                            ::testing::ValuesIn(testing::F32Profiles())),
                         [](const auto& test) {
                           return testing::TestName(std::get<0>(test.param) + "_" +
                                                    std::get<1>(test.param));
                         });

class AdapterHeadMixTest : public ::testing::TestWithParam<std::string> {};

// The rows of two classifiers and of the model itself are in one step.
TEST_P(AdapterHeadMixTest, AStepMixesHeadsAndTheModelWithTheBitsOfEachAlone) {
  const std::string& row_golden = GetParam();
  std::string token_golden = row_golden;
  token_golden.replace(token_golden.find("sequence"), 8, "token");
  EngineOptions options;
  const ServedHeads alone({row_golden, token_golden}, options);
  options.batch.policy = PolicyKind::kFifoPacked;
  options.batch.max_queue_delay_us = 3'600'000'000;  // the batch is full at the drain
  const ServedHeads together({row_golden, token_golden}, options);
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::vector<std::shared_ptr<RecordingSink>> expected, got;
  std::vector<std::string> adapters = {"", row_golden, token_golden};
  for (int i = 0; i < 9; ++i) adapters.push_back(adapters[random() % 3]);
  std::ranges::shuffle(adapters, random);
  for (const std::string& adapter : adapters) {
    const auto length = static_cast<int64_t>(1 + random() % 9);
    const std::vector<int32_t> tokens =
        testing::RandomTokens(random, length, alone.model()->config.vocab_size);
    const std::vector<int32_t> lengths = {static_cast<int32_t>(length)};
    got.push_back(SubmitTo(together.engine(), together.RequestOf(adapter, lengths, tokens)));
    expected.push_back(SubmitTo(alone.engine(), alone.RequestOf(adapter, lengths, tokens)));
    expected.back()->AwaitDone();
  }
  together.engine()->Drain(MonoTime::max());
  ASSERT_EQ(together.observer().batches().size(), 1u) << "all rows are in one step";
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSameAnswer(*expected[i], *got[i]);
    EXPECT_EQ(ScoresOf(adapters[i], got[i]->reply()).empty(), adapters[i].empty());
  }
}

std::vector<std::string> RowGoldens() {
  std::vector<std::string> goldens = Goldens();
  std::erase_if(goldens, OfTokens);
  return goldens;
}
INSTANTIATE_TEST_SUITE_P(Goldens, AdapterHeadMixTest, ::testing::ValuesIn(RowGoldens()),
                         [](const auto& test) { return testing::TestName(test.param); });

// A request is made for the labels of the adapter that its name had.
TEST(AdapterHeads, ARequestForOtherLabelsThanTheLoadedOnesIsRefused) {
  const std::string golden = "bert_sequenceclassification_1";
  const ServedHeads served({golden}, {});
  const std::shared_ptr<const Model>& model = served.model();
  const auto source = [&](int64_t labels) {
    return AdapterSource{
        golden, [&model, labels]() -> absl::StatusOr<std::shared_ptr<const Adapter>> {
          auto adapter = std::make_shared<Adapter>();
          const auto own = *model->adapters[0].read();
          adapter->name = own->name;
          adapter->rank = own->rank;
          adapter->head = own->head;
          auto config = std::make_shared<ClassifierConfig>(*own->head->config);
          if (labels > 0) config->names.assign(labels, "other");
          adapter->head->config = std::move(config);
          // The classifier reads the file of `own`.
          return std::shared_ptr<const Adapter>(adapter.get(), [adapter, own](const Adapter*) {});
        }};
  };
  const Request old = served.RequestOf(golden, {2}, {5, 6});
  ASSERT_EQ(served.engine()->LoadAdapter(*model, source(0)), absl::OkStatus());
  EXPECT_TRUE(
      served.engine()->Submit(old, std::make_shared<RecordingSink>(), Clock::Real()->Now()).ok())
      << "the labels are the same";
  ASSERT_EQ(served.engine()->LoadAdapter(*model, source(3)), absl::OkStatus());
  const absl::Status refused =
      served.engine()
          ->Submit(old, std::make_shared<RecordingSink>(), Clock::Real()->Now())
          .status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("was replaced during the call by an adapter with other labels"));
  const Request renewed = served.RequestOf(golden, {2}, {5, 6});
  const auto sink = SubmitTo(served.engine(), renewed);
  sink->AwaitDone();
  EXPECT_EQ(sink->status(), absl::OkStatus());
}

TEST(AdapterHeads, CountAsMemoryOfTheirAdapters) {
  const std::string golden = "roberta_sequenceclassification_1";
  const ServedHeads served({golden}, {});
  const auto own = *served.model()->adapters[0].read();
  const int64_t with_head = served.bytes();
  const AdapterSource without = {golden, [&]() -> absl::StatusOr<std::shared_ptr<const Adapter>> {
                                   auto adapter = *served.model()->adapters[0].read();
                                   const_cast<Adapter&>(*adapter).head.reset();
                                   return adapter;
                                 }};
  ASSERT_EQ(served.engine()->LoadAdapter(*served.model(), without), absl::OkStatus());
  EXPECT_EQ(with_head - served.bytes(), own->head->classifier.saved_bytes());
  EXPECT_GT(with_head, served.bytes());
  ASSERT_EQ(served.engine()->UnloadAdapter(*served.model(), golden), absl::OkStatus());
  EXPECT_EQ(served.bytes(), 0);
}

// The labels of an evicted adapter are known; if it has others when it is loaded again, requests
// that were made for the old ones fail.
TEST(AdapterHeads, AnEvictedAdapterIsLoadedAgainForRequestsOfTheSameLabels) {
  const std::string rows = "bert_sequenceclassification_1", tokens = "bert_tokenclassification_1";
  const ServedHeads all({rows, tokens}, {});
  const ServedHeads served({rows, tokens}, {}, testing::F32Profiles().back(), all.bytes() - 1);
  const auto answer = [&](const Request& request) {
    const auto sink = SubmitTo(served.engine(), request);
    sink->AwaitDone();
    return sink;
  };
  const Request of_rows = served.RequestOf(rows, {2}, {5, 6});
  const Request of_tokens = served.RequestOf(tokens, {2}, {5, 6});
  const auto first = answer(of_rows);
  ASSERT_TRUE(first->status().ok()) << first->status();
  EXPECT_TRUE(answer(of_tokens)->status().ok());
  EXPECT_EQ(answer(of_rows)->reply().scores, first->reply().scores);
  EXPECT_TRUE(answer(of_tokens)->status().ok());
  std::string names;
  for (int64_t i = 0; i < of_rows.spec->head->labels; ++i) {
    names += (i == 0 ? "\"" : ", \"") + std::to_string(i) + "\": \"other\"";
  }
  WriteTestFile(served.File(rows) + "/config.json", "{\"id2label\": {" + names + "}}");
  EXPECT_EQ(answer(of_rows)->status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(served.RequestOf(rows, {2}, {5, 6}).spec->head->names.front(), "other");
  EXPECT_EQ(answer(served.RequestOf(rows, {2}, {5, 6}))->reply().scores, first->reply().scores);
}

}  // namespace
}  // namespace sluice
