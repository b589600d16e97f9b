#include "loadtest/load/answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::load {
namespace {

inference::ModelInferResponse Response(const std::string& name,
                                       const std::vector<std::string>& raw) {
  inference::ModelInferResponse response;
  for (const std::string& contents : raw) {
    auto* output = response.add_outputs();
    output->set_name(name);
    output->set_datatype("INT32");
    output->add_shape(1);
    response.add_raw_output_contents(contents);
  }
  return response;
}

std::vector<Payload> Payloads(const std::vector<uint64_t>& keys) {
  std::vector<Payload> payloads;
  payloads.reserve(keys.size());
  for (uint64_t key : keys) payloads.push_back({grpc::Slice(), key, 1});
  return payloads;
}

TEST(HashAnswer, DependsOnlyOnOutputs) {
  const inference::ModelInferResponse response = Response("a", {"xy", "z"});
  inference::ModelInferResponse named = response;
  named.set_id("7");
  named.set_model_version("2");
  EXPECT_EQ(HashAnswer(response), HashAnswer(named));
  EXPECT_NE(HashAnswer(response), HashAnswer(Response("b", {"xy", "z"})));
  EXPECT_NE(HashAnswer(response), HashAnswer(Response("a", {"x", "yz"})));
  inference::ModelInferResponse shaped = response;
  shaped.mutable_outputs(0)->set_shape(0, 2);
  EXPECT_NE(HashAnswer(response), HashAnswer(shaped));
}

TEST(AnswerBook, AnswersMustStayTheSame) {
  AnswerBook book;
  book.Prepare(Payloads({11, 12}));
  EXPECT_TRUE(book.Agrees(0, 5));
  EXPECT_TRUE(book.Agrees(1, 6));
  EXPECT_TRUE(book.Agrees(0, 5));
  EXPECT_FALSE(book.Agrees(0, 6));
  book.Prepare(Payloads({11, 12, 13}));
  EXPECT_FALSE(book.Agrees(1, 5)) << "recorded answers remain after the pool has grown";
  EXPECT_TRUE(book.Agrees(2, 9));
}

TEST(AnswerBook, CanBeWrittenAndReadBack) {
  AnswerBook book;
  book.Prepare(Payloads({11, 12, 13}));
  book.Agrees(0, 0xfedcba9876543210);
  book.Agrees(2, 6);
  const auto read = AnswerBook::Parse(book.Text());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ((*read)->known(), 2);
  (*read)->Prepare(Payloads({13, 14, 11}));
  EXPECT_EQ((*read)->matched(), 2);
  EXPECT_TRUE((*read)->Agrees(0, 6));
  EXPECT_FALSE((*read)->Agrees(2, 6));
  EXPECT_TRUE((*read)->Agrees(1, 3)) << "this request has no recorded answer";
}

TEST(AnswerBook, RefusesOtherFiles) {
  for (const char* text :
       {"", "hello\n", "sluice-load answers 1\nzz 1\n", "sluice-load answers 1\n1\n",
        "sluice-load answers 1\n1 0\n", "sluice-load answers 1\n11111111111111111 1\n"}) {
    EXPECT_EQ(AnswerBook::Parse(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace sluice::load
