// The parts of reading config.json that families share (engine/model/families/). Errors go to the
// status of the readers; values stay in their range in any case.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_reader.h"
#include "engine/model/config.h"

namespace sluice {

inline constexpr int64_t kMaxWidth = 65536;
inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxModelPositions = int64_t{1} << 20;

// The keys of a family's sizes.
struct SizeKeys {
  const char* hidden = "hidden_size";
  const char* intermediate = "intermediate_size";
  const char* layers = "num_hidden_layers";
  const char* heads = "num_attention_heads";
  const char* positions = "max_position_embeddings";
  const char* head_dim = "head_dim";
  int64_t intermediate_factor = 0;  // the default, in hidden sizes; 0 for none
  int64_t fallback_positions = 0;   // 0 for none
  int64_t fallback_head_dim = 0;    // 0 for hidden size / heads, which null always means
};

inline constexpr SizeKeys kGpt2Sizes = {.hidden = "n_embd",
                                        .intermediate = "n_inner",
                                        .layers = "n_layer",
                                        .heads = "n_head",
                                        .positions = "n_positions",
                                        .intermediate_factor = 4};

// The values of Llama's keys that a family's class in transformers has if they are absent.
// tests/engine/model/config_defaults_test.cc compares these with the classes.
struct LlamaDefaults {
  int64_t head_dim = 0;  // as in SizeKeys
  int64_t kv_heads = 0;  // 0 for the number of heads, which null always means
  double eps = 1e-6;     // of norms
  bool tied = false;     // the head and the embedding
};

// Reads sizes, without grouped queries.
void ReadSizes(ObjectReader& root, ModelConfig& config, const SizeKeys& keys);
// Reads the sizes under Llama's keys. Several heads may share a KV head (grouped queries).
void ReadLlamaSizes(ObjectReader& root, ModelConfig& config, const LlamaDefaults& defaults = {});
// Lets each position see all of a sequence. Windows then end on both sides, as in transformers.
void SetBidirectional(ModelConfig& config);
// Reads the width of embeddings, which a dense layer maps to the hidden size. Its head would read
// states of this width; if it differs, the model serves states, with a warning.
void ReadEmbeddingWidth(ObjectReader& root, int64_t usual, ModelConfig& config);
// Sets the common properties of GPT-2 and BERT: layer norms with weight and bias, a plain MLP,
// biases everywhere and learned positions.
void SetClassic(ModelConfig& config);
// Sets the common properties of BERT's relatives. ReadBertLike also reads them under BERT's keys.
void SetBertLike(ModelConfig& config);
void ReadBertLike(ObjectReader& root, ModelConfig& config);
// Starts learned positions after the padding's row, and does not count padding, as in RoBERTa.
void OffsetPositions(ObjectReader& root, ModelConfig& config);
// Sets the scores to `classifier.out_proj` after tanh of `classifier.dense`.
void UseClassifierOfTwoLayers(ModelConfig& config);
// The keys of the number of experts and of how many compute a row, and the values of a family's
// class in transformers if they are absent; 0 if they must be present.
struct ExpertKeys {
  const char* count_key = nullptr;  // nullptr for num_local_experts or its other name num_experts
  const char* chosen_key = "num_experts_per_tok";
  int64_t count = 0;
  int64_t chosen = 0;
};

// Reads the numbers and uses experts of intermediate_size in every layer.
void ReadExperts(ObjectReader& object, ModelConfig& config, const ExpertKeys& keys);
// Norms of q and k have weights and the eps of the other norms.
void UseQkNorm(ModelConfig& config, QkNormWeight weight);

// Reads the sizes of a table of relative positions. `distance_key` may be nullptr for the default.
void ReadRelativeBias(ObjectReader& root, const char* buckets_key, const char* distance_key,
                      ModelConfig& config);

// Checks the sizes of disentangled attention, whose span and maximum distance were read from these
// keys of `object`.
void CheckDisentangled(ObjectReader& object, const char* span_key, const char* distance_key,
                       ModelConfig& config);

float ReadEps(ObjectReader& root, const char* key, double fallback);
Activation ReadActivation(ObjectReader& root, const char* key, const char* usual);

// The keys of rotary positions and the defaults of their values.
struct RopeKeys {
  const char* theta_key = "rope_theta";
  double theta = 10000;
  // The share of a head's features that are rotated. It is 1 if the family has no such key;
  // rope_parameters must then state the same.
  const char* part_key = nullptr;
  double part = 1;
  int64_t dims = 0;            // the number of rotated features, if known
  const char* kind = nullptr;  // a scaling of this family only: "ntk" or "dynamic"
  // If not 0, longrope reads original_max_position_embeddings next to rope_scaling only, and this
  // is its default. Otherwise rope_scaling may have it, and max_position_embeddings is the default.
  int64_t trained_positions = 0;
};

// The key of the base of layers with a window, and its default.
struct LocalRopeKeys {
  const char* theta_key;
  double theta = 10000;
  bool scaled = false;  // whether rope_scaling applies to these layers too
};

// Reads Llama's sizes, its activation, norms and rotary positions.
void ReadLlamaLike(ObjectReader& root, ModelConfig& config, const RopeKeys& rope = {},
                   const LlamaDefaults& defaults = {});
// Reads the theta and rope_scaling, or rope_parameters. The latter contains both, or an object with
// both for each type of layers; the type "full_attention" is read.
void ReadRope(ObjectReader& root, ModelConfig& config, const RopeKeys& keys = {});
// Reads the rotary positions of layers with a window: rope_parameters of "sliding_attention", or
// the base and rope_scaling. Requires that ReadRope has read the other layers.
void ReadLocalRope(ObjectReader& root, ModelConfig& config, const LocalRopeKeys& keys);

// Reads the layers with a window from `layer_types`. Without this key, a layer has a window if
// `usual` is true for it.
void ReadLayerTypes(ObjectReader& root, ModelConfig& config,
                    const std::function<bool(int64_t)>& usual);
// The default window of transformers for most families, if the config states none.
inline constexpr int64_t kUsualWindow = 4096;

// Reads the layer types and sliding_window. If sliding_window is null, or absent and `absent` is 0,
// no layer has a window.
void ReadWindows(ObjectReader& root, ModelConfig& config, const std::function<bool(int64_t)>& usual,
                 int64_t absent = kUsualWindow);

// Reads one id or a list of up to `most` ids. Ids that are not in the vocabulary can never occur:
// they are left out with a warning, because configs with a vocabulary of their own often keep the
// ids of their class.
std::vector<int32_t> ReadTokenIds(ObjectReader& root, const std::string& key, size_t most,
                                  ModelConfig& config);

// Adds a warning that names the keys of an object of the file, if there are any. `place` is the
// object's name with a dot, or empty.
void WarnAboutUnknown(const std::vector<std::string>& keys, std::string_view place,
                      ModelConfig& config);

// Requires that `extensions` is the object "sluice" of `root`.
void ReadSluice(ObjectReader& root, ObjectReader& extensions, ModelConfig& config);

}  // namespace sluice
