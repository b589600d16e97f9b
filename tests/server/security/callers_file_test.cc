#include "server/security/callers_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tests/support/table.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

constexpr char kToken[] = "0123456789abcdef";

std::string HexOf(absl::string_view token) {
  const TokenDigest digest = DigestOf(token);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

std::string ErrorOf(const std::string& text) {
  return std::string(ParseCallers(text, "f").status().message());
}

TEST(CallersFileTest, ReadsCredentialsAndLimits) {
  const auto file = ParseCallers(
      absl::StrCat("# who may call\n\n  alice: token:", kToken,
                   "  requests_per_second=2.5 # tokens_burst=1\r\n",
                   "alice:sha256:", HexOf("another token of hers"), "\ttokens_burst=1e5\n",
                   "batch-2.a_b: certificate:batch.example.org#1\n",
                   "anonymous: none requests_per_second=0"),
      "f");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->callers.size(), 3u);
  EXPECT_EQ(file->callers[0].name, kAnonymous);
  EXPECT_EQ(file->callers[0].rates.requests_per_second, 0);
  EXPECT_EQ(file->callers[1].name, "alice");
  EXPECT_EQ(file->callers[1].rates.requests_per_second, 2.5);
  EXPECT_EQ(file->callers[2].name, "batch-2.a_b");
  EXPECT_EQ(file->callers[1].rates.tokens_burst, 1e5);
  EXPECT_EQ(file->callers[1].rates.tokens_per_second, std::nullopt);
  EXPECT_EQ(file->tokens.at(DigestOf(kToken)), 1u);
  EXPECT_EQ(file->tokens.at(DigestOf("another token of hers")), 1u);
  EXPECT_EQ(file->tokens.size(), 2u);
  EXPECT_EQ(file->certificates.at("batch.example.org#1"), 2u);
}

struct BadCallerRow {
  const char* name;
  std::string line;
  const char* error;
};
class BadCallerTable : public TableTest<BadCallerRow> {};

TEST_P(BadCallerTable, TheErrorNamesTheLineAndShowsNoToken) {
  const std::string error = ErrorOf("# first\n" + row().line);
  EXPECT_THAT(error, HasSubstr(row().error));
  EXPECT_EQ(error.substr(0, 5), "f:2: ");
  EXPECT_EQ(error.find("0123456789abcde"), std::string::npos) << error;
}

const BadCallerRow kBadCallerRows[] = {
    {.name = "ALineWithoutCredential", .line = "alice", .error = "NAME: CREDENTIAL"},
    {.name = "AnEmptyName", .line = ": token:0123456789abcdef", .error = "NAME: CREDENTIAL"},
    {.name = "ANameOfTwoWords", .line = "a b: token:0123456789abcdef", .error = "NAME: CREDENTIAL"},
    {.name = "ANameOfMoreThan64Bytes",
     .line = absl::StrCat(std::string(65, 'a'), ": none"),
     .error = "NAME: CREDENTIAL"},
    {.name = "NothingAfterTheColon", .line = "a:", .error = "no credential"},
    {.name = "ACredentialInAComment",
     .line = "a: # token:0123456789abcdef",
     .error = "no credential"},
    {.name = "AnUnknownKindOfCredential", .line = "a: password:x", .error = "expected token:TEXT"},
    {.name = "ANameThatHasTheCredentialNone", .line = "a: none", .error = "only anonymous"},
    {.name = "AnonymousWithAToken",
     .line = "anonymous: token:0123456789abcdef",
     .error = "the credential of anonymous must be none"},
    {.name = "ATokenOf15Bytes",
     .line = "a: token:0123456789abcde",
     .error = "16 to 512 bytes; this one has 15"},
    {.name = "ATokenOf513Bytes",
     .line = absl::StrCat("a: token:", std::string(513, 'x')),
     .error = "this one has 513"},
    {.name = "ATokenThatIsNotPrintable",
     .line = "a: token:0123456789abcdef\x01",
     .error = "printable"},
    {.name = "TheDigestOfAnEmptyToken",
     .line = "a: sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
     .error = "hash of an empty token"},
    {.name = "APriorityThatIsNotALevel",
     .line = "a: token:0123456789abcdef max_priority=4",
     .error = "max_priority must be a level from 1 to 3"},
    {.name = "TwoPriorities",
     .line = "a: token:0123456789abcdef max_priority=2 max_priority=2",
     .error = "already set"},
    {.name = "ADigestThatIsTooShort", .line = "a: sha256:00", .error = "64 hexadecimal digits"},
    {.name = "ADigestThatIsNotHexadecimal",
     .line = absl::StrCat("a: sha256:", std::string(64, 'g')),
     .error = "64 hexadecimal digits"},
    {.name = "AnEmptyCertificateName", .line = "a: certificate:", .error = "1 to 256 bytes"},
    {.name = "ACertificateNameOf257Bytes",
     .line = absl::StrCat("a: certificate:", std::string(257, 'x')),
     .error = "1 to 256 bytes"},
    {.name = "AnUnknownLimit",
     .line = "a: token:0123456789abcdef requests=5",
     .error = "unknown limit; expected requests_per_second"},
    {.name = "AnonymousIsNoGateway",
     .line = "anonymous: none gateway",
     .error = "anonymous cannot be a gateway"},
    {.name = "ALimitWithoutValue",
     .line = "a: token:0123456789abcdef requests_per_second",
     .error = "a number in [0, 1e+09]"},
    {.name = "ANegativeLimit",
     .line = "a: token:0123456789abcdef requests_per_second=-1",
     .error = "a number in [0, 1e+09]"},
    {.name = "ALimitThatIsNotANumber",
     .line = "a: token:0123456789abcdef requests_per_second=nan",
     .error = "a number in [0, 1e+09]"},
    {.name = "ALimitAboveItsRange",
     .line = "a: token:0123456789abcdef tokens_burst=1e10",
     .error = "a number in [0, 1e+09]"},
    {.name = "ALimitGivenTwice",
     .line = "a: token:0123456789abcdef tokens_burst=1 tokens_burst=1",
     .error = "already set"},
};
SLUICE_TABLE(BadCallerTable, kBadCallerRows);

TEST(CallersFileTest, ARepeatedCredentialIsRefused) {
  const std::string good = absl::StrCat("a: token:", kToken);
  EXPECT_THAT(ErrorOf(good + "\nb: token:" + kToken), HasSubstr("f:2: this token is already"));
  EXPECT_THAT(ErrorOf(good + "\nb: sha256:" + HexOf(kToken)), HasSubstr("f:2: this token"));
  EXPECT_THAT(ErrorOf("a: certificate:n\nb: certificate:n"), HasSubstr("f:2: this certificate"));
}

TEST(CallersFileTest, TheNumberOfNamesIsLimited) {
  std::string text;
  for (size_t i = 1; i < kMaxCallers; ++i)
    absl::StrAppend(&text, "n", i, ": certificate:c", i, "\n");
  EXPECT_EQ(ErrorOf(text), "");
  EXPECT_THAT(ErrorOf(text + "one: certificate:more"), HasSubstr("more than 1000 names"));
}

// The parser returns for every file, and all accepted values are within the limits.
TEST(CallersFileTest, AlteredTextIsRefusedOrWithinTheLimits) {
  const std::string good = absl::StrCat("alice: token:", kToken, " requests_per_second=2\n",
                                        "anonymous: none tokens_burst=1\n# c\nb: certificate:x\n");
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::string text = good;
    for (uint64_t i = 0; i <= random() % 4; ++i) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    const auto file = ParseCallers(text, "f");
    if (!file.ok()) continue;
    ASSERT_LE(file->callers.size(), 4u);
    for (const auto& [digest, index] : file->tokens) ASSERT_LT(index, file->callers.size());
    for (const auto& entry : file->callers) {
      ASSERT_FALSE(entry.name.empty());
      ASSERT_LE(entry.rates.requests_per_second.value_or(0), 1e9);
    }
  }
}

}  // namespace
}  // namespace sluice
