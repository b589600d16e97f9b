#include "engine/model/head_files.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/model/checkpoint.h"
#include "engine/model/config_reader.h"
#include "engine/model/settings_file.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr char kVectorsFile[] = "colbert_linear";
constexpr char kWeightsFile[] = "sparse_linear";
constexpr char kMetadataFile[] = "artifact.metadata";
constexpr size_t kMaxTokenBytes = 256;
constexpr size_t kMaxTokens = 1024;
// PyLate's defaults, which are those of ColBERT.
constexpr int64_t kQueryLength = 32;
constexpr int64_t kDocumentLength = 180;
constexpr std::string_view kPunctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";

std::vector<std::string> Punctuation() {
  std::vector<std::string> marks;
  for (const char mark : kPunctuation) marks.emplace_back(1, mark);
  return marks;
}

int64_t ReadLength(ObjectReader& object, const std::string& key, int64_t fallback) {
  return object.Integer(key, 1, kMaxModelPositions, fallback);
}

// Fills queries up to their length with mask tokens, as in ColBERT.
void FillQueries(bool attended, ServingConfig* serving) {
  TaskConfig& query = serving->Task(TextTask::kQuery);
  query.filled = query.max_length;
  query.hides_filler = !attended;
}

// Makes the head of one layer that `stem` holds, or nullopt if the file is not there.
absl::StatusOr<std::optional<TokenHeadConfig>> ReadLayer(const Directory& directory,
                                                         const std::string& stem,
                                                         ModelConfig* config) {
  const std::string file = absl::StrCat(stem, ".safetensors");
  if (!directory.Has(file)) {
    if (directory.Has(absl::StrCat(stem, ".pt"))) {
      config->warnings.push_back(absl::StrCat(
          "there is ", stem, ".pt but no ", file,
          "; the model is served without this head. Convert it with tools/convert DIR NEW_DIR"));
    }
    return std::nullopt;
  }
  SLUICE_ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                          Checkpoint::OpenFile(directory, file, FileAccess::kMap));
  const auto weight = checkpoint.tensors().find("weight");
  if (weight == checkpoint.tensors().end() || weight->second.shape.size() != 2) {
    return absl::InvalidArgumentError(absl::StrCat(file, " has no matrix \"weight\""));
  }
  return TokenHeadConfig{.dense = {{.file = file,
                                    .module = "",
                                    .in = config->hidden_size,
                                    .out = weight->second.shape[0],
                                    .bias = checkpoint.Has("bias"),
                                    .function = DenseFunction::kIdentity}}};
}

absl::Status ReadMetadata(const Directory& directory, ModelConfig* config) {
  SLUICE_ASSIGN_OR_RETURN(const json document, ReadSettings(directory, kMetadataFile));
  absl::Status status;
  ObjectReader root(document, "", &status);
  ServingConfig& serving = config->serving;
  serving.vectors->dense.front().out = root.Integer("dim", 1, kMaxWidth, 128);
  serving.normalize = root.Choice("similarity", {"cosine", "l2"}) == 0;
  if (!serving.normalize) root.Fail("similarity", "is l2; only cosine is supported");
  TaskConfig& query = serving.Task(TextTask::kQuery);
  TaskConfig& documents = serving.Task(TextTask::kDocument);
  query.marker = root.String("query_token_id", kMaxTokenBytes, "[unused0]");
  documents.marker = root.String("doc_token_id", kMaxTokenBytes, "[unused1]");
  query.max_length = ReadLength(root, "query_maxlen", kQueryLength);
  documents.max_length = ReadLength(root, "doc_maxlen", kDocumentLength);
  if (root.Boolean("mask_punctuation", true)) documents.without_vector = Punctuation();
  FillQueries(root.Boolean("attend_to_mask_tokens", false), &serving);
  if (!serving.truncate) serving.truncate = Truncation::kRight;
  return status.ok() ? status : OfFile(kMetadataFile, status);
}

}  // namespace

std::vector<std::string> ReadTokenTexts(ObjectReader& object, const std::string& key) {
  std::vector<std::string> tokens;
  const json* const list = object.Find(key);
  if (list == nullptr) return tokens;
  if (!list->is_array() || list->size() > kMaxTokens) {
    object.Fail(key, absl::StrCat("is not a list of at most ", kMaxTokens, " tokens"));
    return tokens;
  }
  for (const json& token : *list) {
    if (!token.is_string() || token.get_ref<const std::string&>().size() > kMaxTokenBytes) {
      object.Fail(key, absl::StrCat("has an entry that is not a text of at most ", kMaxTokenBytes,
                                    " bytes"));
      return tokens;
    }
    tokens.push_back(token.get<std::string>());
  }
  return tokens;
}

void ReadMarkedTasks(ObjectReader& root, bool defaults, ServingConfig* serving) {
  TaskConfig& query = serving->Task(TextTask::kQuery);
  TaskConfig& document = serving->Task(TextTask::kDocument);
  const auto marker = [&](const char* key, const char* usual) {
    return root.String(key, kMaxTokenBytes, defaults ? usual : "");
  };
  query.marker = marker("query_prefix", "[Q] ");
  document.marker = marker("document_prefix", "[D] ");
  query.max_length = ReadLength(root, "query_length", defaults ? kQueryLength : 0);
  document.max_length = ReadLength(root, "document_length", defaults ? kDocumentLength : 0);
  if (root.Has("skiplist_words")) {
    document.without_vector = ReadTokenTexts(root, "skiplist_words");
  } else if (defaults) {
    document.without_vector = Punctuation();
  }
  const bool attended = root.Boolean("attend_to_expansion_tokens", false);
  if (root.Boolean("do_query_expansion", defaults)) FillQueries(attended, serving);
}

void ReadTaskLengths(ObjectReader& object, ServingConfig* serving) {
  TaskConfig& query = serving->Task(TextTask::kQuery);
  TaskConfig& document = serving->Task(TextTask::kDocument);
  query.max_length = ReadLength(object, "query_length", query.max_length);
  document.max_length = ReadLength(object, "document_length", document.max_length);
  if (!object.Has("query_expansion")) return;
  ObjectReader expansion = object.Object("query_expansion");
  expansion.AllowOnly({"strategy", "attend", "token", "length"});
  const bool fixed = expansion.Choice("strategy", {"fixed", "min"}) == 0;
  query.filled = expansion.Integer("length", 1, kMaxModelPositions);
  query.filler = expansion.String("token", kMaxTokenBytes, "");
  query.hides_filler = !expansion.Boolean("attend", false);
  if (fixed) query.max_length = query.filled;
}

absl::Status ReadHeadFiles(const Directory& directory, bool states, ModelConfig* config) {
  ServingConfig& serving = config->serving;
  if (serving.multi_vector) {
    return states ? ReadMetadata(directory, config) : absl::OkStatus();
  }
  SLUICE_ASSIGN_OR_RETURN(serving.vectors, ReadLayer(directory, kVectorsFile, config));
  SLUICE_ASSIGN_OR_RETURN(serving.term_weights, ReadLayer(directory, kWeightsFile, config));
  if (serving.vectors) {
    serving.vectors->first = 1;
    serving.mean_of_maxima = true;
  }
  if (serving.term_weights) {
    DenseConfig& layer = serving.term_weights->dense.front();
    layer.function = DenseFunction::kRelu;
    if (layer.out != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(layer.file, " has ", layer.out, " rows; expected 1, the weight of a token"));
    }
  }
  const bool any = serving.vectors || serving.term_weights;
  if (any && states && !serving.states_embedding) {
    serving.pooling = Pooling::kCls;
    serving.normalize = serving.states_embedding = true;
  }
  return absl::OkStatus();
}

}  // namespace sluice
