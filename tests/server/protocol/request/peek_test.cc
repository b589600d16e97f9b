#include "server/protocol/request/peek.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>

#include "proto/inference.pb.h"
#include "tests/server/protocol/messages.h"

namespace sluice {
namespace {

using inference::ModelInferRequest;
using testing::IdsRequest;
using testing::SetInt;

TEST(PeekAtRequest, ReadsTheModel) {
  ModelInferRequest request = IdsRequest({1, 2, 3});
  request.set_model_name("text");
  request.set_model_version("7");
  request.set_id("id");
  SetInt(&request, "max_tokens", 4);
  const std::string bytes = request.SerializeAsString();
  const std::optional<RequestPeek> peek = PeekAtRequest(bytes);
  ASSERT_TRUE(peek.has_value());
  EXPECT_EQ(peek->model_name, "text");
  EXPECT_EQ(peek->model_version, "7");
}

TEST(PeekAtRequest, LeavesParametersThatAffectAdmissionToTheParser) {
  for (const char* name : {"priority", "timeout"}) {
    ModelInferRequest request = IdsRequest({1});
    SetInt(&request, name, 1);
    EXPECT_FALSE(PeekAtRequest(request.SerializeAsString()).has_value()) << name;
  }
}

TEST(PeekAtRequest, ReadsOnlyAFewFields) {
  ModelInferRequest request = IdsRequest({1});
  for (int i = 0; i < 64; ++i) request.add_outputs()->set_name("output_ids");
  EXPECT_FALSE(PeekAtRequest(request.SerializeAsString()).has_value());
}

// If a damaged message can be read, the result equals the parser's.
TEST(PeekAtRequest, AgreesWithTheParser) {
  constexpr uint64_t kSeed = 11;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  int peeks = 0, refusals = 0;
  for (int round = 0; round < 20'000; ++round) {
    ModelInferRequest request = IdsRequest({1, 2, 3});
    request.set_model_name(std::string(random() % 5, 'm'));
    if (random() % 2 == 0) request.set_model_version("2");
    if (random() % 4 == 0) SetInt(&request, "priority", 1);
    if (random() % 4 == 0) SetInt(&request, "timeout", 1);
    std::string bytes = request.SerializeAsString();
    for (uint64_t damage = random() % 3; damage > 0; --damage) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    bytes.resize(bytes.size() - random() % 2);
    const std::optional<RequestPeek> peek = PeekAtRequest(bytes);
    if (!peek.has_value()) {
      ++refusals;
      continue;
    }
    ModelInferRequest parsed;
    if (!parsed.ParseFromString(bytes)) continue;
    ++peeks;
    EXPECT_EQ(peek->model_name, parsed.model_name());
    EXPECT_EQ(peek->model_version, parsed.model_version());
    EXPECT_FALSE(parsed.parameters().contains("priority"));
    EXPECT_FALSE(parsed.parameters().contains("timeout"));
  }
  EXPECT_GT(peeks, 1000);
  EXPECT_GT(refusals, 1000);
}

TEST(PeekAtId, ReadsTheIdFromTheFirstBytes) {
  ModelInferRequest message = IdsRequest({1, 2, 3});
  message.set_id("request 7");
  const std::string bytes = message.SerializeAsString();
  EXPECT_EQ(PeekAtId(bytes), "request 7");
  const size_t end = bytes.find("request 7") + 9;
  EXPECT_EQ(PeekAtId(bytes.substr(0, end)), "request 7");
  EXPECT_EQ(PeekAtId(bytes.substr(0, end - 1)), "") << "a part of an id";
}

TEST(PeekAtId, ReturnsNothingThatAnAnswerCannotRepeat) {
  EXPECT_EQ(PeekAtId("\x1a\x01\xff"), "") << "not UTF-8";
  EXPECT_EQ(PeekAtId("\xff\xff"), "") << "not a message";
  ModelInferRequest message;
  message.set_id(std::string(kMostPeekedIdBytes, 'x'));
  EXPECT_EQ(PeekAtId(message.SerializeAsString()).size(), kMostPeekedIdBytes);
  message.set_id(std::string(kMostPeekedIdBytes + 1, 'x'));
  EXPECT_EQ(PeekAtId(message.SerializeAsString()), "");
}

}  // namespace
}  // namespace sluice
