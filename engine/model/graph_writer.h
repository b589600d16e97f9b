// Appends ops to a graph with the names and layouts of a family's checkpoints. It contains the ops
// of a module; BuildGraph contains their order.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "engine/model/config.h"
#include "engine/model/graph.h"
#include "engine/model/tensor_names.h"

namespace sluice {

class GraphWriter {
 protected:
  // The place of a matrix in a tensor of `all` outputs: `run` outputs from `first` on, repeated
  // every `stride` outputs if `stride` is not 0, in the order of TensorPart::evens_first.
  struct Outputs {
    int64_t all, first;
    int64_t run = 0, stride = 0, evens_first = 0;
  };

  // The config outlives the writer.
  GraphWriter(const ModelConfig& config, const TensorSpelling& spelling);

  // `rows` is the number of rows of each token.
  BufferId AddBuffer(std::string name, int64_t width, int64_t rows = 1);
  int64_t Width(BufferId id) const { return graph_.buffers[id].width; }
  std::string LayerPrefix(int32_t layer) const;
  // Returns the table of a module, with `rows` rows as wide as the embedding.
  TensorPart Table(const char* module, int64_t rows, int64_t first_row = 0) const;

  template <typename Op>
  void Add(Op op) {
    graph_.ops.emplace_back(std::move(op));
  }

  // Adds a norm of rows as wide as the buffers.
  void Norm(BufferId in, BufferId out, const std::string& module, float scale = 1);
  // Returns a norm of each `width` values; the modules are empty for one without weights or bias.
  NormOp NormOf(NormKind kind, BufferId in, BufferId out, const std::string& module,
                const std::string& bias_module, float eps, int64_t width, float scale) const;
  // Adds out += b * weight; the weight may be missing.
  void AddScaled(BufferId out, BufferId b, TensorPart weight);
  void Copy(BufferId from, BufferId to);

  // Returns a dense layer from k to n features without buffers.
  LinearOp DenseOf(int64_t k, int64_t n, const std::string& module, bool bias) const;
  void Dense(BufferId in, BufferId out, const std::string& module, bool bias, bool accumulate);
  void PositionWise(BufferId in, BufferId out, const std::string& module, bool accumulate);
  // Adds a projection of the experts of a layer: gate, up or down.
  void Expert(int32_t layer, Projection projection, BufferId in, BufferId out);
  // Adds a dense layer whose matrix is a part of a tensor.
  void Fused(BufferId in, BufferId out, const std::string& module, const Outputs& outputs,
             bool bias);
  // Adds a projection of a layer; the config determines whether it is dense or position-wise.
  void Project(int32_t layer, Projection projection, BufferId in, BufferId out, bool bias,
               bool accumulate = false);

  const ModelConfig& config_;
  const TensorNames& names_;
  const TensorSpelling spelling_;
  const std::string prefix_;
  Graph graph_;
};

}  // namespace sluice
