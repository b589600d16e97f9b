// Tests of validation on valid requests with random damage. Validation returns for all bytes, and
// accepted requests have the invariants that the engine needs. Most useful with the address
// sanitizer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <set>

#include "server/calls/wire.h"
#include "server/protocol/request/validate.h"
#include "server/protocol/tensors/outputs.h"
#include "tests/server/protocol/messages.h"

namespace sluice {
namespace {

using inference::ModelInferRequest;

constexpr RequestLimits kLimits = {.max_rows = 8, .max_reply_bytes = 1 << 20};

ModelInferRequest RichRequest(std::mt19937_64& random) {
  const int64_t rows = 1 + static_cast<int64_t>(random() % 4);
  const int64_t columns = 1 + static_cast<int64_t>(random() % 20);
  std::vector<int32_t> ids(rows * columns);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 258);
  std::vector<int32_t> lengths(rows);
  for (int32_t& length : lengths) length = 1 + static_cast<int32_t>(random() % columns);
  ModelInferRequest request;
  request.set_model_name("text");
  request.set_id("id");
  if (random() % 3 == 0) {
    std::string texts;
    for (int64_t i = 0; i < rows; ++i) texts += testing::BytesElement("some text");
    testing::AddInput(&request, "text_input", "BYTES", {rows, 1}, texts);
  } else {
    testing::AddInput(&request, "input_ids", "INT32", {rows, columns}, testing::Bytes(ids));
    testing::AddInput(&request, "input_lengths", "INT32", {rows, 1}, testing::Bytes(lengths));
  }
  if (random() % 2 == 0) {
    testing::AddInput(&request, "exclude_ids", "INT32", {rows, 2},
                      testing::Bytes(std::vector<int32_t>(2 * rows, 9)));
    testing::AddInput(&request, "candidate_ids", "INT64", {rows, 1},
                      testing::Bytes(std::vector<int64_t>(rows, 257)));
    request.add_outputs()->set_name("candidate_scores");
    request.add_outputs()->set_name("embedding");
  }
  if (random() % 2 == 0) (*request.mutable_parameters())["truncate"].set_string_param("left");
  testing::SetInt(&request, "max_tokens", static_cast<int64_t>(random() % 40));
  testing::SetInt(&request, "num_top_logprobs", static_cast<int64_t>(random() % 5));
  (*request.mutable_parameters())["temperature"].set_string_param("0.5");
  auto& parameters = *request.mutable_parameters();
  parameters["logit_bias"].set_string_param("{\"3\": -1.5, \"250\": null}");
  parameters["allowed_token_ids"].set_string_param("3,4,5");
  parameters["stop_token_ids"].set_string_param("[4, 257]");
  parameters["stop"].set_string_param("[\"ab\", \"c\"]");
  if (random() % 2 == 0) request.add_outputs()->set_name("logits");
  if (random() % 2 == 0) request.add_outputs()->set_name("xsa_proj_frac");
  return request;
}

void ExpectGenerationInvariants(const Request& request) {
  const int64_t vocab = request.spec->model->config.vocab_size;
  std::set<int32_t> biased;
  for (const kernels::TokenBias& bias : request.spec->edits.bias) {
    EXPECT_TRUE(bias.token >= 0 && bias.token < vocab);
    EXPECT_TRUE(biased.insert(bias.token).second);
    EXPECT_FALSE(std::isnan(bias.bias));
  }
  for (const std::vector<int32_t>* ids : {&request.spec->edits.allowed, &request.spec->stop.ids}) {
    EXPECT_EQ(std::adjacent_find(ids->begin(), ids->end(), std::greater_equal<>()), ids->end());
    EXPECT_TRUE(ids->empty() || (ids->front() >= 0 && ids->back() < vocab));
  }
  for (const std::string& text : request.spec->stop.texts) EXPECT_FALSE(text.empty());
  EXPECT_LE(request.spec->stop.min_tokens, request.spec->max_tokens);
}

void ExpectItemInvariants(const Request& request) {
  for (const RowLists* lists : {&request.candidates, &request.excluded}) {
    if (lists->begin.empty()) continue;
    ASSERT_EQ(lists->begin.size(), static_cast<size_t>(request.rows()) + 1);
    EXPECT_EQ(lists->begin.back(), static_cast<int32_t>(lists->values.size()));
    for (const int32_t token : lists->values) {
      EXPECT_GE(token, lists == &request.candidates ? -1 : 0);
      EXPECT_LT(token, request.spec->model->config.vocab_size);
    }
  }
  for (int32_t row = 0; row < request.rows(); ++row) {
    const std::span<const int32_t> excluded = request.excluded.Of(row);
    EXPECT_EQ(std::adjacent_find(excluded.begin(), excluded.end(), std::greater_equal<>()),
              excluded.end());
    EXPECT_LE(request.spec->num_top + static_cast<int64_t>(excluded.size()),
              request.spec->model->config.vocab_size);
  }
}

void ExpectEngineInvariants(const ValidRequest& valid) {
  const Request& request = valid.request;
  const ModelConfig& config = request.spec->model->config;
  ASSERT_GE(request.rows(), 1);
  ASSERT_LE(request.rows(), kLimits.max_rows);
  int64_t total = 0;
  for (int32_t length : request.spec->lengths) {
    EXPECT_GE(length, 1);
    EXPECT_LE(length + request.spec->max_tokens, config.max_positions + 1);
    total += length;
  }
  EXPECT_EQ(total, static_cast<int64_t>(request.tokens.size()));
  for (int32_t token : request.tokens) {
    EXPECT_GE(token, 0);
    EXPECT_LT(token, config.vocab_size);
  }
  EXPECT_GE(request.spec->max_tokens, 0);
  EXPECT_GE(request.spec->num_top, 0);
  EXPECT_LE(request.spec->num_top, config.vocab_size);
  EXPECT_GE(request.spec->priority, 1);
  EXPECT_LE(request.spec->priority, kPriorityLevels);
  EXPECT_FALSE(valid.reply.outputs.empty());
  ExpectGenerationInvariants(request);
  ExpectItemInvariants(request);
}

TEST(ValidateFuzzTest, AcceptedDamagedMessagesKeepTheInvariants) {
  constexpr uint64_t kSeed = 20240611;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  const auto model = testing::TextModel();
  int parsed = 0, accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = RichRequest(random).SerializeAsString();
    for (uint64_t edits = random() % 5; edits > 0; --edits) {
      const size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
          break;
        case 2:
          bytes.erase(at, 1 + random() % 4);
          break;
        default:
          bytes.insert(at, 1 + random() % 4, static_cast<char>(random()));
      }
      if (bytes.empty()) break;
    }
    const grpc::Slice slice(bytes);
    ModelInferRequest message;
    if (!Parse(grpc::ByteBuffer(&slice, 1), &message).ok()) continue;
    ++parsed;
    const absl::StatusOr<ValidRequest> valid = Validate(message, kLimits, {.model = model});
    if (!valid.ok()) {
      EXPECT_EQ(valid.status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_FALSE(valid.status().message().empty());
      continue;
    }
    ++accepted;
    ExpectEngineInvariants(*valid);
    if (HasFailure()) return;
  }
  // Otherwise the damage would be too heavy or too light for a useful test.
  EXPECT_GT(accepted, 2'000);
  EXPECT_GT(parsed - accepted, 1'000);
  EXPECT_LT(parsed, 18'000);
}

// A part of a request that may change its rows, or that has a value for each row.
struct Feature {
  const char* name;
  std::function<void(ModelInferRequest*)> add;
};

Feature Number(const char* name, int64_t value) {
  return {name, [=](ModelInferRequest* message) { testing::SetInt(message, name, value); }};
}

Feature Word(const char* name, const char* value) {
  return {name, [=](ModelInferRequest* message) {
            (*message->mutable_parameters())[name].set_string_param(value);
          }};
}

Feature Items(const char* name) {
  return {name, [=](ModelInferRequest* message) {
            testing::AddInput(message, name, "INT32", {2, 3},
                              testing::Bytes<int32_t>({7, 8, 9, 10, 11, 12}));
          }};
}

Feature OutputNamed(const std::string& name) {
  return {"output", [=](ModelInferRequest* message) { message->add_outputs()->set_name(name); }};
}

// A model with all kinds of outputs of generators and of classifiers.
std::shared_ptr<Model> RichModel(bool of_tokens) {
  const auto model = std::const_pointer_cast<Model>(testing::TextModel());
  model->config.serving.classifier = {
      .labels = 2, .of_tokens = of_tokens, .names = {"bad", "good"}};
  model->config.serving.prompts = {{"query", "find: "}};
  return model;
}

// Every combination of features with every output. If a request is accepted, all of its lists must
// have the same rows: a text in windows has one row for each window.
TEST(ValidateFuzzTest, AcceptedCombinationsOfFeaturesHaveTheSameRowsEverywhere) {
  const std::vector<Feature> features = {
      Number("window_overlap", 4),
      Number("max_tokens", 1),
      Number("num_top_logprobs", 2),
      Word("truncate", "right"),
      Word("prompt_name", "query"),
      Items("exclude_ids"),
      Items("candidate_ids"),
      {"text_pair_input",
       [](ModelInferRequest* message) {
         testing::AddInput(message, "text_pair_input", "BYTES", {2, 1},
                           testing::BytesElement("c") + testing::BytesElement("d"));
       }},
  };
  int accepted = 0, windows = 0;
  for (const bool of_tokens : {false, true}) {
    const auto model = RichModel(of_tokens);
    std::vector<Feature> outputs = {{"the default outputs", [](ModelInferRequest*) {}}};
    for (const OutputInfo& info : Outputs()) {
      if (Has(*model, info)) outputs.push_back(OutputNamed(std::string(info.name)));
    }
    for (uint32_t chosen = 0; chosen < 1u << features.size(); ++chosen) {
      for (const Feature& output : outputs) {
        ModelInferRequest message;
        message.set_model_name("text");
        testing::AddInput(
            &message, "text_input", "BYTES", {2, 1},
            testing::BytesElement(std::string(200, 'a')) + testing::BytesElement("b"));
        for (size_t i = 0; i < features.size(); ++i) {
          if ((chosen >> i & 1u) != 0) features[i].add(&message);
        }
        output.add(&message);
        const auto valid = Validate(message, kLimits, {.model = model});
        if (!valid.ok()) continue;
        ++accepted;
        const bool split = !valid->reply.windows.counts.empty();
        windows += split;
        SCOPED_TRACE(message.ShortDebugString());
        EXPECT_EQ(valid->request.rows() > 2, split);
        ExpectEngineInvariants(*valid);
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(accepted, 200);
  EXPECT_GT(windows, 20);
}

TEST(RowListsDeathTest, RefusesARowThatItDoesNotHave) {
  const RowLists lists{.values = {5, 6}, .begin = {0, 1, 2}};
  EXPECT_EQ(lists.Of(1).front(), 6);
  EXPECT_DEATH(lists.Of(2), "broken invariant");
  EXPECT_DEATH(lists.Of(-1), "broken invariant");
}

}  // namespace
}  // namespace sluice
