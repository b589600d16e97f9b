#include "engine/model/sentence_files.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/json_reader.h"
#include "base/status_macros.h"
#include "engine/model/config_reader.h"
#include "engine/model/head_files.h"
#include "engine/model/pair_frame.h"
#include "engine/model/settings_file.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr char kModulesFile[] = "modules.json";
constexpr char kRouterFile[] = "router_config.json";
constexpr char kPromptsFile[] = "config_sentence_transformers.json";
constexpr char kTokenizerFile[] = "tokenizer_config.json";
constexpr size_t kMaxModulesBytes = size_t{1} << 20;
constexpr int kMaxModulesDepth = 8;
constexpr size_t kMaxModules = 16;
constexpr size_t kMaxPrompts = 256;
constexpr size_t kMaxPromptBytes = 16384;
constexpr size_t kMaxNamedBytes = 256;

// The output of the Transformer that LogitScore reads.
constexpr char kLogits[] = "causal_logits";

// The names of pooling, and the older keys that are true or false, in the order in which the states
// of several are concatenated.
struct PoolingName {
  std::string_view name;
  const char* flag;
  Pooling pooling;
};
constexpr PoolingName kPoolingModes[] = {
    {"cls", "pooling_mode_cls_token", Pooling::kCls},
    {"max", "pooling_mode_max_tokens", Pooling::kMax},
    {"mean", "pooling_mode_mean_tokens", Pooling::kMean},
    {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", Pooling::kMeanSqrtLen},
    {"weightedmean", "pooling_mode_weightedmean_tokens", Pooling::kWeightedMean},
    {"lasttoken", "pooling_mode_lasttoken", Pooling::kLast},
};

struct FunctionName {
  std::string_view name;  // a class of torch.nn
  DenseFunction function;
};
constexpr FunctionName kDenseFunctions[] = {
    {"Tanh", DenseFunction::kTanh},       {"Identity", DenseFunction::kIdentity},
    {"ReLU", DenseFunction::kRelu},       {"GELU", DenseFunction::kGelu},
    {"Sigmoid", DenseFunction::kSigmoid}, {"SiLU", DenseFunction::kSilu},
};

// The code of jina-embeddings-v3 that selects the adapter of a task.
constexpr char kTaskTransformer[] = "custom_st.Transformer";

// Returns the part after the last dot.
std::string_view ClassName(std::string_view path) { return path.substr(path.rfind('.') + 1); }

// Fails for a value of `key` other than `only`.
void RequireOnly(ObjectReader& object, const std::string& key, const json& only) {
  const json* const value = object.Find(key);
  if (value == nullptr || *value == only) return;
  object.Fail(key, absl::StrCat("is ", value->dump(-1, ' ', true).substr(0, 80), "; only ",
                                only.dump(), " is supported"));
}

DenseFunction ReadFunction(ObjectReader& object, const std::string& key) {
  const std::string path = object.String(key, kMaxNamedBytes, "torch.nn.modules.activation.Tanh");
  for (const FunctionName& known : kDenseFunctions) {
    if (path.starts_with("torch.nn.") && ClassName(path) == known.name) return known.function;
  }
  object.Fail(key, absl::StrCat("\"", absl::CEscape(path), "\" is not supported"));
  return DenseFunction::kTanh;
}

Poolings ReadPoolings(ObjectReader& object) {
  Poolings poolings;
  poolings.all.clear();
  const json* const mode = object.Find("pooling_mode");
  if (mode == nullptr) {
    for (const PoolingName& known : kPoolingModes) {
      if (object.Boolean(known.flag, false)) poolings.all.push_back(known.pooling);
    }
    return poolings.all.empty() ? Pooling::kMean : poolings;
  }
  const json list = mode->is_array() ? *mode : json::array({*mode});
  if (list.empty() || list.size() > std::size(kPoolingModes)) {
    object.Fail("pooling_mode", absl::StrCat("has ", list.size(), " modes; expected 1 to ",
                                             std::size(kPoolingModes)));
    return Pooling::kMean;
  }
  for (const json& name : list) {
    const auto known = std::find_if(
        std::begin(kPoolingModes), std::end(kPoolingModes), [&](const PoolingName& pooling) {
          return name.is_string() && name.get_ref<const std::string&>() == pooling.name;
        });
    if (known == std::end(kPoolingModes)) {
      object.Fail("pooling_mode", absl::StrCat("has ", name.dump(-1, ' ', true).substr(0, 80),
                                               ", which is not supported"));
      return Pooling::kMean;
    }
    poolings.all.push_back(known->pooling);
  }
  return poolings;
}

struct Module {
  std::string type;  // the name of its class
  std::string path;
  bool of_pylate = false;  // whether the class is of the library PyLate
};

// The modules of documents, and the folder of the weights of queries' terms if there is one.
struct ModuleList {
  std::vector<Module> modules;
  std::string term_table = {};
  TextTask default_task = TextTask::kDocument;
};

// Reads the names of the modules of a route.
std::vector<std::string> ReadRoute(ObjectReader& structure, const char* route) {
  std::vector<std::string> names = ReadTokenTexts(structure, route);
  if (names.empty() || names.size() > kMaxModules) {
    structure.Fail(route, absl::StrCat("is not a list of 1 to ", kMaxModules, " modules"));
    names.assign(1, "");
  }
  return names;
}

// Replaces a Router by the modules of its route for documents. Its route for queries must be the
// same, or weights of terms.
absl::Status FollowRoutes(const Directory& directory, ModuleList* list) {
  SLUICE_ASSIGN_OR_RETURN(const json document, ReadSettings(directory, kRouterFile));
  absl::Status status;
  ObjectReader root(document, "", &status);
  root.AllowOnly({"types", "structure", "parameters"});
  ObjectReader types = root.Object("types"), structure = root.Object("structure");
  ObjectReader parameters = root.Object("parameters");
  structure.AllowOnly({"query", "document"});
  parameters.AllowOnly({"default_route", "allow_empty_key", "route_mappings"});
  RequireOnly(parameters, "route_mappings", json::object());
  const bool query = parameters.Choice("default_route", {"document", "query"}) == 1;
  list->default_task = query ? TextTask::kQuery : TextTask::kDocument;
  const std::vector<std::string> of_queries = ReadRoute(structure, "query");
  const std::vector<std::string> of_documents = ReadRoute(structure, "document");
  list->modules.clear();
  for (const std::string& name : of_documents) {
    const std::string type = types.String(name, kMaxNamedBytes, "");
    list->modules.push_back({std::string(ClassName(type)), name});
  }
  if (of_queries != of_documents) {
    const std::string type = types.String(of_queries.front(), kMaxNamedBytes, "");
    if (of_queries.size() > 1 || ClassName(type) != "SparseStaticEmbedding") {
      structure.Fail("query", "must be the modules of document, or one SparseStaticEmbedding");
    }
    list->term_table = of_queries.front();
  }
  return status.ok() ? status : OfFile(kRouterFile, status);
}

absl::StatusOr<ModuleList> ListModules(const Directory& directory) {
  SLUICE_ASSIGN_OR_RETURN(const auto text, directory.Read(kModulesFile, kMaxModulesBytes));
  auto document = ParseJson(text, kMaxModulesDepth);
  if (!document.ok()) return OfFile(kModulesFile, document.status());
  if (!document->is_array() || document->empty() || document->size() > kMaxModules) {
    return absl::InvalidArgumentError(
        absl::StrCat(kModulesFile, " is not a list of 1 to ", kMaxModules, " modules"));
  }
  ModuleList list;
  std::vector<Module>& modules = list.modules;
  for (const json& entry : *document) {
    absl::Status status;
    const std::string place = absl::StrCat("module ", modules.size());
    if (!entry.is_object()) {
      return absl::InvalidArgumentError(
          absl::StrCat(kModulesFile, ": ", place, " is not an object"));
    }
    ObjectReader object(entry, place + ": ", &status);
    object.AllowOnly({"idx", "name", "path", "type", "kwargs"});
    const std::string type = object.String("type", kMaxNamedBytes);
    if (type == kTaskTransformer) {
      RequireOnly(object, "kwargs", json::array({"task"}));
      modules.push_back({type, object.String("path", kMaxNamedBytes, "")});
      if (!status.ok()) return OfFile(kModulesFile, status);
      continue;
    }
    RequireOnly(object, "kwargs", json::array());
    const bool pylate = type.starts_with("pylate.");
    if (!type.starts_with("sentence_transformers.") && !pylate) {
      object.Fail("type", absl::StrCat("\"", absl::CEscape(type), "\" is not supported"));
    }
    modules.push_back(
        {std::string(ClassName(type)), object.String("path", kMaxNamedBytes, ""), pylate});
    if (!status.ok()) return OfFile(kModulesFile, status);
  }
  if (modules.size() == 1 && modules.front().type == "Router" && modules.front().path.empty()) {
    SLUICE_RETURN_IF_ERROR(FollowRoutes(directory, &list));
  }
  return list;
}

// Reads the files one after another into the config.
class SentenceFiles {
 public:
  SentenceFiles(const Directory& directory, const Directory& transformer, ModelConfig* config)
      : directory_(directory),
        transformer_(transformer),
        config_(*config),
        serving_(config->serving) {}

  absl::Status Read() {
    SLUICE_RETURN_IF_ERROR(ReadModules());
    SLUICE_RETURN_IF_ERROR(ReadPrompts());
    return ReadLengths();
  }

 private:
  absl::Status ReadModules() {
    SLUICE_ASSIGN_OR_RETURN(const ModuleList list, ListModules(directory_));
    const std::vector<Module>& modules = list.modules;
    serving_.default_task = list.default_task;
    serving_.Task(TextTask::kQuery).term_table = list.term_table;
    if (!list.term_table.empty()) SLUICE_RETURN_IF_ERROR(CheckTermTable(list.term_table));
    const bool fills_masks = modules.front().type == "MLMTransformer" && config_.has_lm_head;
    const bool has_tasks =
        modules.front().type == kTaskTransformer && !config_.task_adapters.names.empty();
    if (modules.front().type != "Transformer" && !fills_masks && !has_tasks) {
      return Wrong(0, modules.front(), "must be Transformer");
    }
    for (size_t i = 1; i < modules.size(); ++i) {
      const Module& module = modules[i];
      if (normalizes_) return Wrong(i, module, "is not supported after Normalize");
      of_pylate_ |= module.of_pylate;
      const bool of_tokens =
          module.type == "Dense" || module.type == "Normalize" || module.type == "MultiVectorMask";
      if (width_ == 0 && of_tokens && serving_.classifier.labels == 0) {
        serving_.multi_vector = true;
        serving_.vectors.emplace();
        width_ = config_.hidden_size;
      }
      if (module.type == "SpladePooling" && CanBeSparse() && width_ == 0) {
        SLUICE_RETURN_IF_ERROR(ReadModule(module, &SentenceFiles::ReadSplade));
      } else if (module.type == "LogitScore" && width_ == 0) {
        SLUICE_RETURN_IF_ERROR(ReadModule(module, &SentenceFiles::ReadLogits));
      } else if (module.type == "Pooling" && width_ == 0) {
        SLUICE_RETURN_IF_ERROR(ReadModule(module, &SentenceFiles::ReadPooling));
      } else if (module.type == "Dense" && width_ > 0) {
        SLUICE_RETURN_IF_ERROR(ReadModule(module, &SentenceFiles::ReadDense));
      } else if (module.type == "Normalize" && width_ > 0) {
        SLUICE_RETURN_IF_ERROR(ReadModule(module, &SentenceFiles::ReadNormalize));
      } else if (module.type == "MultiVectorMask" && serving_.multi_vector) {
        SLUICE_RETURN_IF_ERROR(ReadModule(module, &SentenceFiles::ReadMask));
      } else if (module.type != "Dropout") {
        return Wrong(i, module, "is not supported here");
      }
    }
    if (width_ == 0 && !serving_.sparse && serving_.classifier.labels == 0) {
      return absl::InvalidArgumentError(absl::StrCat(kModulesFile, " has no Pooling module"));
    }
    // PyLate normalises vectors without a module for it.
    if (width_ > 0) serving_.normalize = normalizes_ || of_pylate_;
    serving_.sentence_modules = true;
    serving_.states_embedding = serving_.classifier.labels == 0;
    return absl::OkStatus();
  }

  absl::Status CheckTermTable(const std::string& name) const {
    SLUICE_ASSIGN_OR_RETURN(const Directory folder, directory_.OpenFolder(name));
    SLUICE_ASSIGN_OR_RETURN(const json settings, ReadSettings(folder, "config.json"));
    absl::Status status;
    ObjectReader object(settings, "", &status);
    object.AllowOnly({"frozen"});
    return status.ok() ? status : OfFile(absl::StrCat(name, "/config.json"), status);
  }

  static absl::Status Wrong(size_t index, const Module& module, absl::string_view problem) {
    return absl::InvalidArgumentError(absl::StrCat(kModulesFile, ": module ", index, ", ",
                                                   absl::CEscape(module.type), ", ", problem));
  }

  // Normalize may lack its folder, which has no file in older schemas.
  absl::Status ReadModule(const Module& module,
                          void (SentenceFiles::*read)(const std::string& path, ObjectReader&)) {
    json document = json::object();
    if (module.type != "Normalize" || directory_.Has(module.path)) {
      SLUICE_ASSIGN_OR_RETURN(const Directory folder, directory_.OpenFolder(module.path));
      auto settings = ReadSettings(folder, "config.json");
      if (!settings.ok()) return OfFile(module.path, settings.status());
      document = *std::move(settings);
    }
    absl::Status status;
    ObjectReader object(document, "", &status);
    (this->*read)(module.path, object);
    return status.ok() ? status : OfFile(absl::StrCat(module.path, "/config.json"), status);
  }

  void ReadPooling(const std::string& /*path*/, ObjectReader& object) {
    object.AllowOnly({"embedding_dimension", "word_embedding_dimension", "pooling_mode",
                      "include_prompt", "pooling_mode_cls_token", "pooling_mode_max_tokens",
                      "pooling_mode_mean_tokens", "pooling_mode_mean_sqrt_len_tokens",
                      "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"});
    for (const char* const key : {"embedding_dimension", "word_embedding_dimension"}) {
      RequireOnly(object, key, StateWidth());
    }
    serving_.pooling = ReadPoolings(object);
    const std::vector<Pooling>& poolings = serving_.pooling.all;
    if (!serving_.dense.empty() && (poolings.size() > 1 || poolings.front() == Pooling::kMax)) {
      object.Fail("pooling_mode", absl::StrCat("is not supported for ", config_.architecture,
                                               ", must be one mode other than max"));
    }
    serving_.pools_prompt = object.Boolean("include_prompt", true);
    width_ = StateWidth() * std::ssize(serving_.pooling.all);
  }

  // Returns the width of the model's output, after the dense layer in its own weights if it has
  // one. This layer is applied after the pooling, which gives the same embedding.
  int64_t StateWidth() const {
    return serving_.dense.empty() ? config_.hidden_size : serving_.dense.back().out;
  }

  // A sparse embedding is made of the logits of a masked language model.
  bool CanBeSparse() const { return config_.has_lm_head && !config_.causal && !serving_.sparse; }

  void ReadSplade(const std::string& /*path*/, ObjectReader& object) {
    object.AllowOnly({"pooling_strategy", "activation_function", "embedding_dimension",
                      "word_embedding_dimension", "chunk_size"});
    for (const char* const key : {"embedding_dimension", "word_embedding_dimension"}) {
      RequireOnly(object, key, config_.vocab_size);
    }
    RequireOnly(object, "pooling_strategy", "max");
    serving_.sparse_logarithms = 1 + object.Choice("activation_function", {"relu", "log1p_relu"});
    serving_.sparse = true;
  }

  void ReadLogits(const std::string& /*path*/, ObjectReader& object) {
    object.AllowOnly({"true_token_id", "false_token_id", "module_input_name"});
    RequireOnly(object, "module_input_name", kLogits);
    ReadLogitScore(object, &config_);
  }

  void ReadDense(const std::string& path, ObjectReader& object) {
    object.AllowOnly({"in_features", "out_features", "bias", "activation_function",
                      "module_input_name", "module_output_name", "use_residual"});
    RequireItsInput(object);
    RequireOnly(object, "use_residual", false);
    DenseConfig dense;
    dense.folder = path;
    dense.in = object.Integer("in_features", 1, kMaxEmbedding);
    dense.out = object.Integer("out_features", 1, kMaxEmbedding);
    dense.bias = object.Boolean("bias", true);
    dense.function = ReadFunction(object, "activation_function");
    if (!serving_.dense.empty() && serving_.dense.front().folder.empty()) {
      object.Fail("in_features", absl::StrCat("is set, but ", config_.architecture,
                                              " has a dense layer of its own; remove this module"));
    }
    if (dense.in != width_) {
      object.Fail("in_features", absl::StrCat("is ", dense.in, "; expected ", width_,
                                              ", the output size of the module before it"));
    }
    width_ = dense.out;
    (serving_.vectors ? serving_.vectors->dense : serving_.dense).push_back(std::move(dense));
  }

  void ReadNormalize(const std::string& /*path*/, ObjectReader& object) {
    object.AllowOnly({"module_input_name", "module_output_name"});
    RequireItsInput(object);
    normalizes_ = true;
  }

  void ReadMask(const std::string& /*path*/, ObjectReader& object) {
    object.AllowOnly({"skiplist_words", "skiplist_tasks", "keep_only_token_ids"});
    RequireOnly(object, "keep_only_token_ids", nullptr);
    const std::vector<std::string> skipped = ReadTokenTexts(object, "skiplist_words");
    std::vector<std::string> tasks = {"document"};
    if (object.Has("skiplist_tasks")) tasks = ReadTokenTexts(object, "skiplist_tasks");
    for (const std::string& task : tasks) {
      const auto known = EnumOf<TextTask>(task);
      if (!known) {
        return object.Fail("skiplist_tasks", absl::StrCat("has \"", absl::CEscape(task),
                                                          "\"; expected document or query"));
      }
      serving_.Task(*known).without_vector = skipped;
    }
  }

  // Modules after a pooling read its result. Others read the tokens and must state this.
  void RequireItsInput(ObjectReader& object) const {
    const char* const input = serving_.multi_vector ? "token_embeddings" : "sentence_embedding";
    if (serving_.multi_vector && !of_pylate_ && !object.Has("module_input_name")) {
      object.Fail("module_input_name", "is missing, and no Pooling precedes");
    }
    for (const char* const key : {"module_input_name", "module_output_name"}) {
      RequireOnly(object, key, input);
    }
  }

  absl::Status ReadPrompts() {
    SLUICE_ASSIGN_OR_RETURN(const json document, ReadSettings(directory_, kPromptsFile));
    absl::Status status;
    ObjectReader root(document, "", &status);
    if (serving_.multi_vector) {
      root.AllowOnly({"__version__", "prompts", "default_prompt_name", "similarity_fn_name",
                      "model_type", "query_prefix", "document_prefix", "query_length",
                      "document_length", "attend_to_expansion_tokens", "skiplist_words",
                      "do_query_expansion"});
    } else {
      root.AllowOnly({"__version__", "prompts", "default_prompt_name", "similarity_fn_name",
                      "model_type", "activation_fn"});
    }
    const bool classifies = serving_.classifier.labels > 0;
    if (!of_pylate_) {
      RequireOnly(root, "model_type",
                  classifies              ? "CrossEncoder"
                  : serving_.multi_vector ? "MultiVectorEncoder"
                  : serving_.sparse       ? "SparseEncoder"
                                          : "SentenceTransformer");
    }
    if (root.Has("activation_fn")) {
      serving_.classifier.scale = ReadScoreScale(root, "activation_fn");
    }
    if (serving_.multi_vector) ReadMarkedTasks(root, of_pylate_, &serving_);
    constexpr std::string_view kSimilarities[] = {"cosine", "dot",    "euclidean", "manhattan",
                                                  "MaxSim", "maxsim", "meanmaxsim"};
    if (root.Has("similarity_fn_name")) {
      serving_.similarity = kSimilarities[root.Choice("similarity_fn_name", kSimilarities)];
      serving_.mean_of_maxima = serving_.similarity == "meanmaxsim";
    }
    ObjectReader prompts = root.Object("prompts");
    const json* const named = root.Find("prompts");
    if (named != nullptr && named->is_object()) {
      if (named->size() > kMaxPrompts) {
        root.Fail("prompts", absl::StrCat("has ", named->size(), "; the limit is ", kMaxPrompts));
      }
      serving_.prompts.clear();
      for (const auto& [name, text] : named->items()) {
        if (name.size() > kMaxNamedBytes) root.Fail("prompts", "has a name of more than 256 bytes");
        serving_.prompts.push_back({name, prompts.String(name, kMaxPromptBytes, "")});
      }
    }
    serving_.default_prompt = root.String("default_prompt_name", kMaxNamedBytes, "");
    if (!serving_.default_prompt.empty() &&
        serving_.FindPrompt(serving_.default_prompt) == nullptr) {
      root.Fail("default_prompt_name", "is not one of the prompts");
    }
    return status.ok() ? status : OfFile(kPromptsFile, status);
  }

  // Returns the name of the file of the Transformer's settings, which older releases named after
  // the family.
  std::string SettingsName() const {
    for (const char* const family :
         {"roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet"}) {
      const std::string name = absl::StrCat("sentence_", family, "_config.json");
      if (transformer_.Has(name)) return name;
    }
    return "sentence_bert_config.json";
  }

  // A classifier may also read messages: pair_frame.json has the text that its chat template makes.
  void ReadModalities(ObjectReader& object, const char* output) const {
    const json text = {{"method", "forward"}, {"method_output_name", output}};
    json only = {{"text", text}};
    const json* const given = object.Find("modality_config");
    if (serving_.classifier.labels > 0 && given != nullptr && given->is_object() &&
        given->contains("message")) {
      ObjectReader modalities = object.Object("modality_config");
      ObjectReader message = modalities.Object("message");
      message.AllowOnly({"method", "method_output_name", "format"});
      if (!directory_.Has(kFrameFile)) {
        modalities.Fail("message", absl::StrCat("makes the text of pairs by a chat template; ",
                                                kMakeFrameFile));
      }
      for (const auto& [key, value] : text.items()) RequireOnly(message, key, value);
      only["message"] = given->at("message");
    }
    RequireOnly(object, "modality_config", only);
  }

  // The options of the chat template have their effect in pair_frame.json.
  static void ReadProcessing(ObjectReader& object) {
    ObjectReader processing = object.Object("processing_kwargs");
    processing.AllowOnly({"chat_template"});
    ObjectReader chat = processing.Object("chat_template");
    for (const char* const key : {"truncation", "max_length"}) {
      if (chat.Has(key)) chat.Fail(key, "is not supported; set max_seq_length");
    }
    RequireOnly(chat, "restore_suffix", true);
  }

  absl::Status ReadLengths() {
    const std::string file = SettingsName();
    SLUICE_ASSIGN_OR_RETURN(const json settings, ReadSettings(transformer_, file));
    SLUICE_ASSIGN_OR_RETURN(const json tokenizer, ReadSettings(transformer_, kTokenizerFile));
    absl::Status status;
    ObjectReader object(settings, "", &status);
    object.AllowOnly({"max_seq_length", "do_lower_case", "transformer_task", "modality_config",
                      "module_output_name", "processing_kwargs", "unpad_inputs", "query_length",
                      "document_length", "query_expansion"});
    const bool classifies = serving_.classifier.labels > 0;
    const bool reads_logits = serving_.classifier.logits.has_value();
    RequireOnly(object, "transformer_task",
                reads_logits      ? "text-generation"
                : classifies      ? "sequence-classification"
                : serving_.sparse ? "fill-mask"
                                  : "feature-extraction");
    ReadModalities(object, classifies || serving_.sparse ? "logits" : "last_hidden_state");
    ReadProcessing(object);
    RequireOnly(object, "module_output_name",
                reads_logits ? kLogits
                : classifies ? "scores"
                             : "token_embeddings");
    serving_.lower_case = object.Boolean("do_lower_case", false);
    ReadTaskLengths(object, &serving_);
    if (!serving_.multi_vector) RequireOnly(object, "query_expansion", nullptr);
    int64_t longest = kMaxModelPositions;
    if (of_pylate_) {  // max_seq_length is the length of the last text that PyLate encoded
      longest = std::max(serving_.Task(TextTask::kQuery).max_length,
                         serving_.Task(TextTask::kDocument).max_length);
    } else if (object.Has("max_seq_length")) {
      longest = object.Integer("max_seq_length", 1, kMaxModelPositions);
    }
    if (!status.ok()) return OfFile(file, status);
    // If Hugging Face has no length, it writes a number larger than any length.
    const json length = tokenizer.value("model_max_length", json());
    if (!of_pylate_ && !object.Has("max_seq_length") && length.is_number() &&
        length.get<double>() >= 1 && length.get<double>() < static_cast<double>(longest)) {
      longest = length.get<int64_t>();
    }
    config_.max_positions = std::min(config_.max_positions, longest);
    const bool left = tokenizer.value("truncation_side", json()) == "left";
    if (!serving_.truncate) serving_.truncate = left ? Truncation::kLeft : Truncation::kRight;
    return absl::OkStatus();
  }

  static constexpr int64_t kMaxEmbedding = kMaxWidth * std::ssize(kPoolingModes);

  const Directory& directory_;
  const Directory& transformer_;
  ModelConfig& config_;
  ServingConfig& serving_;
  int64_t width_ = 0;  // of an embedding after the modules so far; 0 before the pooling
  bool normalizes_ = false;
  bool of_pylate_ = false;
};

}  // namespace

absl::StatusOr<std::optional<Directory>> OpenTransformerFolder(const Directory& directory) {
  if (!directory.Has(kModulesFile)) return std::nullopt;
  SLUICE_ASSIGN_OR_RETURN(const ModuleList list, ListModules(directory));
  if (list.modules.front().path.empty()) return std::nullopt;
  return directory.OpenFolder(list.modules.front().path);
}

absl::Status ReadSentenceFiles(const Directory& directory, const Directory& transformer,
                               ModelConfig* config) {
  if (!directory.Has(kModulesFile)) return absl::OkStatus();
  return SentenceFiles(directory, transformer, config).Read();
}

}  // namespace sluice
