#include "engine/parameter_table.h"

#include <gtest/gtest.h>

#include <set>

namespace sluice {
namespace {

std::string DefaultOf(std::string_view name) { return FindParameter(name)->DefaultText(); }
std::string RangeOf(std::string_view name) { return FindParameter(name)->RangeText(); }

TEST(ParameterTable, FindsEveryRowByItsName) {
  for (const ParameterInfo& info : RequestParameters()) {
    EXPECT_EQ(FindParameter(info.name), &info) << info.name;
  }
  for (const char* absent : {"", "a", "max_token", "max_tokens2", "zzz"}) {
    EXPECT_EQ(FindParameter(absent), nullptr) << absent;
  }
}

TEST(ParameterTable, NamesOfTheClientAreDistinct) {
  std::set<std::string_view> names;
  for (const ParameterInfo& info : RequestParameters()) {
    if (info.client_name.empty()) continue;
    EXPECT_TRUE(names.insert(info.client_name).second) << info.client_name;
  }
}

TEST(ParameterTable, DefaultsEqualTheDefaultsOfTheFields) {
  EXPECT_EQ(DefaultOf("top_p"), "1 (off)");
  EXPECT_EQ(DefaultOf("priority"), "2");
  EXPECT_EQ(DefaultOf("ignore_eos"), "false");
  EXPECT_EQ(DefaultOf("truncate"), "the model's sluice.truncate; without it error");
}

TEST(ParameterTable, EveryRowHasADefaultText) {
  for (const ParameterInfo& info : RequestParameters()) {
    EXPECT_FALSE(info.DefaultText().empty()) << info.name;
    EXPECT_FALSE(info.help.empty()) << info.name;
  }
}

TEST(ParameterTable, RangesAreWrittenAsIntervals) {
  EXPECT_EQ(RangeOf("temperature"), "0 or [0.001, 1000]");
  EXPECT_EQ(RangeOf("top_p"), "(0, 1]");
  EXPECT_EQ(RangeOf("top_k"), "[0, vocab]");
  EXPECT_EQ(RangeOf("timeout"), "[0, 86400000000]");
}

// Two rows that fill the same field would overwrite each other.
TEST(ParameterTable, EveryNumberHasItsOwnField) {
  RequestSpec spec;
  std::set<const void*> fields;
  for (const ParameterInfo& info : RequestParameters()) {
    std::visit(
        [&](auto field) {
          if constexpr (!std::is_same_v<decltype(field), StoreWord>) {
            EXPECT_TRUE(fields.insert(&field(spec)).second) << info.name;
          }
        },
        info.field);
  }
}

TEST(ParameterTable, WordsAreStoredAsTheirValues) {
  RequestSpec spec;
  const auto store = [&spec](std::string_view name, size_t word) {
    std::get<StoreWord>(FindParameter(name)->field)(spec, word);
  };
  store("candidate_activation", 1);
  store("activation", 2);
  store("pooling", 1);
  store("truncate", 2);
  EXPECT_EQ(spec.states.candidates, ScoreScale::kLogSoftmax);
  EXPECT_EQ(spec.states.scores, ScoreScale::kSigmoid);
  EXPECT_EQ(spec.states.pooling, Poolings(Pooling::kCls));
  EXPECT_EQ(spec.truncate, Truncation::kRight);
}

}  // namespace
}  // namespace sluice
