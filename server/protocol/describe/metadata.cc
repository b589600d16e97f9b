#include "server/protocol/describe/metadata.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/protocol/tensors/inputs.h"

namespace sluice {
namespace {

constexpr char kPlatform[] = "sluice_safetensors";
constexpr char kBackend[] = "sluice";
// Of the list of special tokens. Published models have at most some hundreds.
constexpr size_t kMaxSpecialBytes = size_t{1} << 18;

// Returns whether ModelConfig lists an input. It lists all possible prompt inputs, each as
// optional, because a request has only one of them.
bool Lists(const Model& model, const InputInfo& info) {
  const bool pairs =
      model.tokenizer != nullptr && (model.tokenizer->templates().pair ||
                                     model.config.serving.frame || model.config.vector_size() > 0);
  if (info.input == Input::kTextPairInput && !pairs) return false;
  return info.of_prompt && Takes(model, info);
}

std::vector<int64_t> InputShape(const Model& model, const InputInfo& info) {
  switch (info.input) {
    case Input::kInputLengths:
    case Input::kTextInput:
    case Input::kTextPairInput:
      return {1};
    case Input::kInputsEmbeds:
      return {-1, model.config.input_width};
    default:
      return {-1};
  }
}

inference::DataType TypeOf(std::string_view datatype) {
  if (datatype == "INT32") return inference::TYPE_INT32;
  if (datatype == "FP32") return inference::TYPE_FP32;
  return inference::TYPE_STRING;
}

// Returns the use of the model according to its files: "extract", "classify", "generate" or
// "embed". A decoder with a modules.json of sentence-transformers, or with sluice.embedding in
// config.json, embeds.
const char* TaskOf(const NamedModel& named) {
  if (named.model.config.serving.extraction) return "extract";
  if (named.classifier.labels > 0) return "classify";
  return named.generates() && !named.model.config.serving.states_embedding ? "generate" : "embed";
}

// Returns the activation that makes probabilities of the scores: the function that the model's
// files name, or else the function that the text-classification pipeline of transformers applies,
// which is none for regression.
const char* ProbabilitiesOf(const ClassifierConfig& classifier) {
  if (classifier.scale == ScoreScale::kSigmoid) return "sigmoid";
  if (classifier.scale == ScoreScale::kSoftmax) return "softmax";
  if (classifier.regression) return "none";
  return classifier.labels > 1 && !classifier.multi_label ? "softmax" : "sigmoid";
}

// Adds the information that clients need: the task, the most tokens of a row, the names of labels,
// prompts and adapters for tasks, the special tokens of texts, and the inputs and outputs on
// request, as JSON lists, whether labels are independent, the activation that makes probabilities
// of scores, the similarity for comparing embeddings, and the settings of SettingsOf.
void AddProperties(const NamedModel& named, inference::ModelMetadataResponse* response) {
  const Model& model = named.model;
  const ClassifierConfig& classifier = named.classifier;
  const ServingConfig& serving = model.config.serving;
  auto& properties = *response->mutable_properties();
  properties["max_positions"] = absl::StrCat(model.config.max_positions);
  const auto list = [](const auto& names) {
    return nlohmann::json(names).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  properties["task"] = TaskOf(named);
  if (!classifier.names.empty()) properties["labels"] = list(classifier.names);
  if (classifier.multi_label) properties["problem_type"] = kMultiLabel;
  if (classifier.labels > 0) properties["probabilities"] = ProbabilitiesOf(classifier);
  std::vector<std::string> prompts;
  prompts.reserve(serving.prompts.size());
  for (const NamedPrompt& prompt : serving.prompts) prompts.push_back(prompt.name);
  if (!prompts.empty()) properties["prompts"] = list(prompts);
  const std::vector<std::string>& tasks = model.config.task_adapters.names;
  if (!tasks.empty()) properties["task_adapters"] = list(tasks);
  if (model.tokenizer != nullptr) {
    std::string specials = list(model.tokenizer->special_texts());
    if (specials.size() <= kMaxSpecialBytes) properties["special_tokens"] = std::move(specials);
  }
  if (!serving.similarity.empty()) properties["similarity"] = serving.similarity;
  std::vector<std::string_view> inputs, outputs;  // that metadata does not list
  for (const InputInfo& info : Inputs()) {
    if (Takes(model, info) && !Lists(model, info)) inputs.push_back(info.name);
  }
  for (const OutputInfo& info : Outputs()) {
    if (Has(named, info) && !IsDefaultOf(info, named)) outputs.push_back(info.name);
  }
  if (!inputs.empty()) properties["more_inputs"] = list(inputs);
  if (!outputs.empty()) properties["more_outputs"] = list(outputs);
  for (const ModelSetting& setting : SettingsOf(model.config, classifier)) {
    properties[setting.name] = setting.value;
  }
}

}  // namespace

inference::ModelMetadataResponse DescribeModel(const NamedModel& named,
                                               const std::vector<int64_t>& versions) {
  const Model& model = named.model;
  inference::ModelMetadataResponse response;
  response.set_name(model.name);
  for (int64_t version : versions) response.add_versions(absl::StrCat(version));
  response.set_platform(kPlatform);
  const auto describe = [](auto* tensor, std::string_view name, std::string_view datatype,
                           const std::vector<int64_t>& shape) {
    tensor->set_name(std::string(name));
    tensor->set_datatype(std::string(datatype));
    tensor->add_shape(-1);
    for (const int64_t size : shape) tensor->add_shape(size);
  };
  for (const InputInfo& info : Inputs()) {
    if (!Lists(model, info)) continue;
    describe(response.add_inputs(), info.name, info.datatype, InputShape(model, info));
  }
  for (const OutputInfo& info : Outputs()) {
    if (!IsDefaultOf(info, named)) continue;
    describe(response.add_outputs(), info.name, info.datatype, ShapeOf(info, named));
  }
  AddProperties(named, &response);
  return response;
}

std::string DescribeMemoryLimit(const ModelStats& stats) {
  const int64_t limit = stats.ladder_options.memory_limit_bytes;
  if (!stats.memory_limit_effect.empty() || limit == 0) return stats.memory_limit_effect;
  return absl::StrCat(limit, " bytes for the ladder, which it does not change");
}

inference::ModelConfig ConfigureModel(const NamedModel& named, int32_t max_rows,
                                      int64_t max_queue_delay_us) {
  const Model& model = named.model;
  inference::ModelConfig config;
  config.set_name(model.name);
  config.set_platform(kPlatform);
  config.set_backend(kBackend);
  config.set_max_batch_size(max_rows);
  config.mutable_dynamic_batching()->set_max_queue_delay_microseconds(max_queue_delay_us);
  // Streams return several responses, but perf_analyzer refuses unary requests to a decoupled
  // model.
  config.mutable_model_transaction_policy()->set_decoupled(false);
  const auto configure = [](auto* tensor, std::string_view name, std::string_view datatype,
                            const std::vector<int64_t>& shape) {
    tensor->set_name(std::string(name));
    tensor->set_data_type(TypeOf(datatype));
    for (const int64_t size : shape) tensor->add_dims(size);
  };
  for (const InputInfo& info : Inputs()) {
    if (!Lists(model, info)) continue;
    inference::ModelInput* input = config.add_input();
    configure(input, info.name, info.datatype, InputShape(model, info));
    input->set_optional(true);
  }
  for (const OutputInfo& info : Outputs()) {
    if (!IsDefaultOf(info, named)) continue;
    configure(config.add_output(), info.name, info.datatype, ShapeOf(info, named));
  }
  return config;
}

}  // namespace sluice
