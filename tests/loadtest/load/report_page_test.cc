#include "loadtest/load/report_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "loadtest/load/progress.h"

namespace sluice::load {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

json Report(const std::string& label) {
  return {{"tool", "sluice-load"}, {"format", 1}, {"label", label}, {"phases", json::array()}};
}

std::string Write(const std::string& name, const std::string& text) {
  const std::string path = absl::StrCat(testing::TempDir(), "/", getpid(), "_", name);
  std::ofstream(path) << text;
  return path;
}

TEST(RenderPage, EscapesReportsInTheScript) {
  const std::string page = RenderPage({Report("</script><script>alert(1)</script><!--")});
  EXPECT_THAT(page, Not(HasSubstr("</script><script>alert")));
  EXPECT_THAT(page, HasSubstr("\\u003c/script>\\u003cscript>alert(1)"));
}

TEST(RenderPage, LoadsNoExternalResources) {
  std::string page = RenderPage(json::array());
  // The name of the SVG namespace looks like an address but is not loaded.
  page = absl::StrReplaceAll(page, {{"http://www.w3.org/2000/svg", ""}});
  for (const char* outside : {"http://", "https://", "src=", "href=", "@import", "url("}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
}

TEST(MakePage, ShowsSeveralReports) {
  const auto page =
      MakePage({Write("a.json", Report("one").dump()), Write("b.json", Report("two").dump())});
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_THAT(*page, HasSubstr("\"label\":\"one\""));
  EXPECT_THAT(*page, HasSubstr("\"label\":\"two\""));
}

TEST(MakePage, NamesAFileThatIsNotAReport) {
  for (const char* text : {"", "[]", "{", "{\"tool\":\"other\"}",
                           "{\"tool\":\"sluice-load\",\"format\":2,\"phases\":[]}",
                           "{\"tool\":\"sluice-load\",\"format\":1,\"phases\":7}"}) {
    const auto page = MakePage({Write("bad.json", text)});
    EXPECT_EQ(page.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(page.status().message()), HasSubstr("bad.json"));
  }
  EXPECT_EQ(MakePage({"/no/such"}).status().code(), absl::StatusCode::kNotFound);
}

TEST(ProgressLine, ShowsABarAndTheCallsInFlight) {
  EXPECT_EQ(ProgressLine("500/s", 0.5, 100, 97, 0),
            "500/s [############............]  50%  100 sent, 3 in flight");
  EXPECT_EQ(ProgressLine("500/s", 7, 100, 100, 2),
            "500/s [########################] 100%  100 sent, 0 in flight, 2 missed");
}

}  // namespace
}  // namespace sluice::load
