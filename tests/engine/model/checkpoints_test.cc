// Compares the table of checkpoints in docs/models.md with the code. checkpoints.json contains the
// config.json and the sentence-transformers files of these checkpoints with their published keys
// and sizes. They are read or refused as the table states.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "engine/model/model.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string ReadText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

const json& Checkpoints() {
  static const json* const all =
      new json(json::parse(ReadText(SLUICE_SOURCE_DIR "/tests/engine/model/checkpoints.json")));
  return *all;
}

TEST(CheckpointsTest, PublishedFilesAreReadOrRefusedByTheKey) {
  for (const json& checkpoint : Checkpoints()) {
    SCOPED_TRACE(checkpoint["checkpoint"]);
    EXPECT_FALSE(checkpoint["read_from"].get<std::string>().empty());
    const TemporaryDirectory folder;
    for (const auto& [name, content] : checkpoint["files"].items()) {
      std::filesystem::create_directories(std::filesystem::path(folder.File(name)).parent_path());
      std::ofstream(folder.File(name)) << content.dump();
    }
    const auto config = ReadModelConfig(*Directory::Open(folder.File("")));
    if (checkpoint.contains("refused")) {
      ASSERT_FALSE(config.ok());
      EXPECT_THAT(config.status().message(), HasSubstr(checkpoint["refused"]));
    } else {
      EXPECT_TRUE(config.ok()) << config.status();
    }
  }
}

// A row of the table: | task | checkpoints | architectures | served |
struct Row {
  std::string task, checkpoints, architectures, served;
};

std::vector<Row> TableOfCheckpoints() {
  const std::string page = ReadText(SLUICE_SOURCE_DIR "/docs/models.md");
  const size_t begin = page.find("| task | checkpoint | architecture | served |");
  const std::string table = page.substr(begin, page.find("\n\n", begin) - begin);
  std::vector<Row> rows;
  const std::vector<std::string> lines = absl::StrSplit(table, '\n');
  for (const std::string& line : lines) {
    const std::vector<std::string> cells = absl::StrSplit(line, '|');
    if (cells.size() == 6) rows.push_back({cells[1], cells[2], cells[3], cells[4]});
  }
  rows.erase(rows.begin(), rows.begin() + 2);  // the titles and the line below
  return rows;
}

TEST(CheckpointsTest, TheTableListsReadAndRefusedCheckpoints) {
  const std::vector<Row> rows = TableOfCheckpoints();
  EXPECT_GE(rows.size(), 60u);
  EXPECT_GE(std::ranges::count_if(
                rows, [](const Row& row) { return row.served.starts_with(" as published"); }),
            45);
  for (const Row& row : rows) {
    SCOPED_TRACE(row.checkpoints);
    int read = 0, refused = 0;
    for (const json& checkpoint : Checkpoints()) {
      const std::string name = checkpoint["checkpoint"];
      if (row.checkpoints.find(name) == std::string::npos) continue;
      ++(checkpoint.contains("refused") ? refused : read);
      const std::string architecture =
          checkpoint["files"]["config.json"]["architectures"][0].get<std::string>();
      if (row.architectures != " ") {
        EXPECT_THAT(row.architectures, HasSubstr("`" + architecture + "`"));
      }
    }
    EXPECT_GT(read + refused, 0) << "no checkpoint of this row is tried";
    if (row.served.starts_with(" as published")) {
      EXPECT_GT(read, 0);
    }
    if (row.served.starts_with(" no:")) {
      EXPECT_EQ(read, 0);
    }
  }
  for (const json& checkpoint : Checkpoints()) {
    const std::string name = checkpoint["checkpoint"];
    EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [&](const Row& row) {
      return row.checkpoints.find(name) != std::string::npos;
    })) << name;
  }
}

}  // namespace
}  // namespace sluice
