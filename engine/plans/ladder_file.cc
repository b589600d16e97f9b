#include "engine/plans/ladder_file.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/atomic_file.h"
#include "base/json_reader.h"
#include "base/read_file.h"
#include "base/stable_hash.h"
#include "base/status_macros.h"
#include "engine/journal/schedule_json.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
constexpr size_t kMaxBytes = 4 << 20;
constexpr int kMaxDepth = 4;
constexpr size_t kBytesOfTensor = 64;

std::string Fingerprint(const Model& model) {
  const ModelConfig& config = model.config;
  StableHash hash;
  for (const int64_t size :
       {config.vocab_size, config.hidden_size, config.intermediate_size, config.layers,
        config.heads, config.kv_heads, config.head_dim, config.max_positions,
        config.position_wise.max_positions, int64_t{config.causal}, int64_t{config.xsa.Any()}}) {
    hash.Add(size);
  }
  if (config.window > 0) {
    hash.Add(config.window);
    hash.Add(config.windowed_layers());
  }
  if (config.experts.count > 0) hash.Add(config.experts.chosen);
  std::vector<std::pair<std::string, const Tensor*>> tensors;
  for (const auto& [name, tensor] : model.checkpoint.tensors()) tensors.push_back({name, &tensor});
  std::sort(tensors.begin(), tensors.end());
  for (const auto& [name, tensor] : tensors) {
    hash.Add(name);
    hash.Add(static_cast<int64_t>(tensor->dtype));
    for (const int64_t extent : tensor->shape) hash.Add(extent);
    const size_t bytes =
        std::min<size_t>(kBytesOfTensor, kernels::DTypeBytes(tensor->dtype) * tensor->elements());
    hash.Add(std::string_view(static_cast<const char*>(tensor->data), bytes));
  }
  return absl::StrCat(absl::Hex(hash.value(), absl::kZeroPad16));
}

absl::Status CheckKey(const json& document,
                      const std::vector<std::pair<std::string, std::string>>& key) {
  const auto of = document.find("for");
  if (of == document.end() || !of->is_object()) {
    return absl::InvalidArgumentError("\"for\" is not an object");
  }
  for (const auto& [name, expected] : key) {
    SLUICE_ASSIGN_OR_RETURN(const std::string found, StringFromJson(*of, name));
    if (found != expected) {
      return absl::FailedPreconditionError(
          absl::StrCat("it was written for a different ", name, ": not ", expected));
    }
  }
  return absl::OkStatus();
}

// Checks that the ladder can hold every batch of the largest step. For a padded policy, the file's
// ladder is not used, only its costs.
absl::Status CheckLargest(const Ladder& ladder, const LadderLimits& limits) {
  if (ladder.max_sequences() > limits.max_sequences) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has ", ladder.max_sequences(), " sequences, over ", limits.max_sequences));
  }
  const Ladder widest = MakePackedLadder({}, limits);
  const Bucket& largest = ladder.largest();
  if (ladder.padded() || largest == widest.largest()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "its largest bucket has ", largest.tokens, " tokens and ", largest.sequences,
      " sequences, not ", widest.largest().tokens, " and ", widest.largest().sequences));
}

json ObjectAt(const json& document, const char* key) {
  const auto it = document.find(key);
  return it == document.end() || !it->is_object() ? json::object() : *it;
}

absl::StatusOr<json> ReadDocument(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxBytes));
  SLUICE_ASSIGN_OR_RETURN(json document, ParseJson(text, kMaxDepth));
  if (!document.is_object() || document.value("sluice_ladder", json()) != kFormat) {
    return absl::InvalidArgumentError("not a ladder file, or an unsupported version");
  }
  return document;
}

}  // namespace

LadderFile::LadderFile(std::string path, const Model& model, const BackendInfo& info,
                       const std::string& algorithms, const LadderLimits& limits, PolicyKind policy)
    : path_(std::move(path)), limits_(limits) {
  key_ = {{"model", model.name},
          {"version", absl::StrCat(model.version)},
          {"weights", Fingerprint(model)},
          {"build", SLUICE_VERSION},
          {"device", info.device},
          {"profile", info.profile},
          {"algorithms", algorithms},
          {"policy", absl::StrCat(static_cast<int>(policy))},
          {"max_tokens", absl::StrCat(limits.max_tokens)},
          {"max_sequences", absl::StrCat(limits.max_sequences)}};
}

absl::StatusOr<LadderFile::Content> LadderFile::Read() const {
  SLUICE_ASSIGN_OR_RETURN(const json document, ReadDocument(path_));
  SLUICE_RETURN_IF_ERROR(CheckKey(document, key_));
  SLUICE_ASSIGN_OR_RETURN(Ladder ladder, LadderFromJson(ObjectAt(document, "ladder")));
  SLUICE_ASSIGN_OR_RETURN(CostState costs, CostsFromJson(ObjectAt(document, "costs")));
  SLUICE_RETURN_IF_ERROR(CheckLargest(ladder, limits_));
  LadderChoice kept;
  const json chosen = ObjectAt(document, "kept");
  for (const auto& [option, value] : chosen.items()) {
    if (!value.is_string())
      return absl::InvalidArgumentError("\"kept\" has a value that is not a string");
    kept[option] = value.get<std::string>();
  }
  return Content{std::move(ladder), std::move(costs), std::move(kept)};
}

std::optional<std::pair<std::string, std::string>> LadderFile::OwnerOf(const std::string& path) {
  const absl::StatusOr<json> document = ReadDocument(path);
  if (!document.ok()) return std::nullopt;
  const json key = ObjectAt(*document, "for");
  absl::StatusOr<std::string> model = StringFromJson(key, "model");
  absl::StatusOr<std::string> version = StringFromJson(key, "version");
  if (!model.ok() || !version.ok()) return std::nullopt;
  return std::pair(*std::move(model), *std::move(version));
}

absl::Status LadderFile::Write(const Ladder& ladder, const CostState& costs,
                               const LadderChoice& kept) const {
  json key = json::object();
  for (const auto& [name, value] : key_) key[name] = value;
  json document = {{"sluice_ladder", kFormat},
                   {"for", std::move(key)},
                   {"ladder", BucketsToJson(ladder.buckets())},
                   {"costs", CostsToJson(costs)}};
  if (!kept.empty()) document["kept"] = kept;
  return ReplaceFile(
      path_, document.dump(1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace) + "\n");
}

}  // namespace sluice
