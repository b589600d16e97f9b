#include "server/metadata.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "server/outputs.h"

namespace sluice {
namespace {

constexpr char kPlatform[] = "sluice_safetensors";
constexpr char kBackend[] = "sluice";

struct InputInfo {
  const char* name;
  const char* datatype;
  int64_t columns;  // -1: any number
  bool from_tokenizer;
};

// All are optional in ModelConfig: a request has input_ids or text_input.
constexpr InputInfo kInputs[] = {
    {"input_ids", "INT32", -1, false},
    {"input_lengths", "INT32", 1, false},
    {"text_input", "BYTES", 1, true},
};

bool Has(const Model& model, const InputInfo& info) {
  return !info.from_tokenizer || model.tokenizer != nullptr;
}

inference::DataType TypeOf(std::string_view datatype) {
  if (datatype == "INT32") return inference::TYPE_INT32;
  if (datatype == "FP32") return inference::TYPE_FP32;
  return inference::TYPE_STRING;
}

}  // namespace

inference::ModelMetadataResponse DescribeModel(const Model& model,
                                               const std::vector<int64_t>& versions) {
  inference::ModelMetadataResponse response;
  response.set_name(model.name);
  for (int64_t version : versions) response.add_versions(absl::StrCat(version));
  response.set_platform(kPlatform);
  const auto describe = [](auto* tensor, std::string_view name, std::string_view datatype,
                           int64_t columns) {
    tensor->set_name(std::string(name));
    tensor->set_datatype(std::string(datatype));
    tensor->add_shape(-1);
    tensor->add_shape(columns);
  };
  for (const InputInfo& info : kInputs) {
    if (Has(model, info)) describe(response.add_inputs(), info.name, info.datatype, info.columns);
  }
  for (const OutputInfo& info : Outputs()) {
    if (!IsDefaultOf(info, model)) continue;
    describe(response.add_outputs(), info.name, info.datatype, info.columns);
  }
  return response;
}

inference::ModelConfig ConfigureModel(const Model& model, const ModelTraits& traits) {
  inference::ModelConfig config;
  config.set_name(model.name);
  config.set_platform(kPlatform);
  config.set_backend(kBackend);
  config.set_max_batch_size(traits.max_rows);
  config.mutable_dynamic_batching()->set_max_queue_delay_microseconds(traits.max_queue_delay_us);
  // Streams do give several responses, but perf_analyzer refuses unary requests to a decoupled model.
  config.mutable_model_transaction_policy()->set_decoupled(false);
  const auto configure = [](auto* tensor, std::string_view name, std::string_view datatype,
                            int64_t columns) {
    tensor->set_name(std::string(name));
    tensor->set_data_type(TypeOf(datatype));
    tensor->add_dims(columns);
  };
  for (const InputInfo& info : kInputs) {
    if (!Has(model, info)) continue;
    inference::ModelInput* input = config.add_input();
    configure(input, info.name, info.datatype, info.columns);
    input->set_optional(true);
  }
  for (const OutputInfo& info : Outputs()) {
    if (!IsDefaultOf(info, model)) continue;
    configure(config.add_output(), info.name, info.datatype, info.columns);
  }
  return config;
}

}  // namespace sluice
