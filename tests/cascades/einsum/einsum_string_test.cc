#include "cascades/einsum/einsum_string.h"

#include <string>

#include "cascades/einsum/analysis.h"
#include "cascades/einsum/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/table.h"

namespace sluice::einsum {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

struct StringRow {
  const char* name;
  const char* text;
  const char* einsum;
  const char* description;
};

class StringTable : public TableTest<StringRow> {};

TEST_P(StringTable, IsOneEinsum) {
  const auto cascade = ParseEinsumString(row().text);
  ASSERT_TRUE(cascade.ok()) << cascade.status();
  ASSERT_EQ(cascade->statements.size(), 1);
  const auto& einsum = std::get<Einsum>(cascade->statements[0]);
  EXPECT_EQ(Print(einsum), row().einsum);
  EXPECT_EQ(Describe(RolesOf(einsum)), row().description);
  EXPECT_EQ(*Parse(Print(*cascade)), *cascade);
}

const StringRow kStringRows[] = {
    {"AWeightForEachPosition", "bld,lde->ble",
     "Z[b, l, e] = A[b, l, d] . B[l, d, e] :: map x(and) reduce d +(or)",
     "grouped GEMM b x d x e for each l"},
    {"BlanksAreIgnored", " ij , jk -> i k",
     "Z[i, k] = A[i, j] . B[j, k] :: map x(and) reduce j +(or)", "GEMM i x j x k"},
    {"AnImplicitResultIsAlphabetical", "zj,ja",
     "Z[a, z] = A[z, j] . B[j, a] :: map x(and) reduce j +(or)", "GEMM z x j x a"},
    {"OneOperandIsPermuted", "bij->bji", "Z[b, j, i] = A[b, i, j]", "permute b x j x i"},
    {"AnImplicitPermutation", "ba", "Z[a, b] = A[b, a]", "permute a x b"},
    {"ATrace", "ii", "Z = A[i, i] :: reduce i +(or)", "reduction over i"},
    {"ADiagonal", "ii->i", "Z[i] = A[i, i]", "copy i"},
    {"ASum", "ij->", "Z = A[i, j] :: reduce i +(or) reduce j +(or)", "reduction over (i, j)"},
    {"AScalarOperand", ",i->i", "Z[i] = A . B[i] :: map x(and)", "elementwise i"},
    {"CapitalLettersAreOtherRanks", "iI,I->i", "Z[i] = A[i, I] . B[I] :: map x(and) reduce I +(or)",
     "GEMV i x I"},
};
SLUICE_TABLE(StringTable, kStringRows);

struct RefusalRow {
  const char* name;
  const char* text;
  const char* error;
};

class RefusalTable : public TableTest<RefusalRow> {};

TEST_P(RefusalTable, ReportsTheReason) {
  const auto cascade = ParseEinsumString(row().text);
  EXPECT_EQ(std::string(cascade.status().message()), row().error);
}

const RefusalRow kRefusalRows[] = {
    {"AnEllipsis", "...ij->...i", "column 1: '...' is not supported; every rank needs a letter"},
    {"ThreeOperands", "ij,jk,kl->il",
     "column 6: two operands at most; write more as a cascade of einsums"},
    {"ALetterOfTheResultTwice", "ij->ii", "column 6: the result has 'i' twice"},
    {"ALetterOfTheResultAlone", "ij->ik", "the result has 'k', which no operand has"},
    {"ADigit", "i1", "column 2: expected a letter, ',' or '->', found '1'"},
    {"ALonelyArrow", "i-j", "column 2: expected a letter, ',' or '->', found '-'"},
    {"TwoResults", "i->i->i", "column 5: expected a letter, ',' or '->', found '-'"},
    {"TwoResultTensors", "i->i,i", "column 5: expected a letter, ',' or '->', found ','"},
    {"ABadByte", "i\x01", "column 2: expected a letter, ',' or '->', found '\\x01'"},
    {"TooManyRanks", "abcdefghijklmnopq", "column 17: a tensor has at most 16 ranks"},
};
SLUICE_TABLE(RefusalTable, kRefusalRows);

// Sums of products by hand.
TEST(EinsumString, IsComputed) {
  const auto run = [](const char* text, const Sizes& sizes, const NamedValues& inputs) {
    return Interpret(*ParseEinsumString(text), sizes, inputs)->at("Z").values;
  };
  EXPECT_THAT(run("ij,jk->ik", {{"i", 2}, {"j", 2}, {"k", 1}},
                  {{"A", {{2, 2}, {1, 2, 3, 4}}}, {"B", {{2, 1}, {5, 6}}}}),
              ElementsAre(17, 39));
  EXPECT_THAT(run("ii", {{"i", 2}}, {{"A", {{2, 2}, {1, 2, 3, 4}}}}), ElementsAre(5));
  EXPECT_THAT(run("ba", {{"a", 2}, {"b", 1}}, {{"A", {{1, 2}, {1, 2}}}}), ElementsAre(1, 2));
}

TEST(ParseSizes, ReadsAList) {
  EXPECT_THAT(*ParseSizes("b=8, l=256,head_dim=2147483648"),
              UnorderedElementsAre(Pair("b", 8), Pair("l", 256), Pair("head_dim", kMaxNumber)));
  EXPECT_TRUE(ParseSizes("")->empty());
  const auto error = [](const char* text) {
    return std::string(ParseSizes(text).status().message());
  };
  EXPECT_EQ(error("b=8,b=9"), "'b' has two sizes");
  for (const char* text : {"b", "b=", "=3", "b=0", "b=-1", "b=2147483649", "b=1=2", "b c=1"}) {
    EXPECT_EQ(error(text),
              "'" + std::string(text) + "' is not a name, '=' and a size from 1 to 2147483648");
  }
}

}  // namespace
}  // namespace sluice::einsum
