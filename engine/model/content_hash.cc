#include "engine/model/content_hash.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/stable_hash.h"
#include "base/status_macros.h"

namespace sluice {
namespace {

constexpr size_t kBytesOfTensor = 64;
constexpr size_t kMostBytes = size_t{64} << 20;  // of a file that is hashed

// Adds a file below a folder. The tensors of the checkpoint are added by AddTensors.
void AddFile(const Directory& folder, std::string_view path, StableHash* hash) {
  const size_t slash = path.find('/');
  if (slash != std::string_view::npos) {
    const absl::StatusOr<Directory> inner = folder.OpenFolder(std::string(path.substr(0, slash)));
    if (inner.ok()) AddFile(*inner, path.substr(slash + 1), hash);
    return;
  }
  const absl::StatusOr<std::string> content = folder.Read(std::string(path), kMostBytes);
  hash->Add(path);
  if (content.ok()) hash->Add(*content);
}

void AddTensors(const Checkpoint& checkpoint, StableHash* hash) {
  std::vector<std::pair<std::string, const Tensor*>> tensors;
  for (const auto& [name, tensor] : checkpoint.tensors()) tensors.push_back({name, &tensor});
  std::sort(tensors.begin(), tensors.end());
  for (const auto& [name, tensor] : tensors) {
    hash->Add(name);
    hash->Add(static_cast<int64_t>(tensor->dtype));
    for (const int64_t extent : tensor->shape) hash->Add(extent);
    const size_t bytes =
        std::min<size_t>(kBytesOfTensor, kernels::DTypeBytes(tensor->dtype) * tensor->elements());
    hash->Add(std::string_view(static_cast<const char*>(tensor->data), bytes));
  }
}

}  // namespace

absl::StatusOr<std::string> ContentHash(const Directory& directory, const Model& model) {
  StableHash hash;
  // It has "PATH:PLACE, SIZE AND TIME;" for each file.
  SLUICE_ASSIGN_OR_RETURN(const std::string files, directory.Fingerprint());
  for (const absl::string_view file : absl::StrSplit(files, ';', absl::SkipEmpty())) {
    const std::string_view path(file.data(), file.find(':'));
    const bool weights = path.find('/') == std::string_view::npos && path.ends_with(".safetensors");
    if (!weights) AddFile(directory, path, &hash);
  }
  AddTensors(model.checkpoint, &hash);
  if (model.labels != nullptr) AddTensors(model.labels->checkpoint, &hash);
  const QuantizationConfig& quantization = model.config.quantization;
  hash.Add(static_cast<int64_t>(quantization.projections));
  hash.Add(quantization.group);
  hash.Add(static_cast<int64_t>(quantization.head));
  hash.Add(static_cast<int64_t>(model.config.kv_dtype));
  return absl::StrCat(absl::Hex(hash.value(), absl::kZeroPad16));
}

}  // namespace sluice
