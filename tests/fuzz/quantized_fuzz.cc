// Loads a checkpoint with quantised layers. An input consists of the "quantization_config" of a
// small Llama in one line, a line "NAME DTYPE EXTENT..." for each tensor, an empty line, and bytes
// that are repeated to fill the tensors. safetensors_fuzz.cc covers invalid safetensors files.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/model/model.h"
#include "nlohmann/json.hpp"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

constexpr char kConfig[] = R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 8,
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1,
    "num_key_value_heads": 1, "head_dim": 32, "hidden_act": "silu", "rms_norm_eps": 1e-05,
    "max_position_embeddings": 16, "tie_word_embeddings": true, "bos_token_id": 1,
    "eos_token_id": 2, "sluice": {"tokenizer": "none"}, "quantization_config": )";

// A file in memory.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(memfd_create("checkpoint", 0)) { SLUICE_CHECK(descriptor_ >= 0); }

  const std::string& Write(std::string_view bytes) {
    SLUICE_CHECK(ftruncate(descriptor_, 0) == 0);
    const ssize_t written = pwrite(descriptor_, bytes.data(), bytes.size(), 0);
    SLUICE_CHECK(written == static_cast<ssize_t>(bytes.size()));
    return path_;
  }

 private:
  const int descriptor_;
  const std::string path_ = absl::StrCat("/proc/self/fd/", descriptor_);
};

// Returns the bytes of a value, or 0 for a type that safetensors does not have.
int64_t BytesOf(absl::string_view dtype) {
  for (const auto& [name, bytes] : {std::pair{"F32", 4},
                                    {"I32", 4},
                                    {"F16", 2},
                                    {"BF16", 2},
                                    {"I8", 1},
                                    {"U8", 1},
                                    {"I64", 8}}) {
    if (dtype == name) return bytes;
  }
  return 0;
}

// Returns a file with the tensors in `lines`. Skips invalid lines, and tensors that exceed the
// total size limit.
std::string FileOf(std::string_view lines, std::string_view bytes) {
  constexpr int64_t kMostBytes = 1 << 16;
  nlohmann::json header = nlohmann::json::object();
  int64_t end = 0;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(std::string(lines), '\n'))) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words.size() < 2 || words.size() > 6 || header.contains(words[0])) continue;
    int64_t size = BytesOf(words[1]);
    std::vector<int64_t> shape;
    for (size_t i = 2; i < words.size(); ++i) {
      int64_t& extent = shape.emplace_back(0);
      if (!absl::SimpleAtoi(words[i], &extent)) extent = 0;
      extent = std::clamp<int64_t>(extent, 0, kMostBytes);
      size = std::min(size * extent, kMostBytes + 1);
    }
    if (BytesOf(words[1]) == 0 || end + size > kMostBytes) continue;
    header[words[0]] = {{"dtype", words[1]}, {"shape", shape}, {"data_offsets", {end, end + size}}};
    end += size;
  }
  using ErrorHandler = nlohmann::json::error_handler_t;
  const std::string text = header.dump(-1, ' ', false, ErrorHandler::replace);
  const uint64_t size = text.size();
  std::string file(reinterpret_cast<const char*>(&size), sizeof(size));
  file += text;
  for (int64_t i = 0; i < end; ++i) file += bytes.empty() ? 0 : bytes[i % bytes.size()];
  return file;
}

// Checks that a refusal names the tensor, and both shapes if they differ.
void CheckTensorRefusal(const absl::Status& status) {
  const absl::string_view message = status.message();
  SLUICE_CHECK(status.code() == absl::StatusCode::kInvalidArgument ||
               status.code() == absl::StatusCode::kNotFound);
  fuzz::CheckRefusal(absl::InvalidArgumentError(message));
  SLUICE_CHECK(absl::StrContains(message, "tensor model."));
  const bool shape = absl::StrContains(message, "has shape [");
  SLUICE_CHECK(!shape || absl::StrContains(message, "], must be ["));
}

}  // namespace
}  // namespace sluice

bool sluice::fuzz::TestInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  static MemoryFile& file = *new MemoryFile();
  static Backend& backend = *MakeCpuBackend({.threads = 1, .profile = "cpu-portable-f32"},
                                            {.variant = {AttentionVariant::Kind::kOnePass}})
                                 ->release();
  const std::string_view input = fuzz::AsText(data, size);
  const size_t line = input.find('\n'), blank = input.find("\n\n");
  if (blank == input.npos || line == blank) return false;
  const std::string bytes =
      FileOf(input.substr(line + 1, blank - line - 1), input.substr(blank + 2));
  auto config = ParseModelConfig(kConfig + std::string(input.substr(0, line)) + "}");
  if (!config.ok()) {
    fuzz::CheckRefusal(config.status());
    return false;
  }
  auto checkpoint = Checkpoint::OpenFile(file.Write(bytes));
  if (!checkpoint.ok()) {
    fuzz::CheckRefusal(checkpoint.status());
    return false;
  }
  // The text before the quotation may have changed other keys; a large model would take too long.
  if (config->hidden_size != 32 || config->layers != 1 || config->vocab_size != 8) return false;
  const auto model = std::make_shared<Model>();
  model->graph = BuildGraph(*config);
  model->config = *std::move(config);
  model->checkpoint = *std::move(checkpoint);
  const auto loaded = backend.Load(model);
  if (!loaded.ok()) CheckTensorRefusal(loaded.status());
  return loaded.ok();
}
