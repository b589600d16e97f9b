// Compares the families with the config classes of transformers, whose keys and defaults are in
// config_defaults.json (made by tools/make_config_keys.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/model/config.h"
#include "engine/model/families/family.h"
#include "tests/support/temporary_directory.h"

namespace sluice {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The keys of the base class, and the tokens. transformers' default ids of tokens belong to one
// checkpoint of a family, so Sluice has no tokens unless a file names them.
const std::set<std::string> kOfBaseClass = {"transformers_version",
                                            "architectures",
                                            "output_hidden_states",
                                            "return_dict",
                                            "dtype",
                                            "id2label",
                                            "chunk_size_feed_forward",
                                            "is_encoder_decoder",
                                            "label2id",
                                            "problem_type",
                                            "_name_or_path",
                                            "output_attentions",
                                            "model_type",
                                            "bos_token_id",
                                            "eos_token_id",
                                            "pad_token_id"};

// Keys that change no answer: they belong to training, to losses, to heads that Sluice does not
// serve, to the decoder of T5, or state a value that other keys determine.
const std::set<std::string> kWithoutEffect = {"cls_token_id",
                                              "dense_act_fn",
                                              "deterministic_flash_attn",
                                              "eod_token_id",
                                              "init_std",
                                              "initializer_range",
                                              "initializer_cutoff_factor",
                                              "initializer_factor",
                                              "is_gated_act",
                                              "layerdrop",
                                              "mask_token_id",
                                              "num_decoder_layers",
                                              "output_router_logits",
                                              "pretraining_tp",
                                              "reorder_and_upcast_attn",
                                              "router_aux_loss_coef",
                                              "router_jitter_noise",
                                              "scale_decoder_outputs",
                                              "sep_token_id",
                                              "sinusoidal_pos_embds",
                                              "sparse_pred_ignore_index",
                                              "sparse_prediction",
                                              "summary_activation",
                                              "summary_proj_to_labels",
                                              "summary_type",
                                              "summary_use_proj",
                                              "use_cache"};

// Model types without a config class in config_defaults.json.
const std::set<std::string> kWithoutClass = {
    "sluice", "hstu",          "rank_mixer",  // Sluice's own
    "new",    "llama_bidirec",                // code of the hub
    "gemma3", "mistral3",                     // with images; text_config has the keys
};

bool HasNoEffect(const std::string& key) {
  return kWithoutEffect.contains(key) || key.find("dropout") != key.npos || key.ends_with("_pdrop");
}

// Returns the default config of each class, with an architecture of its family.
json Defaults() {
  const json file =
      json::parse(ReadTestFile(SLUICE_SOURCE_DIR "/tests/engine/model/config_defaults.json"));
  json defaults = json::object();
  std::map<std::string, const ModelFamily*> owners;  // the first family of a model type
  for (const ModelFamily* const family : AllFamilies()) {
    for (const Architecture& architecture : family->architectures) {
      const std::string type = architecture.model_type;
      if (kWithoutClass.contains(type)) continue;
      if (!file.contains(type)) {
        ADD_FAILURE() << "config_defaults.json has no class of the model type " << type
                      << ": run tools/make_config_keys.py, or list the type in kWithoutClass if "
                         "transformers has no such class";
        continue;
      }
      if (owners.emplace(type, family).first->second != family) continue;
      defaults[type] = file[type];
      defaults[type]["architectures"] = {architecture.name};
      for (const char* const token : {"bos_token_id", "eos_token_id"}) defaults[type].erase(token);
    }
  }
  return defaults;
}

// Returns the values of a config that keys of the classes determine.
std::string Describe(const ModelConfig& c) {
  return absl::StrJoin(
      std::vector<double>{static_cast<double>(c.kv_heads),
                          static_cast<double>(c.head_dim),
                          c.norm.eps,
                          static_cast<double>(c.norm.bias),
                          c.rope.theta,
                          static_cast<double>(c.rope.dims),
                          c.local_rope ? c.local_rope->theta : 0,
                          static_cast<double>(c.window),
                          static_cast<double>(c.windowed_layers()),
                          static_cast<double>(std::ranges::count(c.unrotated, true)),
                          static_cast<double>(c.activation),
                          static_cast<double>(c.gated_mlp),
                          static_cast<double>(c.qkv_bias),
                          static_cast<double>(c.output_bias),
                          static_cast<double>(c.mlp_bias),
                          static_cast<double>(c.causal),
                          static_cast<double>(c.tie_word_embeddings),
                          c.score_scale,
                          c.score_soft_cap,
                          c.logit_soft_cap,
                          c.logit_scale,
                          c.embedding_scale,
                          static_cast<double>(c.embedding_width),
                          static_cast<double>(c.layer_groups),
                          static_cast<double>(c.token_types),
                          static_cast<double>(c.position_offset),
                          static_cast<double>(c.padding_token),
                          static_cast<double>(c.max_positions),
                          static_cast<double>(c.intermediate_size),
                          static_cast<double>(c.relative_bias.buckets),
                          static_cast<double>(c.relative_bias.max_distance),
                          static_cast<double>(c.disentangled.span),
                          static_cast<double>(c.experts.count),
                          static_cast<double>(c.experts.chosen),
                          static_cast<double>(c.experts.width),
                          static_cast<double>(c.experts.softmax),
                          static_cast<double>(std::ranges::count(c.experts.layers, true)),
                          static_cast<double>(c.disentangled.max_distance),
                          static_cast<double>(c.head_bias),
                          static_cast<double>(c.head_transform_bias),
                          static_cast<double>(c.head_activation),
                          static_cast<double>(c.parallel_blocks),
                          static_cast<double>(c.serving.classifier.pooling)},
      " ");
}

TEST(ConfigDefaultsTest, AnAbsentKeyHasTheDefaultOfItsClassOrIsNamedInAnError) {
  const json defaults = Defaults();
  ASSERT_GE(defaults.size(), 20u);
  for (const auto& [type, values] : defaults.items()) {
    const auto expected = ParseModelConfig(values.dump());
    ASSERT_TRUE(expected.ok()) << type << ": " << expected.status();
    EXPECT_THAT(expected->warnings, IsEmpty()) << type;
    for (const auto& [key, value] : values.items()) {
      if (kOfBaseClass.contains(key)) continue;
      json without = values;
      without.erase(key);
      const auto config = ParseModelConfig(without.dump());
      if (config.ok()) {
        EXPECT_EQ(Describe(*config), Describe(*expected)) << type << " without " << key;
      } else {
        EXPECT_EQ(std::string(config.status().message()), key + " is missing") << type;
      }
    }
  }
}

TEST(ConfigDefaultsTest, AWrongValueOfAKeyIsAnErrorUnlessTheKeyHasNoEffect) {
  const json every = Defaults();
  for (const auto& [type, defaults] : every.items()) {
    json values = defaults;
    // These switch on the keys that are read only with them.
    values.erase("no_rope_layers");
    if (type.starts_with("qwen")) values["use_sliding_window"] = true;
    for (const auto& [key, value] : values.items()) {
      if (kOfBaseClass.contains(key) || HasNoEffect(key)) continue;
      // The encoder of T5 has no head, and only longrope needs the length in training.
      if (type == "t5" && (key == "tie_word_embeddings" || key == "is_decoder")) continue;
      if (key == "original_max_position_embeddings") continue;
      json wrong = values;
      wrong[key] = "no such value";
      const auto config = ParseModelConfig(wrong.dump());
      EXPECT_FALSE(config.ok()) << type << " accepts any " << key;
      EXPECT_THAT(std::string(config.status().message()), HasSubstr(key)) << type;
    }
  }
}

}  // namespace
}  // namespace sluice
