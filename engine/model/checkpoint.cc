#include "engine/model/checkpoint.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "engine/model/safetensors.h"

namespace sluice {
namespace {

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";
constexpr size_t kMaxIndexBytes = size_t{16} << 20;
constexpr int kMaxIndexDepth = 4;
constexpr size_t kMaxShards = 4096;
constexpr char kFloats[] = "F32, F16 or BF16";

std::optional<kernels::DType> WeightDType(const std::string& dtype) {
  if (dtype == "F32") return kernels::DType::kF32;
  if (dtype == "F16") return kernels::DType::kF16;
  if (dtype == "BF16") return kernels::DType::kBF16;
  if (dtype == "I8") return kernels::DType::kI8;
  if (dtype == "I32") return kernels::DType::kI32;
  return std::nullopt;
}

absl::Status InFile(const std::string& file_name, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(absl::CHexEscape(file_name), ": ", status.message()));
}

// The names of the tensors of each shard, as the index file lists them.
using Shards = std::map<std::string, std::vector<std::string>>;

absl::StatusOr<Shards> ParseIndex(std::string_view text) {
  SLUICE_ASSIGN_OR_RETURN(auto document, ParseJson(text, kMaxIndexDepth));
  const auto no_map = absl::InvalidArgumentError("weight_map is not an object of file names");
  if (!document.is_object() || !document.contains("weight_map")) return no_map;
  const nlohmann::json& weight_map = document["weight_map"];
  if (!weight_map.is_object()) return no_map;
  Shards shards;
  for (const auto& [tensor, file] : weight_map.items()) {
    if (!file.is_string()) return no_map;
    const std::string& name = file.get_ref<const std::string&>();
    if (!absl::EndsWith(name, ".safetensors")) {
      return absl::InvalidArgumentError(absl::StrCat(
          "weight_map: \"", absl::CEscape(name.substr(0, 64)), "\" is not a .safetensors file"));
    }
    shards[name].push_back(tensor);
  }
  if (shards.size() > kMaxShards) {
    return absl::InvalidArgumentError(
        absl::StrCat(shards.size(), " shards; the limit is ", kMaxShards));
  }
  return shards;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::Status WrongDType(const std::string& name, const std::string& dtype, const char* wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", name, " has dtype ", dtype, ", must be ", wanted));
}

}  // namespace

int64_t Tensor::elements() const {
  int64_t product = 1;
  for (int64_t size : shape) product *= size;
  return product;
}

bool Checkpoint::IsIn(const Directory& directory) {
  return directory.Has(kSingleFile) || directory.Has(kIndexFile);
}

absl::StatusOr<Checkpoint> Checkpoint::Open(const Directory& directory, FileAccess access) {
  Checkpoint checkpoint;
  checkpoint.access_ = access;
  if (!directory.Has(kSingleFile) && directory.Has(kIndexFile)) {
    SLUICE_RETURN_IF_ERROR(checkpoint.AddShards(directory));
    return checkpoint;
  }
  if (!directory.Has(kSingleFile)) {
    for (const char* const pickled : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
      if (!directory.Has(pickled)) continue;
      return absl::NotFoundError(
          absl::StrCat("there is ", pickled, " but no ", kSingleFile,
                       "; convert it with tools/convert DIR NEW_DIR (docs/your_model.md)"));
    }
  }
  return OpenFile(directory, kSingleFile, access);
}

absl::StatusOr<Checkpoint> Checkpoint::OpenFile(const Directory& directory, const std::string& name,
                                                FileAccess access) {
  SLUICE_ASSIGN_OR_RETURN(auto file, directory.Map(name, access));
  Checkpoint checkpoint;
  checkpoint.access_ = access;
  SLUICE_RETURN_IF_ERROR(checkpoint.Add(file, name));
  return checkpoint;
}

absl::StatusOr<Checkpoint> Checkpoint::OpenFile(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
  Checkpoint checkpoint;
  SLUICE_RETURN_IF_ERROR(checkpoint.Add(file, path));
  return checkpoint;
}

int64_t Checkpoint::bytes() const {
  int64_t bytes = 0;
  for (const auto& file : files_) bytes += std::ssize(file->bytes());
  return bytes;
}

absl::Status Checkpoint::Add(std::shared_ptr<const MappedFile> file, const std::string& file_name) {
  auto entries = ParseSafetensors(file->bytes());
  if (!entries.ok()) return InFile(file_name, entries.status());
  for (SafetensorsEntry& entry : *entries) {
    if (Lists(entry.name)) {
      return InFile(file_name,
                    absl::InvalidArgumentError(absl::StrCat("tensor ", absl::CEscape(entry.name),
                                                            " is in another shard too")));
    }
    if (const auto dtype = WeightDType(entry.dtype)) {
      tensors_.emplace(std::move(entry.name),
                       Tensor{*dtype, std::move(entry.shape), entry.data.data()});
    } else {
      unsupported_.emplace(std::move(entry.name), std::move(entry.dtype));
    }
  }
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

absl::Status Checkpoint::AddShards(const Directory& directory) {
  SLUICE_ASSIGN_OR_RETURN(auto text, directory.Read(kIndexFile, kMaxIndexBytes));
  auto shards = ParseIndex(text);
  if (!shards.ok()) return InFile(kIndexFile, shards.status());

  size_t found = 0;
  for (const auto& [shard, tensors] : *shards) {
    SLUICE_ASSIGN_OR_RETURN(auto file, directory.Map(shard, access_));
    SLUICE_RETURN_IF_ERROR(Add(file, shard));
    for (const std::string& tensor : tensors) {
      if (Lists(tensor)) continue;
      return InFile(shard, absl::InvalidArgumentError(absl::StrCat(
                               "tensor ", absl::CEscape(tensor.substr(0, 255)), " is missing, but ",
                               kIndexFile, " lists it in this file")));
    }
    found += tensors.size();
  }
  if (found != tensors_.size() + unsupported_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the shards hold ",
                                                   tensors_.size() + unsupported_.size(),
                                                   " tensors, ", kIndexFile, " lists ", found));
  }
  return absl::OkStatus();
}

void Checkpoint::Share(const std::string& name, const std::string& other) {
  const auto found = tensors_.find(other);
  if (found == tensors_.end() || Lists(name)) return;
  const Tensor tensor = found->second;  // an insertion may move it
  tensors_.emplace(name, tensor);
}

void Checkpoint::LeaveOut(const std::string& part) {
  std::vector<std::string> longer;
  for (const auto& [name, tensor] : tensors_) {
    if (name.find(part) != std::string::npos) longer.push_back(name);
  }
  for (const std::string& name : longer) {
    std::string shorter = name;
    shorter.erase(shorter.find(part), part.size());
    Share(shorter, name);
  }
}

bool Checkpoint::Has(const std::string& name) const { return tensors_.contains(name); }

std::vector<std::string> Checkpoint::Names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size() + unsupported_.size());
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  for (const auto& [name, dtype] : unsupported_) names.push_back(name);
  std::ranges::sort(names);
  return names;
}

bool Checkpoint::IsInt8(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it != tensors_.end() && it->second.dtype == kernels::DType::kI8;
}

absl::StatusOr<Tensor> Checkpoint::Find(const std::string& name,
                                        const std::vector<int64_t>& shape) const {
  SLUICE_ASSIGN_OR_RETURN(Tensor tensor, FindAny(name, shape, kFloats));
  if (tensor.dtype == kernels::DType::kI8) return WrongDType(name, "I8", kFloats);
  if (tensor.dtype == kernels::DType::kI32) return WrongDType(name, "I32", kFloats);
  return tensor;
}

absl::StatusOr<Tensor> Checkpoint::FindWords(const std::string& name,
                                             const std::vector<int64_t>& shape) const {
  SLUICE_ASSIGN_OR_RETURN(Tensor tensor, FindAny(name, shape, "I32"));
  if (tensor.dtype != kernels::DType::kI32) return WrongDType(name, "another", "I32");
  return tensor;
}

absl::StatusOr<Checkpoint::Int8Tensor> Checkpoint::FindInt8(
    const std::string& name, const std::vector<int64_t>& shape) const {
  SLUICE_ASSIGN_OR_RETURN(Tensor values, FindAny(name, shape, "I8"));
  if (values.dtype != kernels::DType::kI8) return WrongDType(name, "a float", "I8");
  SLUICE_ASSIGN_OR_RETURN(Tensor scales, Find(name + "_scale", {shape.front(), 1}));
  return Int8Tensor{.values = std::move(values), .scales = std::move(scales)};
}

absl::StatusOr<Tensor> Checkpoint::FindAny(const std::string& name,
                                           const std::vector<int64_t>& shape,
                                           const char* wanted) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) {
    const auto other = unsupported_.find(name);
    if (other == unsupported_.end()) {
      return absl::NotFoundError(absl::StrCat("tensor ", name, " is missing"));
    }
    return WrongDType(name, other->second, wanted);
  }
  if (it->second.shape != shape) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", name, " has shape ",
                                                   ShapeText(it->second.shape), ", must be ",
                                                   ShapeText(shape)));
  }
  return it->second;
}

}  // namespace sluice
