#include "loadtest/load/payload.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <string>

#include "proto/inference.pb.h"

namespace sluice::load {
namespace {

std::vector<Arrival> Arrivals(const std::vector<int32_t>& tokens, int32_t max_tokens = 0) {
  std::vector<Arrival> arrivals;
  arrivals.reserve(tokens.size());
  for (int32_t each : tokens) arrivals.push_back({nanoseconds{0}, each, max_tokens});
  return arrivals;
}

inference::ModelInferRequest Parse(const Payload& payload) {
  inference::ModelInferRequest request;
  EXPECT_TRUE(
      request.ParseFromArray(payload.bytes.begin(), static_cast<int>(payload.bytes.size())));
  return request;
}

TEST(PayloadPool, MakesEachRequestOnce) {
  PayloadOptions options;
  options.variants = 2;
  PayloadPool pool(options);
  const auto assigned = pool.Assign(Arrivals({5, 5, 5, 5, 9}));
  ASSERT_TRUE(assigned.ok());
  EXPECT_EQ(*assigned, (std::vector<uint32_t>{0, 1, 0, 1, 2}));
  EXPECT_EQ(*pool.Assign(Arrivals({9, 5, 6})), (std::vector<uint32_t>{2, 0, 3}))
      << "a later phase uses the same requests";
  std::set<uint64_t> keys;
  for (const Payload& payload : pool.payloads()) keys.insert(payload.key);
  EXPECT_EQ(keys.size(), 4u);
}

TEST(PayloadPool, VariesEveryRequestByDefault) {
  PayloadPool pool({});
  const auto assigned = pool.Assign(Arrivals(std::vector<int32_t>(300, 24)));
  ASSERT_TRUE(assigned.ok()) << assigned.status();
  std::set<uint64_t> keys;
  for (uint32_t index : *assigned) keys.insert(pool.payloads()[index].key);
  EXPECT_EQ(keys.size(), 300u);
}

TEST(PayloadPool, WritesRawContents) {
  PayloadOptions options;
  options.model = "m";
  options.version = "3";
  options.vocab = 10;
  options.outputs = {"logprobs"};
  options.parameters = {{"priority", "1"}, {"flag", "true"}, {"mode", "fast"}};
  PayloadPool pool(options);
  ASSERT_TRUE(pool.Assign(Arrivals({7}, 12)).ok());
  const inference::ModelInferRequest request = Parse(pool.payloads()[0]);
  EXPECT_EQ(request.model_name(), "m");
  EXPECT_EQ(request.model_version(), "3");
  EXPECT_EQ(request.id(), "") << "a stream appends an id to each message";
  EXPECT_EQ(request.parameters().at("max_tokens").int64_param(), 12);
  EXPECT_EQ(request.parameters().at("priority").int64_param(), 1);
  EXPECT_TRUE(request.parameters().at("flag").bool_param());
  EXPECT_EQ(request.parameters().at("mode").string_param(), "fast");
  EXPECT_EQ(request.outputs(0).name(), "logprobs");
  EXPECT_EQ(request.inputs(0).shape_size(), 2);
  EXPECT_EQ(request.inputs(0).shape(1), 7);
  ASSERT_EQ(request.raw_input_contents(0).size(), 28u);
  for (int i = 0; i < 7; ++i) {
    int32_t id = -1;
    std::memcpy(&id, request.raw_input_contents(0).data() + 4 * i, 4);
    EXPECT_GE(id, 0);
    EXPECT_LT(id, 10);
  }
}

TEST(PayloadPool, DrawsAnAdapterForEachRequest) {
  PayloadOptions options;
  options.model = "m";
  options.adapters = 3;
  PayloadPool pool(options);
  ASSERT_TRUE(pool.Assign(Arrivals(std::vector<int32_t>(300, 7))).ok());
  std::map<std::string, int> calls;
  for (const Payload& payload : pool.payloads()) ++calls[Parse(payload).model_name()];
  EXPECT_EQ(calls.size(), 3u);
  for (const std::string name : {"m:a0", "m:a1", "m:a2"}) EXPECT_GT(calls[name], 60) << name;
}

TEST(PayloadPool, WritesTypedContentsForModelsWithoutRows) {
  PayloadOptions options;
  options.typed = true;
  options.int64 = true;
  options.batch_dimension = false;
  PayloadPool pool(options);
  ASSERT_TRUE(pool.Assign(Arrivals({7}, -1)).ok());
  const inference::ModelInferRequest request = Parse(pool.payloads()[0]);
  EXPECT_EQ(request.parameters_size(), 0) << "-1 omits max_tokens";
  EXPECT_EQ(request.inputs(0).datatype(), "INT64");
  EXPECT_EQ(request.inputs(0).shape_size(), 1);
  EXPECT_EQ(request.inputs(0).contents().int64_contents_size(), 7);
  EXPECT_EQ(request.raw_input_contents_size(), 0);
}

TEST(PayloadPool, KeyDependsOnlyOnTheOptions) {
  PayloadOptions options;
  options.parameters = {{"a", "1"}, {"b", "2"}, {"c", "3"}};
  PayloadPool one(options);
  PayloadPool same(options);
  options.seed = 2;
  PayloadPool other(options);
  for (PayloadPool* pool : {&one, &same, &other}) ASSERT_TRUE(pool->Assign(Arrivals({40})).ok());
  EXPECT_EQ(one.payloads()[0].key, same.payloads()[0].key);
  EXPECT_NE(one.payloads()[0].key, other.payloads()[0].key);
}

}  // namespace
}  // namespace sluice::load
