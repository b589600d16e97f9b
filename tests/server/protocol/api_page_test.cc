// docs/api.md has every tensor and every parameter that the code has.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/protocol/inputs.h"
#include "server/protocol/outputs.h"
#include "server/protocol/parameters.h"

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

TEST(ApiPageTest, HasEveryInputWithItsTypesAndShape) {
  const std::string page = Page();
  for (const InputInfo& info : Inputs()) {
    const std::string row = absl::StrCat("| `", View(info.name), "` | ", View(info.datatypes),
                                         " | `", View(info.shape), "` |");
    EXPECT_TRUE(absl::StrContains(page, row)) << row;
  }
}

TEST(ApiPageTest, HasEveryOutputWithItsTypeAndShape) {
  const std::string page = Page();
  for (const OutputInfo& info : Outputs()) {
    const std::string row = absl::StrCat("| `", View(info.name), "` | ", View(info.datatype),
                                         " | `", View(info.shape), "` |");
    EXPECT_TRUE(absl::StrContains(page, row)) << row;
  }
}

TEST(ApiPageTest, HasEveryParameter) {
  const std::string page = Page();
  for (const std::string_view name : ParameterNames()) {
    EXPECT_TRUE(absl::StrContains(page, absl::StrCat("| `", View(name), "` |"))) << name;
  }
}

// A name in the table is one that a request may use.
TEST(ApiPageTest, TheTableOfParametersIsTheReaders) {
  ParameterMap map;
  map["no_such_parameter"].set_string_param("");
  EXPECT_TRUE(absl::StrContains(ReadParameters(map, {}).status().message(), "unknown parameter"));
  for (const std::string_view name : ParameterNames()) {
    ParameterMap one;
    one[std::string(name)].set_string_param("\x01");
    const absl::Status status = ReadParameters(one, {}).status();
    EXPECT_FALSE(absl::StrContains(status.message(), "unknown parameter")) << name;
  }
}

}  // namespace
}  // namespace sluice
