#include "loadtest/bench/daemon/buckets_reference.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <variant>

#include "base/status_macros.h"
#include "client/request.h"
#include "client/response.h"
#include "tests/support/reference_model.h"

namespace sluice::loadtest {
namespace {

struct Scores {
  std::vector<float> prompt;  // [length]; the first is 0
  float next = 0;
  int32_t next_token = 0;
};

absl::StatusOr<Scores> Ask(const client::Connection& connection, std::span<const int32_t> tokens) {
  inference::ModelInferRequest request;
  request.set_model_name("model");
  client::SetIds(absl::MakeConstSpan(tokens.data(), tokens.size()), &request);
  (*request.mutable_parameters())["max_tokens"].set_int64_param(1);
  for (const char* name : {"output_ids", "logprobs", "prompt_logprobs"}) {
    client::AddOutput(name, &request);
  }
  SLUICE_ASSIGN_OR_RETURN(const inference::ModelInferResponse response, connection.Infer(request));
  SLUICE_ASSIGN_OR_RETURN(const client::Tensors outputs, client::DecodeOutputs(response));
  const auto values = [&]<typename T>(const char* name, T) {
    const client::Tensor* tensor = client::FindTensor(outputs, name);
    const auto* found = tensor ? std::get_if<std::vector<T>>(&tensor->values) : nullptr;
    return found ? *found : std::vector<T>();
  };
  const std::vector<int32_t> ids = values("output_ids", int32_t{});
  const std::vector<float> next = values("logprobs", float{});
  Scores scores{values("prompt_logprobs", float{})};
  if (ids.size() != 1 || next.size() != 1 || scores.prompt.size() != tokens.size()) {
    return absl::InvalidArgumentError("an output of the answer is missing or has another size");
  }
  scores.next = next[0];
  scores.next_token = ids[0];
  return scores;
}

double LogProbability(std::span<const double> logits, int32_t token) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (double logit : logits) sum += std::exp(logit - largest);
  return logits[token] - largest - std::log(sum);
}

void Compare(double answer, double expected, ReferenceError* error) {
  const double difference = std::abs(answer - expected);
  ++error->values;
  error->absolute = std::max(error->absolute, difference);
  error->relative = std::max(error->relative, difference / std::max(1.0, std::abs(expected)));
}

}  // namespace

absl::StatusOr<ReferenceError> CompareWithReference(const client::Connection& connection,
                                                    const Model& model,
                                                    const std::vector<int32_t>& lengths,
                                                    uint64_t seed) {
  const auto vocab = static_cast<int32_t>(model.config.vocab_size);
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int32_t> draw(0, vocab - 1);
  ReferenceError error;
  for (int32_t length : lengths) {
    std::vector<int32_t> tokens(length);
    for (int32_t& token : tokens) token = draw(random);
    SLUICE_ASSIGN_OR_RETURN(const Scores scores, Ask(connection, tokens));
    if (scores.next_token < 0 || scores.next_token >= vocab) {
      return absl::InvalidArgumentError("the answer's token is not in the vocabulary");
    }
    const std::vector<double> logits = testing::RunReference(model, tokens).logits;
    const auto at = [&](int32_t position) {
      return std::span<const double>(logits).subspan(static_cast<size_t>(position) * vocab, vocab);
    };
    for (int32_t i = 1; i < length; ++i) {
      Compare(scores.prompt[i], LogProbability(at(i - 1), tokens[i]), &error);
    }
    Compare(scores.next, LogProbability(at(length - 1), scores.next_token), &error);
  }
  return error;
}

}  // namespace sluice::loadtest
