// Tests that the program of a fuzz target reports the input on which it dies, the memory that an
// input takes, and a small share of accepted inputs. Tests the changes of JSON.
#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fuzz/mutate_json.h"
#include "tests/support/table.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

struct Ended {
  bool failed = false;
  std::string printed;
};

// Runs the faulty target on a corpus of a harmless input and `input`, and on mutated inputs.
Ended RunTarget(const std::string& input, int mutated) {
  const TemporaryDirectory corpus;
  WriteTestFile(corpus.File("1"), "harmless");
  WriteTestFile(corpus.File("2"), input);
  const std::string command =
      FAULTY_TARGET " " + std::to_string(mutated) + " 100 " + corpus.path() + " 2>&1";
  FILE* const output = popen(command.c_str(), "r");
  Ended ended;
  std::array<char, 4096> part{};
  while (fgets(part.data(), part.size(), output) != nullptr) ended.printed += part.data();
  ended.failed = pclose(output) != 0;
  return ended;
}

struct FaultRow {
  const char* name;
  const char* input;
  bool takes_memory = false;
};
class BoundedFaultTable : public TableTest<FaultRow> {};

TEST_P(BoundedFaultTable, IsReportedWithItsInput) {
  const Ended ended = RunTarget(row().input, 0);
  EXPECT_TRUE(ended.failed);
  EXPECT_THAT(ended.printed, HasSubstr("failed on input 1 of seed "));
  const bool names_memory = ended.printed.find(" of memory (at most ") != std::string::npos;
  EXPECT_EQ(names_memory, row().takes_memory) << ended.printed;
}

constexpr FaultRow kFaultRows[] = {
    {.name = "Abort", .input = "abort"},
    {.name = "InvalidAddress", .input = "segmentation"},
    {.name = "DivisionByZero", .input = "division"},
    {.name = "BusError", .input = "bus"},
    {.name = "StackOverflow", .input = "overflow"},
#ifdef __SANITIZE_ADDRESS__
    {.name = "UndefinedBehaviour", .input = "undefined"},
#endif
    {.name = "MemoryOfNew", .input = "new", .takes_memory = true},
    {.name = "MemoryOfMalloc", .input = "malloc", .takes_memory = true},
    {.name = "MemoryOfCalloc", .input = "calloc", .takes_memory = true},
    {.name = "MemoryOfRealloc", .input = "realloc", .takes_memory = true},
    {.name = "MemoryOfAlignedAlloc", .input = "aligned_alloc", .takes_memory = true},
    {.name = "MemoryOfPosixMemalign", .input = "posix_memalign", .takes_memory = true},
};
SLUICE_TABLE(BoundedFaultTable, kFaultRows);

TEST(BoundedTest, FreedMemoryDoesNotCount) {
  const Ended ended = RunTarget("freed", 0);
  EXPECT_FALSE(ended.failed) << ended.printed;
  EXPECT_THAT(ended.printed, HasSubstr("accepted 2 of 2 inputs of the corpus and 0 of 0 mutated"));
}

TEST(BoundedTest, FailsIfTooFewMutatedInputsAreAccepted) {
  EXPECT_FALSE(RunTarget("fine", 100).failed);
  const Ended ended = RunTarget("refused", 100);
  EXPECT_TRUE(ended.failed);
  EXPECT_THAT(ended.printed, HasSubstr("fewer than 100 % of the mutated inputs were accepted"));
}

TEST(MutateJsonTest, ChangesTheDocumentAndKeepsItsSyntax) {
  const std::string input = R"({"a": [1, -2.5, "b\"}"], "c": {"d": null, "e": true}})";
  std::mt19937_64 random(1);
  std::set<std::string> distinct;
  for (int i = 0; i < 1000; ++i) {
    const auto changed = fuzz::MutateJson(input, R"([{"a": "other"}])", random);
    ASSERT_TRUE(changed.has_value());
    ASSERT_TRUE(nlohmann::json::accept(*changed)) << *changed;
    distinct.insert(*changed);
  }
  EXPECT_GT(distinct.size(), 200u);
  const auto has = [&](const char* part) {
    return std::any_of(distinct.begin(), distinct.end(),
                       [&](const std::string& text) { return text.find(part) != text.npos; });
  };
  for (const char* part : {"9223372036854775807", R"("a":"other")", R"("c":{"e":true})"}) {
    EXPECT_TRUE(has(part)) << part;
  }
}

TEST(MutateJsonTest, ReturnsNothingForOtherText) {
  std::mt19937_64 random(1);
  for (const char* input : {"", "a: {b: 1}", "{", "{a}", "text {\"a\": 1}"}) {
    EXPECT_FALSE(fuzz::MutateJson(input, "{}", random).has_value()) << input;
  }
}

TEST(MutateJsonTest, ChangesOneLineAndKeepsTheOthers) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100; ++i) {
    const auto changed = fuzz::MutateJson("first\n{\"a\": 1}\n\nlast {}", "{}", random);
    ASSERT_TRUE(changed.has_value());
    EXPECT_TRUE(changed->starts_with("first\n") && changed->ends_with("\n\nlast {}")) << *changed;
  }
}

TEST(MutateJsonTest, KeepsTheSizeOfASafetensorsHeader) {
  const std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}  )";
  std::string input(8, '\0');
  input[0] = static_cast<char>(header.size());
  input += header + "data";
  std::mt19937_64 random(1);
  for (int i = 0; i < 100; ++i) {
    const auto changed = fuzz::MutateJson(input, input, random);
    ASSERT_TRUE(changed.has_value());
    const size_t size =
        static_cast<uint8_t>((*changed)[0]) + 256 * static_cast<uint8_t>((*changed)[1]);
    EXPECT_EQ(changed->substr(8 + size), "data");
    EXPECT_TRUE(nlohmann::json::accept(changed->substr(8, size)));
  }
}

}  // namespace
}  // namespace sluice
