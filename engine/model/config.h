// A model's architecture, read from a Hugging Face style config.json.
//
// Llama fields have their usual meaning. The object "sluice" switches on our operators:
//   "tokenizer": "byte"                     ids 0..255 are bytes; bos/eos from the config's ids
//   "position_wise": {
//     "projections": {"q": [layers], "k": [..], "v": [..], "o": [..]},
//     "max_positions": L,                   bounds the sequence; tensors are [L, in, out]
//     "bias": "none" | "e" | "le" }         none, [out], or [L, out]
//   "xsa": {
//     "layers": [..], "form": "norm" | "squared", "eps": 1e-6, "gate": "none" | "tanh" }
// Unknown keys inside "sluice" are errors; unknown Llama keys are ignored as in every reader of
// such files, but keys that would change the result and are not supported are errors.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice {

enum class Projection { kQ, kK, kV, kO };
inline constexpr int kProjections = 4;

enum class PositionWiseBias { kNone, kFeature, kPositionFeature };

struct PositionWiseConfig {
  std::vector<bool> layers[kProjections];  // [layers] each: is that projection position-wise?
  int64_t max_positions = 0;
  PositionWiseBias bias = PositionWiseBias::kNone;

  bool Any() const;
};

struct XsaConfig {
  enum class Form { kNorm, kSquared };
  std::vector<bool> layers;  // [layers]
  Form form = Form::kNorm;
  float eps = 1e-6f;
  bool gate = false;  // tanh(alpha_h), tensor self_attn.xsa_alpha [heads]

  bool Any() const;
};

struct RopeConfig {
  double theta = 10000.0;
  // llama3 frequency scaling (Llama 3.1); absent: none.
  struct Llama3 {
    double factor;
    double low_freq_factor;
    double high_freq_factor;
    int64_t original_max_positions;
  };
  std::optional<Llama3> llama3;
};

struct ModelConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_positions = 0;  // longest sequence: the smaller of the model's and position_wise's
  float rms_norm_eps = 1e-6f;
  RopeConfig rope;
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  bool causal = true;
  int32_t bos_token_id = -1;  // -1: none
  std::vector<int32_t> eos_token_ids;
  bool byte_tokenizer = false;
  PositionWiseConfig position_wise;
  XsaConfig xsa;
};

// Validates every value against its range. Errors name the key and the limit.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view text);

}  // namespace sluice
