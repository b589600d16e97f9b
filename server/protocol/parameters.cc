#include "server/protocol/parameters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/common/status.h"
#include "server/protocol/parameter_list.h"
#include "server/protocol/parameter_value.h"

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

// One of `names`, as its index.
template <typename Enum>
absl::Status ReadChoice(absl::string_view name, const inference::InferParameter& value,
                        std::span<const std::string_view> names, Enum* out) {
  const auto found = std::find(names.begin(), names.end(), value.string_param());
  const bool text = value.parameter_choice_case() == inference::InferParameter::kStringParam;
  if (text && found != names.end()) {
    *out = static_cast<Enum>(found - names.begin());
    return absl::OkStatus();
  }
  std::string expected;
  for (const std::string_view each : names) {
    absl::StrAppend(&expected, expected.empty() ? "" : ", ",
                    absl::string_view(each.data(), each.size()));
  }
  return Expected(name, value, absl::StrCat("one of ", expected));
}

// In the order of ScoreScale.
constexpr std::string_view kScoreScales[] = {"none", "softmax", "sigmoid"};

absl::Status ReadCandidateScale(absl::string_view name, const inference::InferParameter& value,
                                ScoreScale* out) {
  constexpr std::string_view kNames[] = {"none", "log_softmax"};
  int choice = 0;
  absl::Status status = ReadChoice(name, value, kNames, &choice);
  if (status.ok()) *out = choice == 0 ? ScoreScale::kRaw : ScoreScale::kLogSoftmax;
  return status;
}

// What a parameter's reader works on.
struct Reading {
  absl::string_view name;
  const inference::InferParameter& value;
  const ModelConfig& config;
  Parameters* out;

  absl::Status Integer(int64_t max, int64_t* field) const {
    return ReadInteger(name, value, 0, max, field);
  }
  absl::Status Penalty(float* field) const {
    return ReadReal(name, value, -kMaxPenalty, kMaxPenalty, field);
  }
};

struct Entry {
  std::string_view name;
  absl::Status (*read)(const Reading& of);
};

absl::Status ReadMaxTokens(const Reading& of) {
  int64_t tokens = 0;
  absl::Status status = of.Integer(of.config.max_positions, &tokens);
  if (status.ok()) of.out->max_tokens = tokens;
  return status;
}

// Ascending by name.
constexpr Entry kEntries[] = {
    {"activation",
     [](const Reading& of) {
       return ReadChoice(of.name, of.value, kScoreScales, &of.out->states.scores);
     }},
    {"allowed_token_ids",
     [](const Reading& of) {
       return ReadAllowed(of.value, of.config.vocab_size, &of.out->edits.allowed);
     }},
    {"candidate_activation",
     [](const Reading& of) {
       return ReadCandidateScale(of.name, of.value, &of.out->states.candidates);
     }},
    {"frequency_penalty",
     [](const Reading& of) { return of.Penalty(&of.out->edits.frequency_penalty); }},
    {"ignore_eos",
     [](const Reading& of) { return ReadFlag(of.name, of.value, &of.out->stop.ignore_eos); }},
    {"logit_bias",
     [](const Reading& of) {
       return ReadTokenBias(of.name, of.value, of.config.vocab_size, &of.out->edits.bias);
     }},
    {"max_tokens", ReadMaxTokens},
    {"min_p",
     [](const Reading& of) {
       return ReadShare(of.name, of.value, /*zero_allowed=*/true, &of.out->min_p);
     }},
    {"min_tokens",
     [](const Reading& of) {
       return ReadMinTokens(of.value, of.config.max_positions, &of.out->stop.min_tokens);
     }},
    {"normalize",
     [](const Reading& of) { return ReadFlag(of.name, of.value, &of.out->states.normalize); }},
    {"num_top_logprobs",
     [](const Reading& of) { return of.Integer(of.config.vocab_size, &of.out->num_top_logprobs); }},
    {"pooling",
     [](const Reading& of) {
       return ReadChoice(of.name, of.value, kPoolingNames, &of.out->states.pooling);
     }},
    {"presence_penalty",
     [](const Reading& of) { return of.Penalty(&of.out->edits.presence_penalty); }},
    {"priority", [](const Reading& of) { return of.Integer(kPriorityLevels, &of.out->priority); }},
    {"repetition_penalty",
     [](const Reading& of) {
       return ReadReal(of.name, of.value, kMinRepetition, kMaxRepetition,
                       &of.out->edits.repetition_penalty);
     }},
    {"seed", [](const Reading& of) { return ReadSeed(of.value, &of.out->seed); }},
    {"stop", [](const Reading& of) { return ReadTexts(of.name, of.value, &of.out->stop.texts); }},
    {"stop_token_ids",
     [](const Reading& of) {
       return ReadTokenIds(of.name, of.value, of.config.vocab_size, kMaxStopIds, &of.out->stop.ids);
     }},
    {"temperature",
     [](const Reading& of) { return ReadTemperature(of.value, &of.out->temperature); }},
    {"timeout", [](const Reading& of) { return of.Integer(kMaxTimeoutUs, &of.out->timeout_us); }},
    {"top_k", [](const Reading& of) { return of.Integer(of.config.vocab_size, &of.out->top_k); }},
    {"top_p",
     [](const Reading& of) {
       return ReadShare(of.name, of.value, /*zero_allowed=*/false, &of.out->top_p);
     }},
    {"triton_enable_empty_final_response",
     [](const Reading& of) { return ReadFlag(of.name, of.value, &of.out->empty_final_response); }},
    {"truncate",
     [](const Reading& of) {
       return ReadChoice(of.name, of.value, kTruncationNames, &of.out->truncate);
     }},
};

constexpr auto kNames = [] {
  std::array<std::string_view, std::size(kEntries)> names{};
  for (size_t i = 0; i < names.size(); ++i) names[i] = kEntries[i].name;
  return names;
}();
static_assert(std::is_sorted(kNames.begin(), kNames.end()));

absl::Status ReadOne(const std::string& name, const inference::InferParameter& value,
                     const ModelConfig& config, Parameters* out) {
  const auto found = std::lower_bound(kNames.begin(), kNames.end(), name);
  if (found == kNames.end() || *found != name) return Unknown(name);
  return kEntries[found - kNames.begin()].read({name, value, config, out});
}

// A draw among no tokens would have no answer.
absl::Status CheckChoice(const Parameters& parameters, const ModelConfig& config) {
  const std::vector<int32_t> forbidden = ForbiddenTokens(parameters, config);
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
  const int64_t max_tokens = parameters.max_tokens.value_or(1);
  if (parameters.stop.min_tokens > max_tokens) {
    return ParameterError("min_tokens", absl::StrCat("is ", parameters.stop.min_tokens,
                                                     ", above max_tokens, which is ", max_tokens));
  }
  return CheckChoice(parameters, config);
}

}  // namespace

std::span<const std::string_view> ParameterNames() { return kNames; }

std::vector<int32_t> ForbiddenTokens(const Parameters& parameters, const ModelConfig& config) {
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

absl::StatusOr<Parameters> ReadParameters(const ParameterMap& map, const ModelConfig& config) {
  Parameters parameters;
  parameters.truncate = config.serving.truncate;
  parameters.states.pooling = config.serving.pooling;
  parameters.states.normalize = config.serving.normalize;
  for (const auto& [name, value] : map) {
    if (absl::Status status = ReadOne(name, value, config, &parameters); !status.ok()) {
      return status;
    }
  }
  if (absl::Status status = CheckTogether(parameters, config); !status.ok()) return status;
  return parameters;
}

}  // namespace sluice
