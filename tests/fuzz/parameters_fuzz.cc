// Request parameters. A line is one of them: its name, ':', a letter for its type and its value.
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "server/protocol/parameters.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

ModelConfig TestConfig() {
  ModelConfig config;
  config.vocab_size = 300;
  config.max_positions = 64;
  config.eos_token_ids = {2, 299};
  return config;
}

// A double as its bits, so that none is out of reach.
double FromBits(absl::string_view text) {
  uint64_t bits = 0;
  std::memcpy(&bits, text.data(), std::min(text.size(), sizeof(bits)));
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

void SetValue(absl::string_view text, inference::InferParameter* parameter) {
  if (text.empty()) return;  // a parameter without a value
  const absl::string_view rest = text.substr(1);
  int64_t number = 0;
  uint64_t natural = 0;
  double real = 0;
  switch (text[0]) {
    case 'b':
      return parameter->set_bool_param(rest == "1");
    case 'i':
      return parameter->set_int64_param(absl::SimpleAtoi(rest, &number) ? number : INT64_MIN);
    case 'u':
      return parameter->set_uint64_param(absl::SimpleAtoi(rest, &natural) ? natural : UINT64_MAX);
    case 'd':
      return parameter->set_double_param(absl::SimpleAtod(rest, &real) ? real : FromBits(rest));
    default:
      return parameter->set_string_param(std::string(rest));
  }
}

void CheckIds(const std::vector<int32_t>& ids, int64_t vocab) {
  int32_t before = -1;
  for (const int32_t id : ids) {
    SLUICE_CHECK(id > before && id < vocab);
    before = id;
  }
}

void CheckLists(const Parameters& parameters, const ModelConfig& config) {
  CheckIds(parameters.edits.allowed, config.vocab_size);
  CheckIds(parameters.stop.ids, config.vocab_size);
  SLUICE_CHECK(parameters.stop.ids.size() <= 64 && parameters.stop.texts.size() <= 16);
  for (const std::string& text : parameters.stop.texts) {
    SLUICE_CHECK(!text.empty() && text.size() <= 256);
  }
  SLUICE_CHECK(parameters.edits.bias.size() <= 1024);
  for (const kernels::TokenBias& bias : parameters.edits.bias) {
    SLUICE_CHECK(bias.token >= 0 && bias.token < config.vocab_size);
    SLUICE_CHECK(bias.bias == -std::numeric_limits<float>::infinity() ||
                 (bias.bias >= -100 && bias.bias <= 100));
  }
}

void CheckNumbers(const Parameters& parameters, const ModelConfig& config) {
  const int64_t max_tokens = parameters.max_tokens.value_or(1);
  SLUICE_CHECK(max_tokens >= 0 && max_tokens <= config.max_positions);
  SLUICE_CHECK(parameters.stop.min_tokens <= max_tokens);
  SLUICE_CHECK(parameters.top_k >= 0 && parameters.top_k <= config.vocab_size);
  SLUICE_CHECK(parameters.priority >= 0 && parameters.priority <= kPriorityLevels);
  SLUICE_CHECK(parameters.timeout_us >= 0);
  SLUICE_CHECK(parameters.temperature >= 0 && parameters.temperature <= 1000);
  SLUICE_CHECK(parameters.top_p > 0 && parameters.top_p <= 1);
  SLUICE_CHECK(parameters.min_p >= 0 && parameters.min_p <= 1);
  SLUICE_CHECK(parameters.edits.repetition_penalty > 0);
  SLUICE_CHECK(std::isfinite(parameters.edits.presence_penalty));
  SLUICE_CHECK(std::isfinite(parameters.edits.frequency_penalty));
}

}  // namespace
}  // namespace sluice

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = sluice::fuzz::AsText(data, size);
  sluice::ParameterMap map;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    const std::pair<absl::string_view, absl::string_view> halves =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    sluice::SetValue(halves.second, &map[std::string(halves.first)]);
  }
  static const auto* const config = new sluice::ModelConfig(sluice::TestConfig());
  const auto parameters = sluice::ReadParameters(map, *config);
  if (parameters.ok()) {
    sluice::CheckLists(*parameters, *config);
    sluice::CheckNumbers(*parameters, *config);
  } else {
    sluice::fuzz::CheckRefusal(parameters.status());
  }
  return 0;
}
