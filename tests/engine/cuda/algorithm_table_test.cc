#include "engine/cuda/algorithm_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/support/table.h"
#include "tests/support/temporary_directory.h"

namespace sluice {

std::span<const std::string_view> TestAlgorithms();  // generated from algorithms/ in this folder
std::span<const std::string_view> NoAlgorithms();

namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr DenseShape kRelued = {.k = 3,
                                .n = 5,
                                .type = DenseType::kBF16,
                                .bias = true,
                                .accumulate = false,
                                .head = false,
                                .activation = DenseActivation::kRelu};

AlgorithmTable Table(const std::map<int32_t, DenseAlgorithm>& of_classes = {}) {
  AlgorithmTable table("GPU", "library1");
  const DenseAlgorithms first = {.reference = {1, 0xFEDCBA9876543210, 3, 4, 5, 6, 7, 8},
                                 .of_classes = of_classes};
  EXPECT_TRUE(table.Add(kRelued, first, "the first").ok());
  DenseShape other = kRelued;
  other.type = DenseType::kF32;
  other.bias = false;
  other.accumulate = other.head = true;
  other.activation = DenseActivation::kGeluTanh;
  EXPECT_TRUE(table.Add(other, {9}, "").ok());
  return table;
}

TEST(AlgorithmTableTest, RoundTripsItsText) {
  const std::map<int32_t, DenseAlgorithm> of_classes = {{16, {2, 3}}, {256, {4}}};
  const AlgorithmTable table = Table(of_classes);
  const auto read = AlgorithmTable::Parse(table.Text());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->Text(), table.Text());
  EXPECT_EQ(read->size(), 2u);
  EXPECT_EQ(read->gpu(), "GPU");
  EXPECT_EQ(read->library(), "library1");
  EXPECT_EQ(read->Find(kRelued)->reference,
            (DenseAlgorithm{1, 0xFEDCBA9876543210, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(read->Find(kRelued)->of_classes, of_classes);
  DenseShape absent = kRelued;
  absent.n = 6;
  EXPECT_EQ(read->Find(absent), nullptr);
}

// The digest is part of the profile's name, which is compared between builds.
TEST(AlgorithmTableTest, TheDigestIsTheSameInEveryBuild) {
  EXPECT_EQ(Table().Digest(), "75fe9aa3");
}

struct DigestRow {
  const char* name;
  std::string from, to;  // an edit of the table's text
  bool changes = true;   // the digest
};
class AlgorithmDigestTable : public TableTest<DigestRow> {};

TEST_P(AlgorithmDigestTable, CoversEveryFieldThatAffectsBits) {
  const AlgorithmTable table = Table({{64, {0xABCDEF}}});
  const std::string text = absl::StrReplaceAll(table.Text(), {{row().from, row().to}});
  EXPECT_NE(text, table.Text());
  const std::string digest = AlgorithmTable::Parse(text).value().Digest();
  EXPECT_EQ(digest != table.Digest(), row().changes);
}

const DigestRow kDigestRows[] = {
    {.name = "ACommentIsNotCovered", .from = "the first", .to = "the best", .changes = false},
    {.name = "WhiteSpaceIsNotCovered", .from = "\n", .to = "", .changes = false},
    {.name = "TheGpuIsCovered", .from = "\"GPU\"", .to = "\"GPU2\""},
    {.name = "TheLibraryIsCovered", .from = "library1", .to = "library2"},
    {.name = "TheAlgorithmIsCovered", .from = "543210", .to = "543211"},
    {.name = "TheShapeIsCovered", .from = "\"n\": 5", .to = "\"n\": 6"},
    {.name = "TheDtypeIsCovered", .from = "\"bf16\"", .to = "\"f32\""},
    {.name = "Int8IsADtype", .from = "\"bf16\"", .to = "\"int8\""},
    {.name = "AClassIsCovered", .from = "\"rows\": 64", .to = "\"rows\": 256"},
    {.name = "AClassesAlgorithmIsCovered", .from = "abcdef", .to = "abcdee"},
    {.name = "TheEpilogueIsCovered", .from = "\"relu\"", .to = "\"none\""},
};
SLUICE_TABLE(AlgorithmDigestTable, kDigestRows);

std::string FileOf(const std::string& layers, const std::string& rest = "") {
  return absl::StrCat(R"({"sluice_algorithms": 1, "gpu": "G", "library": "l", "layers": )", layers,
                      rest, "}");
}

std::string LayerWith(const std::string& more,
                      const std::string& algorithm = std::string(128, 'a')) {
  return absl::StrCat("{\"k\": 1, \"n\": 2, \"algorithm\": \"", algorithm, "\"", more, "}");
}

// Returns the member of a layer with an algorithm for each of these classes.
std::string ClassesOf(const std::vector<int>& rows) {
  std::string list;
  for (const int each : rows) {
    absl::StrAppend(&list, list.empty() ? "" : ", ", "{\"rows\": ", each, ", \"algorithm\": \"",
                    std::string(128, 'b'), "\"}");
  }
  return absl::StrCat(", \"classes\": [", list, "]");
}

struct BadAlgorithmsRow {
  const char* name;
  std::string text;
  const char* error;
};
class BadAlgorithmsTable : public TableTest<BadAlgorithmsRow> {};

TEST_P(BadAlgorithmsTable, TheErrorNamesTheFault) {
  const absl::Status status = AlgorithmTable::Parse(row().text).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(row().error));
}

const BadAlgorithmsRow kBadAlgorithmsRows[] = {
    {.name = "AnEmptyFileIsRefused", .text = "", .error = "bad JSON syntax"},
    {.name = "AListIsRefused", .text = "[]", .error = "it is not a JSON object"},
    {.name = "AnEmptyObjectIsRefused", .text = "{}", .error = "sluice_algorithms is missing"},
    {.name = "AnotherVersionIsRefused",
     .text = absl::StrReplaceAll(FileOf("[]"), {{": 1", ": 2"}}),
     .error = "sluice_algorithms is 2, must be in [1, 1]"},
    {.name = "ClassesThatAreNoListAreRefused",
     .text = FileOf(absl::StrCat("[", LayerWith(R"(, "classes": {})"), "]")),
     .error = "layers[0].classes must be a list of at most 5"},
    {.name = "AClassThatIsNoObjectIsRefused",
     .text = FileOf(absl::StrCat("[", LayerWith(R"(, "classes": [7])"), "]")),
     .error = "layers[0].classes[0] is not an object"},
    {.name = "AClassThatDoesNotExistIsRefused",
     .text = FileOf(absl::StrCat("[", LayerWith(ClassesOf({17})), "]")),
     .error = "layers[0].classes[0].rows must be the last number of rows of a class"},
    {.name = "TheLargestClassIsRefused",
     .text = FileOf(absl::StrCat("[", LayerWith(ClassesOf({64, 4096})), "]")),
     .error = "layers[0].classes[1].rows must be the last number of rows of a class, and not of"},
    {.name = "AClassWithoutAnAlgorithmIsRefused",
     .text = FileOf(absl::StrCat("[", LayerWith(R"(, "classes": [{"rows": 16}])"), "]")),
     .error = "layers[0].classes[0].algorithm is missing"},
    {.name = "AClassThatAppearsTwiceIsRefused",
     .text = FileOf(absl::StrCat("[", LayerWith(ClassesOf({16, 16})), "]")),
     .error = "layers[0].classes[1].rows names a class that an earlier entry names"},
    {.name = "AnEmptyGpuIsRefused",
     .text = absl::StrReplaceAll(FileOf("[]"), {{"\"G\"", "\"\""}}),
     .error = "gpu must be printable ASCII, and not"},
    {.name = "AGpuWithALineBreakIsRefused",
     .text = absl::StrReplaceAll(FileOf("[]"), {{"\"G\"", "\"\\n\""}}),
     .error = "gpu must be printable ASCII"},
    {.name = "ALibraryThatIsTooLongIsRefused",
     .text = absl::StrReplaceAll(FileOf("[]"),
                                 {{"\"l\"", absl::StrCat("\"", std::string(129, 'l'), "\"")}}),
     .error = "library has 129 bytes; the limit is 128"},
    {.name = "LayersThatAreAnObjectAreRefused",
     .text = FileOf("{}"),
     .error = "layers must be a list of at most 4096"},
    {.name = "ALayerThatIsANumberIsRefused",
     .text = FileOf("[0]"),
     .error = "layers[0] is not an object"},
    {.name = "AnUnknownKeyIsRefused",
     .text = FileOf("[]", ", \"more\": 1"),
     .error = "more is not a known key"},
    {.name = "DeeplyNestedListsAreRefused",
     .text = FileOf("[[[[[[]]]]]]"),
     .error = "nested deeper than 5"},
    {.name = "ALayerWithoutSizesIsRefused",
     .text = FileOf("[{}]"),
     .error = "layers[0].k is missing"},
    {.name = "AnUnknownKeyOfALayerIsRefused",
     .text = FileOf(absl::StrCat("[", LayerWith(", \"more\": 1"), "]")),
     .error = "layers[0].more is not a known key"},
    {.name = "AnInnerSizeOfZeroIsRefused",
     .text = FileOf(
         absl::StrReplaceAll(absl::StrCat("[", LayerWith(""), "]"), {{"\"k\": 1", "\"k\": 0"}})),
     .error = "layers[0].k is 0, must be in [1, 16777216]"},
    {.name = "AnOuterSizeThatIsTooLargeIsRefused",
     .text = FileOf(absl::StrReplaceAll(absl::StrCat("[", LayerWith(""), "]"),
                                        {{"\"n\": 2", "\"n\": 16777217"}})),
     .error = "layers[0].n is 16777217, must be in [1, 16777216]"},
    {.name = "AnUnsupportedDtypeIsRefused",
     .text = FileOf(absl::StrCat("[", LayerWith(", \"dtype\": \"f16\""), "]")),
     .error = "layers[0].dtype is not supported, must be one of: f32, bf16, int8"},
    {.name = "AnUnsupportedActivationIsRefused",
     .text = FileOf(absl::StrCat("[", LayerWith(", \"activation\": \"silu\""), "]")),
     .error = "layers[0].activation is not supported, must be one of: none, relu, gelu_tanh"},
    {.name = "AHeadThatIsANumberIsRefused",
     .text = FileOf(absl::StrCat("[", LayerWith(", \"head\": 1"), "]")),
     .error = "layers[0].head is not true or false"},
    {.name = "AnAlgorithmOf127DigitsIsRefused",
     .text = FileOf(absl::StrCat("[", LayerWith("", std::string(127, 'a')), "]")),
     .error = "layers[0].algorithm must be 128 hexadecimal digits"},
    {.name = "AnAlgorithmWithALetterBeyondFIsRefused",
     .text = FileOf(absl::StrCat("[", LayerWith("", std::string(127, 'a') + "g"), "]")),
     .error = "layers[0].algorithm must be 128 hexadecimal digits"},
    {.name = "AnAlgorithmWithASignIsRefused",
     .text = FileOf(absl::StrCat("[", LayerWith("", "-" + std::string(127, 'a')), "]")),
     .error = "layers[0].algorithm must be 128 hexadecimal digits"},
    {.name = "AnAlgorithmWithAPrefixIsRefused",
     .text = FileOf(absl::StrCat("[", LayerWith("", "0x" + std::string(126, 'a')), "]")),
     .error = "layers[0].algorithm must be 128 hexadecimal digits"},
    {.name = "AnAlgorithmOf129DigitsIsRefused",
     .text = FileOf(absl::StrCat("[", LayerWith("", std::string(129, 'a')), "]")),
     .error = "layers[0].algorithm has 129 bytes; the limit is 128"},
    {.name = "ANoteThatIsTooLongIsRefused",
     .text = FileOf(absl::StrCat(
         "[", LayerWith(absl::StrCat(", \"note\": \"", std::string(257, 'n'), "\"")), "]")),
     .error = "layers[0].note has 257 bytes; the limit is 256"},
    {.name = "AShapeGivenTwiceIsRefused",
     .text = FileOf(absl::StrCat("[", LayerWith(""), ",", LayerWith(", \"note\": \"again\""), "]")),
     .error = "layers[1] has the same shape as an earlier layer"},
};
SLUICE_TABLE(BadAlgorithmsTable, kBadAlgorithmsRows);

TEST(AlgorithmTableTest, LayersAreBounded) {
  EXPECT_TRUE(AlgorithmTable::Parse(FileOf(absl::StrCat("[", LayerWith(""), "]"))).ok());
  std::string many;
  for (int i = 0; i < 4097; ++i) absl::StrAppend(&many, i == 0 ? "" : ",", "0");
  EXPECT_THAT(
      std::string(AlgorithmTable::Parse(FileOf(absl::StrCat("[", many, "]"))).status().message()),
      HasSubstr("layers must be a list of at most 4096"));
}

TEST(ChooseTableTest, TakesTheCommittedTableOfTheGpuAndLibrary) {
  const std::string other = absl::StrReplaceAll(Table().Text(), {{"library1", "library2"}});
  const std::string table = Table().Text();
  const std::string_view texts[] = {other, table};
  const auto chosen = ChooseTable("GPU", "library1", "", texts);
  ASSERT_TRUE(chosen.ok() && chosen->has_value()) << chosen.status();
  EXPECT_EQ((*chosen)->Text(), table);
  EXPECT_FALSE(ChooseTable("GPU", "library3", "", texts)->has_value());
  EXPECT_FALSE(ChooseTable("GPU2", "library1", "", texts)->has_value());
  const std::string_view broken[] = {"{"};
  EXPECT_THAT(std::string(ChooseTable("GPU", "library1", "", broken).status().message()),
              HasSubstr("a committed table of algorithms: bad JSON syntax"));
}

TEST(ChooseTableTest, AFileReplacesTheCommittedTablesAndMustFitTheGpuAndLibrary) {
  const TemporaryDirectory directory;
  const std::string path = directory.File("table.json");
  EXPECT_EQ(ChooseTable("GPU", "library1", path, {}).status(),
            absl::NotFoundError(absl::StrCat("cuda.algorithms: cannot read ", path,
                                             ": No such file or directory")));
  WriteTestFile(path, Table().Text());
  const std::string other = absl::StrReplaceAll(Table().Text(), {{"\"n\": 5", "\"n\": 6"}});
  const std::string_view texts[] = {other};
  EXPECT_EQ(ChooseTable("GPU", "library1", path, texts).value()->Text(), Table().Text());
  EXPECT_EQ(
      ChooseTable("GPU", "library2", path, texts).status(),
      absl::FailedPreconditionError(absl::StrCat("cuda.algorithms: ", path,
                                                 ": it is for GPU with library1, not for GPU "
                                                 "with library2; write a table with gpu_bench "
                                                 "tune, or leave the option empty")));
  EXPECT_EQ(ChooseTable("GPU2", "library1", path, texts).status().code(),
            absl::StatusCode::kFailedPrecondition);
  WriteTestFile(path, std::string(AlgorithmTable::kMaxBytes + 1, ' '));
  EXPECT_THAT(std::string(ChooseTable("GPU", "library1", path, texts).status().message()),
              HasSubstr("more than 4194304 bytes"));
  WriteTestFile(path, "{}");
  EXPECT_THAT(std::string(ChooseTable("GPU", "library1", path, texts).status().message()),
              HasSubstr("table.json: sluice_algorithms is missing"));
}

TEST(EmbeddedTextsTest, EqualTheFilesAndAreEmptyWithoutFiles) {
  EXPECT_THAT(NoAlgorithms(), IsEmpty());
  ASSERT_THAT(TestAlgorithms(), SizeIs(1));
  const auto table = AlgorithmTable::Parse(TestAlgorithms()[0]);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->Text(), TestAlgorithms()[0]) << "byte by byte";
}

TEST(CommittedAlgorithmsTest, HaveAtMostOneTableForEachGpuAndLibrary) {
  std::set<std::pair<std::string, std::string>> seen;
  for (const std::string_view text : CommittedAlgorithms()) {
    const auto table = AlgorithmTable::Parse(text);
    ASSERT_TRUE(table.ok()) << table.status();
    EXPECT_TRUE(seen.emplace(table->gpu(), table->library()).second) << table->gpu();
  }
}

}  // namespace
}  // namespace sluice
