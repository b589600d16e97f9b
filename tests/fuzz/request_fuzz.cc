// Parses and validates bytes from the network as a ModelInferRequest: for the demo model, for a
// classifier of pairs, and for a model that searches.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "google/protobuf/stubs/logging.h"
#include "server/calls/wire.h"
#include "server/protocol/request/peek.h"
#include "server/protocol/request/validate.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

constexpr RequestLimits kLimits = {.max_rows = 8, .max_reply_bytes = 1 << 20};

using Models = std::vector<std::shared_ptr<const Model>>;

const Models& AllModels() {
  static const auto* const models = [] {
    auto* const loaded = new Models();
    for (const char* path :
         {"models/demo", "tests/goldens/sentences/cross_1", "tests/goldens/retrieval/m3"}) {
      auto model = LoadModel("demo", 1, std::string(SLUICE_SOURCE_DIR "/") + path);
      SLUICE_CHECK(model.ok());
      loaded->push_back(*std::move(model));
    }
    return loaded;
  }();
  return *models;
}

bool ParseSlices(std::initializer_list<std::string_view> parts,
                 inference::ModelInferRequest* message) {
  std::vector<grpc::Slice> slices;
  for (const std::string_view part : parts) slices.emplace_back(part.data(), part.size());
  return Parse(grpc::ByteBuffer(slices.data(), slices.size()), message).ok();
}

void CheckTokens(const Request& request) {
  const ModelConfig& config = request.spec->model->config;
  SLUICE_CHECK(request.rows() >= 1 && request.rows() <= kLimits.max_rows);
  int64_t total = 0;
  for (const int32_t length : request.spec->lengths) {
    SLUICE_CHECK(length >= 1 && length + request.spec->max_tokens <= config.max_positions + 1);
    total += length;
  }
  SLUICE_CHECK(total == static_cast<int64_t>(request.tokens.size()));
  for (const int32_t token : request.tokens) SLUICE_CHECK(token >= 0 && token < config.vocab_size);
}

void CheckSampling(const Request& request) {
  const kernels::SampleParams& sampling = request.spec->sampling;
  SLUICE_CHECK(sampling.temperature == 0 ||
               (sampling.temperature > 0 && sampling.temperature <= 1000));
  SLUICE_CHECK(sampling.top_p > 0 && sampling.top_p <= 1);
  const int64_t vocab = request.spec->model->config.vocab_size;
  SLUICE_CHECK(sampling.top_k >= 0 && sampling.top_k <= vocab);
  SLUICE_CHECK(request.spec->num_top >= 0 && request.spec->num_top <= vocab);
  SLUICE_CHECK(request.spec->priority >= 1 && request.spec->priority <= kPriorityLevels);
}

// Checks that Parse gives the same result for one slice and for two.
bool ParseBothWays(std::string_view bytes, inference::ModelInferRequest* message) {
  const bool whole = ParseSlices({bytes}, message);
  inference::ModelInferRequest cut;
  const size_t middle = bytes.size() / 2;
  SLUICE_CHECK(ParseSlices({bytes.substr(0, middle), bytes.substr(middle)}, &cut) == whole);
  return whole;
}

// Returns whether the message is a request for the model, and checks the request.
bool IsValid(const inference::ModelInferRequest& message,
             const std::shared_ptr<const Model>& model) {
  const auto valid = Validate(message, kLimits, {.model = model});
  if (!valid.ok()) {
    fuzz::CheckRefusal(valid.status());
    return false;
  }
  CheckTokens(valid->request);
  CheckSampling(valid->request);
  SLUICE_CHECK(!valid->reply.outputs.empty());
  SLUICE_CHECK(valid->reply.max_bytes <= kLimits.max_reply_bytes);
  return true;
}

// Checks that PeekAtRequest and the parser read the same values.
void CheckPeek(std::string_view bytes, const inference::ModelInferRequest& message) {
  const std::optional<RequestPeek> peek = PeekAtRequest(bytes);
  if (!peek.has_value()) return;
  SLUICE_CHECK(peek->model_name == message.model_name());
  SLUICE_CHECK(peek->model_version == message.model_version());
  for (const char* name : {"priority", "timeout"}) {
    SLUICE_CHECK(!message.parameters().contains(name));
  }
}

}  // namespace
}  // namespace sluice

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);  // as in the daemon; it would log every invalid text
  return 0;
}

bool sluice::fuzz::TestInput(const uint8_t* data, size_t size) {
  inference::ModelInferRequest message;
  const std::string_view bytes = sluice::fuzz::AsText(data, size);
  if (!sluice::ParseBothWays(bytes, &message)) {
    sluice::PeekAtRequest(bytes);
    return false;
  }
  sluice::CheckPeek(bytes, message);
  bool accepted = false;
  for (const auto& model : sluice::AllModels()) accepted |= sluice::IsValid(message, model);
  return accepted;
}
