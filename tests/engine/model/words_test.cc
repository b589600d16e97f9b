#include "engine/model/words.h"

#include <string>
#include <vector>

#include "tests/support/table.h"

namespace sluice {
namespace {

struct WordsRow {
  const char* name;
  std::string text = "";
  std::vector<std::string> words = {};
  WordKind kind = WordKind::kPlain;
};
class WordsTable : public TableTest<WordsRow> {};

TEST_P(WordsTable, AreThoseOfTheExpression) {
  std::vector<std::string> words;
  int32_t end = 0;
  for (const TextWord& word : SplitWords(row().text, row().kind)) {
    words.push_back(row().text.substr(word.bytes.begin, word.bytes.end - word.bytes.begin));
    EXPECT_GE(word.begin, end);
    EXPECT_GT(word.end, word.begin);
    end = word.end;
  }
  EXPECT_EQ(words, row().words);
}

const WordsRow kWordsRows[] = {
    {.name = "NoText"},
    {.name = "White", .text = " \t\n\x1c\x1f\u00a0\u3000"},
    {.name = "WordsAndMarks", .text = "Hi, you!", .words = {"Hi", ",", "you", "!"}},
    {.name = "JoinedWords", .text = "re-use co_op a-_b", .words = {"re-use", "co_op", "a-_b"}},
    {.name = "HyphensWithoutWords",
     .text = "-a b- c--d -",
     .words = {"-", "a", "b", "-", "c", "-", "-", "d", "-"}},
    {.name = "Numbers",
     .text = "3.14 x\u00b2 \u00bd",
     .words = {"3", ".", "14", "x\u00b2", "\u00bd"}},
    {.name = "MarksAreNotOfWords", .text = "a\u0301b", .words = {"a", "\u0301", "b"}},
    {.name = "Scripts",
     .text = "Stra\u00dfe\u65e5\u672c \u0394",
     .words = {"Stra\u00dfe\u65e5\u672c", "\u0394"}},
    {.name = "BytesThatAreNotUtf8",
     .text = "a\xff"
             "b",
     .words = {"a", "\xff", "b"}},
    {.name = "LinksAreSeveralPlainWords",
     .text = "www.a.de @b",
     .words = {"www", ".", "a", ".", "de", "@", "b"}},
    {.name = "Links",
     .text = "See HTTP://a.b/?c=d, www.x or https:// or www. !",
     .words = {"See", "HTTP://a.b/?c=d,", "www.x", "or", "https", ":", "/", "/", "or", "www", ".",
               "!"},
     .kind = WordKind::kLinks},
    {.name = "Addresses",
     .text = "a.b+c@d-e.f.Com. x@y x@y.z .@.co.uk a@b.cd.e9",
     .words = {"a.b+c@d-e.f.Com", ".", "x", "@y", "x", "@y", ".", "z", ".@.co.uk", "a@b.cd", ".",
               "e9"},
     .kind = WordKind::kLinks},
    {.name = "Names",
     .text = "@Ada_1 @ @-x",
     .words = {"@Ada_1", "@", "@", "-", "x"},
     .kind = WordKind::kLinks},
    {.name = "MarksAreOfWordsWithLinks",
     .text = "a\u0301b-c\u200d \u0301",
     .words = {"a\u0301b-c\u200d", "\u0301"},
     .kind = WordKind::kLinks},
};
SLUICE_TABLE(WordsTable, kWordsRows);

TEST(WordsTest, PlacesCountBytesAndCharacters) {
  const std::vector<TextWord> words = SplitWords("\u00fcber \u65e5\u672c!", WordKind::kPlain);
  ASSERT_EQ(words.size(), 3u);
  EXPECT_EQ(words[1].bytes.begin, 6);
  EXPECT_EQ(words[1].bytes.end, 12);
  EXPECT_EQ(words[1].begin, 5);
  EXPECT_EQ(words[1].end, 7);
  EXPECT_EQ(words[2].begin, 7);
}

}  // namespace
}  // namespace sluice
