// RankMixer (arXiv 2507.15551), a ranking model of a fixed number of feature tokens. It exchanges
// blocks between the tokens instead of attention, and has a separate MLP for each token.
#include "engine/model/config_reader.h"
#include "engine/model/families/family.h"

namespace sluice {
namespace {

constexpr Architecture kRankMixerArchitectures[] = {
    {"RankMixerForSequenceClassification", "rank_mixer", OutputKind::kScores},
    {"RankMixerModel", "rank_mixer", OutputKind::kStates},
};

void ReadRankMixer(ObjectReader& root, ModelConfig& config) {
  ReadSizes(root, config,
            {.heads = "num_tokens", .positions = "num_tokens", .intermediate_factor = 4});
  config.mixer = MixerKind::kExchange;
  config.causal = false;
  config.positions = PositionKind::kNone;
  config.norm = {.kind = NormKind::kLayer,
                 .eps = ReadEps(root, "layer_norm_eps", 1e-5),
                 .bias = true,
                 .order = NormOrder::kPost,
                 .final = false};
  config.activation = ReadActivation(root, "hidden_act", "gelu");
  config.gated_mlp = false;
  config.mlp_bias = true;
  PositionWiseConfig& position_wise = config.position_wise;
  for (const Projection p : {Projection::kUp, Projection::kDown}) {
    position_wise.layers[static_cast<int>(p)].assign(config.layers, true);
  }
  position_wise.max_positions = config.max_positions;
  position_wise.bias = PositionWiseBias::kPositionFeature;
  config.serving.pooling = Pooling::kMean;
  config.serving.classifier = {.pooling = Pooling::kMean, .module = "score"};
}

}  // namespace

const ModelFamily kRankMixerFamily = {
    .title = "RankMixer",
    .architectures = kRankMixerArchitectures,
    .names =
        {
            .prefix = "model.",
            .embedding = "embed_tokens",
            .layer = "layers.",
            .projections = {"", "", "", "", "", "ffn.up", "ffn.down"},
            .attention_norm = "mixing_norm",
            .mlp_norm = "ffn_norm",
        },
    .read = ReadRankMixer,
    .takes_extensions = true,
};

}  // namespace sluice
