// Parses request parameters. Each line has a name, ':', a letter for the type, and the value.
#include <cstring>
#include <limits>
#include <type_traits>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "engine/parameter_table.h"
#include "server/protocol/parameters/parameters.h"
#include "tests/fuzz/fuzz.h"

namespace sluice {
namespace {

ModelConfig TestConfig() {
  ModelConfig config;
  config.vocab_size = 300;
  config.max_positions = 64;
  config.eos_token_ids = {2, 299};
  config.hidden_size = 8;
  config.serving.prompts = {{.name = "query", .text = "query: "}};
  return config;
}

// Returns the double with these bits, so that inputs can produce any double.
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

void CheckLists(const RequestSpec& spec, const ModelConfig& config) {
  CheckIds(spec.edits.allowed, config.vocab_size);
  CheckIds(spec.stop.ids, config.vocab_size);
  SLUICE_CHECK(spec.stop.ids.size() <= 64 && spec.stop.texts.size() <= 16);
  for (const std::string& text : spec.stop.texts) {
    SLUICE_CHECK(!text.empty() && text.size() <= 256);
  }
  SLUICE_CHECK(spec.edits.bias.size() <= 1024);
  for (const kernels::TokenBias& bias : spec.edits.bias) {
    SLUICE_CHECK(bias.token >= 0 && bias.token < config.vocab_size);
    SLUICE_CHECK(bias.bias == -std::numeric_limits<float>::infinity() ||
                 (bias.bias >= -100 && bias.bias <= 100));
  }
}

// Checks that a number is in the range of its table row or is the default.
struct NumberCheck {
  const ParameterInfo& info;
  const ModelConfig& config;
  RequestSpec& spec;

  template <typename T>
  void operator()(FieldOf<T> field) const {
    RequestSpec defaults;
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, int32_t> ||
                  std::is_same_v<T, int64_t>) {
      const T value = field(spec);
      const ParameterRange& range = info.range;
      const bool inside =
          range.above_min ? value > static_cast<T>(range.min) : value >= static_cast<T>(range.min);
      SLUICE_CHECK(value == field(defaults) || (value == 0 && range.zero_too) ||
                   (inside && value <= static_cast<T>(range.MaxFor(config))));
    }
  }
  void operator()(StoreWord) const {}
};

void CheckNumbers(RequestSpec& spec, const ModelConfig& config) {
  for (const ParameterInfo& info : RequestParameters()) {
    std::visit(NumberCheck{info, config, spec}, info.field);
  }
  SLUICE_CHECK(spec.stop.min_tokens <= spec.max_tokens);
}

}  // namespace
}  // namespace sluice

bool sluice::fuzz::TestInput(const uint8_t* data, size_t size) {
  const std::string_view text = sluice::fuzz::AsText(data, size);
  sluice::ParameterMap map;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    const std::pair<absl::string_view, absl::string_view> halves =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    sluice::SetValue(halves.second, &map[std::string(halves.first)]);
  }
  static const auto* const config = new sluice::ModelConfig(sluice::TestConfig());
  sluice::RequestSpec spec;
  const absl::Status read = sluice::ReadParameters(map, *config, &spec);
  if (read.ok()) {
    sluice::CheckLists(spec, *config);
    sluice::CheckNumbers(spec, *config);
  } else {
    sluice::fuzz::CheckRefusal(read);
  }
  return read.ok();
}
