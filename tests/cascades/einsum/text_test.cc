#include "cascades/einsum/text.h"

#include <string>

#include "cascades/einsum/analysis.h"
#include "cascades/einsum/paper.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cascades/einsum/random_cascade.h"
#include "tests/support/table.h"

namespace sluice::einsum {
namespace {

using ::testing::HasSubstr;

TEST(Text, PrintedTextParsesToTheSameCascade) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE(seed);
    const Cascade cascade = RandomCascade(seed).Make();
    const absl::Status checked = Check(cascade);
    ASSERT_TRUE(checked.ok()) << checked << "\n" << Print(cascade);
    for (const Notation notation : {Notation::kAscii, Notation::kUnicode}) {
      const std::string text = Print(cascade, notation);
      const auto read = Parse(text);
      ASSERT_TRUE(read.ok()) << read.status() << "\n" << text;
      ASSERT_EQ(*read, cascade) << text;
    }
  }
}

// Every cascade that Check accepts can be run and analysed.
TEST(Text, RandomCascadesRun) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    RandomCascade random(seed);
    const Cascade cascade = random.Make();
    const Sizes sizes = random.MakeSizes(5);
    const auto results = Interpret(cascade, sizes, random.MakeInputs(sizes));
    ASSERT_TRUE(results.ok()) << results.status() << "\n" << Print(cascade);
    for (const Tensor& tensor : AllTensors(cascade)) {
      if (results->contains(tensor.name)) {
        EXPECT_EQ(results->at(tensor.name).shape.size(), tensor.ranks.size());
      }
    }
    EXPECT_TRUE(Analyze(cascade, sizes).ok());
  }
}

TEST(Text, ThePapersCascadesAreInPrintedForm) {
  for (const PaperCascade& each : PaperCascades()) {
    const auto cascade = Parse(each.text);
    ASSERT_TRUE(cascade.ok()) << cascade.status();
    EXPECT_EQ(Print(*cascade), each.text);
  }
}

// Declares ranks and tensors; each row then states equal forms.
constexpr const char* kDeclared =
    "rank k = 4 rank m = n rank c = n / 2 rank j = 2 "
    "tensor A[m, k] weight tensor B[m] arena tensor C arena ";

struct FormRow {
  const char* name;
  const char* text;
  const char* ascii;
  const char* unicode;
};

class FormTable : public TableTest<FormRow> {};

TEST_P(FormTable, IsReadAndPrinted) {
  const auto cascade = Parse(std::string(kDeclared) + row().text);
  ASSERT_TRUE(cascade.ok()) << cascade.status();
  const Einsum& einsum = *AllEinsums(*cascade).back().einsum;
  EXPECT_EQ(Print(einsum), row().ascii);
  EXPECT_EQ(Print(einsum, Notation::kUnicode), row().unicode);
}

const FormRow kFormRows[] = {
    {.name = "AMapNeedsNoWords",
     .text = "Z[m] = B[m] . C",
     .ascii = "Z[m] = B[m] . C :: map x(and)",
     .unicode = "Z_{m} = B_{m} · C :: ⋀ ×(∩)"},
    {.name = "UnicodeWithSubscripts",
     .text = "Z_{m} = A_{m,k} · B_{m} :: ⋀_k ×(∩) ⋁_{k} +(∪)",
     .ascii = "Z[m] = A[m, k] . B[m] :: map x(and) reduce k +(or)",
     .unicode = "Z_{m} = A_{m, k} · B_{m} :: ⋀ ×(∩) ⋁_k +(∪)"},
    {.name = "AMapMayNameARank",
     .text = "Z[m] = A[m, k] . B[m] :: map k x(and) reduce k +(or)",
     .ascii = "Z[m] = A[m, k] . B[m] :: map x(and) reduce k +(or)",
     .unicode = "Z_{m} = A_{m, k} · B_{m} :: ⋀ ×(∩) ⋁_k +(∪)"},
    {.name = "OtherOperations",
     .text = "Z_{m} = A_{m,0} · B_{m} :: ⋀ −(←) unary exp where m ≤ 3",
     .ascii = "Z[m] = A[m, 0] . B[m] :: map -(left) unary exp where m <= 3",
     .unicode = "Z_{m} = A_{m, 0} · B_{m} :: ⋀ −(←) unary exp where m ≤ 3"},
    {.name = "AllIsOne",
     .text = "Z[m] = B[m] . -∞ :: map max(1)",
     .ascii = "Z[m] = B[m] . -inf :: map max(all)",
     .unicode = "Z_{m} = B_{m} · -∞ :: ⋀ max(1)"},
    {.name = "AQuotient",
     .text = "Z[m] = B[m] . 2.50e1 :: map ÷(∩)",
     .ascii = "Z[m] = B[m] . 25 :: map /(and)",
     .unicode = "Z_{m} = B_{m} · 25 :: ⋀ ÷(∩)"},
    {.name = "AnIndexIsASum",
     .text = "Z[c, j] = B[1 + 2*c - j*1 + end m - 4]",
     .ascii = "Z[c, j] = B[c*2-j+end m-3]",
     .unicode = "Z_{c, j} = B_{c*2-j+end m-3}"},
    {.name = "ANameMayEndLikeASubscript",
     .text = "Z__{m} = B_{m}",
     .ascii = "Z_[m] = B[m]",
     .unicode = "Z__{m} = B_{m}"},
    {.name = "ConditionsBetweenCommas",
     .text = "Z = B[m] :: reduce m max(or) where m < 3, -m+end c == 0",
     .ascii = "Z = B[m] :: reduce m max(or) where m < 3, -m+end c == 0",
     .unicode = "Z = B_{m} :: ⋁_m max(∪) where m < 3, -m+end c == 0"},
    {.name = "ACommentAndBrokenLines",
     .text = "Z[ # the result\n m ]\n=\tB[m]\r\n:: unary\nsqrt # and no more",
     .ascii = "Z[m] = B[m] :: unary sqrt",
     .unicode = "Z_{m} = B_{m} :: unary sqrt"},
};
SLUICE_TABLE(FormTable, kFormRows);

struct SyntaxRow {
  const char* name;
  const char* text;
  const char* error;
};

class SyntaxTable : public TableTest<SyntaxRow> {};

TEST_P(SyntaxTable, ReportsThePlaceAndTheExpectedText) {
  const auto cascade = Parse(row().text);
  EXPECT_EQ(cascade.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(cascade.status().message()), row().error);
}

const SyntaxRow kSyntaxRows[] = {
    {"ABracketIsMissing", "rank m = 4\nZ[m = 1", "line 2, column 5: expected ']', found '='"},
    {"TheTextEnds",
     "rank m =", "line 1, column 9: expected the rank's size, a number or a word, found the end"},
    {"ASymbolAlone", "  ?",
     "line 1, column 3: expected rank, tensor, iterate or a result, found '?'"},
    {"AByteIsEscaped", "\x01",
     "line 1, column 1: expected rank, tensor, iterate or a result, found '\\x01'"},
    {"AnUnknownHome", "tensor A disk",
     "line 1, column 10: expected weight, kv, arena or tile, found 'disk'"},
    {"AnUnknownFunction", "Z = 1 :: unary erf",
     "line 1, column 16: expected a function such as exp, found 'erf'"},
    {"NoFunction", "Z = 1 :: unary none",
     "line 1, column 16: expected a function such as exp, found 'none'"},
    {"AnUnknownOperation", "Z = 1 . 2 :: map ^(and)",
     "line 1, column 18: expected an operation (+, -, x, /, max or min), found '^'"},
    {"AnUnknownMerge", "Z = 1 . 2 :: map +(xor)",
     "line 1, column 20: expected a merge (and, or, left or all), found 'xor'"},
    {"OneOperandHasNoMap", "Z = 1 :: map +(or)",
     "line 1, column 10: expected unary, reduce or where, found 'map'"},
    {"ThreeOperands", "Z = 1 . 2 . 3",
     "line 1, column 11: expected '::' or the next einsum, because an einsum has at most two "
     "operands, found '.'"},
    {"ANumberTooLarge", "rank m = 99999999999",
     "line 1, column 10: expected an integer up to 2^31, found '99999999999'"},
    {"AConstantTooLarge", "Z = 1e999",
     "line 1, column 5: expected a tensor or a number, found '1e999'"},
    {"TwoEnds", "Z = B[end m + end m]",
     "line 1, column 15: expected a rank or a number, as one `end` may be added to an index, found "
     "'end'"},
    {"InitAfterTheBody", "iterate c { Z[c] = 1 init Z[0] = 1 }",
     "line 1, column 27: expected '=', found 'Z'"},
    {"AnIterationWithinAnIteration", "iterate c { iterate d { } }",
     "line 1, column 21: expected '=', found 'd'"},
};
SLUICE_TABLE(SyntaxTable, kSyntaxRows);

TEST(Text, IsBounded) {
  const std::string text(kMaxTextBytes + 1, ' ');
  EXPECT_TRUE(Parse(text.substr(1)).ok());
  EXPECT_THAT(std::string(Parse(text).status().message()), HasSubstr("the limit is 65536"));
}

}  // namespace
}  // namespace sluice::einsum
