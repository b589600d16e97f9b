#include "tests/server/protocol/messages.h"

#include <gtest/gtest.h>

#include "engine/model/tokenizer/tokenizer.h"
#include "tests/support/fake_backend.h"

namespace sluice::testing {

std::shared_ptr<const Model> TextModel(const std::string& name, int64_t version) {
  auto model = std::make_shared<Model>();
  model->name = name;
  model->version = version;
  model->config = FakeConfig();
  model->config.vocab_size = 258;
  model->config.bos_token_id = 256;
  model->config.byte_tokenizer = true;
  model->tokenizer = MakeByteTokenizer(256);
  return model;
}

std::string BytesElement(const std::string& text) {
  return Bytes<uint32_t>({static_cast<uint32_t>(text.size())}) + text;
}

void AddInput(inference::ModelInferRequest* request, const std::string& name,
              const std::string& datatype, const std::vector<int64_t>& shape,
              const std::string& raw) {
  auto* input = request->add_inputs();
  input->set_name(name);
  input->set_datatype(datatype);
  for (int64_t size : shape) input->add_shape(size);
  request->add_raw_input_contents(raw);
}

inference::ModelInferRequest IdsRequest(const std::vector<int32_t>& ids) {
  inference::ModelInferRequest request;
  request.set_model_name("text");
  AddInput(&request, "input_ids", "INT32", {1, static_cast<int64_t>(ids.size())}, Bytes(ids));
  return request;
}

inference::ModelInferRequest TextRequest(const std::string& text) {
  inference::ModelInferRequest request;
  request.set_model_name("text");
  AddInput(&request, "text_input", "BYTES", {1, 1}, BytesElement(text));
  return request;
}

void SetInt(inference::ModelInferRequest* request, const std::string& name, int64_t value) {
  (*request->mutable_parameters())[name].set_int64_param(value);
}

std::string RawOutput(const inference::ModelInferResponse& response, const std::string& name) {
  for (int i = 0; i < response.outputs_size(); ++i) {
    if (response.outputs(i).name() == name) return response.raw_output_contents(i);
  }
  ADD_FAILURE() << "no output " << name;
  return "";
}

std::vector<int64_t> ShapeOf(const inference::ModelInferResponse& response,
                             const std::string& name) {
  for (const auto& output : response.outputs()) {
    if (output.name() == name) return {output.shape().begin(), output.shape().end()};
  }
  ADD_FAILURE() << "no output " << name;
  return {};
}

}  // namespace sluice::testing
