#include "tests/server/protocol/messages.h"

#include <gtest/gtest.h>

#include <chrono>

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

ModelStats ExampleStats(MonoTime now, const std::string& name) {
  ModelStats stats;
  stats.model = TextModel(name, 3);
  stats.buckets = {{.bucket = {.tokens = 16, .sequences = 8},
                    .ready = true,
                    .batches = 4,
                    .hits = 3,
                    .useful_tokens = 48,
                    .computed_tokens = 50,
                    .bucket_tokens = 64,
                    .sequences = 9,
                    .memory_bytes = 100,
                    .activation_bytes = 200,
                    .exact_activation_bytes = 600,
                    .cost_seconds = 0.25,
                    .last_used = now - std::chrono::seconds(5),
                    .prepare_time = std::chrono::milliseconds(20)},
                   {.bucket = Bucket::Padded(4, 16), .in_ladder = false}};
  stats.waiting_requests = 11;
  stats.running_requests = 12;
  stats.waiting_sequences = 13;
  stats.running_sequences = 14;
  stats.queued_tokens = 15;
  stats.queued_bytes = 16;
  stats.oldest_age = std::chrono::milliseconds(170);
  stats.estimated_drain = std::chrono::milliseconds(180);
  stats.steps = 19;
  stats.plan_memory_bytes = 20;
  stats.slot_memory = {
      .activations = 21, .activation_room = 29, .graphs = 27, .kv = 23, .pinned = 24};
  stats.weight_bytes = 22;
  stats.mapped_bytes = 25;
  stats.copied_bytes = 26;
  stats.adapters.bytes = 28;
  stats.traffic.lengths = {{3, 1.5}, {7, 2}};
  stats.traffic.shape_entropy_bits = 2.5;
  stats.traffic.arrivals = {.sequences_per_second = 10, .tokens_per_second = 70};
  for (int i = 0; i < kCostTerms; ++i) stats.costs.law[i] = i + 1;
  stats.ladder_changes = {
      .added = 1, .removed = 2, .merged = 3, .split = 4, .evicted = 5, .reviews = 6};
  return stats;
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
