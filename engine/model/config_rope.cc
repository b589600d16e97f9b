// Reads rotary positions and their scaling.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/config_reader.h"

namespace sluice {
namespace {

constexpr double kMaxTheta = 1e12;
constexpr double kMaxFactor = 1e6;

void ReadLlama3(ObjectReader& scaling, RopeConfig& rope) {
  RopeConfig::Llama3& llama3 = rope.llama3.emplace();
  llama3.factor = scaling.Number("factor", 1.0, kMaxFactor);
  llama3.low_freq_factor = scaling.Number("low_freq_factor", 1e-6, kMaxFactor);
  llama3.high_freq_factor = scaling.Number("high_freq_factor", 1e-6, kMaxFactor);
  llama3.original_max_positions =
      scaling.Integer("original_max_position_embeddings", 1, kMaxModelPositions);
  if (llama3.high_freq_factor <= llama3.low_freq_factor) {
    scaling.Fail("high_freq_factor", "must be above low_freq_factor");
  }
}

// Returns the attention factor of YaRN for one of its scales.
double YarnScale(double factor, double scale) {
  return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1;
}

void ReadYarn(ObjectReader& scaling, const ModelConfig& config, RopeConfig& rope) {
  RopeConfig::Yarn& yarn = rope.yarn.emplace();
  yarn.original_max_positions = scaling.Integer("original_max_position_embeddings", 1,
                                                kMaxModelPositions, config.max_positions);
  yarn.factor = scaling.Number(
      "factor", 1.0, kMaxFactor,
      static_cast<double>(config.max_positions) / static_cast<double>(yarn.original_max_positions));
  yarn.beta_fast = scaling.Number("beta_fast", 1e-6, kMaxFactor, 32);
  yarn.beta_slow = scaling.Number("beta_slow", 1e-6, kMaxFactor, 1);
  yarn.truncate = scaling.Boolean("truncate", true);
  double usual = YarnScale(yarn.factor, 1);
  const double scale = scaling.Number("mscale", 0, kMaxFactor, 0);
  const double of_all = scaling.Number("mscale_all_dim", 0, kMaxFactor, 0);
  if (scale > 0 && of_all > 0)
    usual = YarnScale(yarn.factor, scale) / YarnScale(yarn.factor, of_all);
  rope.attention_factor = scaling.Number("attention_factor", 1e-6, kMaxFactor, usual);
  if (rope.theta <= 1) scaling.Fail("rope_theta", "must be above 1 for yarn");
}

// Returns the numbers of the list `key`. There must be one for each frequency.
std::vector<double> ReadDivisors(ObjectReader& scaling, const char* key, int64_t frequencies) {
  const nlohmann::json* const list = scaling.Find(key);
  std::vector<double> divisors;
  if (list != nullptr && list->is_array()) {
    for (const nlohmann::json& each : *list) {
      if (each.is_number() && each.get<double>() > 0) divisors.push_back(each.get<double>());
    }
  }
  if (std::ssize(divisors) != frequencies) {
    scaling.Fail(key, absl::StrCat("must be a list of ", frequencies, " positive numbers"));
    divisors.assign(frequencies, 1);
  }
  return divisors;
}

// By default, sequences are limited to the length in training, and the short factors are used. With
// sluice.long_context, all positions are allowed, and the long factors are used for all of them.
// transformers instead chooses for each length, so that the keys of a growing sequence would change
// when it exceeds the length in training.
void ReadLongRope(ObjectReader& root, ObjectReader& scaling, int64_t trained_positions,
                  ModelConfig& config, RopeConfig& rope) {
  constexpr char kTrained[] = "original_max_position_embeddings";
  const bool of_class = trained_positions > 0;
  ObjectReader& owner = !of_class && scaling.Has(kTrained) ? scaling : root;
  const int64_t trained = owner.Integer(kTrained, 2, kMaxModelPositions,
                                        of_class ? trained_positions : config.max_positions);
  // The rope of another kind of layers may have limited config.max_positions already.
  const int64_t published =
      root.Integer("max_position_embeddings", 1, kMaxModelPositions, config.max_positions);
  const double factor = scaling.Number(
      "factor", 1e-6, kMaxFactor, static_cast<double>(published) / static_cast<double>(trained));
  rope.attention_factor = scaling.Number(
      "attention_factor", 1e-6, kMaxFactor,
      factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(trained))));
  const bool long_context = root.Object("sluice").Boolean("long_context", false);
  if (!long_context && config.max_positions > trained) config.max_positions = trained;
  rope.divisors =
      ReadDivisors(scaling, long_context ? "long_factor" : "short_factor", rope.dims / 2);
}

// NTK scaling as in the published code of GTE (kexue.fm/archives/9706): frequency i of n is divided
// by exp(a (i + 1)^b), where exp(a n^b) is the factor. Without mixed_b, b is 1.
void ReadNtk(ObjectReader& scaling, RopeConfig& rope) {
  const double factor = scaling.Number("factor", 1.0, kMaxFactor);
  const double b = scaling.Number("mixed_b", 0, 16, 1);
  const int64_t n = rope.dims / 2;
  const double a = std::log(factor) / std::pow(static_cast<double>(n), b);
  for (int64_t i = 1; i <= n; ++i) {
    rope.divisors.push_back(std::exp(a * std::pow(static_cast<double>(i), b)));
  }
}

// The scaling that Hunyuan's files call dynamic. With alpha, it is the same for every length.
void ReadAlpha(ObjectReader& scaling, RopeConfig& rope) {
  const double alpha = scaling.Number("alpha", 1e-6, kMaxFactor), dims = rope.dims;
  if (rope.dims > 2) rope.theta *= std::pow(alpha, dims / (dims - 2));
}

// Adds a warning about keys of the object that belong to no kind of rope.
void WarnAboutRopeKeys(ObjectReader& scaling, ModelConfig& config) {
  constexpr std::string_view kKnown[] = {"alpha",
                                         "attention_factor",
                                         "beta_fast",
                                         "beta_slow",
                                         "factor",
                                         "finetuned",
                                         "full_attention",
                                         "high_freq_factor",
                                         "llama_4_scaling_beta",
                                         "long_factor",
                                         "low_freq_factor",
                                         "max_position_embeddings",
                                         "mixed_b",
                                         "mrope_section",
                                         "mscale",
                                         "mscale_all_dim",
                                         "original_max_position_embeddings",
                                         "partial_rotary_factor",
                                         "rope_theta",
                                         "rope_type",
                                         "short_factor",
                                         "sliding_attention",
                                         "truncate",
                                         "type"};
  std::vector<std::string> unknown;
  for (const std::string& key : scaling.Unread()) {
    if (std::ranges::find(kKnown, key) == std::end(kKnown)) unknown.push_back(key);
  }
  WarnAboutUnknown(unknown, scaling.PathOf(""), config);
}

void ReadScaling(ObjectReader& root, ObjectReader& scaling, ModelConfig& config, RopeConfig& rope,
                 const RopeKeys& keys = {}) {
  WarnAboutRopeKeys(scaling, config);
  const char* const type = scaling.Has("rope_type") ? "rope_type" : "type";
  std::vector<std::string_view> kinds = {"default", "llama3", "linear", "yarn", "longrope", "su"};
  if (keys.kind != nullptr) kinds.emplace_back(keys.kind);
  switch (scaling.Choice(type, kinds)) {
    case 1:
      return ReadLlama3(scaling, rope);
    case 2:
      rope.divisors.assign(rope.dims / 2, scaling.Number("factor", 1e-6, kMaxFactor));
      return;
    case 3:
      return ReadYarn(scaling, config, rope);
    case 4:
    case 5:
      return ReadLongRope(root, scaling, keys.trained_positions, config, rope);
    case 6:
      return kinds.back() == "ntk" ? ReadNtk(scaling, rope) : ReadAlpha(scaling, rope);
    default:
      return;
  }
}

// Returns the object for a type of layers in rope_parameters, or rope_parameters itself.
ObjectReader ParametersOf(ObjectReader& root, const char* layers) {
  ObjectReader parameters = root.Object("rope_parameters");
  return parameters.Has(layers) ? parameters.Object(layers) : parameters;
}

}  // namespace

// Published checkpoints have `rope_theta` and `rope_scaling`; newer versions of transformers write
// both into `rope_parameters`.
void ReadRope(ObjectReader& root, ModelConfig& config, const RopeKeys& keys) {
  if (root.Has("rope_scaling") && root.Has("rope_parameters")) {
    root.Fail("rope_scaling", "and rope_parameters are both set; set only one");
  }
  ObjectReader scaling = root.Has("rope_parameters") ? ParametersOf(root, "full_attention")
                                                     : root.Object("rope_scaling");
  RopeConfig& rope = config.rope;
  rope.theta = root.Number(keys.theta_key, 1.0, kMaxTheta, keys.theta);
  rope.theta = scaling.Number("rope_theta", 1.0, kMaxTheta, rope.theta);
  const double least = keys.part_key == nullptr ? 1 : 0;
  double part = keys.part_key == nullptr ? 1 : root.Number(keys.part_key, 0, 1.0, keys.part);
  part = scaling.Number("partial_rotary_factor", least, 1.0, part);
  rope.dims = keys.dims;
  if (rope.dims == 0) rope.dims = static_cast<int64_t>(static_cast<double>(config.head_dim) * part);
  if (rope.dims % 2 != 0 || rope.dims == 0) {
    const std::string rotated =
        rope.dims == config.head_dim ? "" : absl::StrCat(" and its rotated part ", rope.dims);
    root.Fail("head_dim", absl::StrCat("is ", config.head_dim, rotated, ", must be even for RoPE"));
    rope.dims = 2;
  }
  ReadScaling(root, scaling, config, rope, keys);
}

void ReadLocalRope(ObjectReader& root, ModelConfig& config, const LocalRopeKeys& keys) {
  const double theta = root.Number(keys.theta_key, 1.0, kMaxTheta, keys.theta);
  RopeConfig local = {.theta = theta, .dims = config.rope.dims};
  if (root.Has("rope_parameters")) {
    ObjectReader parameters = root.Object("rope_parameters");
    if (!parameters.Has("sliding_attention")) {
      root.Fail("rope_parameters", "must have the parameters of sliding_attention");
      return;
    }
    ObjectReader own = parameters.Object("sliding_attention");
    local.theta = own.Number("rope_theta", 1.0, kMaxTheta, local.theta);
    ReadScaling(root, own, config, local);
  } else if (keys.scaled) {
    local = config.rope;
    local.theta = root.Object("rope_scaling").Number("rope_theta", 1.0, kMaxTheta, theta);
    if (local.yarn && local.theta <= 1) root.Fail(keys.theta_key, "must be above 1 for yarn");
  }
  config.local_rope = std::move(local);
}

}  // namespace sluice
