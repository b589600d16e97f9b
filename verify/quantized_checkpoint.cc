#include "verify/quantized_checkpoint.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/size_of.h"
#include "base/status_macros.h"
#include "engine/model/kept_channels.h"
#include "kernels/dtype.h"
#include "nlohmann/json.hpp"
#include "verify/int8_rows.h"

namespace sluice::verify {
namespace {

namespace fs = std::filesystem;
using kernels::DType;
using nlohmann::json;

constexpr char kConfigFile[] = "config.json";
constexpr char kWeightsFile[] = "model.safetensors";

// A tensor of the file that is written. Its bytes are made just before they are written.
struct Written {
  std::string name;
  const char* dtype;
  std::vector<int64_t> shape;
  int64_t bytes;
  std::function<std::string()> data;
};

const char* NameOfDType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kI8:
      return "I8";
    case DType::kI32:
      break;
  }
  return "I32";
}

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Returns the tensor's values times its scales.
std::vector<float> Scaled(const Tensor& tensor, const ScalesOfTensor& scales) {
  const int64_t count = tensor.elements();
  std::vector<float> values(static_cast<size_t>(count));
  kernels::ConvertToFloat(tensor.data, tensor.dtype, 0, count, values.data());
  const int64_t columns = tensor.shape.size() > 1 ? tensor.shape.back() : 1;
  for (int64_t i = 0; i < count; ++i) {
    if (!scales.by_column.empty()) values[i] *= scales.by_column[i % columns];
    if (!scales.by_row.empty()) {
      values[i] *= scales.by_row[i / columns % std::ssize(scales.by_row)];
    }
  }
  return values;
}

DType FloatsOf(const Tensor& tensor) {
  return tensor.dtype == DType::kBF16 ? DType::kBF16 : DType::kF32;
}

// Returns values as floats of a dtype, F32 or BF16.
std::string FloatBytes(const std::vector<float>& values, DType dtype) {
  if (dtype != DType::kBF16) return BytesOf(values);
  std::vector<uint16_t> rounded;
  rounded.reserve(values.size());
  for (const float value : values) rounded.push_back(kernels::RoundToBF16(value));
  return BytesOf(rounded);
}

// Appends a tensor in int8, its scales as compressed-tensors names them, and its kept channels.
void AppendQuantized(const std::string& name, const Tensor& tensor, const ScalesOfTensor& scales,
                     const std::vector<int32_t>& kept, std::vector<Written>* tensors) {
  const auto rows = [tensor, &scales, &kept] {
    return QuantizeRows(Scaled(tensor, scales), tensor.shape.back(), kept);
  };
  tensors->push_back(
      {name, "I8", tensor.shape, tensor.elements(), [rows] { return BytesOf(rows().values); }});
  tensors->push_back({name + "_scale",
                      "F32",
                      {tensor.shape.front(), 1},
                      tensor.shape.front() * kSizeOf<float>,
                      [rows] { return BytesOf(rows().scales); }});
  if (kept.empty()) return;
  const int64_t channels = std::ssize(kept), out = tensor.shape.front();
  tensors->push_back(
      {NameOfKeptChannels(name), "I32", {channels}, channels * kSizeOf<int32_t>, [&kept] {
         return BytesOf(kept);
       }});
  const DType dtype = FloatsOf(tensor);
  const auto columns = [=, &scales, &kept] {
    const std::vector<float> values = Scaled(tensor, scales);
    std::vector<float> of_kept;
    for (int64_t row = 0; row < out; ++row) {
      for (const int32_t channel : kept) {
        of_kept.push_back(values[row * tensor.shape.back() + channel]);
      }
    }
    return FloatBytes(of_kept, dtype);
  };
  tensors->push_back({NameOfKept(name),
                      NameOfDType(dtype),
                      {out, channels},
                      out * channels * kernels::DTypeBytes(dtype),
                      columns});
}

// Appends a tensor with its scales. F16 becomes F32, in which each product is exact.
void AppendScaled(const std::string& name, const Tensor& tensor, const ScalesOfTensor& scales,
                  std::vector<Written>* tensors) {
  const DType dtype = FloatsOf(tensor);
  tensors->push_back({name, NameOfDType(dtype), tensor.shape,
                      tensor.elements() * kernels::DTypeBytes(dtype),
                      [=, &scales] { return FloatBytes(Scaled(tensor, scales), dtype); }});
}

// Writes a file by write(stream). Readers see the whole file or no file.
absl::Status WriteFile(const fs::path& path, const std::function<void(std::ofstream&)>& write) {
  const fs::path partial = path.string() + ".partial";
  std::ofstream file(partial, std::ios::binary);
  write(file);
  file.close();
  std::error_code error;
  if (!file) {
    fs::remove(partial, error);
    return absl::UnavailableError(absl::StrCat(path.string(), ": cannot be written"));
  }
  fs::rename(partial, path, error);
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(path.string(), ": ", error.message()));
}

absl::Status WriteTensors(const std::vector<Written>& tensors, const fs::path& path) {
  json header = {{"__metadata__", {{"format", "pt"}}}};
  int64_t end = 0;
  for (const Written& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {end, end + tensor.bytes}}};
    end += tensor.bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  return WriteFile(path, [&](std::ofstream& file) {
    file.write(reinterpret_cast<const char*>(&size), sizeof(size));
    file << text;
    for (const Written& tensor : tensors) file << tensor.data();
  });
}

json QuantizationConfigJson(const std::set<std::string>& kept) {
  const auto integers = [](const char* strategy, bool dynamic) {
    return json{{"num_bits", 8},
                {"type", "int"},
                {"symmetric", true},
                {"strategy", strategy},
                {"dynamic", dynamic}};
  };
  return {{"quant_method", "compressed-tensors"},
          {"format", "int-quantized"},
          {"quantization_status", "compressed"},
          {"ignore", kept},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"weights", integers("channel", false)},
              {"input_activations", integers("token", true)}}}}}};
}

absl::Status WriteConfig(const fs::path& from, const fs::path& to,
                         const std::set<std::string>& kept) {
  std::ifstream in(from);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  json config = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(from.string(), ": is not an object"));
  }
  config["quantization_config"] = QuantizationConfigJson(kept);
  return WriteFile(to, [&](std::ofstream& file) { file << config.dump(2) << "\n"; });
}

bool IsInside(const fs::path& path, const fs::path& folder) {
  std::error_code error;
  const fs::path inner = fs::weakly_canonical(path, error);
  const fs::path relative = inner.lexically_relative(fs::weakly_canonical(folder, error));
  return !relative.empty() && *relative.begin() != "..";
}

// Copies all files except configs and weights: tokenizers, and the modules that follow the states.
// Replaces files of an earlier try.
absl::Status CopyOthers(const fs::path& from, const fs::path& to) {
  std::error_code error;
  for (fs::directory_iterator entry(from, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name == kConfigFile || absl::EndsWith(name, ".safetensors") ||
        absl::EndsWith(name, ".safetensors.index.json")) {
      continue;
    }
    fs::copy(entry->path(), to / name,
             fs::copy_options::recursive | fs::copy_options::overwrite_existing, error);
    if (!error) continue;
    return absl::UnavailableError(
        absl::StrCat(entry->path().string(), ": cannot be copied: ", error.message()));
  }
  if (!error) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(from.string(), ": cannot be listed: ", error.message()));
}

}  // namespace

absl::Status WriteQuantizedCheckpoint(const Checkpoint& checkpoint,
                                      const std::string& model_directory, const std::string& out,
                                      const TensorScales& scales,
                                      const QuantizedTensors& quantized) {
  const fs::path from = model_directory, to = out;
  std::error_code error;
  if (!fs::exists(from / kConfigFile, error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        model_directory, ": has no config.json of its own; name the folder that has one"));
  }
  if (fs::exists(to / kConfigFile, error) || fs::exists(to / kWeightsFile, error)) {
    return absl::AlreadyExistsError(
        absl::StrCat(out, ": already contains a model; name another directory"));
  }
  // The model's files are copied. The copy would not end if the target were inside their folder.
  if (IsInside(to, from)) {
    return absl::InvalidArgumentError(
        absl::StrCat(out, ": is inside the model's folder; name another directory"));
  }
  fs::create_directories(to, error);
  if (error) return absl::UnavailableError(absl::StrCat(out, ": ", error.message()));
  static const ScalesOfTensor kNone;
  std::vector<Written> tensors;
  std::set<std::string> kept;
  std::map<std::string, const Tensor*> by_name;  // sorted
  for (const auto& [name, tensor] : checkpoint.tensors()) by_name[name] = &tensor;
  for (const auto& [name, tensor] : by_name) {
    const auto found = scales.find(name);
    const ScalesOfTensor& own = found == scales.end() ? kNone : found->second;
    if (const auto own_channels = quantized.find(name); own_channels != quantized.end()) {
      AppendQuantized(name, *tensor, own, own_channels->second, &tensors);
      continue;
    }
    constexpr absl::string_view kWeight = ".weight";
    if (tensor->shape.size() > 1 && absl::EndsWith(name, kWeight)) {
      kept.insert(name.substr(0, name.size() - kWeight.size()));
    }
    if (found != scales.end()) {
      AppendScaled(name, *tensor, own, &tensors);
      continue;
    }
    const int64_t bytes = tensor->elements() * kernels::DTypeBytes(tensor->dtype);
    tensors.push_back({name, NameOfDType(tensor->dtype), tensor->shape, bytes, [tensor, bytes] {
                         const auto* const data = static_cast<const char*>(tensor->data);
                         return std::string(data, data + bytes);
                       }});
  }
  SLUICE_RETURN_IF_ERROR(CopyOthers(from, to));
  SLUICE_RETURN_IF_ERROR(WriteTensors(tensors, to / kWeightsFile));
  absl::Status written = WriteConfig(from / kConfigFile, to / kConfigFile, kept);
  // The folder has a model only if everything was written, so that a failed command can be
  // repeated.
  if (!written.ok()) fs::remove(to / kWeightsFile, error);
  return written;
}

}  // namespace sluice::verify
