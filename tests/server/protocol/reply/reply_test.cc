#include "server/protocol/reply/reply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "tests/server/calls/joined_answer.h"
#include "tests/server/protocol/messages.h"
#include "tests/support/request_spec.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::RawOutput;
using testing::ShapeOf;
using testing::Values;

ReplySpec Spec(std::vector<int32_t> lengths, std::vector<Output> outputs) {
  auto request = std::make_shared<RequestSpec>();
  request->model = testing::TextModel("m", 3);
  request->id = "abc";
  request->lengths = std::move(lengths);
  return {.request = std::move(request), .outputs = std::move(outputs)};
}

TokenBuffer Buffer(const std::vector<GeneratedToken>& tokens, int32_t num_top = 0) {
  TokenBuffer buffer;
  buffer.Append(tokens.data(), static_cast<int>(tokens.size()), num_top);
  return buffer;
}

inference::ModelInferResponse Whole(ReplySpec spec, const std::vector<GeneratedToken>& tokens,
                                    const Reply& reply) {
  inference::ModelInferResponse response;
  const int32_t num_top = spec.request->num_top;
  ReplyBuilder(std::move(spec)).Build(Buffer(tokens, num_top), &reply, &response);
  return response;
}

const std::vector<Output> kDefaults = {Output::kOutputIds, Output::kSequenceLength,
                                       Output::kLogprobs, Output::kFinishReason,
                                       Output::kTextOutput};

TEST(ReplyTest, RowsOfDifferentLengthsArePadded) {
  const std::vector<GeneratedToken> tokens = {
      {0, 0, 'a', -1}, {2, 0, 'x', -4}, {0, 1, 'b', -2}, {2, 1, 'y', -5}, {2, 2, 'z', -6}};
  Reply reply;
  reply.finish = {FinishReason::kStop, FinishReason::kStop, FinishReason::kLength};
  const inference::ModelInferResponse response = Whole(Spec({1, 2, 1}, kDefaults), tokens, reply);

  EXPECT_EQ(response.model_name(), "m");
  EXPECT_EQ(response.model_version(), "3");
  EXPECT_EQ(response.id(), "abc");
  EXPECT_EQ(response.outputs_size(), response.raw_output_contents_size());
  EXPECT_THAT(ShapeOf(response, "output_ids"), ElementsAre(3, 3));
  EXPECT_THAT(Values<int32_t>(RawOutput(response, "output_ids")),
              ElementsAre('a', 'b', -1, -1, -1, -1, 'x', 'y', 'z'));
  EXPECT_THAT(Values<float>(RawOutput(response, "logprobs")),
              ElementsAre(-1, -2, 0, 0, 0, 0, -4, -5, -6));
  EXPECT_THAT(Values<int32_t>(RawOutput(response, "sequence_length")), ElementsAre(2, 0, 3));
  EXPECT_EQ(RawOutput(response, "finish_reason"), testing::BytesElement("stop") +
                                                      testing::BytesElement("stop") +
                                                      testing::BytesElement("length"));
  EXPECT_EQ(RawOutput(response, "text_output"),
            testing::BytesElement("ab") + testing::BytesElement("") + testing::BytesElement("xyz"));
  EXPECT_EQ(response.outputs(3).datatype(), "BYTES");
  EXPECT_THAT(ShapeOf(response, "text_output"), ElementsAre(3, 1));
}

TEST(ReplyTest, ScoringReturnsAnEntryForEveryEmptyOutput) {
  Reply reply;
  reply.finish = {FinishReason::kNone};
  reply.prompt_logprobs = {0, -1, -2};
  std::vector<Output> outputs = kDefaults;
  outputs.push_back(Output::kPromptLogprobs);
  const inference::ModelInferResponse response = Whole(Spec({3}, outputs), {}, reply);
  EXPECT_EQ(response.raw_output_contents_size(), 6);
  EXPECT_THAT(ShapeOf(response, "output_ids"), ElementsAre(1, 0));
  EXPECT_THAT(RawOutput(response, "output_ids"), IsEmpty());
  EXPECT_THAT(Values<int32_t>(RawOutput(response, "sequence_length")), ElementsAre(0));
  EXPECT_EQ(RawOutput(response, "finish_reason"), testing::BytesElement(""));
  EXPECT_THAT(Values<float>(RawOutput(response, "prompt_logprobs")), ElementsAre(0, -1, -2));
}

TEST(ReplyTest, CandidatesOfRowsOfDifferentLengthsArePadded) {
  const int32_t ids[] = {5, 6, 7, 9, 8, 4};
  const float logprobs[] = {-5, -6, -7, -9, -8, -4};
  const std::vector<GeneratedToken> tokens = {{1, 0, 7, -1, ids + 2, logprobs + 2},
                                              {0, 0, 5, -1, ids, logprobs},
                                              {1, 1, 8, -1, ids + 4, logprobs + 4}};
  ReplySpec spec = Spec({1, 1}, {Output::kTopIds, Output::kTopLogprobs});
  Mutable(spec.request).num_top = 2;
  const inference::ModelInferResponse response = Whole(spec, tokens, {});
  EXPECT_THAT(ShapeOf(response, "top_ids"), ElementsAre(2, 2, 2));
  EXPECT_THAT(Values<int32_t>(RawOutput(response, "top_ids")),
              ElementsAre(5, 6, -1, -1, 7, 9, 8, 4));
  EXPECT_THAT(Values<float>(RawOutput(response, "top_logprobs")),
              ElementsAre(-5, -6, 0, 0, -7, -9, -8, -4));
}

// The tokens of the model are bytes.
TEST(ReplyTest, BytesOfTokensAndCandidatesArePaddedWithNothing) {
  const int32_t ids[] = {'e', 'f', 'g', 0xe2, 'h', 256};
  const float logprobs[] = {-1, -2, -3, -4, -5, -6};
  const std::vector<GeneratedToken> tokens = {{1, 0, 'g', -1, ids + 2, logprobs + 2},
                                              {0, 0, 'e', -1, ids, logprobs},
                                              {1, 1, 256, -1, ids + 4, logprobs + 4}};
  ReplySpec spec = Spec({1, 1}, {Output::kOutputBytes, Output::kTopBytes});
  Mutable(spec.request).num_top = 2;
  const inference::ModelInferResponse response = Whole(spec, tokens, {});
  const auto elements = [](std::initializer_list<const char*> texts) {
    std::string raw;
    for (const char* text : texts) raw += testing::BytesElement(text);
    return raw;
  };
  EXPECT_THAT(ShapeOf(response, "output_bytes"), ElementsAre(2, 2));
  EXPECT_EQ(RawOutput(response, "output_bytes"), elements({"e", "", "g", ""}));
  EXPECT_THAT(ShapeOf(response, "top_bytes"), ElementsAre(2, 2, 2));
  EXPECT_EQ(RawOutput(response, "top_bytes"), elements({"e", "f", "", "", "g", "\xe2", "h", ""}));
}

// Row 0 has generated tokens, so more positions were computed than its prompt has.
TEST(ReplyTest, DiagnosticsArePaddedPerLayer) {
  const std::vector<int32_t> lengths = {2, 3};
  const int64_t layers = 2, heads = 3, longest = 3;
  Reply reply;
  reply.xsa_positions = lengths;
  std::mt19937_64 random(7);
  for (int32_t length : lengths) {
    for (int64_t i = 0; i < layers * length * heads; ++i) {
      reply.xsa_cos_sim.push_back(static_cast<float>(1 + random() % 1000));
    }
  }
  const inference::ModelInferResponse response =
      Whole(Spec({1, 3}, {Output::kXsaCosSim}), {}, reply);
  EXPECT_THAT(ShapeOf(response, "xsa_cos_sim"), ElementsAre(2, layers, longest, heads));
  const std::vector<float> padded = Values<float>(RawOutput(response, "xsa_cos_sim"));
  ASSERT_EQ(padded.size(), 2u * layers * longest * heads);
  size_t from = 0;
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t layer = 0; layer < layers; ++layer) {
      for (int64_t at = 0; at < longest * heads; ++at) {
        const bool live = at < lengths[row] * heads;
        EXPECT_EQ(padded[((row * layers) + layer) * longest * heads + at],
                  live ? reply.xsa_cos_sim[from++] : 0);
      }
    }
  }
}

TEST(ReplyTest, LogitsAreCopiedUnchanged) {
  Reply reply;
  for (int i = 0; i < 2 * 258; ++i) reply.logits.push_back(static_cast<float>(i) / 3);
  const inference::ModelInferResponse response = Whole(Spec({1, 1}, {Output::kLogits}), {}, reply);
  EXPECT_THAT(ShapeOf(response, "logits"), ElementsAre(2, 258));
  EXPECT_EQ(Values<float>(RawOutput(response, "logits")), reply.logits);
}

// Results as an engine may deliver them for a request, in a possible order.
struct Told {
  std::vector<GeneratedToken> tokens;
  std::vector<int32_t> top_ids;
  std::vector<float> top_logprobs;
  Reply reply;
};

Told RandomTold(std::mt19937_64& random, int32_t rows, int32_t num_top) {
  const std::string words = "ab\xc3\xa9 \xe2\x82\xac\xf0\x9f\x99\x82stop\xff";
  Told told;
  std::vector<int32_t> lengths(rows), generated(rows);
  for (int32_t& length : lengths) length = static_cast<int32_t>(random() % 30);
  const size_t all = std::accumulate(lengths.begin(), lengths.end(), 0);
  for (size_t i = 0; i < all * num_top; ++i) {
    told.top_ids.push_back(static_cast<int32_t>(random() % 258));
    told.top_logprobs.push_back(-static_cast<float>(random() % 1000));
  }
  while (told.tokens.size() < all) {
    const int32_t row = static_cast<int32_t>(random() % rows);
    if (generated[row] == lengths[row]) continue;
    const int32_t index = generated[row]++;
    const size_t place = told.tokens.size() * num_top;
    told.tokens.push_back({row, index, static_cast<uint8_t>(words[(row + index) % words.size()]),
                           -static_cast<float>(random() % 100),
                           num_top == 0 ? nullptr : told.top_ids.data() + place,
                           num_top == 0 ? nullptr : told.top_logprobs.data() + place});
  }
  for (int32_t row = 0; row < rows; ++row) {
    told.reply.finish.push_back(random() % 2 == 0 ? FinishReason::kStop : FinishReason::kLength);
    for (int i = 0; i < 258; ++i) told.reply.logits.push_back(static_cast<float>(random() % 99));
  }
  return told;
}

// For any division of the tokens, the joined responses equal the single response.
TEST(ReplyTest, SeveralResponsesTogetherEqualOne) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    const int32_t rows = 1 + static_cast<int32_t>(random() % 4);
    ReplySpec spec = Spec(std::vector<int32_t>(rows, 1), kDefaults);
    spec.outputs.push_back(Output::kLogits);
    if (random() % 2 == 0) {
      Mutable(spec.request).num_top = 1 + static_cast<int32_t>(random() % 3);
      spec.outputs.insert(spec.outputs.end(), {Output::kTopIds, Output::kTopLogprobs});
    }
    if (random() % 2 == 0) Mutable(spec.request).stop.texts = {"top", "\xe2\x82\xac"};
    Mutable(spec.request).stop.min_tokens = static_cast<int32_t>(random() % 20);
    const Told told = RandomTold(random, rows, spec.request->num_top);
    testing::JoinedAnswer whole, joined;
    whole.Add(Whole(spec, told.tokens, told.reply));

    ReplyBuilder builder(spec);
    for (size_t from = 0; from < told.tokens.size();) {
      const size_t count = std::min<size_t>(1 + random() % 7, told.tokens.size() - from);
      const auto part = told.tokens.begin() + static_cast<int64_t>(from);
      inference::ModelInferResponse response;
      builder.Build(Buffer({part, part + static_cast<int64_t>(count)}, spec.request->num_top),
                    nullptr, &response);
      EXPECT_EQ(response.outputs_size(), response.raw_output_contents_size());
      joined.Add(response);
      from += count;
    }
    EXPECT_EQ(joined.others.count("logits"), 0u) << "belongs to the last response";
    inference::ModelInferResponse last;
    builder.Build({}, &told.reply, &last);
    joined.Add(last);
    EXPECT_EQ(joined, whole);
    if (HasFailure()) return;
  }
}

TEST(ReplyTest, TextEndsBeforeTheStopTextButIdsIncludeIt) {
  ReplySpec spec = Spec({1}, kDefaults);
  Mutable(spec.request).stop.texts = {"cd"};
  Reply reply;
  reply.finish = {FinishReason::kStop};
  const auto response =
      Whole(spec, {{0, 0, 'a', 0}, {0, 1, 'b', 0}, {0, 2, 'c', 0}, {0, 3, 'd', 0}}, reply);
  EXPECT_EQ(RawOutput(response, "text_output"), testing::BytesElement("ab"));
  EXPECT_THAT(Values<int32_t>(RawOutput(response, "output_ids")), ElementsAre('a', 'b', 'c', 'd'));
}

TEST(ReplyTest, APartialTextNeverEndsWithinACharacterOrAStopText) {
  ReplySpec spec = Spec({1}, kDefaults);
  Mutable(spec.request).stop.texts = {"xyz"};
  ReplyBuilder builder(spec);
  auto text_after = [&, index = 0](std::vector<int32_t> ids, const Reply* reply) mutable {
    std::vector<GeneratedToken> tokens;
    for (int32_t id : ids) tokens.push_back({0, index++, id, 0});
    inference::ModelInferResponse response;
    builder.Build(Buffer(tokens), reply, &response);
    return RawOutput(response, "text_output").substr(4);
  };
  EXPECT_EQ(text_after({'a', 0xe2, 0x82}, nullptr), "a");
  EXPECT_EQ(text_after({0xac, 'x', 'y'}, nullptr), "\xe2\x82\xac");
  EXPECT_EQ(text_after({'-'}, nullptr), "xy-");
  EXPECT_EQ(text_after({'x'}, nullptr), "");
  Reply reply;
  reply.finish = {FinishReason::kLength};
  EXPECT_EQ(text_after({}, &reply), "x");
}

TEST(ReplyTest, ADrawnSeedIsReturned) {
  ReplySpec spec = Spec({1}, {Output::kSequenceLength});
  EXPECT_EQ(Whole(spec, {}, {}).parameters().count("seed"), 0u);
  spec.drawn_seed = 1234;
  EXPECT_EQ(Whole(spec, {}, {}).parameters().at("seed").int64_param(), 1234);
}

TEST(ReplyTest, TheLastResponseCountsThePromptsTokens) {
  ReplyBuilder builder(Spec({1, 3}, {Output::kSequenceLength}));
  inference::ModelInferResponse part;
  builder.Build(Buffer({}), nullptr, &part);
  EXPECT_EQ(part.parameters().count("prompt_tokens"), 0u);
  Reply reply;
  reply.finish = {FinishReason::kLength, FinishReason::kLength};
  inference::ModelInferResponse last;
  builder.Build(Buffer({}), &reply, &last);
  EXPECT_EQ(last.parameters().at("prompt_tokens").int64_param(), 4);
}

}  // namespace
}  // namespace sluice
