#include "config/yaml_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "config/render.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

using testing::HasSubstr;

std::string Repeat(const std::string& text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

TEST(ParseYaml, GivesTheTreeWithLines) {
  const auto root =
      ParseYaml("a:\n  b: 1\n  'c': \"x y\"\nd:\n  - 1\n  - {e: [2]}\nf:\n", "f.yaml");
  ASSERT_TRUE(root.ok()) << root.status();
  ASSERT_EQ(root->children.size(), 3);
  const YamlNode& a = root->children[0];
  EXPECT_EQ(a.key, "a");
  EXPECT_EQ(a.line, 1);
  ASSERT_EQ(a.children.size(), 2);
  EXPECT_EQ(a.children[1].key, "c");
  EXPECT_EQ(a.children[1].scalar, "x y");
  EXPECT_EQ(a.children[1].line, 3);
  const YamlNode& d = root->children[1];
  EXPECT_EQ(d.kind, YamlNode::Kind::kList);
  ASSERT_EQ(d.children.size(), 2);
  EXPECT_EQ(d.children[0].line, 5);
  EXPECT_EQ(d.children[1].children[0].children[0].scalar, "2");
  EXPECT_EQ(root->children[2].kind, YamlNode::Kind::kNull);
}

TEST(ParseYaml, AnEmptyTextIsANullNode) {
  for (const char* text : {"", "# only a comment\n", "---\n", "~"}) {
    const auto root = ParseYaml(text, "f.yaml");
    ASSERT_TRUE(root.ok()) << root.status();
    EXPECT_EQ(root->kind, YamlNode::Kind::kNull) << text;
  }
}

struct BadYamlRow {
  const char* name;
  std::string text;
  std::string message;
};

class BadYamlTable : public TableTest<BadYamlRow> {};

TEST_P(BadYamlTable, NamesFileAndLine) {
  const auto root = ParseYaml(row().text, "f.yaml");
  ASSERT_FALSE(root.ok());
  EXPECT_EQ(root.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(root.status().message()), testing::StartsWith(row().message));
  EXPECT_TRUE(absl::c_all_of(root.status().message(), absl::ascii_isprint));
}

// A tab is reported only if it indents a line with content.
TEST(ParseYaml, ALineOfOnlyTabsIsAccepted) {
  const auto root = ParseYaml("a: 1\n\t\n b: [\n", "f.yaml");
  ASSERT_FALSE(root.ok());
  EXPECT_THAT(std::string(root.status().message()),
              testing::Not(testing::HasSubstr("indented with a tab")));
}

const BadYamlRow kBadYamlRows[] = {
    {.name = "ADuplicateKey",
     .text = "a: 1\nb: 2\na: 3\n",
     .message = "f.yaml:3: the key \"a\" is given twice; the first is in line 1"},
    {.name = "ADuplicateKeyInASection",
     .text = "x:\n  a: 1\n  a: 1\n",
     .message = "f.yaml:3: the key \"a\" is given twice; the first is in line 2"},
    {.name = "AnAnchorOfAScalar",
     .text = "a: &anchor 1\n",
     .message = "f.yaml:1: anchors are not allowed"},
    {.name = "AnAnchorOfAList",
     .text = "a: &anchor [1]\n",
     .message = "f.yaml:1: anchors are not allowed"},
    {.name = "AnAnchorOfAMap",
     .text = "a: &x {b: 1}\nc: *x\n",
     .message = "f.yaml:1: anchors are not allowed"},
    {.name = "ATagOfAScalar",
     .text = "a:\n  b: !!str 1\n",
     .message = "f.yaml:2: tags are not allowed"},
    {.name = "ATagOfAMap",
     .text = "a: !thing {b: 1}\n",
     .message = "f.yaml:1: tags are not allowed"},
    {.name = "AListAsKey", .text = "? [a]\n: 1\n", .message = "f.yaml:1: a key must be plain text"},
    {.name = "AMapAsKey",
     .text = "? {a: b}\n: 1\n",
     .message = "f.yaml:1: a key must be plain text"},
    {.name = "AnOpenList", .text = "a:\n [1,\n", .message = "f.yaml:2: "},
    {.name = "ASectionBelowAValue", .text = "a: 1\n b: 2\n", .message = "f.yaml:2: "},
    {.name = "AnOpenDoubleQuote", .text = "a: \"open\n", .message = "f.yaml:1: "},
    {.name = "AnOpenQuoteOverLines", .text = "a: 'open\nb: 1\n\n", .message = "f.yaml:2: "},
    {.name = "ATabAsIndentation",
     .text = "\ta: 1\n",
     .message = "f.yaml:1: indented with a tab; YAML must be indented with spaces"},
    {.name = "ATabAmongSpaces",
     .text = "a:\n  b: 1\n \tc: 2\n",
     .message = "f.yaml:3: indented with a tab; YAML must be indented with spaces"},
    {.name = "ATabThatIsNotTheError", .text = "a: [1,\n\n", .message = "f.yaml:1: "},
    {.name = "ASecondDocument",
     .text = "a: 1\n---\nb: 2\n",
     .message = "f.yaml: more than one document"},
    {.name = "ANul",
     .text = absl::StrCat("a: 1\n", std::string("b: \0x", 5)),
     .message = "f.yaml:2: a control character, 0x00"},
    {.name = "AnEscape", .text = "a: \x1b[2J\n", .message = "f.yaml:1: a control character, 0x1b"},
    {.name = "ADelete", .text = "a: \x7f\n", .message = "f.yaml:1: a control character, 0x7f"},
    {.name = "AByteThatIsNotUtf8",
     .text = "a: 1\n# \xff\n",
     .message = "f.yaml:2: text that is not UTF-8"},
    {.name = "ASurrogate",
     .text = "a: \xed\xa0\x80\n",
     .message = "f.yaml:1: text that is not UTF-8"},
    {.name = "Utf16", .text = "\xff\xfe\x61", .message = "f.yaml:1: text that is not UTF-8"},
    {.name = "ADirective", .text = "%YAML 1.2 \xc2\x9b\n", .message = "f.yaml:1: "},
    {.name = "NestingThatIsTooDeep",
     .text = Repeat("- ", 17) + "a",
     .message = "f.yaml:1: nested deeper than 16"},
    {.name = "TooManyEntries",
     .text = absl::StrCat("a: [", Repeat("1,", kMaxYamlEntries), "1]"),
     .message = "f.yaml:1: more than 1024 entries in one list or map"},
    {.name = "TooManyBytes",
     .text = Repeat("# padding\n", kMaxYamlBytes / 10 + 1),
     .message = "f.yaml:1: larger than 262144 bytes"},
};

SLUICE_TABLE(BadYamlTable, kBadYamlRows);

TEST(ParseYaml, HostileTextsEndInAnError) {
  for (const std::string& unit : {std::string("["), std::string("{"), std::string("- "),
                                  std::string("? "), std::string("a: "), std::string("&a "),
                                  std::string("!a "), std::string("["), std::string("{a: ")}) {
    SCOPED_TRACE(unit);
    EXPECT_FALSE(ParseYaml(Repeat(unit, 20000), "f.yaml").ok());
  }
}

TEST(ParseYaml, AlteredFilesNeverCrash) {
  constexpr uint64_t kSeed = 71;
  std::mt19937_64 random(kSeed);
  const std::string original = RenderDefaultConfig();
  constexpr char kBytes[] = "\n\t :-[]{}&*!?#'\"%@\\|>,~\xff";
  int accepted = 0;
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " round " << round);
    std::string text = original;
    for (int change = 0; change < 4; ++change) {
      text[random() % text.size()] = kBytes[random() % (sizeof kBytes - 1)];
    }
    const auto root = ParseYaml(text, "f.yaml");
    if (root.ok()) {
      ++accepted;
    } else {
      EXPECT_THAT(std::string(root.status().message()), HasSubstr("f.yaml"));
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 300);
}

}  // namespace
}  // namespace sluice
