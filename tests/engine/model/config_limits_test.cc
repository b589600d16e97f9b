// Tests that the limits of a config are accepted, and that one more is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "engine/model/config.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

struct ConfigLimitRow {
  const char* name;
  json (*patch)(int64_t value);  // a JSON merge patch of a small config
  int64_t limit;
  const char* error;
};
class ConfigLimitTable : public TableTest<ConfigLimitRow> {
 protected:
  static absl::Status StatusWith(int64_t value) {
    json config = json::parse(testing::ConfigJson(testing::TinyConfig(1)));
    config.merge_patch(row().patch(value));
    return ParseModelConfig(config.dump()).status();
  }
};

TEST_P(ConfigLimitTable, IsInTheRange) {
  EXPECT_EQ(StatusWith(row().limit), absl::OkStatus());
  EXPECT_THAT(std::string(StatusWith(row().limit + 1).message()), HasSubstr(row().error));
}

const ConfigLimitRow kConfigLimitRows[] = {
    {.name = "TokensThatEndAText",
     .patch =
         [](int64_t count) {
           std::vector<int64_t> ids(count);
           std::iota(ids.begin(), ids.end(), 0);
           return json{{"vocab_size", 1000}, {"eos_token_id", ids}};
         },
     .limit = 256,
     .error = "eos_token_id names 257 tokens; the limit is 256"},
    {.name = "TheWidthOfAHeadThatFollowsFromOthers",
     .patch =
         [](int64_t width) {
           return json{{"hidden_size", 4 * width}, {"head_dim", nullptr}};
         },
     .limit = 1024,
     .error = "head_dim is 1025, must be at most 1024"},
    {.name = "AnglesOfPositions",
     .patch =
         [](int64_t positions) {
           return json{{"max_position_embeddings", positions}, {"head_dim", 1024}};
         },
     .limit = 1 << 18,
     .error = "max_position_embeddings times head_dim is 268436480, must be at most 268435456"},
    {.name = "BiasesByDistance",
     .patch =
         [](int64_t positions) {
           return json{{"architectures", {"SluiceModel"}},
                       {"max_position_embeddings", positions},
                       {"num_attention_heads", 512},
                       {"num_key_value_heads", 512},
                       {"sluice",
                        {{"positions", {{"kind", "none"}}},
                         {"attention", {{"causal", false}, {"alibi", true}}}}}};
         },
     .limit = 1 << 18,
     .error = "max_position_embeddings times 2 times the 512 heads is 268436480, must be at most "
              "268435456 for a bias by distance"},
    {.name = "BiasesOfT5ByDistance",
     .patch =
         [](int64_t positions) {
           return json{{"architectures", {"T5EncoderModel"}},
                       {"d_model", 32},
                       {"d_ff", 32},
                       {"d_kv", 8},
                       {"num_layers", 1},
                       {"num_heads", 512},
                       {"n_positions", positions},
                       {"num_attention_heads", nullptr},
                       {"head_dim", nullptr},
                       {"sluice", nullptr}};
         },
     .limit = 1 << 18,
     .error = "n_positions times 2 times the 512 heads is 268436480, must be at most 268435456"},
};
SLUICE_TABLE(ConfigLimitTable, kConfigLimitRows);

}  // namespace
}  // namespace sluice
