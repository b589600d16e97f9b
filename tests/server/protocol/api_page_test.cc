// Tests that docs/api.md has every tensor and every parameter that the code has.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/parameter_table.h"
#include "server/protocol/parameters/parameters.h"
#include "server/protocol/tensors/inputs.h"
#include "server/protocol/tensors/outputs.h"

namespace sluice {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

std::string Page() {
  std::ifstream file(SLUICE_API_PAGE);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_FALSE(text.str().empty()) << SLUICE_API_PAGE;
  return text.str();
}

TEST(ApiPageTest, PageHasEveryInputWithItsTypesAndShape) {
  const std::string page = Page();
  for (const InputInfo& info : Inputs()) {
    const std::string row = absl::StrCat("| `", View(info.name), "` | ", View(info.datatypes),
                                         " | `", View(info.shape), "` |");
    EXPECT_TRUE(absl::StrContains(page, row)) << row;
  }
}

TEST(ApiPageTest, PageHasEveryOutputWithItsTypeAndShape) {
  const std::string page = Page();
  for (const OutputInfo& info : Outputs()) {
    const std::string row = absl::StrCat("| `", View(info.name), "` | ", View(info.datatype),
                                         " | `", View(info.shape), "` |");
    EXPECT_TRUE(absl::StrContains(page, row)) << row;
  }
}

// Returns the value as a caller would write it.
std::string ValuesOf(const ParameterInfo& info) {
  const auto most = [&info] {
    return info.range.model_max == nullptr ? absl::StrCat("; at most ", info.range.max) : "";
  };
  switch (info.kind()) {
    case ParameterKind::kInteger:
    case ParameterKind::kReal:
      return info.RangeText();
    case ParameterKind::kUnsigned:
      return "[0, 2^64 - 1]";
    case ParameterKind::kDuration:
      return absl::StrCat(info.RangeText(), " microseconds");
    case ParameterKind::kSwitch:
      return "flag";
    case ParameterKind::kIds:
      return absl::StrCat("text, `[1, 2]` or `1,2`", most());
    case ParameterKind::kBiases:
      return absl::StrCat("text, JSON `{\"ID\": bias}`", most());
    case ParameterKind::kSpans:
      return absl::StrCat("text, JSON `[[[0, 12], ..], ..]`", most());
    case ParameterKind::kTexts:
      return absl::StrCat("text, or JSON `[\"text\", ..]`", most());
    case ParameterKind::kName:
      return "text";
    case ParameterKind::kWord:
      break;
  }
  std::string words;
  for (const std::string_view word : info.words) {
    absl::StrAppend(&words, words.empty() ? "`" : ", `", View(word), "`");
  }
  return words;
}

TEST(ApiPageTest, TheTableOfParametersEqualsTheCode) {
  std::string table = "| name | values | default | |\n| --- | --- | --- | --- |\n";
  for (const ParameterInfo& info : RequestParameters()) {
    absl::StrAppend(&table, "| `", View(info.name), "` | ", ValuesOf(info), " | ",
                    info.DefaultText(), " | ", View(info.help), " |\n");
  }
  EXPECT_TRUE(absl::StrContains(Page(), table + "\n")) << "docs/api.md should have\n" << table;
}

TEST(ApiPageTest, ValidationReadsEveryParameterOfTheTable) {
  const auto error_of = [](std::string_view name, absl::string_view text) {
    ParameterMap map;
    map[std::string(name)].set_string_param(std::string(text));
    RequestSpec spec;
    return std::string(ReadParameters(map, {}, &spec).message());
  };
  EXPECT_TRUE(absl::StrContains(error_of("no_such_parameter", ""), "unknown parameter"));
  for (const ParameterInfo& info : RequestParameters()) {
    EXPECT_FALSE(absl::StrContains(error_of(info.name, "\x01"), "unknown parameter")) << info.name;
  }
}

}  // namespace
}  // namespace sluice
