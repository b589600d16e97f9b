#include "server/parameters.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/parameter_list.h"
#include "server/parameter_value.h"
#include "server/status.h"

namespace sluice {
namespace {

constexpr double kMinTemperature = 1e-3;  // below, dividing logits by it would overflow floats
constexpr double kMaxTemperature = 1e3;
constexpr double kMinRepetition = 0.01;
constexpr double kMaxRepetition = 100;
constexpr double kMaxPenalty = 100;
constexpr int64_t kMaxTimeoutUs = int64_t{24} * 60 * 60 * 1'000'000;

absl::Status ReadTemperature(const inference::InferParameter& value, double* out) {
  const std::optional<Number> number = ReadNumber(value);
  const bool good =
      number &&
      (number->real == 0 || (number->real >= kMinTemperature && number->real <= kMaxTemperature));
  if (!good) return Expected("temperature", value, "0 or a number in [0.001, 1000]");
  *out = number->real;
  return absl::OkStatus();
}

// The engine computes in float, so a value that rounds to 0 there is 0 here.
absl::Status ReadShare(absl::string_view name, const inference::InferParameter& value,
                       bool zero_allowed, double* out) {
  const std::optional<Number> number = ReadNumber(value);
  const bool good = number && number->real >= 0 && number->real <= 1 &&
                    (zero_allowed || static_cast<float>(number->real) > 0);
  if (!good) {
    return Expected(name, value, zero_allowed ? "a number in [0, 1]" : "a number in (0, 1]");
  }
  *out = number->real;
  return absl::OkStatus();
}

absl::Status ReadSeed(const inference::InferParameter& value, std::optional<uint64_t>* out) {
  uint64_t seed = 0;
  absl::Status status = ReadInteger("seed", value, &seed);
  if (status.ok()) *out = seed;
  return status;
}

absl::Status ReadAllowed(const inference::InferParameter& value, int64_t vocab,
                         std::vector<int32_t>* out) {
  absl::Status status =
      ReadTokenIds("allowed_token_ids", value, vocab, static_cast<size_t>(vocab), out);
  if (status.ok() && out->empty()) {
    return ParameterError("allowed_token_ids", "is empty, so that nothing could be drawn");
  }
  return status;
}

absl::Status ReadMinTokens(const inference::InferParameter& value, int64_t most, int32_t* out) {
  int64_t tokens = 0;
  absl::Status status = ReadInteger("min_tokens", value, 0, most, &tokens);
  if (status.ok()) *out = static_cast<int32_t>(tokens);
  return status;
}

absl::Status Unknown(absl::string_view name) {
  return WithReason(absl::InvalidArgumentError(absl::StrCat("unknown parameter ", Printable(name))),
                    "parameter");
}

absl::Status ReadEdit(const std::string& name, const inference::InferParameter& value,
                      int64_t vocab, EditRules* out) {
  const auto penalty = [&](float* field) {
    return ReadReal(name, value, -kMaxPenalty, kMaxPenalty, field);
  };
  if (name == "repetition_penalty") {
    return ReadReal(name, value, kMinRepetition, kMaxRepetition, &out->repetition_penalty);
  }
  if (name == "presence_penalty") return penalty(&out->presence_penalty);
  if (name == "frequency_penalty") return penalty(&out->frequency_penalty);
  if (name == "logit_bias") return ReadTokenBias(name, value, vocab, &out->bias);
  if (name == "allowed_token_ids") return ReadAllowed(value, vocab, &out->allowed);
  return Unknown(name);
}

absl::Status ReadStop(const std::string& name, const inference::InferParameter& value,
                      const ModelConfig& config, Parameters* out) {
  StopRules& stop = out->stop;
  if (name == "stop") return ReadTexts(name, value, &stop.texts);
  if (name == "stop_token_ids") {
    return ReadTokenIds(name, value, config.vocab_size, kMaxStopIds, &stop.ids);
  }
  if (name == "ignore_eos") return ReadFlag(name, value, &stop.ignore_eos);
  if (name == "min_tokens") return ReadMinTokens(value, config.max_positions, &stop.min_tokens);
  return ReadEdit(name, value, config.vocab_size, &out->edits);
}

absl::Status ReadOne(const std::string& name, const inference::InferParameter& value,
                     const ModelConfig& config, Parameters* out) {
  const auto integer = [&](int64_t max, int64_t* field) {
    return ReadInteger(name, value, 0, max, field);
  };
  if (name == "max_tokens") return integer(config.max_positions, &out->max_tokens);
  if (name == "temperature") return ReadTemperature(value, &out->temperature);
  if (name == "top_k") return integer(config.vocab_size, &out->top_k);
  if (name == "top_p") return ReadShare(name, value, /*zero_allowed=*/false, &out->top_p);
  if (name == "min_p") return ReadShare(name, value, /*zero_allowed=*/true, &out->min_p);
  if (name == "seed") return ReadSeed(value, &out->seed);
  if (name == "num_top_logprobs") return integer(config.vocab_size, &out->num_top_logprobs);
  if (name == "priority") return integer(kPriorityLevels, &out->priority);
  if (name == "timeout") return integer(kMaxTimeoutUs, &out->timeout_us);
  if (name == "triton_enable_empty_final_response") {
    return ReadFlag(name, value, &out->empty_final_response);
  }
  return ReadStop(name, value, config, out);
}

// The tokens that may never be drawn, or not before min_tokens; ascending, distinct.
std::vector<int32_t> Forbidden(const Parameters& parameters, const ModelConfig& config) {
  std::vector<int32_t> tokens;
  for (const kernels::TokenBias& bias : parameters.edits.bias) {
    if (std::isinf(bias.bias)) tokens.push_back(bias.token);
  }
  const StopRules& stop = parameters.stop;
  if (stop.min_tokens > 0) {
    tokens.insert(tokens.end(), stop.ids.begin(), stop.ids.end());
    if (!stop.ignore_eos) {
      tokens.insert(tokens.end(), config.eos_token_ids.begin(), config.eos_token_ids.end());
    }
  }
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

// A draw among no tokens would have no answer.
absl::Status CheckChoice(const Parameters& parameters, const ModelConfig& config) {
  const std::vector<int32_t> forbidden = Forbidden(parameters, config);
  const std::vector<int32_t>& allowed = parameters.edits.allowed;
  const auto free = [&](int32_t token) {
    return !std::binary_search(forbidden.begin(), forbidden.end(), token);
  };
  const bool any = allowed.empty() ? static_cast<int64_t>(forbidden.size()) < config.vocab_size
                                   : std::any_of(allowed.begin(), allowed.end(), free);
  if (any) return absl::OkStatus();
  return ParameterError(allowed.empty() ? "logit_bias" : "allowed_token_ids",
                        "leaves no token to be drawn; logit_bias bans tokens, and min_tokens those "
                        "that would end a row");
}

absl::Status CheckTogether(const Parameters& parameters, const ModelConfig& config) {
  if (parameters.stop.min_tokens > parameters.max_tokens) {
    return ParameterError("min_tokens",
                          absl::StrCat("is ", parameters.stop.min_tokens,
                                       ", above max_tokens, which is ", parameters.max_tokens));
  }
  return CheckChoice(parameters, config);
}

}  // namespace

absl::StatusOr<Parameters> ReadParameters(const ParameterMap& map, const ModelConfig& config) {
  Parameters parameters;
  for (const auto& [name, value] : map) {
    if (absl::Status status = ReadOne(name, value, config, &parameters); !status.ok()) {
      return status;
    }
  }
  if (absl::Status status = CheckTogether(parameters, config); !status.ok()) return status;
  return parameters;
}

}  // namespace sluice
