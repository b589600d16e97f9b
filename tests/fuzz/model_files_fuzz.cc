// Reads the files of a model's directory except the weights: config.json, the files of
// sentence-transformers, and the tokenizer with the files next to it.
//
// An input is a JSON object whose keys are paths and whose values are the files. A text is the
// file's bytes; other values are JSON.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json_reader.h"
#include "engine/model/directory.h"
#include "engine/model/model.h"
#include "engine/model/text_tasks.h"
#include "engine/model/tokenizer_files.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

constexpr size_t kMostFiles = 16;

// A directory in memory that the program removes at its end.
class ModelFolder {
 public:
  ModelFolder() {
    std::string pattern = "/dev/shm/sluice-fuzz-XXXXXX";
    SLUICE_CHECK(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~ModelFolder() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }

  void Clear() {
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      std::filesystem::remove_all(entry);
    }
  }

  // Writes a file, or nothing if its path has more than one folder or an unusual name.
  void Write(const std::string& name, const std::string& bytes) {
    const std::filesystem::path path(name);
    const std::string folder = path.parent_path(), file = path.filename();
    if (!IsPlain(file) || !(folder.empty() || IsPlain(folder))) return;
    const std::filesystem::path target = std::filesystem::path(path_) / folder;
    std::error_code error;  // if the folder is a file
    std::filesystem::create_directory(target, error);
    std::ofstream(target / file, std::ios::binary) << bytes;
  }

 private:
  static bool IsPlain(const std::string& name) {
    return !name.empty() && name.size() < 64 && name != "." && name != ".." &&
           name.find_first_of(std::string_view("/\0", 2)) == name.npos;
  }

  std::string path_;
};

void CheckText(const Tokenizer& tokenizer) {
  const absl::StatusOr<std::vector<int32_t>> ids = tokenizer.Encode("ab Hello, World! 42");
  SLUICE_CHECK(ids.ok() || !ids.status().message().empty());
  if (ids.ok()) tokenizer.Decode(*ids);
}

// Checks that an error is about the files, and that its message is printable.
absl::Status Checked(const absl::Status& status) {
  if (status.ok()) return status;
  SLUICE_CHECK(status.code() == absl::StatusCode::kInvalidArgument ||
               status.code() == absl::StatusCode::kNotFound);
  fuzz::CheckRefusal(absl::InvalidArgumentError(status.message()));
  return status;
}

absl::Status ReadFiles(const Directory& directory) {
  absl::StatusOr<ModelConfig> config = ReadModelConfig(directory);
  if (!config.ok()) return Checked(config.status());
  const absl::Status ends = Checked(LoadEndTokens(directory, &*config));
  if (!ends.ok()) return ends;
  auto tokenizer =
      LoadTokenizer(directory, config->vocab_size, config->serving.lower_case, &config->warnings);
  if (!tokenizer.ok()) return Checked(tokenizer.status());
  if (*tokenizer == nullptr) return absl::OkStatus();
  CheckText(**tokenizer);
  const auto specials = ReadSpecialNames(directory);
  if (!specials.ok()) return Checked(specials.status());
  auto tasks = FindTasks(*config, **tokenizer, *specials);
  if (!tasks.ok()) return Checked(tasks.status());
  Checked(LoadTermTables(*config, directory, &*tasks)).IgnoreError();  // needs weights
  return absl::OkStatus();
}

}  // namespace
}  // namespace sluice

bool sluice::fuzz::TestInput(const uint8_t* data, size_t size) {
  static sluice::ModelFolder folder;
  const auto files = ParseJson(AsText(data, size), 32);
  if (!files.ok() || !files->is_object() || files->size() > sluice::kMostFiles) return false;
  folder.Clear();
  for (const auto& [name, value] : files->items()) {
    folder.Write(name, value.is_string() ? value.get<std::string>() : value.dump());
  }
  const auto directory = Directory::Open(folder.path());
  SLUICE_CHECK(directory.ok());
  return ReadFiles(*directory).ok();
}
