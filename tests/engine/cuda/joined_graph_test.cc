#include "engine/cuda/joined_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <variant>
#include <vector>

#include "engine/model/families/family.h"
#include "tests/support/checkpoint_writer.h"
#include "tests/support/table.h"

namespace sluice::testing {
namespace {

ModelConfig With(void (*change)(ModelConfig&), bool fused = false) {
  ModelConfig config = TinySluiceConfig(2);
  config.gated_mlp = true;
  if (fused) config.family = &kGpt2Family;
  change(config);
  return config;
}

struct JoinRow {
  const char* name;
  ModelConfig config;
  bool gates = true;
  size_t qkv = 2, gate_up = 2;  // joined layers of two layers of the model
};
class JoinTable : public TableTest<JoinRow> {};

// Returns the number of layers with `parts` parts.
size_t Joined(const Graph& graph, size_t parts) {
  return std::count_if(graph.ops.begin(), graph.ops.end(), [parts](const GraphOp& op) {
    const auto* const linear = std::get_if<LinearOp>(&op);
    return linear != nullptr && linear->more.size() + 1 == parts;
  });
}

TEST_P(JoinTable, JoinsLayersThatReadTheSameRows) {
  const Graph before = BuildGraph(row().config);
  const Graph after = JoinProjections(before, row().gates);
  EXPECT_EQ(Joined(after, 3), row().qkv);
  EXPECT_EQ(Joined(after, 2), row().gate_up);
  EXPECT_EQ(after.ops.size(), before.ops.size() - 2 * row().qkv - row().gate_up);
  EXPECT_EQ(after.output, before.output);
  for (size_t i = 0; i < after.buffers.size(); ++i) {
    const GraphBuffer& buffer = after.buffers[i];
    if (i < before.buffers.size()) {
      EXPECT_EQ(buffer.width, before.buffers[i].width);
    }
    if (buffer.within == kNoBuffer) continue;
    EXPECT_LE(buffer.first + buffer.width, after.buffers[buffer.within].width);
    EXPECT_EQ(buffer.first % 8, 0);
  }
  for (const GraphOp& op : after.ops) {
    const auto* const linear = std::get_if<LinearOp>(&op);
    if (linear == nullptr) continue;
    EXPECT_EQ(after.buffers[linear->in].within, kNoBuffer) << "layers read contiguous rows";
    EXPECT_EQ(after.buffers[linear->out].within, kNoBuffer) << "and write them";
  }
}

const JoinRow kJoinRows[] = {
    {.name = "AGatedModel", .config = With([](ModelConfig&) {})},
    {.name = "GatesOnlyForALibrary",
     .config = With([](ModelConfig&) {}),
     .gates = false,
     .gate_up = 0},
    {.name = "AnMlpWithoutGates",
     .config = With([](ModelConfig& config) { config.gated_mlp = false; }),
     .gate_up = 0},
    {.name = "Biases", .config = With([](ModelConfig& config) { config.qkv_bias = true; })},
    {.name = "OneTensorOfQKAndV",
     .config = With([](ModelConfig& config) { config.gated_mlp = false; }, /*fused=*/true),
     .gate_up = 0},
    {.name = "APositionWiseLayerKeepsAllOfItsKindApart",
     .config = With([](ModelConfig& config) {
       config.position_wise.layers[static_cast<int>(Projection::kV)][1] = true;
       config.position_wise.max_positions = config.max_positions;
     }),
     .qkv = 0},
    {.name = "APositionWiseGate",
     .config = With([](ModelConfig& config) {
       config.position_wise.layers[static_cast<int>(Projection::kGate)][0] = true;
       config.position_wise.max_positions = config.max_positions;
     }),
     .gate_up = 0},
    {.name = "QueriesOfOtherRows",
     .config = With([](ModelConfig& config) { config.norm.order = NormOrder::kQuery; }),
     .qkv = 0},
    {.name = "ColumnsThatWouldNotBeAligned",
     .config = With([](ModelConfig& config) {
       config.head_dim = 6;
       config.intermediate_size = 44;
     }),
     .qkv = 0,
     .gate_up = 0},
    {.name = "NormsAndGainsOfHeads", .config = With([](ModelConfig& config) {
                                       config.qk_norm = true;
                                       config.query_gain = true;
                                     })},
    {.name = "NormsOverAllHeadsThatAreTooWideToBeColumns",
     .config = With([](ModelConfig& config) {
       config.head_dim = 80;
       config.qk_norm = true;
       config.qk_norm_weight = QkNormWeight::kAll;
     }),
     .qkv = 0},
};
SLUICE_TABLE(JoinTable, kJoinRows);

}  // namespace
}  // namespace sluice::testing
