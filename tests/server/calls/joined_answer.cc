#include "tests/server/calls/joined_answer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "tests/server/protocol/messages.h"

namespace sluice::testing {
namespace {

// Appends each row of a [rows, most, ..] tensor of 4-byte elements, without its padding.
void AddTokens(const std::string& name, const std::string& raw, const std::vector<int32_t>& counts,
               std::vector<std::string>* rows) {
  rows->resize(counts.size());
  const int32_t most = *std::max_element(counts.begin(), counts.end());
  if (most == 0) {
    EXPECT_TRUE(raw.empty()) << name;
    return;
  }
  const size_t width = raw.size() / counts.size();
  const size_t token = width / most;
  ASSERT_EQ(token * most * counts.size(), raw.size()) << name;
  const bool ids = name.find("ids") != std::string::npos;
  for (size_t row = 0; row < counts.size(); ++row) {
    const size_t live = counts[row] * token;
    (*rows)[row] += raw.substr(row * width, live);
    for (int32_t padding : Values<int32_t>(raw.substr(row * width + live, width - live))) {
      EXPECT_EQ(padding, ids ? -1 : 0) << name;
    }
  }
}

void AddTexts(const std::string& raw, size_t count, std::vector<std::string>* rows) {
  rows->resize(count);
  size_t at = 0;
  for (std::string& row : *rows) {
    uint32_t size = 0;
    ASSERT_LE(at + sizeof(size), raw.size());
    std::memcpy(&size, raw.data() + at, sizeof(size));
    at += sizeof(size);
    ASSERT_LE(at + size, raw.size());
    row += raw.substr(at, size);
    at += size;
  }
  EXPECT_EQ(at, raw.size());
}

}  // namespace

void JoinedAnswer::Add(const inference::ModelInferResponse& response) {
  const std::set<std::string> of_tokens = {"output_ids", "logprobs", "top_ids", "top_logprobs"};
  const auto counts = Values<int32_t>(RawOutput(response, "sequence_length"));
  ASSERT_FALSE(counts.empty());
  for (int i = 0; i < response.outputs_size(); ++i) {
    const std::string& name = response.outputs(i).name();
    const std::string& raw = response.raw_output_contents(i);
    if (name == "sequence_length") continue;
    if (of_tokens.contains(name)) {
      AddTokens(name, raw, counts, &tokens[name]);
    } else if (name == "text_output" || name == "finish_reason") {
      AddTexts(raw, counts.size(), &texts[name]);
    } else {
      EXPECT_TRUE(others.emplace(name, raw).second) << name << " came twice";
    }
  }
}

}  // namespace sluice::testing
