// The places of a step's data in the arena of a slot on the device, and the arrays that the host
// sends for it. Captured graphs hold these addresses, and no size of a step.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/bucket.h"
#include "engine/model/model.h"
#include "engine/step_batch.h"
#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/matrix_tables.h"
#include "kernels/row_group.h"

namespace sluice {

// The number of rows of a step and the lengths of its tile lists, on the device.
struct StepCounts {
  int32_t rows;
  int32_t dense_tiles;
  int32_t group_tiles;
  int32_t adapter_tiles;
  int32_t adapter_rank;       // at least 1 and the rank of each op of the step's adapters
  int32_t wants_diagnostics;  // of XSA, if not 0
  int32_t page_copies;
  kernels::cuda::AttentionTileCounts attention_tiles;
  int32_t attention_taken;  // see AttentionTiles
};

// Byte offsets, multiples of 256.
struct StepLayout {
  // Per graph buffer: [rows, width], or columns of another one. The graph's output is at 0. The
  // logits of routers are float.
  std::vector<int64_t> buffers;

  int64_t input;  // the first of the arrays that the host sends, which end with `pages`
  int64_t input_bytes;
  int64_t counts;         // StepCounts
  int64_t token_ids;      // [tokens]
  int64_t types;          // [tokens]; absent in models without types
  int64_t positions;      // [tokens]
  int64_t kv_slots;       // [tokens]
  int64_t sequence_rows;  // [tokens]
  int64_t sequences;      // [sequences]
  int64_t page_copies;    // [sequences]
  // The tiles of dense layers (all rows in one group), of position-wise layers and of attention.
  int64_t dense_tiles;      // [max_dense_tiles]
  int64_t group_tiles;      // [max_group_tiles]
  int64_t attention_tiles;  // [max_attention_tiles]
  // The tiles of rows with an adapter, and the tables of the step's adapters; absent in models that
  // take no adapters.
  int64_t adapter_tiles;   // [max_adapter_tiles]
  int64_t adapter_tables;  // [sequences]
  int64_t inputs;          // [tokens, the model's input_width], float
  int64_t pages;           // [sequences, pages of max_positions]; sent as far as used

  int32_t max_dense_tiles;
  int32_t max_group_tiles;
  int32_t max_adapter_tiles;
  int32_t max_attention_tiles;
  int32_t experts;  // of a layer, and the experts that a row chooses
  int32_t chosen;
  kernels::cuda::AttentionSizes attention;

  int64_t cos_sim;    // [layers, tokens, heads]; absent without XSA
  int64_t proj_frac;  // as cos_sim
  int64_t attention_scratch;
  int64_t routes;      // see kernels::cuda::Routes; absent without experts
  int64_t quantized;   // [tokens, the traits' quantized_width], int8
  int64_t row_scales;  // [tokens, the rows of each], float; of the quantised rows
  // [Int8Sums(tokens, the traits' int8_width)], int32; the library's sums of quantised rows
  int64_t int8_sums;
  int64_t adapted;    // [tokens, the traits' adapted_width]; products of adapters' matrices A
  int64_t workspace;  // of the products; of one size in all buckets
  int64_t bytes;      // the total; grows with the bucket
};

// Properties other than the model and the bucket that determine the layout of a step.
struct StepTraits {
  int64_t element_bytes;
  int64_t workspace_bytes;
  int32_t processors;           // of the device
  int64_t quantized_width = 0;  // the most values of a token that are quantised; 0 if none are
  int64_t int8_width = 0;       // of the widest layer in int8 of the library; 0 if there is none
  int64_t adapted_width = 0;    // the largest rank of an op of an adapter; 0 without adapters
};

// Lays out a step of `bucket` with the buffers of `graph`, of `rows` >= bucket.tokens rows.
StepLayout LayOutStep(const ModelConfig& config, const Graph& graph, const Bucket& bucket,
                      int64_t rows, const StepTraits& traits);

// Writes the arrays of the step to `input` [layout.input_bytes].
void WriteInput(const StepBatch& batch, const StepLayout& layout, char* input);

}  // namespace sluice
